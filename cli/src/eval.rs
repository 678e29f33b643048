//! `gradwire eval`: a whole evaluation from one command, and the report of it.
//!
//! Here are `eval dlcp` and `eval rivals`, in `taxonomy` the map.
//!
//! Not here: tables, plans and their evaluation (`gradwire_lab::eval`).

pub mod options;
mod taxonomy;

use std::path::Path;

use gradwire_lab::error::LabError;
use gradwire_lab::eval::Evaluation;
use gradwire_lab::eval::report::EvalReport;
use gradwire_lab::eval::request::Suite;
use gradwire_report::printing::OutputForm;

use crate::exit::CommandError;
use options::{EvalCommand, EvalTables};

/// Missing things that a message names at most.
const NAMED_MOST: usize = 3;

/// Runs the command.
///
/// # Errors
/// [`CommandError`] when something cannot be started or written; at the end, when cells have
/// failed.
pub fn run(command: &EvalCommand) -> Result<(), CommandError> {
    match command {
        EvalCommand::Dlcp(options) => run_tables(Suite::Dlcp, options),
        EvalCommand::Rivals(options) => run_tables(Suite::Rivals, options),
        EvalCommand::Taxonomy(options) => taxonomy::run(options),
    }
}

fn run_tables(suite: Suite, options: &EvalTables) -> Result<(), CommandError> {
    let mut evaluation = Evaluation::new(suite, &options.request)?;
    if options.list {
        print!("{}", evaluation.list(options.json.into()));
        eprintln!("{}", evaluation.outlook());
        return Ok(());
    }
    let report = evaluation.run()?;
    tell(&report, options, &evaluation.path("report.html"));
    verdict(&report)
}

fn tell(report: &EvalReport, options: &EvalTables, page: &Path) {
    let text = || {
        let goals = report
            .sections
            .iter()
            .flat_map(|section| &section.outcome.found.goals);
        let goals = goals.map(|goal| format!("{:<7} {}: {}\n", goal.state, goal.what, goal.found));
        format!(
            "{}{}\n{}",
            goals.collect::<String>(),
            report.cost.told(),
            page.display()
        )
    };
    OutputForm::from(options.json).print(text, || report);
}

/// The failure that an evaluation is in which something is missing.
fn verdict(report: &EvalReport) -> Result<(), CommandError> {
    let missing: Vec<&str> = report.missing().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let named = missing[..missing.len().min(NAMED_MOST)].join("; ");
    let more = match missing.len().saturating_sub(NAMED_MOST) {
        0 => String::new(),
        more => format!("; and {more} more, see the report"),
    };
    Err(LabError::Check(format!("the report lacks {named}{more}")).into())
}

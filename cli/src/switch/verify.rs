//! `gradwire switch verify`: commands to look at a switch with, and a judgement of its counters.

use std::path::Path;

use gradwire_switch_config::counters::{self, CounterVerdict, QueueCount};
use gradwire_switch_config::plan::Plan;
use serde_json::json;

use super::options::Verify;
use super::site::PlanOrigin;
use super::tell;
use crate::exit::CommandError;
use gradwire_lab::error::LabError;
use gradwire_lab::files;

/// Runs the command.
///
/// # Errors
/// [`LabError::Check`] when counters are against the plan; others name the file and the values
/// that are allowed.
pub fn run(options: &Verify) -> Result<(), CommandError> {
    let origin = PlanOrigin::load(&options.plan)?;
    let plan = origin.plan()?;
    let Some(path) = &options.counters else {
        let [procedure, looks] = [origin.dialect.procedure(&plan), origin.dialect.looks(&plan)];
        match options.plan.json {
            true => println!("{}", json!({"procedure": procedure, "looks": looks})),
            false => {
                println!("Load, try and go back:");
                tell::list(&procedure, tell::PrintStream::Output);
                println!("\nLook at:");
                tell::list(&looks, tell::PrintStream::Output);
            }
        }
        return Ok(());
    };
    let after = counts(&origin, &plan, path)?;
    let counts = match &options.since {
        Some(before) => counters::since(&counts(&origin, &plan, before)?, &after),
        None => after,
    };
    let judgements = counters::judge(&plan, &counts);
    match options.plan.json {
        true => println!("{}", json!(judgements)),
        false => judgements
            .iter()
            .for_each(|judgement| println!("{judgement}")),
    }
    let wrong = judgements.iter();
    let wrong = wrong.filter(|judgement| judgement.verdict == CounterVerdict::Wrong);
    match wrong.count() {
        0 => Ok(()),
        count => Err(LabError::Check(format!(
            "{}: {count} of {} queues are against the plan",
            path.display(),
            judgements.len()
        ))
        .into()),
    }
}

fn counts(origin: &PlanOrigin<'_>, plan: &Plan, path: &Path) -> Result<Vec<QueueCount>, LabError> {
    let counts = origin.dialect.counters(plan, &files::text(path)?);
    counts.map_err(|error| tell::unreadable(path, &error))
}

//! `gradwire eval taxonomy`: prints the map, or a list of its cells.

use gradwire_lab::error::LabError;
use gradwire_lab::eval::taxonomy::cells::TrainingCell;
use gradwire_lab::eval::taxonomy::outcome::TaxonomyReport;
use gradwire_lab::eval::taxonomy::{self, TaxonomyRequest, sheet, systems};
use gradwire_report::printing::OutputForm;
use serde_json::{Value, json};

use super::options::Taxonomy;
use crate::exit::CommandError;

/// Runs the command.
///
/// # Errors
/// [`CommandError`] when the report cannot be written; at the end, when cells have failed.
pub(super) fn run(options: &Taxonomy) -> Result<(), CommandError> {
    let form = OutputForm::from(options.json);
    if options.list {
        for cell in TrainingCell::all() {
            form.print(
                || line(cell, &options.request),
                || listed(cell, &options.request),
            );
        }
        return Ok(());
    }
    let report = taxonomy::run(&options.request)?;
    let page = options.request.out.join("report.html");
    let text = || format!("{}{}", sheet::text(&report), page.display());
    form.print(text, || &report);
    verdict(&report)
}

fn line(cell: TrainingCell, request: &TaxonomyRequest) -> String {
    let name = cell.name();
    match (cell.legality(), request.command(cell)) {
        (Ok(()), Some(command)) => format!("{name:<54}{command}"),
        (Err(reason), _) => format!("{name:<54}no: {reason}"),
        (Ok(()), None) => name,
    }
}

fn listed(cell: TrainingCell, request: &TaxonomyRequest) -> Value {
    json!({
        "name": cell.name(),
        "illegal": cell.legality().err(),
        "command": request.command(cell),
        "systems": cell.legality().map_or(&[][..], |()| systems::systems(cell)),
    })
}

fn verdict(report: &TaxonomyReport) -> Result<(), CommandError> {
    let failures = report
        .failures()
        .map(|(name, failure)| format!("{name}: {failure}"));
    let failures: Vec<String> = failures.collect();
    match failures.first() {
        None => Ok(()),
        Some(first) => {
            let count = failures.len();
            Err(LabError::Check(format!("{count} cells failed, first {first}")).into())
        }
    }
}

//! `gradwire trace`: the flight recorders of a job's ranks side by side: who waits for whom.
//!
//! [`files`] reads the traces, [`report`] compares them, [`page`] is the comparison as text.
//! `gradwire_runtime::trace` decides the content of a trace.

pub mod files;
pub mod options;
pub mod page;
pub mod report;

use gradwire_report::printing::OutputForm;

use crate::exit::CommandError;
#[cfg(doc)]
use gradwire_lab::error::LabError;
use options::TraceShow;
use report::TraceReport;

/// `gradwire trace show`.
///
/// # Errors
/// [`LabError::Read`] and [`LabError::Input`] name the file that cannot be used and why.
pub fn show(options: &TraceShow) -> Result<(), CommandError> {
    let dumps = files::read(&options.files)?;
    let report = TraceReport::of(&dumps, usize::from(options.longest));
    OutputForm::from(options.json).print(|| page::text(&report), || &report);
    Ok(())
}

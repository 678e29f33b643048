//! `gradwire trace`: flight recorders side by side (who waits for whom), and event files (where the
//! time of a step goes).
//!
//! - `trace show`: [`page`] is the comparison of flight recorders as text.
//! - [`align`], [`replay`], [`search`]: one command each, over the events of a run.
//!
//! Not here: reading and comparing recorders and events (`gradwire_lab::trace`), their content
//! (`gradwire_runtime::trace`), clocks, replays and searches (`gradwire_trace`).

pub mod align;
pub mod options;
pub mod page;
pub mod replay;
pub mod search;

use gradwire_lab::trace::recorders;
use gradwire_lab::trace::standings::TraceReport;
use gradwire_report::printing::OutputForm;

use crate::exit::CommandError;
#[cfg(doc)]
use gradwire_lab::error::LabError;
use options::{TraceCommand, TraceShow};

/// Runs one of the commands.
///
/// # Errors
/// [`CommandError`] names the file that cannot be used and why.
pub fn run(command: &TraceCommand) -> Result<(), CommandError> {
    match command {
        TraceCommand::Show(options) => show(options),
        TraceCommand::Align(options) => align::run(options),
        TraceCommand::Replay(options) => replay::run(options),
        TraceCommand::Search(options) => search::run(options),
    }
}

/// `gradwire trace show`.
///
/// # Errors
/// [`LabError::Read`] and [`LabError::Input`] name the file that cannot be used and why.
pub fn show(options: &TraceShow) -> Result<(), CommandError> {
    let dumps = recorders::read(&options.files)?;
    let report = TraceReport::of(&dumps, usize::from(options.longest));
    OutputForm::from(options.json).print(|| page::text(&report), || &report);
    Ok(())
}

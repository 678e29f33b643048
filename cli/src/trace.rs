//! `gradwire trace`: flight recorders side by side (who waits for whom), and event files (where the
//! time of a step goes).
//!
//! - `trace show`: [`files`] reads the flight recorders, [`report`] compares them, [`page`] is the
//!   comparison as text. `gradwire_runtime::trace` decides their content.
//! - [`align`], [`replay`], [`search`]: one command each, over the events that [`events`] reads.
//!   [`drawing`]: the picture of a replay. `gradwire_trace` decides about all of them.

pub mod align;
pub mod drawing;
pub mod events;
pub mod files;
pub mod options;
pub mod page;
pub mod replay;
pub mod report;
pub mod search;

use gradwire_report::printing::OutputForm;

use crate::exit::CommandError;
#[cfg(doc)]
use gradwire_lab::error::LabError;
use options::{TraceCommand, TraceShow};
use report::TraceReport;

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
    let dumps = files::read(&options.files)?;
    let report = TraceReport::of(&dumps, usize::from(options.longest));
    OutputForm::from(options.json).print(|| page::text(&report), || &report);
    Ok(())
}

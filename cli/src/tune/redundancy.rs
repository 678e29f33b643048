//! `gradwire tune redundancy`: what a code over parameter servers costs.

pub mod options;

use gradwire_lab::tune::redundancy;
use gradwire_report::printing::OutputForm;

use crate::exit::CommandError;
use options::TuneRedundancyOptions;

/// Computes, measures and prints.
///
/// # Errors
/// [`CommandError`] when the numbers contradict each other.
pub fn run(options: &TuneRedundancyOptions) -> Result<(), CommandError> {
    let report = redundancy::run(&options.question)?;
    OutputForm::from(options.json).print(|| report.text(), || &report);
    Ok(())
}

//! `gradwire tune schedule`: chunk and credit of a job, found by simulated training steps.

pub mod options;

use gradwire_lab::job_file::document;
use gradwire_lab::tune::schedule::{self, ScheduleQuestion};
use gradwire_report::printing::OutputForm;

use crate::exit::CommandError;
use crate::sim::options::scenario;
use options::ScheduleOptions;

/// Finds chunk and credit, prints them, and writes them where that is asked for.
///
/// # Errors
/// [`CommandError`] when the scenario is wrong or has no training steps, when one of its runs does
/// not end, or when a file cannot be written.
pub fn run(options: &ScheduleOptions) -> Result<(), CommandError> {
    let scenario = scenario(&options.question.scenario);
    let question = ScheduleQuestion {
        scenario,
        ..options.question.clone()
    };
    if let Some(path) = &options.write {
        // A job file that cannot be written is reported before the search.
        document::read(path)?;
    }
    let report = schedule::run(&question)?;
    let form = OutputForm::from(options.json);
    form.print(|| report.text(), || &report);
    if let Some(path) = &options.write {
        report.write(path)?;
        form.remark(format_args!("# written to {}", path.display()));
    }
    Ok(())
}

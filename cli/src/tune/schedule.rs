//! `gradwire tune schedule`: chunk and credit of a job, found by simulated training steps.

pub mod options;

use gradwire_lab::job_file::document;
use gradwire_lab::tune::schedule;
use gradwire_report::json;

use crate::exit::CommandError;
use options::ScheduleOptions;

/// Finds chunk and credit, prints them, and writes them where that is asked for.
///
/// # Errors
/// [`CommandError`] when the scenario is wrong or has no training steps, when one of its runs does
/// not end, or when a file cannot be written.
pub fn run(options: &ScheduleOptions) -> Result<(), CommandError> {
    let question = options.question();
    if let Some(path) = &options.write {
        // A job file that cannot be written is reported before the search.
        document::read(path)?;
    }
    let report = schedule::run(&question)?;
    if options.json {
        println!("{}", json::line(&report));
    } else {
        print!("{}", report.text());
    }
    if let Some(path) = &options.write {
        report.write(path)?;
        if !options.json {
            println!("# written to {}", path.display());
        }
    }
    Ok(())
}

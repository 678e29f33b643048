//! Why an experiment failed.

use std::fmt::Display;
use std::path::PathBuf;

use gradwire_protocol::job::JobError;
use gradwire_runtime::aggregator::AggregatorError;
use gradwire_runtime::{EndError, OpenError, RankJoinError};

/// Why an experiment failed, in one line.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The request makes no sense.
    #[error("{0}")]
    Usage(String),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The job is wrong.
    #[error("{}: {source}", path.display())]
    Job {
        /// The file.
        path: PathBuf,
        /// The mistake.
        source: Box<JobError>,
    },
    /// The options change the job into one that contradicts itself.
    #[error("the job with these options: {0}")]
    Options(Box<JobError>),
    /// A fabric or a workload is wrong.
    #[error("{given}: {message}")]
    Input {
        /// The file, or the one-line form.
        given: String,
        /// The mistake, with its line where there is one.
        message: String,
    },
    /// A simulation ended before everything that it carried.
    #[error(
        "{transport}: {} have not ended at {at_us:.3} simulated us: {remedy}",
        unfinished(*flows, *tasks)
    )]
    Unfinished {
        /// The transport.
        transport: String,
        /// Flows that did not end, of how many.
        flows: (usize, usize),
        /// Tasks that did not end, of how many.
        tasks: (usize, usize),
        /// Simulated time at the end, in microseconds.
        at_us: f64,
        /// The cause, and the remedy.
        remedy: &'static str,
    },
    /// An aggregator could not be opened, or has failed.
    #[error(transparent)]
    Aggregator(#[from] AggregatorError),
    /// The rank could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The ranks could not form a job.
    #[error(transparent)]
    Join(#[from] RankJoinError),
    /// An operation failed.
    #[error(transparent)]
    Operation(#[from] EndError),
    /// A result was wrong.
    #[error("check failed: {0}")]
    Check(String),
    /// One of the started processes has failed, so the others were ended.
    #[error("{who}: {message}")]
    Process {
        /// Which one.
        who: String,
        /// Its own words, or how it ended.
        message: String,
        /// The exit code that it told, if it told one.
        code: Option<u8>,
    },
    /// A program or a right that an experiment needs is missing.
    #[error("{who}: {message}")]
    Missing {
        /// The option or command that needs it.
        who: String,
        /// The program or file that is missing, and how to get it.
        message: String,
    },
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// The attempt.
        what: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl LabError {
    /// The failure of an attempt that the system refused.
    pub fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        |source| Self::System {
            what: what.into(),
            source,
        }
    }

    /// The mistake in a file, or in a one-line form.
    pub fn input(given: impl Display, message: impl Display) -> Self {
        Self::Input {
            given: given.to_string(),
            message: message.to_string(),
        }
    }
}

fn unfinished(flows: (usize, usize), tasks: (usize, usize)) -> String {
    let parts = [(flows, "flows"), (tasks, "tasks")].into_iter();
    let parts = parts.filter(|((missing, _), _)| *missing > 0);
    let parts = parts.map(|((missing, total), what)| format!("{missing} of {total} {what}"));
    parts.collect::<Vec<_>>().join(" and ")
}

//! Exit codes as a documented type, and the errors that lead to them.

use std::process::ExitCode;

use gradwire_lab::error::LabError;
use gradwire_runtime::aggregator::AggregatorError;
use gradwire_runtime::metrics::PORTS;

/// How a command ends; the number is the exit code of the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Exit {
    /// Everything was done.
    Ok = 0,
    /// Everything ran, but a result was wrong, a simulation did not end, or host or path have a
    /// problem.
    CheckFailed = 1,
    /// The command line or a file that it names is wrong; no work was started.
    Usage = 2,
    /// The ranks could not form a job: wrong token, different jobs, somebody missing.
    NotJoined = 3,
    /// A rank was lost, or an operation took too long.
    PeerLost = 4,
    /// The system refused something: a port in use, an address of another host, a process; or no
    /// rank answers `top`.
    Refused = 5,
    /// The reader of the output has gone, as behind `| head`: the code that shells report for a
    /// program ended by SIGPIPE.
    Unread = 141,
}

/// The table of exit codes for the help text.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  a check failed: a wrong result, a problem of host or path, unfinished flows, a broken promise
  2  the command line is wrong, or a file that it names
  3  the ranks could not join: wrong token, different jobs, a rank missing
  4  a rank was lost or an operation timed out
  5  the system refused something, for example a port in use, or no rank answers top
  141  the reader of the output has gone: a closed pipe";

impl Exit {
    /// The exit with this code; unknown codes count as a lost rank, since the process of a rank
    /// that ends in any other way was killed or crashed.
    pub fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Ok,
            1 => Self::CheckFailed,
            2 => Self::Usage,
            3 => Self::NotJoined,
            5 => Self::Refused,
            _ => Self::PeerLost,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed, in one line.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// An experiment or an operation failed.
    #[error(transparent)]
    Lab(LabError),
    /// The doctor found a problem that keeps a job from working, or from half of its speed.
    #[error("{0} found; each is followed by the command that mends it")]
    Problems(String),
    /// No plan of a model fits the memory of a device; how much the smallest one takes.
    #[error("{0}")]
    NothingFits(String),
    /// No rank serves metrics at these hosts and ports.
    #[error(
        "no rank answers at {hosts}, ports {port} to {}: write port = {port} under [metrics] in \
         the job.toml of all ranks, and bind = \"any\" to watch other hosts, or give --port and \
         --host",
        port.saturating_add(PORTS - 1)
    )]
    NoRank {
        /// The hosts, with commas.
        hosts: String,
        /// The first port.
        port: u16,
    },
}

impl<E: Into<LabError>> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self::Lab(error.into())
    }
}

impl CommandError {
    /// The exit code for this failure.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::NoRank { .. } => Exit::Refused,
            Self::Problems(_) | Self::NothingFits(_) => Exit::CheckFailed,
            Self::Lab(error) => of_lab(error),
        }
    }
}

fn of_lab(error: &LabError) -> Exit {
    match error {
        LabError::Usage(_) | LabError::Read { .. } | LabError::Job { .. } => Exit::Usage,
        LabError::Options(_) | LabError::Input { .. } => Exit::Usage,
        LabError::Unfinished { .. } | LabError::Check(_) => Exit::CheckFailed,
        LabError::Open(error) if error.is_usage() => Exit::Usage,
        LabError::Aggregator(AggregatorError::NoToken) => Exit::Usage,
        LabError::Aggregator(_) => Exit::Refused,
        LabError::Open(_) | LabError::Missing { .. } | LabError::System { .. } => Exit::Refused,
        LabError::Join(_) => Exit::NotJoined,
        LabError::Operation(_) => Exit::PeerLost,
        LabError::Process { code, .. } => code.map_or(Exit::PeerLost, Exit::from_code),
    }
}

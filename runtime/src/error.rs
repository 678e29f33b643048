//! Errors of opening a rank, of joining a job, and of operations.

use std::path::PathBuf;

use gradwire_collectives::operation::{OperationError, SubmitError};
use gradwire_protocol::units::Rank;
use gradwire_transport::control;
use gradwire_transport::shm::ShareError;
use gradwire_transport::wires;

use crate::trace::FlightRecorder;

/// Errors of opening a rank.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The rank does not exist.
    #[error(
        "rank {rank} of world size {world_size} does not exist: ranks go from 0 to world size - 1, \
         and the world size from 1 to 65535"
    )]
    NoSuchRank {
        /// The rank, as given.
        rank: Rank,
        /// World size, as given.
        world_size: u16,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Certificates(#[from] control::CertificateError),
    /// The data sockets could not be opened or set up for the job.
    #[error(transparent)]
    Wires(#[from] wires::WiresError),
    /// Rank 0 cannot listen for the others.
    #[error(transparent)]
    Listen(#[from] control::BindError),
    /// The system does not report the MTU.
    #[error("the MTU is not known ({0}): set `mtu` in [transport] of the job")]
    Mtu(std::io::Error),
}

impl OpenError {
    /// Whether the caller's request was invalid; otherwise the system refused it.
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::NoSuchRank { .. } | Self::Certificates(_))
    }
}

/// Errors of joining a job.
#[derive(Debug, thiserror::Error)]
pub enum RankJoinError {
    /// The rendezvous is not an address.
    #[error("rendezvous {given:?} is no address ({reason}): it is \"host:port\" of rank 0")]
    Rendezvous {
        /// The given text.
        given: String,
        /// The fault.
        reason: String,
    },
    /// The ranks do not form a job.
    #[error(transparent)]
    Control(#[from] control::JoinError),
    /// Memory could not be shared with the ranks of this host.
    #[error(transparent)]
    Memory(#[from] ShareError),
    /// The job wants all packets to go through memory, and some ranks share none.
    #[error(
        "transport.wire = \"shm\", but of {world_size} ranks only {shared} share memory with this \
         one: all must run on one host, as one user, with the same /dev/shm; \"auto\" uses memory \
         where it can"
    )]
    NoMemory {
        /// Number of ranks that share memory with this one, itself included.
        shared: usize,
        /// Ranks of the job.
        world_size: usize,
    },
    /// The driver thread could not start.
    #[error("the driver thread cannot start: {0}")]
    Driver(std::io::Error),
    /// The other ranks joined but did not get ready.
    #[error("the ranks joined but not all got ready: {0}")]
    NotReady(#[from] control::BarrierError),
}

/// Reasons why an operation did not succeed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EndError {
    /// It was not started.
    #[error(transparent)]
    Refused(SubmitError),
    /// It failed while it ran.
    #[error("{error}{}", kept_in(trace))]
    Failed {
        /// The reason.
        error: OperationError,
        /// The file with the flight recorder's content at that moment, if it was written.
        trace: Option<PathBuf>,
    },
    /// The driver thread has ended.
    #[error("this rank was closed, or its driver thread failed, before the operation ended")]
    Closed,
}

impl EndError {
    /// Adds the file of the recorder, if one is written; waits for that.
    pub(crate) fn traced(self, recorder: &FlightRecorder) -> Self {
        match self {
            Self::Failed { error, .. } => Self::Failed {
                error,
                trace: recorder.keep(),
            },
            other => other,
        }
    }
}

fn kept_in(trace: &Option<PathBuf>) -> String {
    trace.as_ref().map_or_else(String::new, |path| {
        format!(" (trace of this rank: {})", path.display())
    })
}

//! Why a rank does not open, does not join, or an operation does not succeed.

use std::path::PathBuf;

use gradwire_collectives::holes::TensorShape;
use gradwire_collectives::operation::{OperationError, SubmitError};
use gradwire_protocol::units::Rank;
use gradwire_transport::control;
use gradwire_transport::shm::{MemoryShortage, ShareError};
use gradwire_transport::wires;

use crate::trace::FlightRecorder;

/// Why a rank could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such rank.
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
    /// The data sockets could not be opened, or cannot be used as the job requires.
    #[error(transparent)]
    Wires(#[from] wires::WiresError),
    /// The job demands shared memory, and this host has none.
    #[error(transparent)]
    Memory(#[from] ShareError),
    /// Rank 0 cannot listen for the others.
    #[error(transparent)]
    Listen(#[from] control::BindError),
    /// The system does not report the MTU.
    #[error("the MTU is not known ({0}): set `mtu` in [transport] of the job")]
    Mtu(std::io::Error),
}

impl OpenError {
    /// Whether the caller made a mistake, as opposed to the system refusing.
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::NoSuchRank { .. } | Self::Certificates(_))
    }
}

/// Why a rank could not join its job.
#[derive(Debug, thiserror::Error)]
pub enum RankJoinError {
    /// The rendezvous is not an address.
    #[error("rendezvous {given:?} is not an address ({reason}): give \"host:port\" of rank 0")]
    Rendezvous {
        /// As given.
        given: String,
        /// The mistake in it.
        reason: String,
    },
    /// The ranks do not form a job.
    #[error(transparent)]
    Control(#[from] control::JoinError),
    /// Memory could not be shared with the ranks of this host.
    #[error(transparent)]
    Memory(#[from] ShareError),
    /// The job wants all packets to go through memory.
    #[error(
        "transport.wire = \"shm\", but of {world_size} ranks only {shared} share memory with this \
         one: all must run on one host, as one user, with the same /dev/shm; \"auto\" uses memory \
         where it can"
    )]
    NoMemory {
        /// Ranks that share memory with this one, itself counted.
        shared: usize,
        /// Ranks of the job.
        world_size: usize,
    },
    /// The job wants all packets to go through memory, and there is too little of it.
    #[error("transport.wire = \"shm\", but {0}; \"auto\" uses UDP where memory is too small")]
    NoRoom(MemoryShortage),
    /// The driver thread could not start.
    #[error("the driver thread cannot start: {0}")]
    Driver(std::io::Error),
    /// The other ranks joined but did not get ready.
    #[error("the ranks joined but not all got ready: {0}")]
    NotReady(#[from] control::BarrierError),
}

/// Why an operation did not succeed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EndError {
    /// It was not started.
    #[error(transparent)]
    Refused(SubmitError),
    /// It failed on the way.
    #[error("{error}{}", kept_in(trace))]
    Failed {
        /// Why.
        error: OperationError,
        /// The file with this rank's flight recorder of that moment, if it was written.
        trace: Option<PathBuf>,
    },
    /// A forked child has called the rank of its parent.
    #[error(
        "this process was forked from the one that opened the rank: it has none of the rank's \
         threads, and its packets would corrupt those of its parent; start processes that use \
         gradwire by \"spawn\" or \"forkserver\" (multiprocessing.set_start_method), or open a \
         rank of its own in the child"
    )]
    Forked,
    /// The driver thread has ended.
    #[error("this rank was closed, or its driver thread failed, before the operation ended")]
    Closed,
}

/// Why the lost values of a tensor were not taken or scaled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ResidualError {
    /// The tensor has another shape than the one that is asked for.
    #[error(
        "the residual is of {} bytes of {}, but {} bytes of {} were asked for: give the tensor as \
         it was when it was sent; its residual is kept",
        kept.bytes, kept.dtype, asked.bytes, asked.dtype
    )]
    Shape {
        /// As it was sent.
        kept: TensorShape,
        /// As it was asked for.
        asked: TensorShape,
    },
    /// The scale of a loss has not changed by such a factor.
    #[error("a factor of {given}: give the new scale over the one before, finite and above 0")]
    Factor {
        /// As given.
        given: f64,
    },
    /// The rank has been closed.
    #[error("this rank was closed, or its driver thread does not answer")]
    Closed,
}

impl EndError {
    /// The error with the file of the recorder, if it was written; waits for that.
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

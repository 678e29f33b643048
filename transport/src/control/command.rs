//! Commands from the owner of [`ControlPlane`](super::ControlPlane) to the control thread.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use gradwire_protocol::units::Rank;

use super::error::{BarrierError, LeaveError};

/// Carries the result of a blocking call back to its caller.
pub(super) type Reply<E> = SyncSender<Result<(), E>>;

/// A call of [`ControlPlane`](super::ControlPlane) or [`ControlSender`](super::ControlSender).
pub(super) enum ControlCommand {
    Barrier {
        timeout: Duration,
        reply: Reply<BarrierError>,
    },
    Abort {
        reason: String,
    },
    Ask {
        question: String,
    },
    Answer {
        to: Rank,
        answer: String,
    },
    Lost {
        rank: Rank,
        reason: String,
    },
    Leave {
        timeout: Duration,
        reply: Reply<LeaveError>,
    },
    Close,
}

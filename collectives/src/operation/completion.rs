//! How an operation ends: its completion, its outcome, and how it can fail.

use std::fmt;

use gradwire_protocol::units::{Rank, Share, Span};

use crate::numbers::holes::Hole;
use crate::operation::buffer::Buffer;
use crate::operation::label::OperationLabel;
use crate::operation::mismatch::CallMismatch;
use crate::operation::submission::Operation;

/// Number of an operation on this rank.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct OperationId(pub u64);

/// How an operation can fail after it was submitted.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OperationError {
    /// A rank that takes part is gone.
    #[error("rank {rank} was lost ({reason}) during {label}")]
    PeerLost {
        /// The rank.
        rank: Rank,
        /// How it was lost.
        reason: String,
        /// The operation.
        label: OperationLabel,
    },
    /// It took longer than its deadline allows.
    #[error("{0}")]
    TimedOut(Box<TimedOut>),
    /// A peer is in another operation, or in one of another shape or type.
    #[error("{0}")]
    Mismatch(Box<CallMismatch>),
    /// Another operation failed, or a rank ended the job.
    #[error("{label} was aborted: {reason}")]
    Aborted {
        /// The operation.
        label: OperationLabel,
        /// Why.
        reason: String,
    },
}

impl OperationError {
    /// The error of a receive from any rank whose deadline passed before a message came.
    pub(crate) fn never_sent(operation: &Operation, me: Rank) -> Self {
        let others = operation.group.ranks.iter().filter(|&&rank| rank != me);
        Self::TimedOut(Box::new(TimedOut {
            label: operation.label(),
            took: None,
            progress: OperationProgress {
                waits_for: others.map(|rank| rank.0).collect(),
                received: 0,
                expected: operation.buffer.len() as u64,
            },
            verdict: None,
        }))
    }
}

/// An operation that took longer than its deadline allows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TimedOut {
    /// The operation.
    pub label: OperationLabel,
    /// How long it took until now, and how long it might take; `None` for a receive from any rank
    /// that has not started because no message came.
    pub took: Option<(Span, Span)>,
    /// The ranks and bytes that it still needed.
    pub progress: OperationProgress,
    /// Where the other ranks say that they are, if they were asked.
    pub verdict: Option<String>,
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            label,
            took,
            progress,
            verdict,
        } = self;
        let OperationProgress {
            waits_for,
            received,
            expected,
        } = progress;
        write!(f, "{label}: Timed out ")?;
        if let Some((elapsed, limit)) = took {
            write!(f, "after {elapsed} of {limit} ")?;
        }
        write!(
            f,
            "waiting for ranks {waits_for:?}, {received} of {expected} bytes were received"
        )?;
        match verdict {
            Some(verdict) => write!(f, "; {verdict}"),
            None => Ok(()),
        }
    }
}

/// Counts of a completed operation on this rank.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OperationOutcome {
    /// Segments that others were to send to this rank.
    pub expected_segments: u64,
    /// Of these, segments that this rank accepted as lost.
    pub lost_segments: u64,
    /// The largest share of one message's segments that this rank accepted as lost.
    pub max_lost_share: Share,
    /// Segments that this rank had to send.
    pub sent_segments: u64,
    /// Of these, segments that others accepted as lost.
    pub missed_segments: u64,
    /// The rank that a receive has its buffer from.
    pub source: Option<Rank>,
}

/// The ranks and bytes that an unfinished operation still needs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OperationProgress {
    /// Ranks that have not sent or not received everything, in ascending order.
    pub waits_for: Vec<u16>,
    /// Bytes received.
    pub received: u64,
    /// Bytes to receive.
    pub expected: u64,
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// Which operation.
    pub id: OperationId,
    /// Its buffer; the result if it succeeded, undefined values if not.
    pub buffer: Buffer,
    /// Its input, unchanged.
    pub input: Option<Buffer>,
    /// Bytes of the buffer that a receive with tolerance did not get, in ascending order. They are
    /// as they were.
    pub holes: Vec<Hole>,
    /// How it ended.
    pub result: Result<OperationOutcome, OperationError>,
    /// The ranks and bytes that it still needed when it failed.
    pub unfinished: Option<OperationProgress>,
}

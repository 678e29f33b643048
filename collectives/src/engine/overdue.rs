//! What ranks ask each other about an operation that has missed its deadline.
//!
//! A rank sees only whom it waits for itself, which in a ring is its neighbour, whoever is absent.
//! So who drives a communicator may let it wait for a verdict: the communicator tells what is
//! overdue, all ranks are asked where they are, and the operation fails with what they say.

use std::sync::Arc;

use gradwire_protocol::units::Rank;

use crate::operation::{Collective, Operation, OperationId, OperationLabel};

/// An operation that has missed its deadline and waits for a verdict.
#[derive(Clone, Debug)]
pub struct OverdueOperation {
    /// Which one.
    pub id: OperationId,
    /// Its name.
    pub label: OperationLabel,
    /// Whom it needs, this rank among them.
    pub ranks: Arc<[Rank]>,
    /// What to ask the others.
    pub question: OverdueQuestion,
}

/// Which operation a rank asks about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OverdueQuestion {
    /// Its group.
    pub group: u16,
    /// Its number.
    pub sequence: u32,
    /// What the rank that asks does in it.
    pub side: QuestionSide,
}

/// A rank's part in an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QuestionSide {
    /// It is one of all ranks of the group.
    Member,
    /// It sends to the rank that is asked.
    Sender,
    /// It receives from the rank that is asked.
    Receiver,
}

/// Where a rank is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Whereabouts {
    /// What it has called under the number that it was asked about.
    pub there: Option<OperationLabel>,
    /// The last that it has called in the group.
    pub last: Option<OperationLabel>,
    /// What it has called and not completed, at most [`PENDING_TOLD`].
    pub pending: Vec<OperationLabel>,
}

/// Pending operations that a rank tells of.
pub const PENDING_TOLD: usize = 3;

/// What a communicator does about a missed deadline.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum DeadlinePatience {
    /// It fails everything.
    #[default]
    None,
    /// It lets all ranks be asked.
    Asks,
    /// This operation waits for the verdict, and its owner may not know yet.
    Asked(OperationId, InquiryNews),
}

/// Whether who drives knows of an overdue operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum InquiryNews {
    Yes,
    No,
}

impl OverdueOperation {
    pub(crate) fn of(id: OperationId, operation: &Operation) -> Self {
        let side = match operation.collective {
            Collective::Send { .. } => QuestionSide::Sender,
            Collective::Receive { .. } | Collective::ReceiveAny { .. } => QuestionSide::Receiver,
            _ => QuestionSide::Member,
        };
        Self {
            id,
            label: operation.label(),
            ranks: operation.participants().into(),
            question: OverdueQuestion {
                group: operation.group.id,
                sequence: operation.sequence,
                side,
            },
        }
    }
}

//! What ranks ask each other about an operation that has missed its deadline.
//!
//! A rank sees only whom it waits for itself, which in a ring is its neighbour, whoever is absent.
//! So who drives a communicator may let it wait for a verdict: the communicator tells what is
//! overdue, all ranks are asked where they are, and the operation fails with what they say.

use std::sync::Arc;

use gradwire_protocol::units::{Instant, Rank};

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
pub(crate) enum DeadlineRule {
    /// It fails everything.
    #[default]
    Fail,
    /// It reports the operation to its driver, which asks all ranks. No operation is overdue now.
    Report,
    /// As `Report`; this operation is overdue, and the driver does not know yet.
    Due(OperationId),
    /// As `Report`; the driver asks about this operation.
    Asked(OperationId),
}

/// The earliest deadline of all operations, and the rule for missed ones.
#[derive(Debug, Default)]
pub(crate) struct DeadlineWatch {
    next: Option<Instant>,
    pub(crate) rule: DeadlineRule,
}

impl DeadlineWatch {
    /// Takes the deadline of a new operation, if it has one.
    pub(crate) fn add(&mut self, deadline: Option<Instant>) {
        self.next = earlier(self.next, deadline);
    }

    /// Takes the deadlines of all operations, after one of them has ended.
    pub(crate) fn reset(&mut self, deadlines: impl Iterator<Item = Instant>) {
        self.next = deadlines.min();
    }

    /// Whether a deadline has passed.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|deadline| deadline <= now)
    }

    /// When a deadline passes; `None` while the driver asks about one that has.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        match self.rule {
            DeadlineRule::Due(_) | DeadlineRule::Asked(_) => None,
            DeadlineRule::Fail | DeadlineRule::Report => self.next,
        }
    }

    /// The overdue operation that the driver does not know yet; it does now.
    pub(crate) fn report(&mut self) -> Option<OperationId> {
        let DeadlineRule::Due(id) = self.rule else {
            return None;
        };
        self.rule = DeadlineRule::Asked(id);
        Some(id)
    }

    /// An operation has ended: if it was overdue, no operation is now.
    pub(crate) fn end(&mut self, id: OperationId) {
        if matches!(self.rule, DeadlineRule::Due(due) | DeadlineRule::Asked(due) if due == id) {
            self.rule = DeadlineRule::Report;
        }
    }
}

/// The earlier of two deadlines.
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
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

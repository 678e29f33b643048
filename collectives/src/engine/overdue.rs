//! Deadlines, and the questions that ranks ask each other when one is missed.
//!
//! A rank sees only the ranks that it waits for itself. In a ring that is its neighbour, whichever
//! rank is missing. So the driver of a communicator may ask before the operation fails:
//!
//! 1. The communicator reports the overdue operation instead of failing it.
//! 2. The driver asks all ranks how far they are.
//! 3. The operation fails with a verdict made of their answers.

use std::sync::Arc;

use gradwire_protocol::units::{Instant, Rank};

use crate::operation::{Collective, Operation, OperationId, OperationLabel};

/// An operation that has missed its deadline and waits for a verdict.
#[derive(Clone, Debug)]
pub struct OverdueOperation {
    /// Its number on this rank.
    pub id: OperationId,
    /// Its name.
    pub label: OperationLabel,
    /// The ranks that take part, including this one.
    pub ranks: Arc<[Rank]>,
    /// The question to the other ranks.
    pub question: OverdueQuestion,
}

/// A question about an operation, from a rank for which it is overdue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OverdueQuestion {
    /// Its group.
    pub group: u16,
    /// Its number.
    pub sequence: u32,
    /// The asking rank's part in it.
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
    /// Its call under the number in the question.
    pub there: Option<OperationLabel>,
    /// Its last call in the group.
    pub last: Option<OperationLabel>,
    /// Calls that it has not completed, at most [`PENDING_TOLD`].
    pub pending: Vec<OperationLabel>,
}

/// How many pending operations an answer lists.
pub const PENDING_TOLD: usize = 3;

/// The rule for a missed deadline.
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

    /// The overdue operation that the driver does not know yet; from now on it does.
    pub(crate) fn report(&mut self) -> Option<OperationId> {
        let DeadlineRule::Due(id) = self.rule else {
            return None;
        };
        self.rule = DeadlineRule::Asked(id);
        Some(id)
    }

    /// An operation has ended: if it was the overdue one, none is overdue now.
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

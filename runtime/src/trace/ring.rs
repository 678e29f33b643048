//! The last operations of a rank, in a ring that is allocated once.

use std::sync::Arc;
use std::time::Instant;

use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Operation, OperationLabel, OperationProgress};
use gradwire_protocol::units::Rank;

/// Number of an operation of this rank, from 0.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct TraceNumber(pub(super) u64);

/// How an operation ended that did not complete.
#[derive(Clone, Debug)]
pub(super) struct FailedEnd {
    pub(super) error: String,
    pub(super) unfinished: Option<OperationProgress>,
}

/// Something that happens to an operation.
#[derive(Debug)]
pub(super) enum OperationChange {
    Started(Instant),
    Completed(Instant),
    Failed(Instant, Box<FailedEnd>),
}

/// The record of an operation.
#[derive(Clone, Debug)]
pub(super) struct TraceSlot {
    pub(super) number: TraceNumber,
    pub(super) label: OperationLabel,
    pub(super) ranks: Arc<[Rank]>,
    pub(super) dtype: DType,
    pub(super) op: ReduceOp,
    pub(super) bytes: usize,
    pub(super) submitted: Instant,
    pub(super) started: Option<Instant>,
    pub(super) ended: Option<Instant>,
    pub(super) failing: Option<Box<FailedEnd>>,
}

impl TraceSlot {
    fn change(&mut self, change: OperationChange) {
        match change {
            OperationChange::Started(at) => self.started = Some(at),
            OperationChange::Completed(at) => self.ended = Some(at),
            OperationChange::Failed(at, failing) => {
                self.ended = Some(at);
                self.failing = Some(failing);
            }
        }
    }

    fn has_completed(&self) -> bool {
        self.ended.is_some() && self.failing.is_none()
    }
}

/// The last operations, and older ones that have not ended.
#[derive(Debug)]
pub(super) struct TraceRing {
    capacity: usize,
    slots: Vec<TraceSlot>,
    /// Operations that had not ended when newer ones needed their place.
    overdue: Vec<TraceSlot>,
    next: u64,
}

impl TraceRing {
    /// Room for `capacity` operations, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            slots: Vec::with_capacity(capacity),
            overdue: Vec::new(),
            next: 0,
        }
    }

    /// How many operations there have been.
    pub(super) fn total(&self) -> u64 {
        self.next
    }

    /// Remembers an operation that is submitted.
    pub(super) fn push(&mut self, operation: &Operation, submitted: Instant) -> TraceNumber {
        let number = TraceNumber(self.next);
        self.next += 1;
        let slot = TraceSlot {
            number,
            label: operation.label(),
            ranks: Arc::clone(&operation.group.ranks),
            dtype: operation.dtype,
            op: operation.op,
            bytes: operation.tensor_bytes(),
            submitted,
            started: None,
            ended: None,
            failing: None,
        };
        if self.slots.len() < self.capacity {
            self.slots.push(slot);
            return number;
        }
        let at = self.place(number);
        let before = std::mem::replace(&mut self.slots[at], slot);
        if before.ended.is_none() && self.overdue.len() < self.capacity {
            self.overdue.push(before);
        }
        number
    }

    /// Something has happened to an operation. An operation that is no longer remembered is
    /// ignored.
    pub(super) fn change(&mut self, number: TraceNumber, change: OperationChange) {
        let at = self.place(number);
        if let Some(slot) = self.slots.get_mut(at).filter(|slot| slot.number == number) {
            return slot.change(change);
        }
        if let Some(at) = self.overdue.iter().position(|slot| slot.number == number) {
            self.overdue[at].change(change);
            if self.overdue[at].has_completed() {
                self.overdue.swap_remove(at);
            }
        }
    }

    /// A copy of all records, in the order of submission.
    pub(super) fn slots(&self) -> Vec<TraceSlot> {
        let all = self.overdue.iter().chain(&self.slots);
        let mut slots: Vec<TraceSlot> = all.cloned().collect();
        slots.sort_by_key(|slot| slot.number);
        slots
    }

    fn place(&self, number: TraceNumber) -> usize {
        (number.0 % self.capacity as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use gradwire_collectives::buffer::Buffer;
    use gradwire_collectives::operation::{Collective, Group, Layers, LossTerms};
    use gradwire_protocol::units::Step;

    use super::*;

    fn operation(sequence: u32) -> Operation {
        Operation {
            group: Group {
                id: 0,
                ranks: Arc::new([Rank(0), Rank(1)]),
            },
            sequence,
            collective: Collective::AllReduce,
            dtype: DType::F32,
            op: ReduceOp::Sum,
            buffer: Buffer::Virtual(64),
            input: None,
            splits: None,
            loss: LossTerms::NONE,
            step: Step(0),
            layers: Layers::default(),
            tensor_key: 0,
            deadline: None,
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a recorder notes times")]
    fn now() -> Instant {
        Instant::now()
    }

    fn complete(ring: &mut TraceRing, number: TraceNumber) {
        ring.change(number, OperationChange::Started(now()));
        ring.change(number, OperationChange::Completed(now()));
    }

    fn sequences(ring: &TraceRing) -> Vec<u32> {
        ring.slots()
            .iter()
            .map(|slot| slot.label.sequence)
            .collect()
    }

    #[test]
    fn the_last_and_all_unfinished_operations_are_kept() {
        let mut ring = TraceRing::new(3);
        let pending = ring.push(&operation(0), now());
        for sequence in 1..8 {
            let number = ring.push(&operation(sequence), now());
            complete(&mut ring, number);
        }
        assert_eq!(sequences(&ring), [0, 5, 6, 7]);
        assert_eq!(ring.total(), 8);
        complete(&mut ring, pending);
        assert_eq!(sequences(&ring), [5, 6, 7]);
    }

    #[test]
    fn what_is_forgotten_can_no_longer_change() {
        let mut ring = TraceRing::new(1);
        let first = ring.push(&operation(0), now());
        complete(&mut ring, first);
        ring.push(&operation(1), now());
        complete(&mut ring, first);
        assert!(ring.slots()[0].ended.is_none());
    }
}

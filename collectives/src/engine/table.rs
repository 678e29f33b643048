//! Finds the operation that a packet belongs to, without searching for every packet.

use std::collections::BTreeMap;

use gradwire_protocol::machine::Payload;
use gradwire_protocol::units::{MessageKey, Rank};

use crate::engine::overdue::QuestionSide;
use crate::engine::running::RunningOperation;
use crate::operation::{Collective, Operation};
use crate::plan::PARTS;

/// The part of a message's key that all messages of an operation share on this rank.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct OperationKey {
    group: u16,
    sequence: u32,
    lane: TagLane,
}

/// Point-to-point operations have numbers of their own, per peer and direction.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum TagLane {
    Collective,
    SendTo(Rank),
    ReceiveFrom(Rank),
}

impl OperationKey {
    fn of(operation: &Operation) -> Self {
        let lane = match operation.collective {
            Collective::Send { to, .. } => TagLane::SendTo(to),
            Collective::Receive { from, .. } => TagLane::ReceiveFrom(from),
            _ => TagLane::Collective,
        };
        Self {
            group: operation.group.id,
            sequence: operation.sequence,
            lane,
        }
    }

    fn of_message(key: MessageKey, point_to_point: TagLane) -> Self {
        let (group, sequence, part) = key.parts();
        let lane = if part < PARTS {
            TagLane::Collective
        } else {
            point_to_point
        };
        Self {
            group,
            sequence,
            lane,
        }
    }
}

/// A message of a running operation: the operation's slot, and its number in the plan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RunningMessage {
    pub(crate) slot: usize,
    pub(crate) message: usize,
}

/// The message that was looked for last. Packets come in runs of one message.
#[derive(Clone, Copy, Debug)]
struct LastLookup {
    peer: Rank,
    key: MessageKey,
    found: RunningMessage,
}

/// All running operations of a rank.
#[derive(Debug, Default)]
pub(crate) struct OperationTable {
    slots: Vec<Option<Box<RunningOperation>>>,
    /// Slots without an operation.
    free: Vec<usize>,
    by_key: BTreeMap<OperationKey, usize>,
    last_in: Option<LastLookup>,
    last_out: Option<LastLookup>,
}

impl OperationTable {
    /// Whether an operation with the same key is running.
    pub(crate) fn has(&self, operation: &Operation) -> bool {
        self.by_key.contains_key(&OperationKey::of(operation))
    }

    /// How many operations are running.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    fn slot_of(&self, key: MessageKey, point_to_point: TagLane) -> Option<usize> {
        self.by_key
            .get(&OperationKey::of_message(key, point_to_point))
            .copied()
    }

    /// Adds an operation whose key is not in use. Returns its slot.
    pub(crate) fn insert(&mut self, running: Box<RunningOperation>) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.by_key
            .insert(OperationKey::of(&running.operation), slot);
        self.slots[slot] = Some(running);
        slot
    }

    /// Removes an operation.
    pub(crate) fn remove(&mut self, slot: usize) -> Option<Box<RunningOperation>> {
        let running = self.slots.get_mut(slot)?.take()?;
        let known = self.by_key.remove(&OperationKey::of(&running.operation));
        known.expect("it was inserted with its slot");
        self.free.push(slot);
        (self.last_in, self.last_out) = (None, None);
        Some(running)
    }

    /// The operation in a slot, to go on with it.
    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut RunningOperation> {
        self.slots.get_mut(slot)?.as_deref_mut()
    }

    /// The operation in a slot.
    pub(crate) fn get(&self, slot: usize) -> Option<&RunningOperation> {
        self.slots.get(slot)?.as_deref()
    }

    /// The operation that runs with this key, or for a key of point-to-point the receive from or
    /// the send to `peer`.
    pub(crate) fn counterpart(
        &self,
        key: MessageKey,
        peer: Rank,
        side: QuestionSide,
    ) -> Option<&Operation> {
        let lane = match side {
            QuestionSide::Member => TagLane::Collective,
            QuestionSide::Sender => TagLane::ReceiveFrom(peer),
            QuestionSide::Receiver => TagLane::SendTo(peer),
        };
        let slot = self.slot_of(key, lane)?;
        Some(&self.slots[slot].as_ref()?.operation)
    }

    /// The collective that runs with this key: its slot, and it.
    pub(crate) fn collective(&self, key: MessageKey) -> Option<(usize, &RunningOperation)> {
        let slot = self.slot_of(key, TagLane::Collective)?;
        Some((slot, self.slots[slot].as_ref()?))
    }

    /// The running operations and their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &RunningOperation)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, running)| Some((slot, running.as_deref()?)))
    }

    /// The message in with this sender and key.
    pub(crate) fn find_in(&mut self, from: Rank, key: MessageKey) -> Option<RunningMessage> {
        if let Some(last) = self
            .last_in
            .filter(|last| last.peer == from && last.key == key)
        {
            return Some(last.found);
        }
        let slot = self.slot_of(key, TagLane::ReceiveFrom(from))?;
        let message = self.slots[slot].as_ref()?.inbound(from, key.parts().2)?;
        let found = RunningMessage { slot, message };
        self.last_in = Some(LastLookup {
            peer: from,
            key,
            found,
        });
        Some(found)
    }

    /// The message out with this receiver and key.
    pub(crate) fn find_out(&mut self, to: Rank, key: MessageKey) -> Option<RunningMessage> {
        if let Some(last) = self
            .last_out
            .filter(|last| last.peer == to && last.key == key)
        {
            return Some(last.found);
        }
        let slot = self.slot_of(key, TagLane::SendTo(to))?;
        let message = self.slots[slot].as_ref()?.outbound(to, key.parts().2)?;
        let found = RunningMessage { slot, message };
        self.last_out = Some(LastLookup {
            peer: to,
            key,
            found,
        });
        Some(found)
    }

    /// The bytes of the message out with this receiver and key.
    pub(crate) fn source(&mut self, to: Rank, key: MessageKey) -> Option<Payload<'_>> {
        let RunningMessage { slot, message } = self.find_out(to, key)?;
        Some(self.slots[slot].as_ref()?.source(message))
    }
}

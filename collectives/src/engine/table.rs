//! Finds the operation that a packet belongs to, without searching for every packet.

use std::collections::BTreeMap;

use gradwire_protocol::machine::Payload;
use gradwire_protocol::units::{MessageKey, Rank};

use crate::engine::overdue::Side;
use crate::engine::running::Running;
use crate::operation::{Collective, Operation};
use crate::plan::PARTS;

/// What an operation's messages have in common, seen from this rank.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Key {
    group: u16,
    sequence: u32,
    lane: Lane,
}

/// Point-to-point operations have numbers of their own, per peer and direction.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Lane {
    Collective,
    SendTo(Rank),
    ReceiveFrom(Rank),
}

impl Key {
    fn of(operation: &Operation) -> Self {
        let lane = match operation.collective {
            Collective::Send { to, .. } => Lane::SendTo(to),
            Collective::Receive { from, .. } => Lane::ReceiveFrom(from),
            _ => Lane::Collective,
        };
        Self {
            group: operation.group.id,
            sequence: operation.sequence,
            lane,
        }
    }

    fn of_message(key: MessageKey, point_to_point: Lane) -> Self {
        let (group, sequence, part) = key.parts();
        let lane = if part < PARTS {
            Lane::Collective
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
pub(crate) struct Found {
    pub(crate) slot: usize,
    pub(crate) message: usize,
}

/// The message that was looked for last. Packets come in runs of one message.
#[derive(Clone, Copy, Debug)]
struct Last {
    peer: Rank,
    key: MessageKey,
    found: Found,
}

/// All running operations of a rank.
#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: Vec<Option<Running>>,
    /// Slots without an operation.
    free: Vec<usize>,
    by_key: BTreeMap<Key, usize>,
    last_in: Option<Last>,
    last_out: Option<Last>,
}

impl Table {
    /// Whether an operation with the same key is running.
    pub(crate) fn has(&self, operation: &Operation) -> bool {
        self.by_key.contains_key(&Key::of(operation))
    }

    /// How many operations are running.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    fn slot_of(&self, key: MessageKey, point_to_point: Lane) -> Option<usize> {
        self.by_key
            .get(&Key::of_message(key, point_to_point))
            .copied()
    }

    /// Adds an operation whose key is not in use; gives its slot.
    pub(crate) fn insert(&mut self, running: Running) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.by_key.insert(Key::of(&running.operation), slot);
        self.slots[slot] = Some(running);
        slot
    }

    /// Removes an operation.
    pub(crate) fn remove(&mut self, slot: usize) -> Option<Running> {
        let running = self.slots.get_mut(slot)?.take()?;
        let known = self.by_key.remove(&Key::of(&running.operation));
        known.expect("it was inserted with its slot");
        self.free.push(slot);
        (self.last_in, self.last_out) = (None, None);
        Some(running)
    }

    /// The operation in a slot, to go on with it.
    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Running> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// The operation in a slot.
    pub(crate) fn get(&self, slot: usize) -> Option<&Running> {
        self.slots.get(slot)?.as_ref()
    }

    /// The operation that runs with this key, or for a key of point-to-point the receive from or
    /// the send to `peer`.
    pub(crate) fn counterpart(
        &self,
        key: MessageKey,
        (peer, side): (Rank, Side),
    ) -> Option<&Operation> {
        let lane = match side {
            Side::Member => Lane::Collective,
            Side::Sender => Lane::ReceiveFrom(peer),
            Side::Receiver => Lane::SendTo(peer),
        };
        let slot = self.slot_of(key, lane)?;
        Some(&self.slots[slot].as_ref()?.operation)
    }

    /// The collective that runs with this key: its slot, and it.
    pub(crate) fn collective(&self, key: MessageKey) -> Option<(usize, &Running)> {
        let slot = self.slot_of(key, Lane::Collective)?;
        Some((slot, self.slots[slot].as_ref()?))
    }

    /// The running operations and their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Running)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, running)| Some((slot, running.as_ref()?)))
    }

    /// The message in with this sender and key.
    pub(crate) fn find_in(&mut self, from: Rank, key: MessageKey) -> Option<Found> {
        if let Some(last) = self
            .last_in
            .filter(|last| last.peer == from && last.key == key)
        {
            return Some(last.found);
        }
        let slot = self.slot_of(key, Lane::ReceiveFrom(from))?;
        let message = self.slots[slot].as_ref()?.inbound(from, key.parts().2)?;
        let found = Found { slot, message };
        self.last_in = Some(Last {
            peer: from,
            key,
            found,
        });
        Some(found)
    }

    /// The message out with this receiver and key.
    pub(crate) fn find_out(&mut self, to: Rank, key: MessageKey) -> Option<Found> {
        if let Some(last) = self
            .last_out
            .filter(|last| last.peer == to && last.key == key)
        {
            return Some(last.found);
        }
        let slot = self.slot_of(key, Lane::SendTo(to))?;
        let message = self.slots[slot].as_ref()?.outbound(to, key.parts().2)?;
        let found = Found { slot, message };
        self.last_out = Some(Last {
            peer: to,
            key,
            found,
        });
        Some(found)
    }

    /// The bytes of the message out with this receiver and key.
    pub(crate) fn source(&mut self, to: Rank, key: MessageKey) -> Option<Payload<'_>> {
        let Found { slot, message } = self.find_out(to, key)?;
        Some(self.slots[slot].as_ref()?.source(message))
    }
}

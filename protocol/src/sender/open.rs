//! The open messages to one peer, by number and by turn.
//!
//! 1. A message keeps its place until it ends, and a later one takes the place then. So no message
//!    moves when another one ends.
//! 2. `order` has the places by number, `turns` those that have a segment to send, by turn.
//! 3. To change a message makes its turn stale. A run asks only the messages that have changed
//!    since the last one, so its cost hardly grows with the number of open messages.

use std::collections::{BTreeSet, VecDeque};
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

use super::message::SendMessage;
use super::probe::ProbeState;
use crate::message::find_open;
use crate::priority::SendTurn;
use crate::units::{MessageId, MessageSerial};

/// A place for an open message.
#[derive(Debug, Default, Deserialize, Serialize)]
struct MessagePlace {
    message: Option<SendMessage>,
    /// The turn by which it is among the turns.
    listed: Option<SendTurn>,
    /// Whether it is among the stale.
    is_stale: bool,
}

/// The open messages to one peer.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct OpenMessages {
    places: Vec<MessagePlace>,
    free: Vec<u32>,
    /// By number.
    order: VecDeque<(MessageSerial, u32)>,
    /// Of equal turns the oldest message is first.
    turns: BTreeSet<(SendTurn, MessageSerial, u32)>,
    /// Places of messages that may have another turn than the one that is listed.
    stale: Vec<u32>,
    /// How often a message was asked for its turn.
    #[cfg(test)]
    pub(super) asked: u64,
}

impl OpenMessages {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The number of the oldest one.
    pub(super) fn oldest(&self) -> Option<MessageSerial> {
        self.order.front().map(|&(serial, _)| serial)
    }

    /// Adds the message with the highest number so far.
    pub(super) fn push(&mut self, message: SendMessage) {
        let at = self.free.pop().unwrap_or_else(|| {
            if self.places.is_empty() {
                // Most pairs of a large group have one message at a time, and places are large.
                self.places.reserve_exact(1);
            }
            self.places.push(MessagePlace::default());
            self.places.len() as u32 - 1
        });
        self.order.push_back((message.serial, at));
        let place = &mut self.places[at as usize];
        place.message = Some(message);
        place.make_stale(at as usize, &mut self.stale);
    }

    /// Removes the message at a place, whose number this is.
    pub(super) fn remove(&mut self, at: usize, serial: MessageSerial) {
        let place = &mut self.places[at];
        place.message = None;
        if let Some(turn) = place.listed.take() {
            self.turns.remove(&(turn, serial, at as u32));
        }
        let found = self
            .order
            .binary_search_by_key(&serial, |&(serial, _)| serial);
        self.order
            .remove(found.expect("an open message has its number"));
        self.free.push(at as u32);
    }

    /// The place of the message with this id. `newest` is about as high as the highest number.
    #[inline]
    pub(super) fn find(&self, newest: MessageSerial, id: MessageId) -> Option<usize> {
        // Reports are about the oldest message more often than about any other.
        match self.order.front() {
            Some(&(serial, at)) if serial.id() == id => Some(at as usize),
            _ => self.search(newest, id),
        }
    }

    #[inline(never)]
    fn search(&self, newest: MessageSerial, id: MessageId) -> Option<usize> {
        let number = |&(serial, _): &(MessageSerial, u32)| serial;
        let place = |serial| self.order.binary_search_by_key(&serial, number).ok();
        let found = find_open(newest, id, place, self.order.iter().map(number))?;
        Some(self.order[found].1 as usize)
    }

    /// All messages with their places, the oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, &SendMessage)> + Clone {
        let places = self.order.iter().map(|&(_, at)| at as usize);
        places.map(|at| (at, &self[at]))
    }

    /// The probes of all messages, in any order. They decide about no turn.
    pub(super) fn probes(&mut self) -> impl Iterator<Item = &mut ProbeState> {
        let messages = (self.places.iter_mut()).filter_map(|place| place.message.as_mut());
        messages.map(|message| &mut message.probe)
    }

    /// The turn that comes first, and the place of its message; `None` when none has a segment to
    /// send.
    pub(super) fn first_turn(&mut self) -> Option<(SendTurn, usize)> {
        if self.order.len() == 1 {
            // The only one needs no list, and stays as stale as it is.
            let at = self.order[0].1 as usize;
            let message = self.places[at].message.as_mut();
            let turn = message.and_then(SendMessage::next_turn);
            return turn.map(|turn| (turn, at));
        }
        while let Some(at) = self.stale.pop() {
            self.list(at);
        }
        let first = self.turns.first();
        first.map(|&(turn, _, at)| (turn, at as usize))
    }

    /// Lists the message at a place by its turn.
    fn list(&mut self, at: u32) {
        let place = &mut self.places[at as usize];
        place.is_stale = false;
        let Some(message) = &mut place.message else {
            return;
        };
        #[cfg(test)]
        {
            self.asked += 1;
        }
        let (turn, serial) = (message.next_turn(), message.serial);
        let listed = std::mem::replace(&mut place.listed, turn);
        if listed == turn {
            return;
        }
        if let Some(listed) = listed {
            self.turns.remove(&(listed, serial, at));
        }
        if let Some(turn) = turn {
            self.turns.insert((turn, serial, at));
        }
    }
}

impl MessagePlace {
    /// The message at this place, `at`, may have another turn from now on.
    #[inline]
    fn make_stale(&mut self, at: usize, stale: &mut Vec<u32>) {
        if !self.is_stale {
            self.is_stale = true;
            stale.push(at as u32);
        }
    }
}

impl Index<usize> for OpenMessages {
    type Output = SendMessage;

    #[inline]
    fn index(&self, at: usize) -> &SendMessage {
        let message = self.places[at].message.as_ref();
        message.expect("the place of an open message")
    }
}

impl IndexMut<usize> for OpenMessages {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut SendMessage {
        let place = &mut self.places[at];
        place.make_stale(at, &mut self.stale);
        let message = place.message.as_mut();
        message.expect("the place of an open message")
    }
}

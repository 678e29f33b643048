//! Copies of messages whose operations have ended here before the messages have arrived.
//!
//! An operation whose results are all here need not wait until its own messages out are
//! acknowledged, if copies of them serve the ranks that still wait. It ends so
//!
//! 1. if it sends few bytes ([`EARLY_BYTES_MAX`](crate::plan::EARLY_BYTES_MAX)), or
//! 2. if each message on its way goes over a long path, so that its copy costs less than the rest
//!    of the round trip ([`copied_within`]),
//!
//! and if all copies of the rank together stay below [`PROMISED_BYTES_MAX`].

use std::collections::{BTreeMap, BTreeSet};

use gradwire_protocol::machine::Payload;
use gradwire_protocol::units::{MessageKey, Rank, Span};

/// Bytes of copies that a rank keeps at most.
const PROMISED_BYTES_MAX: usize = 64 << 20;

/// A host copies as many bytes in a second, at the least, into memory that it has just got.
const COPIED_PER_SECOND: f64 = 2e9;

/// The share of a round trip that copies may take.
const COPYING_SHARE: f64 = 0.125;

/// On a path where that is less, round trips of up to 0.13 ms, the path counts as short.
const COPIED_MIN: usize = 32 << 10;

/// The copies of one rank.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    copies: BTreeMap<(Rank, MessageKey), Vec<u8>>,
    bytes: usize,
}

/// Bytes that are copied in an eighth of a round trip; zero on a short path.
pub(crate) fn copied_within(round_trip: Span) -> usize {
    let bytes = (round_trip.as_secs_f64() * COPYING_SHARE * COPIED_PER_SECOND) as usize;
    if bytes > COPIED_MIN { bytes } else { 0 }
}

impl Promises {
    /// Whether there is room for copies of so many bytes.
    pub(crate) fn have_room_for(&self, bytes: usize) -> bool {
        self.bytes + bytes <= PROMISED_BYTES_MAX
    }

    /// Keeps messages out.
    pub(crate) fn keep(&mut self, copies: impl Iterator<Item = ((Rank, MessageKey), Vec<u8>)>) {
        for (message, copy) in copies {
            self.bytes += copy.len();
            self.copies.insert(message, copy);
        }
    }

    /// The receiver has all of a message that it will ever get, or refuses it.
    pub(crate) fn settle(&mut self, to: Rank, key: MessageKey) {
        if let Some(copy) = self.copies.remove(&(to, key)) {
            self.bytes -= copy.len();
        }
    }

    /// The bytes of a message.
    pub(crate) fn source(&self, to: Rank, key: MessageKey) -> Option<Payload<'_>> {
        self.copies.get(&(to, key)).map(|copy| Payload::Bytes(copy))
    }

    /// A rank is gone.
    pub(crate) fn forget(&mut self, rank: Rank) {
        self.copies.retain(|&(to, _), _| to != rank);
        self.bytes = self.copies.values().map(Vec::len).sum();
    }

    /// The ranks that still wait.
    pub(crate) fn ranks(&self) -> BTreeSet<Rank> {
        self.copies.keys().map(|&(to, _)| to).collect()
    }

    /// How many messages are kept.
    pub(crate) fn len(&self) -> usize {
        self.copies.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(part: u16, bytes: usize) -> ((Rank, MessageKey), Vec<u8>) {
        ((Rank(part), MessageKey::new(0, 0, part)), vec![0; bytes])
    }

    #[test]
    fn long_paths_are_worth_large_copies_and_short_ones_none() {
        let within = |micros| copied_within(Span::from_micros(micros));
        assert_eq!([10, 130].map(within), [0, 0]);
        assert_eq!([1_000, 40_000].map(within), [250_000, 10_000_000]);
    }

    #[test]
    fn all_copies_together_stay_within_their_room() {
        let mut promises = Promises::default();
        promises.keep([copy(1, 40 << 20), copy(2, 20 << 20)].into_iter());
        assert!(promises.have_room_for(4 << 20) && !promises.have_room_for((4 << 20) + 1));
        promises.settle(Rank(1), MessageKey::new(0, 0, 1));
        assert!(promises.have_room_for(44 << 20));
        promises.forget(Rank(2));
        assert_eq!((promises.len(), promises.bytes), (0, 0));
    }
}

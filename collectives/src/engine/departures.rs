//! Outgoing gradient messages of a rank: those that wait, and those that were released.
//!
//! A message whose receiver has not posted it makes no progress and gives its credit back: the
//! receiver may itself wait for a message that this rank holds back. So ranks that submit in
//! different orders do not deadlock.

use std::collections::BTreeMap;

use gradwire_protocol::units::{ByteCount, MessageKey, Rank, Share};

use crate::engine::scheduler::{ReadyMessage, Scheduler};

/// A message that its operation may send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct DepartingMessage {
    pub(crate) to: Rank,
    pub(crate) key: MessageKey,
    /// The share of it that may be missing.
    pub(crate) tolerance: Share,
}

/// The scheduler of a rank, and the messages that it has released.
#[derive(Debug)]
pub(crate) struct DepartureQueue {
    scheduler: Scheduler<(DepartingMessage, ByteCount)>,
    /// Bytes of messages that have left and hold credit.
    left: BTreeMap<(Rank, MessageKey), ByteCount>,
}

impl DepartureQueue {
    /// The queue of a rank that has not sent any message yet.
    pub(crate) fn new(credit: ByteCount) -> Self {
        Self {
            scheduler: Scheduler::new(credit),
            left: BTreeMap::new(),
        }
    }

    /// Changes the credit for messages that are released from now on.
    pub(crate) fn set_credit(&mut self, credit: ByteCount) {
        self.scheduler.set_credit(credit);
    }

    /// A message is ready to leave.
    pub(crate) fn post(&mut self, post: ReadyMessage, message: DepartingMessage) {
        self.scheduler.post(post, (message, post.bytes));
    }

    /// The message that leaves now, if any does.
    pub(crate) fn next(&mut self) -> Option<DepartingMessage> {
        let (message, bytes) = self.scheduler.next()?;
        self.left.insert((message.to, message.key), bytes);
        Some(message)
    }

    /// A message is no longer on its way: it has arrived, makes no progress, or was given up.
    pub(crate) fn finished(&mut self, to: Rank, key: MessageKey) {
        if let Some(bytes) = self.left.remove(&(to, key)) {
            self.scheduler.finished(bytes);
        }
    }

    /// Messages that left later than they were ready, because the credit was spent.
    pub(crate) fn held(&self) -> u64 {
        self.scheduler.held()
    }

    /// How many messages have left and hold credit.
    pub(crate) fn left(&self) -> usize {
        self.left.len()
    }

    /// A rank is gone, and with it every message on its way there.
    pub(crate) fn forget(&mut self, rank: Rank) {
        self.scheduler.retain(|(message, _)| message.to != rank);
        let gone: Vec<(Rank, MessageKey)> = self.left.keys().copied().collect();
        for (to, key) in gone.into_iter().filter(|&(to, _)| to == rank) {
            self.finished(to, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire_protocol::priority::Urgency;
    use gradwire_protocol::units::Step;

    fn message(to: u16, sequence: u32) -> DepartingMessage {
        DepartingMessage {
            to: Rank(to),
            key: MessageKey::new(0, sequence, 0),
            tolerance: Share::NONE,
        }
    }

    fn post(departures: &mut DepartureQueue, to: u16, sequence: u32) {
        let post = ReadyMessage {
            step: Step(0),
            urgency: Urgency::default(),
            bytes: ByteCount::new(10),
        };
        departures.post(post, message(to, sequence));
    }

    #[test]
    fn a_lost_rank_gives_its_credit_back() {
        let mut departures = DepartureQueue::new(ByteCount::new(10));
        for (to, sequence) in [(1, 0), (1, 1), (2, 2)] {
            post(&mut departures, to, sequence);
        }
        assert_eq!(departures.next(), Some(message(1, 0)));
        assert_eq!(departures.next(), None);
        departures.forget(Rank(1));
        assert_eq!(departures.next(), Some(message(2, 2)));
    }

    #[test]
    fn a_message_gives_its_credit_back_once() {
        let mut departures = DepartureQueue::new(ByteCount::new(20));
        for sequence in 0..4 {
            post(&mut departures, 1, sequence);
        }
        let first = departures.next().expect("there is credit");
        let second = departures.next().expect("there is credit");
        departures.finished(first.to, first.key);
        departures.finished(first.to, first.key);
        assert!(departures.next().is_some());
        assert_eq!(departures.next(), None);
        departures.finished(second.to, second.key);
        assert!(departures.next().is_some());
    }
}

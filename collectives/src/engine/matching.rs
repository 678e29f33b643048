//! Matches sends with receives.
//!
//! - Both sides count the messages of a pair of ranks, a group and a tag. The count is part of a
//!   message's key on the wire.
//! - A receive from a rank claims that rank's next message when it is submitted, whether the
//!   message has arrived or not.
//! - A receive from any rank waits for an announced message that is unclaimed. Then it claims the
//!   next message of the rank that was announced first.
//!
//! So the messages of one rank and tag are received in the order of sending.

use std::collections::{BTreeMap, VecDeque};

use gradwire_protocol::units::{MessageKey, Rank};

use crate::operation::label::{sequence, tag_and_count};
use crate::operation::{Collective, Operation, OperationId};
use crate::plan::PARTS;

/// The messages from a rank, or to it, of one group and tag.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct MatchQueue {
    group: u16,
    tag: u16,
    peer: Rank,
}

/// A message that has begun to arrive and that no receive has claimed.
#[derive(Clone, Copy, Debug)]
struct AnnouncedMessage {
    queue: MatchQueue,
    count: u16,
}

/// The matching state of a rank's point-to-point operations.
#[derive(Debug, Default)]
pub(crate) struct Matching {
    /// The count of the first message of each queue.
    first: u16,
    /// How many messages were sent, modulo 2^16.
    sent: BTreeMap<MatchQueue, u16>,
    /// How many were claimed.
    claimed: BTreeMap<MatchQueue, u16>,
    /// In order of arrival.
    announced: VecDeque<AnnouncedMessage>,
    /// Receives from any rank, in order of submission.
    waiting: Vec<(OperationId, Operation)>,
}

impl Matching {
    /// Counts messages from this number on.
    pub(crate) fn starting_at(first: u16) -> Self {
        Self {
            first,
            ..Self::default()
        }
    }

    /// The sequence number of an operation: for a point-to-point operation the next one of its peer
    /// and tag, otherwise its own.
    pub(crate) fn sequence(&self, operation: &Operation) -> u32 {
        let (counts, queue) = match operation.collective {
            Collective::Send { to, tag } => (&self.sent, queue(operation, to, tag)),
            Collective::Receive { from, tag } => (&self.claimed, queue(operation, from, tag)),
            _ => return operation.sequence,
        };
        let count = counts.get(&queue).copied().unwrap_or(self.first);
        sequence(queue.tag, count)
    }

    /// The number that [`Matching::sequence`] gave is taken.
    pub(crate) fn take(&mut self, operation: &Operation) {
        match operation.collective {
            Collective::Send { to, tag } => {
                let sent = self.sent.entry(queue(operation, to, tag));
                let count = sent.or_insert(self.first);
                *count = count.wrapping_add(1);
            }
            Collective::Receive { from, tag } => {
                let queue = queue(operation, from, tag);
                let claimed = self.claimed.entry(queue).or_insert(self.first);
                let count = *claimed;
                *claimed = claimed.wrapping_add(1);
                if !self.announced.is_empty() {
                    let is_it = |message: &AnnouncedMessage| {
                        message.queue == queue && message.count == count
                    };
                    self.announced.retain(|message| !is_it(message));
                }
            }
            _ => {}
        }
    }

    /// A message that is not posted has begun to arrive.
    pub(crate) fn announce(&mut self, from: Rank, key: MessageKey) {
        let (group, sequence, part) = key.parts();
        if part != PARTS {
            return; // a collective's, or a further piece of a message
        }
        let (tag, count) = tag_and_count(sequence);
        let queue = MatchQueue {
            group,
            tag,
            peer: from,
        };
        self.announced.push_back(AnnouncedMessage { queue, count });
    }

    /// A receive from any rank waits for its message.
    pub(crate) fn wait(&mut self, id: OperationId, operation: Operation) {
        self.waiting.push((id, operation));
    }

    /// The next receive from any rank that has a message, now a receive from a rank.
    pub(crate) fn matched(&mut self) -> Option<(OperationId, Operation)> {
        let found = self.waiting.iter().enumerate();
        let (at, from) = found.into_iter().find_map(|(at, (_, operation))| {
            let tag = operation.collective.any_source_tag()?;
            let is_its = |queue: &MatchQueue| queue.group == operation.group.id && queue.tag == tag;
            let mut queues = self.announced.iter().map(|message| message.queue);
            Some((at, queues.find(is_its)?.peer))
        })?;
        let (id, mut operation) = self.waiting.remove(at);
        if let Some(tag) = operation.collective.any_source_tag() {
            operation.collective = Collective::Receive { from, tag };
        }
        Some((id, operation))
    }

    /// Receives from any rank that have no message yet.
    pub(crate) fn waiting(&self) -> &[(OperationId, Operation)] {
        &self.waiting
    }

    /// Takes back those that fail.
    pub(crate) fn fail(
        &mut self,
        fails: impl Fn(&Operation) -> bool,
    ) -> Vec<(OperationId, Operation)> {
        let failing = |entry: &mut (OperationId, Operation)| fails(&entry.1);
        self.waiting.extract_if(.., failing).collect()
    }

    /// How many messages have arrived that no receive has claimed.
    pub(crate) fn announced(&self) -> usize {
        self.announced.len()
    }

    /// A message that was announced is cancelled or refused.
    pub(crate) fn withdraw(&mut self, from: Rank, key: MessageKey) {
        let (group, sequence, _) = key.parts();
        let (tag, count) = tag_and_count(sequence);
        let queue = MatchQueue {
            group,
            tag,
            peer: from,
        };
        let is_it = |message: &AnnouncedMessage| message.queue == queue && message.count == count;
        self.announced.retain(|message| !is_it(message));
    }

    /// This rank sends and receives nothing more in a group.
    pub(crate) fn end_group(&mut self, group: u16) {
        self.sent.retain(|queue, _| queue.group != group);
        self.claimed.retain(|queue, _| queue.group != group);
        self.announced
            .retain(|message| message.queue.group != group);
    }

    /// Forgets the messages of a lost rank.
    pub(crate) fn forget(&mut self, from: Rank) {
        self.announced.retain(|message| message.queue.peer != from);
    }
}

fn queue(operation: &Operation, peer: Rank, tag: u16) -> MatchQueue {
    let group = operation.group.id;
    MatchQueue { group, tag, peer }
}

//! Finds out whether the ranks of a group call the same operations.
//!
//! Every message carries the signature of its operation and the operation's number in its group.
//! The endpoint compares messages that were posted. All others are compared here:
//!
//! - with the operation that runs under that number and expects no such message;
//! - with the operation that has completed under that number;
//! - or, if this rank has not come so far, with the operation that it submits later.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gradwire_protocol::message::MessageOutline;
use gradwire_protocol::units::{MessageKey, Rank, Signature};

use crate::engine::limits::CommunicatorLimits;
use crate::operation::call::Call;
use crate::operation::{CallMismatch, MessageLengths, OperationLabel};
use crate::plan::PARTS;

/// A call of this rank, and the ranks of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankCall<'a> {
    pub(crate) label: OperationLabel,
    pub(crate) ranks: &'a Arc<[Rank]>,
}

/// A message that no operation of this rank has posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnpostedMessage {
    pub(crate) from: Rank,
    pub(crate) key: MessageKey,
    pub(crate) outline: MessageOutline,
}

/// The calls of this rank, and messages of calls that it has not made yet.
#[derive(Debug)]
pub(crate) struct Agreement {
    me: Rank,
    /// Completed operations that are remembered, of all groups together. A peer that is further
    /// behind has not heard of this rank for as long.
    completed_kept: usize,
    completed: VecDeque<(OperationLabel, Arc<[Rank]>)>,
    /// The last call of each group, and the group's ranks.
    entered: BTreeMap<u16, (OperationLabel, Arc<[Rank]>)>,
    early: Vec<UnpostedMessage>,
}

impl Agreement {
    /// The agreement of a rank before its first call.
    pub(crate) fn new(me: Rank) -> Self {
        Self {
            me,
            completed_kept: CommunicatorLimits::USUAL.completed,
            completed: VecDeque::new(),
            entered: BTreeMap::new(),
            early: Vec::new(),
        }
    }

    /// Remembers this many completed operations.
    pub(crate) fn keep(&mut self, completed: usize) {
        self.completed_kept = completed;
    }

    /// The last call of this rank in a group.
    pub(crate) fn last(&self, group: u16) -> Option<OperationLabel> {
        self.entered.get(&group).map(|&(label, _)| label)
    }

    /// The call that has completed under a number of a group, if it is still remembered.
    pub(crate) fn completed(&self, group: u16, sequence: u32) -> Option<OperationLabel> {
        self.remembered(group, sequence).map(|call| call.label)
    }

    fn remembered(&self, group: u16, sequence: u32) -> Option<RankCall<'_>> {
        let newest_first = self.completed.iter().rev();
        let mut calls = newest_first.map(|&(label, ref ranks)| RankCall { label, ranks });
        calls.find(|call| (call.label.group, call.label.sequence) == (group, sequence))
    }

    /// This rank submits a collective, which expects the messages for which `expects(sender, part)`
    /// is true. Returns how an earlier message contradicts it.
    pub(crate) fn enter(
        &mut self,
        call: RankCall<'_>,
        expects: impl Fn(Rank, u16) -> bool,
    ) -> Option<CallMismatch> {
        let label = call.label;
        match self.entered.get_mut(&label.group) {
            Some((last, ranks)) if Arc::ptr_eq(ranks, call.ranks) => *last = label,
            _ => {
                let ranks = Arc::clone(call.ranks);
                self.entered.insert(label.group, (label, ranks));
            }
        }
        if self.early.is_empty() {
            return None;
        }
        let signature = label.call.signature();
        let mut wrong = None;
        self.early.retain(|early| {
            let (group, sequence, part) = early.key.parts();
            let is_its = (group, sequence) == (label.group, label.sequence);
            if is_its && (early.outline.signature != signature || !expects(early.from, part)) {
                wrong = Some(*early);
            }
            !is_its
        });
        let wrong = wrong?;
        Some(self.mismatch(call, wrong.from, wrong.outline, None))
    }

    /// A collective has completed here.
    pub(crate) fn complete(&mut self, call: RankCall<'_>) {
        if self.completed.len() == self.completed_kept {
            self.completed.pop_front();
        }
        self.completed
            .push_back((call.label, Arc::clone(call.ranks)));
    }

    /// A message has arrived that was not posted. `running` is the operation with its key, if that
    /// one runs: then it does not expect this message. Returns how the message contradicts a call.
    pub(crate) fn announce(
        &mut self,
        message: UnpostedMessage,
        running: Option<RankCall<'_>>,
    ) -> Option<CallMismatch> {
        let UnpostedMessage { from, key, outline } = message;
        let (group, sequence, part) = key.parts();
        if part >= PARTS {
            return None; // point-to-point: matched by count, not by call
        }
        if let Some(call) = running {
            return Some(self.mismatch(call, from, outline, None));
        }
        let is_ahead = |last: OperationLabel| is_before(last.sequence, sequence);
        if !self.last(group).is_none_or(is_ahead)
            && let Some(call) = self.remembered(group, sequence)
        {
            return Some(self.mismatch(call, from, outline, None));
        }
        self.early.push(message);
        None
    }

    /// How a message of `from` differs from the one that a call of this rank posted, which has
    /// `expected` bytes; `None` if it posted none. If the signatures are equal, the lengths differ.
    pub(crate) fn mismatch(
        &self,
        ours: RankCall<'_>,
        from: Rank,
        theirs: MessageOutline,
        expected: Option<u32>,
    ) -> CallMismatch {
        let call = ours.label.call;
        let alike = theirs.signature == call.signature();
        let came = theirs.bytes;
        CallMismatch {
            rank: self.me,
            ours: ours.label,
            peer: from,
            theirs: match theirs.signature {
                Signature::NONE => Some(call.opposite(self.me)),
                signature => Call::read(signature, ours.ranks),
            },
            lengths: alike.then_some(MessageLengths { came, expected }),
        }
    }

    /// The groups in which this rank has called an operation and which have this member.
    pub(crate) fn groups_of(&self, member: Rank) -> impl Iterator<Item = u16> {
        let groups = self.entered.iter();
        groups.filter_map(move |(&group, (_, ranks))| ranks.contains(&member).then_some(group))
    }

    /// How many messages are kept for calls that this rank has not made yet.
    pub(crate) fn early(&self) -> usize {
        self.early.len()
    }

    /// A message that was announced is cancelled or refused.
    pub(crate) fn withdraw(&mut self, from: Rank, key: MessageKey) {
        self.early
            .retain(|early| (early.from, early.key) != (from, key));
    }

    /// This rank makes no more calls in a group.
    pub(crate) fn end_group(&mut self, group: u16) {
        self.entered.remove(&group);
    }

    /// Forgets the messages of a lost rank.
    pub(crate) fn forget(&mut self, from: Rank) {
        self.early.retain(|early| early.from != from);
    }
}

/// Whether a sequence number comes before another one. They wrap.
fn is_before(first: u32, second: u32) -> bool {
    (second.wrapping_sub(first) as i32) > 0
}

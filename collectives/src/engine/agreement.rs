//! Whether the ranks of a group call the same operations: every message says of which kind its
//! operation is, and which number it has in its group.
//!
//! A message that was posted is compared by the endpoint. What it has not posted is compared here:
//! with the operation that runs under that number and expects no such message; with the one that
//! has run under it; or, when this rank has not come so far, with the one that it submits later.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gradwire_protocol::message::MessageOutline;
use gradwire_protocol::units::{MessageKey, Rank, Signature};

use crate::operation::call::Call;
use crate::operation::{CallMismatch, MessageLengths, Operation, OperationLabel};
use crate::plan::PARTS;

/// Operations that are remembered after they have completed, of all groups together. A peer that
/// is further behind has not heard of this rank for as long.
const COMPLETED_KEPT: usize = 1024;

/// A call of this rank.
#[derive(Clone, Debug)]
struct KnownCall {
    label: OperationLabel,
    ranks: Arc<[Rank]>,
}

impl KnownCall {
    fn of((operation, label): Called<'_>) -> Self {
        let ranks = Arc::clone(&operation.group.ranks);
        Self { label, ranks }
    }

    /// What differs from a message of `peer`: the signatures, or else the lengths, of which this
    /// rank, `me`, expected this one, if it expected the message at all.
    fn mismatch(
        &self,
        me: Rank,
        peer: Rank,
        theirs: MessageOutline,
        expected: Option<u32>,
    ) -> CallMismatch {
        let call = self.label.call;
        let alike = theirs.signature == call.signature();
        let came = theirs.bytes;
        CallMismatch {
            rank: me,
            ours: self.label,
            peer,
            theirs: match theirs.signature {
                Signature::NONE => Some(call.opposite(me)),
                signature => Call::read(signature, &self.ranks),
            },
            lengths: alike.then_some(MessageLengths { came, expected }),
        }
    }
}

/// A running operation, and its name.
pub(crate) type Called<'a> = (&'a Operation, OperationLabel);

/// A message of an operation that this rank has not submitted.
#[derive(Clone, Copy, Debug)]
struct EarlyMessage {
    from: Rank,
    key: MessageKey,
    outline: MessageOutline,
}

/// What is known of the calls of this rank and of others.
#[derive(Debug)]
pub(crate) struct Agreement {
    me: Rank,
    completed: VecDeque<KnownCall>,
    /// The last call of each group.
    entered: BTreeMap<u16, OperationLabel>,
    early: Vec<EarlyMessage>,
}

impl Agreement {
    /// Nothing was called yet.
    pub(crate) fn new(me: Rank) -> Self {
        Self {
            me,
            completed: VecDeque::new(),
            entered: BTreeMap::new(),
            early: Vec::new(),
        }
    }

    /// What this rank has called last in a group.
    pub(crate) fn last(&self, group: u16) -> Option<OperationLabel> {
        self.entered.get(&group).copied()
    }

    /// What has completed here under a number of a group, as far as that is remembered.
    pub(crate) fn completed(&self, group: u16, sequence: u32) -> Option<OperationLabel> {
        self.known(group, sequence).map(|known| known.label)
    }

    fn known(&self, group: u16, sequence: u32) -> Option<&KnownCall> {
        let same =
            |known: &&KnownCall| (known.label.group, known.label.sequence) == (group, sequence);
        self.completed.iter().rev().find(same)
    }

    /// This rank submits a collective. Tells what contradicts it of that which has come before;
    /// `expects` says whether there is to be a message of a rank and a part.
    pub(crate) fn enter(
        &mut self,
        (operation, label): Called<'_>,
        expects: impl Fn(Rank, u16) -> bool,
    ) -> Option<CallMismatch> {
        self.entered.insert(label.group, label);
        if self.early.is_empty() {
            return None;
        }
        let key = (label.group, label.sequence);
        let signature = label.call.signature();
        let mut wrong = None;
        self.early.retain(|early| {
            let (group, sequence, part) = early.key.parts();
            let is_its = (group, sequence) == key;
            if is_its && (early.outline.signature != signature || !expects(early.from, part)) {
                wrong = Some(*early);
            }
            !is_its
        });
        let wrong = wrong?;
        let ours = KnownCall::of((operation, label));
        Some(ours.mismatch(self.me, wrong.from, wrong.outline, None))
    }

    /// A collective has completed here.
    pub(crate) fn complete(&mut self, called: Called<'_>) {
        if self.completed.len() == COMPLETED_KEPT {
            self.completed.pop_front();
        }
        self.completed.push_back(KnownCall::of(called));
    }

    /// A message has come that was not posted. `running` is the operation with its key, if it runs:
    /// then it was to have no such message. Tells what the message contradicts.
    pub(crate) fn announce(
        &mut self,
        (from, key): (Rank, MessageKey),
        outline: MessageOutline,
        running: Option<Called<'_>>,
    ) -> Option<CallMismatch> {
        let (group, sequence, part) = key.parts();
        if part >= PARTS {
            return None;
        }
        if let Some(called) = running {
            let ours = KnownCall::of(called);
            return Some(ours.mismatch(self.me, from, outline, None));
        }
        let is_new = |label: &OperationLabel| label.sequence < sequence;
        if !self.entered.get(&group).is_none_or(is_new)
            && let Some(ours) = self.known(group, sequence)
        {
            return Some(ours.mismatch(self.me, from, outline, None));
        }
        self.early.push(EarlyMessage { from, key, outline });
        None
    }

    /// A message has come of which another was posted for an operation.
    pub(crate) fn contradicts(
        &self,
        from: Rank,
        called: Called<'_>,
        (ours, theirs): (MessageOutline, MessageOutline),
    ) -> CallMismatch {
        let known = KnownCall::of(called);
        known.mismatch(self.me, from, theirs, Some(ours.bytes))
    }

    /// Forgets what a lost rank sent.
    pub(crate) fn forget(&mut self, from: Rank) {
        self.early.retain(|early| early.from != from);
    }
}

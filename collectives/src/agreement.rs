//! Whether the ranks of a group call the same operations: every message says of which kind its
//! operation is, and which number it has in its group.
//!
//! A message that was posted is compared by the endpoint. What it has not posted is compared here:
//! with the operation that runs under that number and expects no such message; with the one that
//! has run under it; or, when this rank has not come so far, with the one that it submits later.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use gradwire_protocol::receiver::MessageOutline;
use gradwire_protocol::units::{MessageKey, Rank, Signature};

use crate::call::Call;
use crate::operation::{Collective, Label, Operation};
use crate::plan::PARTS;

/// Operations that are remembered after they have completed, of all groups together. A peer that
/// is further behind has not heard of this rank for as long.
const COMPLETED_KEPT: usize = 1024;

/// Why two ranks cannot be in the same operation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mismatch {
    /// This rank.
    pub rank: Rank,
    /// What it called.
    pub ours: Label,
    /// The other rank.
    pub peer: Rank,
    /// What that one called; `None` when this build knows no such operation.
    pub theirs: Option<Call>,
    /// Lengths of the message that told, where calls are alike but for the shape.
    pub lengths: Option<Lengths>,
}

/// Lengths of one message, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lengths {
    /// As it came.
    pub came: u32,
    /// As it was expected; `None` when there was to be no such message.
    pub expected: Option<u32>,
}

impl Mismatch {
    /// What differs, where one does: the signatures, or else the lengths of a message.
    fn between(
        (rank, peer): (Rank, Rank),
        ours: &Known,
        (theirs, expected): (MessageOutline, Option<u32>),
    ) -> Self {
        let alike = theirs.signature == ours.label.call.signature();
        let came = theirs.bytes;
        Self {
            rank,
            ours: ours.label,
            peer,
            theirs: match theirs.signature {
                Signature::NONE => Some(ours.label.call.opposite(rank)),
                signature => Call::read(signature, &ours.ranks),
            },
            lengths: alike.then_some(Lengths { came, expected }),
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Label {
            call,
            group,
            sequence,
        } = self.ours;
        write!(f, "group {group}, sequence {sequence}: ")?;
        let theirs = self.theirs.map(|call| call.to_string());
        let theirs = theirs.unwrap_or_else(|| "an unknown operation".to_owned());
        let mut calls = [(self.rank, call.to_string()), (self.peer, theirs)];
        calls.sort_by_key(|(rank, _)| *rank);
        let [(first, its), (second, other)] = calls;
        write!(f, "rank {first} called {its}, rank {second} called {other}")?;
        if let Some(Lengths { came, expected }) = self.lengths {
            let (rank, peer) = (self.rank, self.peer);
            write!(
                f,
                ", in different shapes (rank {peer} sent {came} bytes to rank {rank}"
            )?;
            match expected {
                Some(expected) => write!(f, ", which expects {expected})")?,
                None => write!(f, ", which expects no such message)")?,
            }
        }
        let transforms = self.theirs.map(|theirs| theirs.transform);
        let mixed_by_one = transforms.is_some_and(|theirs| theirs != call.transform);
        f.write_str(match (call.collective, self.lengths) {
            _ if mixed_by_one => {
                ": whether an operation is transformed follows from its tolerance and layers, \
                 which must be the same on all ranks"
            }
            (Collective::AllToAll, Some(_)) => {
                ": what is split off for a rank must be as long as what that rank expects"
            }
            (of_two, _) if of_two.is_point_to_point() => {
                ": a send and its receive must have the same number of bytes"
            }
            _ => {
                ": all ranks of a group must call the same operation in the same order with the \
                 same shape and type"
            }
        })
    }
}

/// A call of this rank.
#[derive(Clone, Debug)]
struct Known {
    label: Label,
    ranks: Arc<[Rank]>,
}

impl Known {
    fn of((operation, label): Called<'_>) -> Self {
        let ranks = Arc::clone(&operation.group.ranks);
        Self { label, ranks }
    }
}

/// A running operation, and its name.
pub(crate) type Called<'a> = (&'a Operation, Label);

/// A message of an operation that this rank has not submitted.
#[derive(Clone, Copy, Debug)]
struct Early {
    from: Rank,
    key: MessageKey,
    outline: MessageOutline,
}

/// What is known of the calls of this rank and of others.
#[derive(Debug)]
pub(crate) struct Agreement {
    me: Rank,
    completed: VecDeque<Known>,
    /// The last call of each group.
    entered: BTreeMap<u16, Label>,
    early: Vec<Early>,
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
    pub(crate) fn last(&self, group: u16) -> Option<Label> {
        self.entered.get(&group).copied()
    }

    /// What has completed here under a number of a group, as far as that is remembered.
    pub(crate) fn completed(&self, group: u16, sequence: u32) -> Option<Label> {
        self.known(group, sequence).map(|known| known.label)
    }

    fn known(&self, group: u16, sequence: u32) -> Option<&Known> {
        let same = |known: &&Known| (known.label.group, known.label.sequence) == (group, sequence);
        self.completed.iter().rev().find(same)
    }

    /// This rank submits a collective. Tells what contradicts it of that which has come before;
    /// `expects` says whether there is to be a message of a rank and a part.
    pub(crate) fn enter(
        &mut self,
        (operation, label): Called<'_>,
        expects: impl Fn(Rank, u16) -> bool,
    ) -> Option<Mismatch> {
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
        let ours = Known::of((operation, label));
        Some(Mismatch::between(
            (self.me, wrong.from),
            &ours,
            (wrong.outline, None),
        ))
    }

    /// A collective has completed here.
    pub(crate) fn complete(&mut self, called: Called<'_>) {
        if self.completed.len() == COMPLETED_KEPT {
            self.completed.pop_front();
        }
        self.completed.push_back(Known::of(called));
    }

    /// A message has come that was not posted. `running` is the operation with its key, if it runs:
    /// then it was to have no such message. Tells what the message contradicts.
    pub(crate) fn announce(
        &mut self,
        (from, key): (Rank, MessageKey),
        outline: MessageOutline,
        running: Option<Called<'_>>,
    ) -> Option<Mismatch> {
        let (group, sequence, part) = key.parts();
        if part >= PARTS {
            return None;
        }
        if let Some(called) = running {
            let ours = Known::of(called);
            return Some(Mismatch::between((self.me, from), &ours, (outline, None)));
        }
        let is_new = |label: &Label| label.sequence < sequence;
        if !self.entered.get(&group).is_none_or(is_new)
            && let Some(ours) = self.known(group, sequence)
        {
            return Some(Mismatch::between((self.me, from), ours, (outline, None)));
        }
        self.early.push(Early { from, key, outline });
        None
    }

    /// A message has come of which another was posted for an operation.
    pub(crate) fn contradicts(
        &self,
        from: Rank,
        called: Called<'_>,
        (ours, theirs): (MessageOutline, MessageOutline),
    ) -> Mismatch {
        let known = Known::of(called);
        Mismatch::between((self.me, from), &known, (theirs, Some(ours.bytes)))
    }

    /// Forgets what a lost rank sent.
    pub(crate) fn forget(&mut self, from: Rank) {
        self.early.retain(|early| early.from != from);
    }
}

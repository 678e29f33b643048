//! SwitchML and NetReduce: every packet of a job has a slot, which a later packet takes over.
//!
//! Sapio et al., "Scaling Distributed Machine Learning with In-Network Aggregation", NSDI 2021; Liu
//! et al., "In-Network Aggregation with Transport Transparency", ASPLOS 2023.
//!
//! - A member has at most half of the job's slots in flight, so the two halves are SwitchML's two
//!   sets. When the first contribution to packet k + slots comes, all members have the result of k:
//!   its sender had the result of k + slots / 2, to which all contribute only after that of k.
//! - Until then the slot keeps the sum (the shadow copy), and answers contributions that are sent
//!   again. SwitchML sends that answer back ([`KnownSum::GoesBack`]); NetReduce lets it go on in
//!   the place of the packet, along the connection on which it came ([`KnownSum::GoesOn`]). A
//!   switch below gets it back in either case, for all its members.
//! - A slot remembers its packet's number, where SwitchML clears the bits of the other set: so it
//!   tells packets that were overtaken by their successors, and drops them.

use std::collections::BTreeMap;

use super::{Aggregator, PartialSum, SumKind, SumOutcome, SumPacket, TreePlace, TreeTier};

/// Where the sum goes that a repeated contribution asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KnownSum {
    /// Back to the member that sent it (SwitchML).
    GoesBack,
    /// On to its destination (NetReduce).
    GoesOn,
}

/// The element of a switch whose jobs have slots of their own.
#[derive(Debug)]
pub struct SlottedSums {
    slots_per_job: u32,
    known: KnownSum,
    jobs: BTreeMap<u32, SlotTable>,
}

/// The slots of a job.
#[derive(Clone, Debug)]
pub struct SlotTable(Vec<Slot>);

/// How a contribution changed its slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SlotChange {
    /// A later packet has taken the slot over.
    Overtaken,
    /// Its members are in the sum already, and others are not.
    Repeated,
    /// It is the first one of its packet: the slot held an older packet, or nothing.
    Begun,
    /// It was added.
    Added,
    /// The slot has the sum of the members below already, and waits for that of all.
    Waits,
    /// The slot has the sum of all already.
    Knows,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    number: u32,
    sum: PartialSum,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Stage {
    /// It collects contributions of the members below.
    #[default]
    Collects,
    /// It has those, and has sent their sum up.
    Waits,
    /// It has the sum of all.
    Knows,
}

impl SlottedSums {
    /// An element with this many slots for each job.
    ///
    /// # Panics
    /// When there is none.
    pub fn new(slots_per_job: u32, known: KnownSum) -> Self {
        assert!(slots_per_job > 0, "a job has at least one slot");
        Self {
            slots_per_job,
            known,
            jobs: BTreeMap::new(),
        }
    }

    fn table(&mut self, job: u32) -> &mut SlotTable {
        let slots = self.slots_per_job;
        let table = self.jobs.entry(job);
        table.or_insert_with(|| SlotTable::new(slots))
    }

    fn contribute(&mut self, place: &TreePlace, packet: &mut SumPacket) -> SumOutcome {
        let known = self.known;
        let table = self.table(packet.job);
        let change = table.contribute(place, packet.number, packet.sum);
        let sum = table.sum(packet.number);
        match (change, place.tier) {
            (SlotChange::Overtaken | SlotChange::Repeated, _) => SumOutcome::Absorb,
            (SlotChange::Begun | SlotChange::Added, _) if sum.who != place.below => {
                SumOutcome::Absorb
            }
            (SlotChange::Begun | SlotChange::Added, TreeTier::Root) => {
                (packet.sum, packet.kind) = (sum, SumKind::Result);
                SumOutcome::Multicast
            }
            (SlotChange::Begun | SlotChange::Added | SlotChange::Waits, _) => {
                packet.sum = sum;
                SumOutcome::Replace
            }
            (SlotChange::Knows, _) => {
                let asks = std::mem::replace(&mut packet.sum, sum).who;
                if known == KnownSum::GoesOn && asks.is_within(place.direct) {
                    packet.kind = SumKind::Answer;
                    return SumOutcome::Replace;
                }
                packet.kind = SumKind::Result;
                SumOutcome::Reply
            }
        }
    }

    /// A result comes from above; every member below gets it once by itself.
    fn take_result(&mut self, packet: &SumPacket) -> SumOutcome {
        match self.table(packet.job).slot(packet.number) {
            Some(slot) if slot.stage != Stage::Knows => {
                (slot.stage, slot.sum) = (Stage::Knows, packet.sum);
                SumOutcome::Multicast
            }
            _ => SumOutcome::Absorb,
        }
    }
}

impl SlotTable {
    /// This many slots, at least one.
    pub fn new(slots: u32) -> Self {
        Self(vec![Slot::default(); slots as usize])
    }

    /// The place of a packet among the slots.
    pub fn place(&self, number: u32) -> usize {
        number as usize % self.0.len()
    }

    /// The slot of a packet; `None` when a later packet has taken it over.
    fn slot(&mut self, number: u32) -> Option<&mut Slot> {
        let at = self.place(number);
        let slot = &mut self.0[at];
        if slot.number < number {
            *slot = Slot {
                number,
                ..Slot::default()
            };
        }
        (slot.number == number).then_some(slot)
    }

    /// Takes a contribution to a packet.
    pub fn contribute(&mut self, place: &TreePlace, number: u32, sum: PartialSum) -> SlotChange {
        let Some(slot) = self.slot(number) else {
            return SlotChange::Overtaken;
        };
        match slot.stage {
            Stage::Waits => return SlotChange::Waits,
            Stage::Knows => return SlotChange::Knows,
            Stage::Collects if sum.who.meets(slot.sum.who) => return SlotChange::Repeated,
            Stage::Collects => {}
        }
        let is_first = slot.sum == PartialSum::default();
        slot.sum.add(sum);
        if slot.sum.who == place.below {
            slot.stage = match place.tier {
                TreeTier::Root => Stage::Knows,
                TreeTier::Branch => Stage::Waits,
            };
        }
        match is_first {
            true => SlotChange::Begun,
            false => SlotChange::Added,
        }
    }

    /// The sum of a packet so far; empty if its slot has another packet.
    pub fn sum(&self, number: u32) -> PartialSum {
        let slot = &self.0[self.place(number)];
        match slot.number == number {
            true => slot.sum,
            false => PartialSum::default(),
        }
    }
}

impl Aggregator for SlottedSums {
    fn arrive(&mut self, place: &TreePlace, packet: &mut SumPacket) -> SumOutcome {
        match packet.kind {
            SumKind::Result => self.take_result(packet),
            _ => self.contribute(place, packet),
        }
    }
}

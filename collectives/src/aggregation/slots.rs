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
    jobs: BTreeMap<u32, Vec<Slot>>,
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
    /// An element with so many slots for each job.
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

    /// The slot of a packet; `None` when a later packet has taken it over.
    fn slot(&mut self, packet: &SumPacket) -> Option<&mut Slot> {
        let slots = self.jobs.entry(packet.job);
        let slots = slots.or_insert_with(|| vec![Slot::default(); self.slots_per_job as usize]);
        let slot = &mut slots[(packet.number % self.slots_per_job) as usize];
        if slot.number < packet.number {
            *slot = Slot {
                number: packet.number,
                ..Slot::default()
            };
        }
        (slot.number == packet.number).then_some(slot)
    }

    fn contribute(&mut self, place: &TreePlace, packet: &mut SumPacket) -> SumOutcome {
        let known = self.known;
        let Some(slot) = self.slot(packet) else {
            return SumOutcome::Absorb;
        };
        if slot.stage == Stage::Collects {
            if packet.sum.who.meets(slot.sum.who) {
                return SumOutcome::Absorb;
            }
            slot.sum.add(packet.sum);
            if slot.sum.who != place.below {
                return SumOutcome::Absorb;
            }
            slot.stage = match place.tier {
                TreeTier::Root => Stage::Knows,
                TreeTier::Branch => Stage::Waits,
            };
            packet.sum = slot.sum;
            return match place.tier {
                TreeTier::Root => {
                    packet.kind = SumKind::Result;
                    SumOutcome::Multicast
                }
                TreeTier::Branch => SumOutcome::Replace,
            };
        }
        let packet_who = std::mem::replace(&mut packet.sum, slot.sum).who;
        if slot.stage == Stage::Waits {
            return SumOutcome::Replace;
        }
        if known == KnownSum::GoesOn && packet_who.is_within(place.direct) {
            packet.kind = SumKind::Answer;
            return SumOutcome::Replace;
        }
        packet.kind = SumKind::Result;
        SumOutcome::Reply
    }

    /// A result comes from above; every member below gets it once by itself.
    fn take_result(&mut self, packet: &SumPacket) -> SumOutcome {
        match self.slot(packet) {
            Some(slot) if slot.stage != Stage::Knows => {
                (slot.stage, slot.sum) = (Stage::Knows, packet.sum);
                SumOutcome::Multicast
            }
            _ => SumOutcome::Absorb,
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

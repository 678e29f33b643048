//! ATP: jobs share aggregators by hash, and a server adds up what the switches could not.
//!
//! Lao et al., "ATP: In-network Aggregation for Multi-tenant Learning", NSDI 2021.
//!
//! - The first contribution to a packet claims the aggregator to which its number hashes. If
//!   another packet has it, the contribution goes on to the server as it is.
//! - The sum of all members below goes on towards the server, and the aggregator stays claimed
//!   until the result comes back.
//! - A contribution that is sent again takes along what the aggregator has, and frees it, so that
//!   after one round trip every contribution is at the server, whatever was lost.
//! - The server adds sums that have no member in common with what it has, and drops the others.
//!
//! Left out: floats in place of integers that overflow, and a new hash after a collision.

use std::collections::{BTreeMap, BTreeSet};

use super::{Aggregator, PartialSum, SumKind, SumOutcome, SumPacket, TreePlace};

/// The element of a switch whose jobs share aggregators.
#[derive(Debug)]
pub struct HashedSums {
    aggregators: Vec<Option<Claimed>>,
}

#[derive(Clone, Copy, Debug)]
struct Claimed {
    job: u32,
    number: u32,
    sum: PartialSum,
}

impl Claimed {
    const fn is_of(&self, packet: &SumPacket) -> bool {
        self.job == packet.job && self.number == packet.number
    }
}

impl HashedSums {
    /// An element with this many aggregators; with none, all contributions go to the server.
    pub fn new(aggregators: usize) -> Self {
        Self {
            aggregators: vec![None; aggregators],
        }
    }

    fn aggregator(&mut self, packet: &SumPacket) -> Option<&mut Option<Claimed>> {
        // Consecutive packets take consecutive aggregators, from a start that the job's number
        // draws.
        let start = packet.job.wrapping_mul(0x9E37_79B9) as usize;
        let at = start.wrapping_add(packet.number as usize);
        let at = at.checked_rem(self.aggregators.len())?;
        Some(&mut self.aggregators[at])
    }

    fn contribute(&mut self, place: &TreePlace, packet: &mut SumPacket) -> SumOutcome {
        let is_again = packet.kind == SumKind::Again;
        let Some(place_of_packet) = self.aggregator(packet) else {
            return SumOutcome::Pass;
        };
        let Some(claimed) = place_of_packet else {
            if is_again || packet.sum.who == place.below {
                return SumOutcome::Pass;
            }
            let SumPacket {
                job, number, sum, ..
            } = *packet;
            *place_of_packet = Some(Claimed { job, number, sum });
            return SumOutcome::Absorb;
        };
        if !claimed.is_of(packet) {
            packet.kind = match packet.kind {
                SumKind::Contribution => SumKind::Collided,
                other => other,
            };
            return SumOutcome::Pass;
        }
        if !packet.sum.who.meets(claimed.sum.who) {
            claimed.sum.add(packet.sum);
        } else if !packet.sum.who.is_within(claimed.sum.who) {
            // The two cannot be told apart any more: the server takes one of them.
            return SumOutcome::Pass;
        }
        let is_complete = claimed.sum.who == place.below;
        if is_complete || is_again {
            packet.sum = claimed.sum;
        }
        if is_again {
            *place_of_packet = None;
        }
        match is_complete || is_again {
            true => SumOutcome::Replace,
            false => SumOutcome::Absorb,
        }
    }
}

impl Aggregator for HashedSums {
    fn arrive(&mut self, place: &TreePlace, packet: &mut SumPacket) -> SumOutcome {
        match packet.kind {
            SumKind::Contribution | SumKind::Again => self.contribute(place, packet),
            SumKind::Collided | SumKind::Answer => SumOutcome::Pass,
            SumKind::Result => {
                let aggregator = self.aggregator(packet);
                if let Some(own) = aggregator
                    && own.is_some_and(|own| own.is_of(packet))
                {
                    *own = None;
                }
                SumOutcome::Multicast
            }
        }
    }
}

/// The server of a job: it completes sums, and answers members that have missed one.
#[derive(Debug, Default)]
pub struct SumServer {
    open: BTreeMap<(u32, u32), PartialSum>,
    done: BTreeSet<(u32, u32)>,
}

impl Aggregator for SumServer {
    fn arrive(&mut self, place: &TreePlace, packet: &mut SumPacket) -> SumOutcome {
        let key = (packet.job, packet.number);
        let mut all = PartialSum {
            who: place.below,
            twice: false,
        };
        let (mut kind, mut outcome) = (SumKind::Answer, SumOutcome::Reply);
        if !self.done.contains(&key) {
            let sum = self.open.entry(key).or_default();
            if !packet.sum.who.meets(sum.who) {
                sum.add(packet.sum);
            } else if packet.sum.who == place.below {
                *sum = packet.sum;
            }
            if sum.who != place.below {
                return SumOutcome::Absorb;
            }
            all = *sum;
            self.open.remove(&key);
            self.done.insert(key);
            (kind, outcome) = (SumKind::Result, SumOutcome::Multicast);
        } else if packet.kind != SumKind::Again {
            return SumOutcome::Absorb;
        }
        (packet.kind, packet.sum) = (kind, all);
        outcome
    }
}

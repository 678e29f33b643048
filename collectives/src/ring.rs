//! Ring all-reduce: partial sums travel around the ring, then the results do.
//!
//! With n ranks and a tensor of S bytes: 2 (n - 1) steps; 2 (n - 1) messages per rank and chunk;
//! 2 S (n - 1) / n bytes sent per rank, all of them to the next rank.
//!
//! Reduce-scatter, steps t = 0 .. n - 2: rank r sends its partial sum of shard r - t to rank r + 1
//! and reduces what comes, shard r - t - 1, into its own. After that rank r has the finished shard
//! r + 1. All-gather, as many steps: rank r sends shard r + 1 - t and takes shard r - t. Chunks are
//! rings of their own, a few at once, so that no step waits for a round trip.
//!
//! Always lossless: a segment lost here would be a sum of many. Sums form in the order of the ring,
//! so results do not depend on timing, and every rank talks to two peers only.
//!
//! A partial sum is overwritten by the finished shard, which derives from it by way of the rank
//! that it was sent to: that rank has all of it.

use crate::buffer::Region;
use crate::direct::start_of;
use crate::plan::{Cut, GateId, Inbound, Landing, Outbound, PARTS, Plan, Reliability, Seat};

/// The most chunks whose messages can be numbered; 0 when the ring is too long for one.
pub(crate) fn chunks_max(world: usize) -> usize {
    usize::from(PARTS) / (2 * (world - 1))
}

/// All-reduce in place in the result buffer.
pub(crate) fn all_reduce(seat: Seat<'_>, cut: &Cut) -> Plan {
    let mut plan = Plan::new();
    let mut gathered: Vec<GateId> = Vec::with_capacity(cut.chunks);
    for chunk in 0..cut.chunks {
        let start = start_of(chunk, &gathered);
        let complete = plan.gate();
        add_chunk(
            &mut plan,
            Lap {
                seat,
                cut,
                chunk,
                start,
                complete,
            },
        );
        gathered.push(complete);
    }
    plan.sealed()
}

/// One chunk's way around the ring, twice.
struct Lap<'a> {
    seat: Seat<'a>,
    cut: &'a Cut,
    chunk: usize,
    start: GateId,
    complete: GateId,
}

fn add_chunk(plan: &mut Plan, lap: Lap<'_>) {
    let (seat, steps) = (lap.seat, 2 * (lap.seat.world() - 1));
    let (next, previous) = (seat.ranks[seat.after(1)], seat.ranks[seat.before(1)]);
    let last_reduction = seat.world() - 2;
    let mut gate = lap.start;
    for step in 0..steps {
        let reduces = step <= last_reduction;
        let part = u16::try_from(lap.chunk * steps + step).expect("chunks fit their numbers");
        plan.send(Outbound {
            to: next,
            part,
            region: lap.shard_sent(step),
            reliability: Reliability::Lossless,
            contributors: if reduces {
                step as u16 + 1
            } else {
                seat.contributors()
            },
            gate,
        });
        let region = lap.shard_sent(step + 1);
        gate = match step {
            _ if step == last_reduction => plan.finishing_gate(region),
            _ if step + 1 == steps => lap.complete,
            _ => plan.gate(),
        };
        plan.receive(Inbound {
            from: previous,
            part,
            region,
            landing: if reduces {
                Landing::Reduce
            } else {
                Landing::Copy
            },
            reliability: Reliability::Lossless,
            gate,
        });
    }
}

impl Lap<'_> {
    /// The shard that this rank sends in a step; what it takes in a step it sends in the next. In
    /// step n - 1 the gather begins with shard r + 1, which is r - (n - 1).
    fn shard_sent(&self, step: usize) -> Region {
        let shard = self.seat.before(step);
        let (offset, bytes) = self.cut.shard(self.chunk, self.seat.world(), shard);
        Region::buffer(offset, bytes)
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::{ByteCount, Rank};

    use super::*;

    #[test]
    fn an_all_reduce_takes_two_laps_and_sends_to_the_next_rank_only() {
        let ranks = [Rank(0), Rank(1), Rank(2), Rank(3)];
        let bytes = 64 << 10;
        let cut = Cut::new(bytes, 4, ByteCount::kib(32), chunks_max(4));
        let plan = all_reduce(
            Seat {
                ranks: &ranks,
                me: 3,
            },
            &cut,
        );
        assert_eq!(plan.outbounds.len(), cut.chunks * 2 * 3);
        assert!(plan.outbounds.iter().all(|out| out.to == Rank(0)));
        assert!(plan.inbounds.iter().all(|inbound| inbound.from == Rank(2)));
        let sent: usize = plan.outbounds.iter().map(|out| out.region.bytes).sum();
        assert_eq!(sent, 2 * bytes * 3 / 4);
    }

    #[test]
    fn what_one_rank_sends_in_a_step_the_next_takes() {
        let ranks = [Rank(0), Rank(1), Rank(2)];
        let cut = Cut::new(4000, 4, ByteCount::new(1500), chunks_max(3));
        let plans = [0, 1, 2].map(|me| all_reduce(Seat { ranks: &ranks, me }, &cut));
        for me in 0..3 {
            for out in &plans[me].outbounds {
                let next = &plans[(me + 1) % 3];
                let taken = next
                    .inbound(ranks[me], out.part)
                    .expect("every message has a taker");
                assert_eq!(next.inbounds[taken].region, out.region);
            }
        }
    }

    #[test]
    fn a_ring_of_too_many_ranks_has_no_room_for_a_chunk() {
        assert_eq!(chunks_max(2), 16384);
        assert_eq!(chunks_max(40_000), 0);
    }
}

//! Halving-doubling all-reduce (Rabenseifner, 2004): recursive-halving reduce-scatter, then
//! recursive-doubling all-gather.
//!
//! With n ranks, p the largest power of two up to n, and a tensor of S bytes:
//!
//! | | steps | messages per rank and chunk | bytes sent per rank |
//! |---|---|---|---|
//! | n = p | 2 log2 n | 2 log2 n | 2 S (n - 1) / n |
//! | n > p, first n - p ranks | 2 log2 p + 2 | 2 log2 p + 1 | 2 S (p - 1) / p + S |
//! | n > p, ranks up to p | 2 log2 p + 2 | 2 log2 p | 2 S (p - 1) / p |
//! | n > p, the other n - p | 2 log2 p + 2 | 1 | S |
//!
//! 1. Fold: each rank p + i, beyond the power of two, sends its tensor to rank i, which adds it to
//!    its own.
//! 2. Halving, distances d = p / 2, p / 4 .. 1: ranks r and r xor d have the same run of 2 d
//!    shards. Each sends the half that the other keeps, and reduces the received half into its own.
//!    Then rank r has the finished shard r.
//! 3. Doubling, distances 1, 2 .. p / 2: the same pairs swap the runs of d shards that they have
//!    finished.
//! 4. Unfold: rank i sends the result to rank p + i.
//!
//! A few chunks run at once, so that steps of one overlap those of others.
//!
//! Always lossless: a segment lost here would be a sum of many. A rank adds halves in the order of
//! the steps, or of arrival if the job says so. Each shard is finished by one rank, so all ranks
//! end with the same bits.
//!
//! A half that was sent to a rank is overwritten by the finished values from that same rank, which
//! has reduced all of it by then. The result, which includes the folded tensor, overwrites it.

use std::ops::Range;

use crate::plan::{
    ElementRun, GateId, GroupSeat, MessagePlan, PARTS, PlannedReceive, PlannedSend, SegmentLanding,
    TensorCut, TensorRegion,
};

/// The maximum number of chunks whose messages can be numbered.
pub(crate) fn chunks_max(world: usize) -> usize {
    usize::from(PARTS) / chunk_parts(world)
}

/// Part numbers that a chunk takes: two per distance, one to fold and one to unfold.
pub(crate) fn chunk_parts(world: usize) -> usize {
    2 * world.ilog2() as usize + 2
}

/// All-reduce in place in the result buffer.
pub(crate) fn all_reduce(seat: GroupSeat<'_>, cut: &TensorCut) -> MessagePlan {
    let mut plan = MessagePlan::new();
    let mut complete: Vec<GateId> = Vec::with_capacity(cut.chunks);
    for chunk in 0..cut.chunks {
        let first_part = chunk * chunk_parts(seat.world());
        let swaps = HalvingSwaps::new(seat, cut.chunk(chunk), first_part);
        complete.push(swaps.add_to(&mut plan, cut.start_of(chunk, &complete)));
    }
    plan.sealed()
}

/// One chunk's way through the pairs.
pub(crate) struct HalvingSwaps<'a> {
    seat: GroupSeat<'a>,
    stretch: ElementRun,
    /// Seats that are paired: the largest power of two that fits. The others are folded into them.
    paired: usize,
    first_part: usize,
}

impl<'a> HalvingSwaps<'a> {
    /// An all-reduce of a stretch, whose messages are numbered from `first_part` on.
    pub(crate) fn new(seat: GroupSeat<'a>, stretch: ElementRun, first_part: usize) -> Self {
        Self {
            seat,
            stretch,
            paired: 1 << seat.world().ilog2(),
            first_part,
        }
    }

    /// Adds the messages of this seat, whose values are available after `start`. Returns the last
    /// step's gate.
    pub(crate) fn add_to(&self, plan: &mut MessagePlan, start: GateId) -> GateId {
        if self.seat.me < self.paired {
            self.add_paired(plan, start)
        } else {
            self.add_folded(plan, start)
        }
    }

    /// The messages of a seat that is folded into another one.
    fn add_folded(&self, plan: &mut MessagePlan, start: GateId) -> GateId {
        let peer = self.seat.me - self.paired;
        let complete = plan.gate_after(start);
        plan.send(PlannedSend {
            contributors: self.seat.brought_by(self.seat.me),
            ..self.send(peer, 0, self.whole(), start)
        });
        plan.receive(self.receive(peer, self.unfold(), self.whole(), complete));
        complete
    }

    /// The messages of a seat that is paired. A message of a late step may arrive before those of
    /// earlier steps, so each step's gate opens only after the one before.
    fn add_paired(&self, plan: &mut MessagePlan, start: GateId) -> GateId {
        let (me, folded) = (self.seat.me, self.seat.me + self.paired);
        let is_folded = folded < self.seat.world();
        let mut gate = start;
        if is_folded {
            gate = plan.gate_after(gate);
            plan.receive(PlannedReceive {
                landing: SegmentLanding::Reduce,
                ..self.receive(folded, 0, self.whole(), gate)
            });
        }
        let distances = self.paired.ilog2();
        for step in 0..distances {
            let distance = self.paired >> (step + 1);
            let (peer, part) = (me ^ distance, 1 + step as usize);
            let (kept, given) = (self.run(me, distance), self.run(peer, distance));
            plan.send(PlannedSend {
                contributors: self.contributors(distance),
                ..self.send(peer, part, given, gate)
            });
            gate = plan.gate_after(gate);
            plan.receive(PlannedReceive {
                landing: SegmentLanding::Reduce,
                ..self.receive(peer, part, kept, gate)
            });
        }
        plan.finish_at(gate, self.run(me, 1));
        for step in 0..distances {
            let distance = 1 << step;
            let (peer, part) = (me ^ distance, 1 + (distances + step) as usize);
            let (ours, theirs) = (self.run(me, distance), self.run(peer, distance));
            plan.send(self.send(peer, part, ours, gate));
            gate = plan.gate_after(gate);
            plan.receive(self.receive(peer, part, theirs, gate));
        }
        if is_folded {
            plan.send(self.send(folded, self.unfold(), self.whole(), gate));
        }
        gate
    }

    /// A message of finished values.
    fn send(&self, peer: usize, part: usize, region: TensorRegion, gate: GateId) -> PlannedSend {
        PlannedSend::finished(self.seat.ranks[peer], self.part(part), region, gate)
            .of(self.seat.contributors())
    }

    /// A message of finished values.
    fn receive(
        &self,
        peer: usize,
        part: usize,
        region: TensorRegion,
        gate: GateId,
    ) -> PlannedReceive {
        PlannedReceive::finished(self.seat.ranks[peer], self.part(part), region, gate)
            .of(self.seat.contributors())
    }

    fn part(&self, part: usize) -> u16 {
        u16::try_from(self.first_part + part).expect("chunks fit their numbers")
    }

    /// The last part of a chunk.
    fn unfold(&self) -> usize {
        chunk_parts(self.seat.world()) - 1
    }

    fn whole(&self) -> TensorRegion {
        self.shards(0..self.paired)
    }

    /// The run of `distance` shards that `seat` keeps when it halves, and has when it doubles.
    fn run(&self, seat: usize, distance: usize) -> TensorRegion {
        let first = seat / distance * distance;
        self.shards(first..first + distance)
    }

    fn shards(&self, run: Range<usize>) -> TensorRegion {
        self.stretch.run_of_shards(self.paired, run).region()
    }

    /// How many ranks' values this seat has summed when it halves over `distance`: its own, those
    /// of the seats that differ from it only in greater distances, and those folded into any of
    /// them.
    fn contributors(&self, distance: usize) -> u16 {
        let (first, stride) = (self.seat.me % (2 * distance), 2 * distance);
        let summed = |seats: Range<usize>| seats.skip(first).step_by(stride);
        let all = summed(0..self.paired).chain(summed(self.paired..self.seat.world()));
        all.map(|seat| self.seat.brought_by(seat)).sum()
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::{ByteCount, Rank};

    use super::*;
    use crate::plan::rehearsal::{Rehearsal, bytes_sent, plans};

    fn cut(bytes: usize, world: usize) -> TensorCut {
        TensorCut::new(bytes, 8, ByteCount::new(4096), chunks_max(world))
    }

    #[test]
    fn a_power_of_two_takes_2_log2_n_steps() {
        let bytes = 16 << 10;
        for world in [2, 4, 8, 16] {
            let cut = cut(bytes, world);
            for plan in plans(world, |seat| all_reduce(seat, &cut)) {
                let steps = 2 * world.ilog2() as usize;
                assert_eq!(plan.outbounds.len(), cut.chunks * steps);
                assert_eq!(plan.inbounds.len(), cut.chunks * steps);
                assert_eq!(bytes_sent(&plan), 2 * bytes * (world - 1) / world);
            }
        }
    }

    #[test]
    fn folded_ranks_send_and_receive_the_tensor_once() {
        let bytes = 16 << 10;
        for (world, paired) in [(3, 2), (5, 4), (6, 4), (7, 4), (9, 8)] {
            let cut = cut(bytes, world);
            let swapped = 2 * bytes * (paired - 1) / paired;
            let all = plans(world, |seat| all_reduce(seat, &cut));
            for (seat, plan) in all.iter().enumerate() {
                let sent = match seat {
                    _ if seat >= paired => bytes,
                    _ if seat + paired < world => swapped + bytes,
                    _ => swapped,
                };
                assert_eq!(bytes_sent(plan), sent, "seat {seat} of {world}");
            }
        }
    }

    #[test]
    fn every_world_is_right_in_any_order() {
        for world in (2..=9).chain([16, 21]) {
            for (seed, elements) in [1, 7, 1000].into_iter().enumerate() {
                let cut = cut(elements * 8, world);
                let plans = plans(world, |seat| all_reduce(seat, &cut));
                let mut rehearsal = Rehearsal::new(plans, seed as u64);
                rehearsal.fill_buffers(elements);
                let expected = vec![rehearsal.finished_sum(elements); world];
                rehearsal.run();
                assert!(rehearsal.buffers == expected, "{world} ranks, {elements}");
            }
        }
    }

    #[test]
    fn messages_count_the_contributors_of_their_sum() {
        for world in [2, 3, 5, 6, 7, 8, 13] {
            let cut = cut(4096, world);
            for (seat, plan) in plans(world, |seat| all_reduce(seat, &cut))
                .iter()
                .enumerate()
            {
                let paired = 1 << world.ilog2();
                for out in plan.outbounds.iter().filter(|_| seat < paired) {
                    let step = usize::from(out.part);
                    let distance = paired >> step;
                    let summed = |other: &usize| {
                        let stride = (2 * distance).max(1);
                        other % paired % stride == seat % stride
                    };
                    let expected = if distance == 0 {
                        world
                    } else {
                        (0..world).filter(summed).count()
                    };
                    assert_eq!(usize::from(out.contributors), expected, "{world} {out:?}");
                }
            }
        }
    }

    #[test]
    fn a_thousand_ranks_may_cut_1000_chunks() {
        assert!(chunks_max(1024) > 1000);
        let ranks: Vec<Rank> = (0..1024).map(Rank).collect();
        let cut = TensorCut::new(1 << 30, 4, ByteCount::mib(4), chunks_max(1024));
        let plan = all_reduce(GroupSeat::new(&ranks, 1000), &cut);
        assert_eq!(plan.outbounds.len(), 256 * 20);
    }
}

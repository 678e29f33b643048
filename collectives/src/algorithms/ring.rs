//! Ring reduce-scatter and all-reduce: partial sums travel around the ring, then the results do.
//!
//! With n ranks and a tensor of S bytes:
//!
//! | | steps | messages per rank and chunk | bytes sent per rank, to the next rank |
//! |---|---|---|---|
//! | reduce-scatter | n - 1 | n - 1 | S (n - 1) / n |
//! | all-reduce | 2 (n - 1) | 2 (n - 1) | 2 S (n - 1) / n |
//!
//! 1. Reduce-scatter, steps t = 0 .. n - 2: rank r sends its partial sum of shard r - 1 - t to rank
//!    r + 1, and reduces the received shard r - 2 - t into its own. Then rank r has the finished
//!    shard r.
//! 2. All-gather, as many steps: rank r sends shard r - t and receives shard r - 1 - t.
//!
//! Each chunk is a ring of its own, and a few run at once, so that no step waits for a round trip.
//!
//! Always lossless: a segment lost here would be a sum of many. Sums form in the order of the ring,
//! so results do not depend on timing, and every rank talks to two peers only.
//!
//! In an all-reduce the finished shard overwrites the partial sum that was sent. It derives from
//! that sum, so the next rank has received all of it. A reduce-scatter by itself leaves its input
//! alone: partial sums grow in a copy of it, S bytes of memory while it runs.

mod computed;

pub(crate) use self::computed::RingPlan;
use crate::algorithms::operation_plan::OperationPlan;
use crate::plan::{
    ElementRun, GateId, GroupSeat, MessagePlan, PARTS, PlannedReceive, PlannedSend, ScratchUse,
    SegmentLanding, TensorCut, TensorRegion,
};

/// The maximum number of chunks whose messages can be numbered; 0 when the ring is too long for one
/// chunk.
pub(crate) fn chunks_max(world: usize) -> usize {
    usize::from(PARTS) / chunk_parts(world)
}

/// Messages that a chunk of an all-reduce numbers.
pub(crate) fn chunk_parts(world: usize) -> usize {
    2 * (world - 1)
}

/// All-reduce in place in the result buffer.
pub(crate) fn all_reduce(seat: GroupSeat<'_>, cut: &TensorCut) -> OperationPlan {
    let computed = RingPlan::new(seat, cut).map(OperationPlan::Ring);
    let long = computed.filter(|plan| !plan.is_short());
    long.unwrap_or_else(|| all_reduce_of_steps(seat, cut).into())
}

/// The same, step by step.
fn all_reduce_of_steps(seat: GroupSeat<'_>, cut: &TensorCut) -> MessagePlan {
    let mut plan = MessagePlan::new();
    let mut gathered: Vec<GateId> = Vec::with_capacity(cut.chunks);
    for chunk in 0..cut.chunks {
        let lap = RingLap {
            seat,
            first_part: chunk * chunk_parts(seat.world()),
            gate: cut.start_of(chunk, &gathered),
            ready: MessagePlan::START,
        };
        gathered.push(lap.add_twice(&mut plan, cut.chunk(chunk)));
    }
    plan.sealed()
}

/// Reduce-scatter of an input of one block per rank into the result buffer of one block. `cut`
/// cuts a block.
pub(crate) fn reduce_scatter(seat: GroupSeat<'_>, cut: &TensorCut, block: usize) -> MessagePlan {
    let mut plan = MessagePlan::new();
    plan.scratch = ScratchUse::CopyOfInput;
    plan.copy = Some((
        TensorRegion::input(seat.me * block, block),
        TensorRegion::buffer(0, block),
    ));
    let mut reduced: Vec<GateId> = Vec::with_capacity(cut.chunks);
    for chunk in 0..cut.chunks {
        let (offset, bytes) = cut.chunk(chunk).range();
        let mut lap = RingLap {
            seat,
            first_part: chunk * (seat.world() - 1),
            gate: cut.start_of(chunk, &reduced),
            ready: MessagePlan::START,
        };
        lap.add_reduction(&mut plan, |shard| {
            if shard == seat.me {
                TensorRegion::buffer(offset, bytes)
            } else {
                TensorRegion::scratch(shard * block + offset, bytes)
            }
        });
        reduced.push(lap.gate);
    }
    plan.sealed()
}

/// One chunk's way around the ring.
pub(crate) struct RingLap<'a> {
    pub(crate) seat: GroupSeat<'a>,
    /// Part number of its next message.
    pub(crate) first_part: usize,
    /// The gate of the step before.
    pub(crate) gate: GateId,
    /// The gate after which this seat's values are available. A message in may arrive before it.
    pub(crate) ready: GateId,
}

impl RingLap<'_> {
    /// An all-reduce of a stretch. Returns the last step's gate.
    pub(crate) fn add_twice(mut self, plan: &mut MessagePlan, stretch: ElementRun) -> GateId {
        let world = self.seat.world();
        let shard = |shard| stretch.shard(world, shard).region();
        self.add_reduction(plan, shard);
        self.add_gather(plan, shard);
        self.gate
    }

    /// The steps after which every seat has the finished shard with its number.
    fn add_reduction(&mut self, plan: &mut MessagePlan, shard: impl Fn(usize) -> TensorRegion) {
        let mut summed = 0;
        for step in 0..self.seat.world() - 1 {
            let (given, taken) = (self.seat.before(step + 1), self.seat.before(step + 2));
            summed += self.seat.brought_by(self.seat.before(step));
            self.send(plan, shard(given), summed);
            self.gate = plan.gate_after(self.ready);
            self.receive(plan, shard(taken), SegmentLanding::Reduce);
        }
        plan.finish_at(self.gate, shard(self.seat.me));
    }

    /// The steps that bring the finished shards to every seat.
    fn add_gather(&mut self, plan: &mut MessagePlan, shard: impl Fn(usize) -> TensorRegion) {
        for step in 0..self.seat.world() - 1 {
            let (given, taken) = (self.seat.before(step), self.seat.before(step + 1));
            self.send(plan, shard(given), self.seat.contributors());
            self.gate = plan.gate();
            self.receive(plan, shard(taken), SegmentLanding::Copy);
        }
    }

    fn part(&self) -> u16 {
        u16::try_from(self.first_part).expect("chunks fit their numbers")
    }

    fn send(&self, plan: &mut MessagePlan, region: TensorRegion, contributors: u16) {
        let to = self.seat.ranks[self.seat.after(1)];
        plan.send(PlannedSend::finished(to, self.part(), region, self.gate).of(contributors));
    }

    fn receive(&mut self, plan: &mut MessagePlan, region: TensorRegion, landing: SegmentLanding) {
        let from = self.seat.ranks[self.seat.before(1)];
        let message = PlannedReceive::finished(from, self.part(), region, self.gate);
        plan.receive(PlannedReceive {
            landing,
            ..message.of(self.seat.contributors())
        });
        self.first_part += 1;
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
    fn an_all_reduce_takes_two_laps() {
        for world in (2..=9).chain([16]) {
            let (bytes, chunk) = (3 * world * 512, ByteCount::new(world as u64 * 512));
            let cut = TensorCut::new(bytes, 8, chunk, chunks_max(world));
            let all = plans(world, |seat| all_reduce(seat, &cut).into_listed());
            for (me, plan) in all.iter().enumerate() {
                assert_eq!(plan.outbounds.len(), cut.chunks * 2 * (world - 1));
                let next = Rank(((me + 1) % world) as u16);
                assert!(plan.outbounds.iter().all(|out| out.to == next));
                assert_eq!(bytes_sent(plan), 2 * bytes * (world - 1) / world);
            }
        }
    }

    #[test]
    fn a_reduce_scatter_takes_one_lap() {
        let block = 8 << 10;
        for world in (2..=9).chain([16]) {
            let cut = cut(block, world);
            for plan in plans(world, |seat| reduce_scatter(seat, &cut, block)) {
                assert_eq!(plan.outbounds.len(), cut.chunks * (world - 1));
                assert_eq!(bytes_sent(&plan), block * (world - 1));
            }
        }
    }

    #[test]
    fn every_ring_is_right_in_any_order() {
        for world in (2..=9).chain([16]) {
            for (seed, elements) in [1, 7, 1000].into_iter().enumerate() {
                let cut = cut(elements * 8, world);
                let plans = plans(world, |seat| all_reduce(seat, &cut).into_listed());
                let mut rehearsal = Rehearsal::new(plans, seed as u64);
                rehearsal.fill_buffers(elements);
                let expected = vec![rehearsal.finished_sum(elements); world];
                rehearsal.run();
                assert!(rehearsal.buffers == expected, "{world} ranks, {elements}");
            }
        }
    }

    #[test]
    fn every_reduce_scatter_is_right_in_any_order() {
        for world in (2..=9).chain([16]) {
            let elements = 700;
            let cut = cut(elements * 8, world);
            let plans = plans(world, |seat| reduce_scatter(seat, &cut, elements * 8));
            let mut rehearsal = Rehearsal::new(plans, world as u64);
            rehearsal.fill_inputs(elements * world, elements);
            let sum = rehearsal.finished_sum(elements * world);
            rehearsal.run();
            for (block, buffer) in sum.chunks(elements).zip(&rehearsal.buffers) {
                assert!(block == buffer, "{world} ranks");
            }
        }
    }

    #[test]
    fn too_long_rings_have_no_room_for_chunks() {
        assert_eq!(chunks_max(2), 16384);
        assert_eq!(chunks_max(40_000), 0);
    }
}

//! The plan of a ring all-reduce as a formula.
//!
//! A rank of a group of n has 2 (n - 1) messages in, messages out and gates for each chunk. In a
//! group of a thousand ranks these take hundreds of kilobytes a rank, although each follows from
//! its number. So a [`RingPlan`] keeps none of them. With p = 2 (n - 1):
//!
//! - Step t of chunk c has number p c + t, which is also its part, for the message in and out.
//! - Gate 0 is the start. Gate p c + t + 1 waits for message in p c + t alone.

use gradwire_protocol::units::Rank;
use smallvec::smallvec;

use super::chunk_parts;
use crate::plan::{
    CHUNKS_ON_THE_WAY, GateId, GroupSeat, MessagePlan, PlanGate, PlannedReceive, PlannedSend,
    SegmentLanding, TensorCut, TensorRegion,
};

/// The messages of one rank in a ring all-reduce, computed when asked for.
#[derive(Clone, Debug)]
pub(crate) struct RingPlan {
    me: usize,
    world: usize,
    previous: Rank,
    next: Rank,
    cut: TensorCut,
}

/// A step of a ring: its chunk, and its number among those of the chunk.
#[derive(Clone, Copy, Debug)]
struct RingStep {
    chunk: usize,
    step: usize,
}

impl RingPlan {
    /// The plan of a seat, unless some shards are empty: then their messages are left out, and the
    /// others are not numbered by their steps.
    pub(super) fn new(seat: GroupSeat<'_>, cut: &TensorCut) -> Option<Self> {
        let shortest = cut.chunk(cut.chunks - 1);
        (shortest.elements() >= seat.world()).then(|| Self {
            me: seat.me,
            world: seat.world(),
            previous: seat.ranks[seat.before(1)],
            next: seat.ranks[seat.after(1)],
            cut: *cut,
        })
    }

    /// Steps of a chunk.
    fn steps(&self) -> usize {
        chunk_parts(self.world)
    }

    /// Steps of a chunk after which its shards are summed.
    fn summing(&self) -> usize {
        self.world - 1
    }

    fn step(&self, at: usize) -> RingStep {
        let (chunk, step) = (at / self.steps(), at % self.steps());
        RingStep { chunk, step }
    }

    fn shard(&self, chunk: usize, seat: usize) -> TensorRegion {
        self.cut.chunk(chunk).shard(self.world, seat).region()
    }

    /// The shard that this seat sends in a step; the seat before it sends the one before that.
    fn region(&self, RingStep { chunk, step }: RingStep, hops: usize) -> TensorRegion {
        let distance = match step.checked_sub(self.summing()) {
            None => step + 1 + hops,
            Some(gathering) => gathering + hops,
        };
        let seat = (self.me + 2 * self.world - distance) % self.world;
        self.shard(chunk, seat)
    }

    /// How many messages there are in each direction.
    pub(crate) fn messages(&self) -> usize {
        self.cut.chunks * self.steps()
    }

    /// How many gates there are.
    pub(crate) fn gates(&self) -> usize {
        self.messages() + 1
    }

    /// Bytes of all messages out: two tensors without the shards that this rank leaves out.
    pub(crate) fn outbound_bytes(&self) -> usize {
        let of_chunk = |chunk| {
            let left_out = [self.me, (self.me + 1) % self.world];
            let left_out = left_out.map(|seat| self.shard(chunk, seat).bytes);
            2 * self.cut.chunk(chunk).region().bytes - left_out.iter().sum::<usize>()
        };
        (0..self.cut.chunks).map(of_chunk).sum()
    }

    /// A message in.
    pub(crate) fn inbound(&self, at: usize) -> PlannedReceive {
        let step = self.step(at);
        let (region, gate) = (self.region(step, 1), GateId(at + 1));
        let message = PlannedReceive::finished(self.previous, at as u16, region, gate);
        PlannedReceive {
            landing: match step.step < self.summing() {
                true => SegmentLanding::Reduce,
                false => SegmentLanding::Copy,
            },
            ..message.of(self.world as u16)
        }
    }

    /// A message out.
    pub(crate) fn outbound(&self, at: usize) -> PlannedSend {
        let step = self.step(at);
        let before = step.chunk.checked_sub(CHUNKS_ON_THE_WAY);
        let gate = match (step.step, before) {
            (1.., _) => GateId(at),
            (0, Some(before)) => GateId((before + 1) * self.steps()),
            (0, None) => MessagePlan::START,
        };
        let summed = (step.step + 1).min(self.world);
        let region = self.region(step, 0);
        PlannedSend::finished(self.next, at as u16, region, gate).of(summed as u16)
    }

    /// A gate.
    pub(crate) fn gate(&self, GateId(gate): GateId) -> PlanGate {
        let Some(at) = gate.checked_sub(1) else {
            let first = 0..self.cut.chunks.min(CHUNKS_ON_THE_WAY);
            return PlanGate {
                opens: first.map(|chunk| chunk * self.steps()).collect(),
                ..PlanGate::default()
            };
        };
        let RingStep { chunk, step } = self.step(at);
        let started = chunk + CHUNKS_ON_THE_WAY;
        PlanGate {
            waits: 1,
            contributions: match step < self.summing() {
                true => smallvec![at],
                false => smallvec![],
            },
            finish: (step + 1 == self.summing()).then(|| self.shard(chunk, self.me)),
            opens: match step + 1 < self.steps() {
                true => smallvec![at + 1],
                false if started < self.cut.chunks => smallvec![started * self.steps()],
                false => smallvec![],
            },
            ..PlanGate::default()
        }
    }

    /// The message in with this sender and part.
    pub(crate) fn find_inbound(&self, from: Rank, part: u16) -> Option<usize> {
        let at = usize::from(part);
        (from == self.previous && at < self.messages()).then_some(at)
    }

    /// The message out with this receiver and part.
    pub(crate) fn find_outbound(&self, to: Rank, part: u16) -> Option<usize> {
        let at = usize::from(part);
        (to == self.next && at < self.messages()).then_some(at)
    }

    /// The same plan with all its messages and gates.
    pub(crate) fn listed(&self) -> MessagePlan {
        let messages = 0..self.messages();
        MessagePlan {
            inbounds: messages.clone().map(|at| self.inbound(at)).collect(),
            outbounds: messages.map(|at| self.outbound(at)).collect(),
            outbound_bytes: self.outbound_bytes(),
            gates: (0..self.gates()).map(|at| self.gate(GateId(at))).collect(),
            ..MessagePlan::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::ByteCount;

    use super::super::{all_reduce_of_steps, chunks_max};
    use super::*;
    use crate::plan::rehearsal::plans;

    const ELEMENT: usize = 4;

    /// Cuts a tensor of this many elements into about so many chunks.
    fn cut(elements: usize, chunks: usize, world: usize) -> TensorCut {
        let bytes = elements * ELEMENT;
        let chunk = ByteCount::new(bytes.div_ceil(chunks) as u64);
        TensorCut::new(bytes, ELEMENT, chunk, chunks_max(world))
    }

    fn seats(world: usize, cut: &TensorCut) -> Vec<Option<RingPlan>> {
        let ranks: Vec<Rank> = (0..world as u16).map(|seat| Rank(3 * seat + 1)).collect();
        let seats = (0..world).map(|me| RingPlan::new(GroupSeat::new(&ranks, me), cut));
        seats.collect()
    }

    #[test]
    fn a_computed_plan_equals_its_steps() {
        for world in (2..=17).chain([64, 127]) {
            for chunks in [1, 2, 4, 5, 9] {
                for elements in [world * chunks, 7 * world * chunks + 3, 12_347] {
                    let cut = cut(elements, chunks, world);
                    let ranks: Vec<Rank> =
                        (0..world as u16).map(|seat| Rank(3 * seat + 1)).collect();
                    for (me, plan) in seats(world, &cut).into_iter().enumerate() {
                        let plan = plan.expect("no shard is empty");
                        let steps = all_reduce_of_steps(GroupSeat::new(&ranks, me), &cut);
                        assert_eq!(plan.listed(), steps, "seat {me} of {world}, {cut:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn messages_are_found_by_their_parts() {
        let cut = cut(1_000, 3, 5);
        for plan in seats(5, &cut).into_iter().flatten() {
            let listed = plan.listed();
            for rank in (0..16).map(Rank) {
                for part in 0..30 {
                    let inbound = listed.find_inbound(rank, part);
                    assert_eq!(plan.find_inbound(rank, part), inbound);
                    let outbound = listed.find_outbound(rank, part);
                    assert_eq!(plan.find_outbound(rank, part), outbound);
                }
            }
        }
    }

    #[test]
    fn rings_with_empty_shards_have_no_formula() {
        let few = cut(5, 1, 6);
        assert!(seats(6, &few).iter().all(Option::is_none));
        let uneven = cut(11, 2, 6);
        assert!(seats(6, &uneven).iter().all(Option::is_none));
        assert!(seats(6, &cut(12, 2, 6)).iter().all(Option::is_some));
        let listed = plans(6, |seat| all_reduce_of_steps(seat, &few));
        assert!(
            listed
                .iter()
                .all(|plan| plan.inbounds.len() < chunk_parts(6))
        );
    }
}

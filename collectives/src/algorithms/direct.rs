//! Direct reductions: every contribution goes straight to the rank that sums it.
//!
//! With n ranks and a tensor of S bytes:
//!
//! | | steps | messages per rank and chunk | bytes sent per rank |
//! |---|---|---|---|
//! | reduce-scatter | 1 | n - 1 | S (n - 1) / n |
//! | all-reduce | 2 | 2 (n - 1) | 2 S (n - 1) / n |
//! | reduce, root | 1 | n - 1 | S (n - 1) / n |
//! | reduce, others | 2 | n | S |
//!
//! - Reduce-scatter: rank r sends shard j to rank j, starting with the rank after itself. Rank j
//!   adds up shard j in the order of ranks, so the sum does not depend on the chunks either; or in
//!   the order of arrival, if the job says so.
//! - All-reduce: then rank j sends its finished shard to all others.
//! - Reduce: it sends it to the root only, which receives 2 S (n - 1) / n bytes in total.
//!
//! The tensor is cut into chunks, so that the gather of one overlaps the reduction of the next.
//! Receivers grant older chunks first, and of a chunk contributions before finished shards. If
//! younger ones ran ahead, all chunks would end together, and links would idle while the last ranks
//! still wait for contributions.
//!
//! A lost segment costs one rank's contribution to one shard and not, as in a ring, the partial sum
//! of many: this is the algorithm for tolerated loss. Only the first half may lose; the gather is
//! lossless, so all ranks end with the same bits.
//!
//! In place, the gathered shard j overwrites the contribution that was sent to rank j. It can
//! arrive only after rank j has received all of that contribution, which is then no longer needed.

use gradwire_protocol::units::Span;

use crate::plan::{
    CHUNKS_ON_THE_WAY, ElementRun, GateId, GroupSeat, MessageForm, MessagePlan, PARTS,
    PlannedReceive, PlannedSend, TensorCut, TensorRegion,
};

/// Chunks of an all-reduce between near ranks that are on their way at once: 32 MiB take up to 8 %
/// longer among 8 to 64 simulated hosts than their links need.
const NEAR_CHUNKS: usize = 2;

/// The maximum number of chunks whose messages can be numbered.
pub(crate) const CHUNKS_MAX: usize = PARTS as usize / CHUNK_PARTS;
/// Part numbers that a chunk takes: one to reduce and one to gather.
pub(crate) const CHUNK_PARTS: usize = 2;

/// All-reduce in place in the result buffer.
pub(crate) fn all_reduce(seat: GroupSeat<'_>, cut: &TensorCut) -> MessagePlan {
    reduce_for(seat, cut, |_| true)
}

/// Reduce in place into the result buffer of the rank at seat `root`. The other buffers end with
/// their own contributions, except in their own shards.
pub(crate) fn reduce(seat: GroupSeat<'_>, cut: &TensorCut, root: usize) -> MessagePlan {
    reduce_for(seat, cut, |seat| seat == root)
}

/// How many chunks of an all-reduce are on their way at once among `world` ranks that are so far
/// apart. Two fill the links of near ranks; more let some ranks run ahead of those that others wait
/// for.
pub(crate) fn chunks_at_once(world: usize, apart: Span) -> usize {
    match world > 2 && apart == Span::ZERO {
        true => NEAR_CHUNKS,
        false => CHUNKS_ON_THE_WAY,
    }
}

/// Reduces all buffers and sends the result to the seats for which `gets_it` is true.
fn reduce_for(
    seat: GroupSeat<'_>,
    cut: &TensorCut,
    gets_it: impl Fn(usize) -> bool,
) -> MessagePlan {
    let mut plan = MessagePlan::new();
    let mut gathered: Vec<GateId> = Vec::with_capacity(cut.chunks);
    for chunk in 0..cut.chunks {
        let exchange = DirectExchange {
            seat,
            stretch: cut.chunk(chunk),
            first_part: chunk * CHUNK_PARTS,
            start: cut.start_of(chunk, &gathered),
            ready: MessagePlan::START,
        };
        gathered.push(exchange.add_to(&mut plan, &gets_it));
    }
    plan.sealed()
}

/// One chunk's way to the owners of its shards, and back to the seats that get it.
pub(crate) struct DirectExchange<'a> {
    pub(crate) seat: GroupSeat<'a>,
    pub(crate) stretch: ElementRun,
    /// Part number of its first message.
    pub(crate) first_part: usize,
    /// The gate after which contributions leave.
    pub(crate) start: GateId,
    /// The gate after which this seat's values are available.
    pub(crate) ready: GateId,
}

impl DirectExchange<'_> {
    /// Adds the messages of this seat. Returns the gate after which its result is available.
    pub(crate) fn add_to(&self, plan: &mut MessagePlan, gets_it: impl Fn(usize) -> bool) -> GateId {
        let seat = self.seat;
        let shard = |seat_of_shard| self.stretch.shard(seat.world(), seat_of_shard).region();
        let ours = shard(seat.me);
        let reduced = plan.gate_after(self.ready);
        plan.finish_at(reduced, ours);
        let complete = if gets_it(seat.me) {
            plan.gate()
        } else {
            reduced
        };
        let part = |part| u16::try_from(self.first_part + part).expect("chunks fit their numbers");
        let (reduce, gather) = (part(0), part(1));
        let addends = u16::try_from(seat.world()).expect("ranks are distinct 16-bit numbers");
        let (given, sum) = (MessageForm::Contribution, MessageForm::Sum { addends });
        for other in seat.others() {
            let (peer, theirs) = (seat.ranks[other], shard(other));
            plan.receive(
                PlannedReceive::contribution(peer, reduce, ours, reduced)
                    .of(seat.brought_by(other))
                    .in_turn()
                    .in_form(given),
            );
            plan.send(
                PlannedSend::contribution(peer, reduce, theirs, self.start)
                    .of(seat.brought_by(seat.me))
                    .in_form(given),
            );
            if gets_it(seat.me) {
                let receive = PlannedReceive::finished(peer, gather, theirs, complete);
                plan.receive(receive.in_turn().in_form(sum));
            }
            if gets_it(other) {
                let send = PlannedSend::finished(peer, gather, ours, reduced);
                plan.send(send.of(seat.contributors()).in_form(sum));
            }
        }
        complete
    }
}

/// Reduce-scatter of an input of one block per rank into the result buffer of one block. `cut`
/// cuts a block.
pub(crate) fn reduce_scatter(seat: GroupSeat<'_>, cut: &TensorCut, block: usize) -> MessagePlan {
    let mut plan = MessagePlan::new();
    plan.copy = Some((
        TensorRegion::input(seat.me * block, block),
        TensorRegion::buffer(0, block),
    ));
    let mut reduced: Vec<GateId> = Vec::with_capacity(cut.chunks);
    for chunk in 0..cut.chunks {
        let (offset, bytes) = cut.chunk(chunk).range();
        let ours = TensorRegion::buffer(offset, bytes);
        let gate = plan.gate();
        plan.finish_at(gate, ours);
        let start = cut.start_of(chunk, &reduced);
        for other in seat.others() {
            let theirs = TensorRegion::input(other * block + offset, bytes);
            let (peer, part) = (seat.ranks[other], chunk as u16);
            let given = MessageForm::Contribution;
            plan.receive(PlannedReceive::contribution(peer, part, ours, gate).in_form(given));
            plan.send(PlannedSend::contribution(peer, part, theirs, start).in_form(given));
        }
        reduced.push(gate);
    }
    plan.sealed()
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::{ByteCount, Rank};

    use super::*;
    use crate::plan::rehearsal::{Rehearsal, bytes_received, bytes_sent, plans};

    const RANKS: [Rank; 4] = [Rank(0), Rank(1), Rank(2), Rank(3)];

    fn sent(plan: &MessagePlan) -> (usize, usize) {
        (plan.outbounds.len(), bytes_sent(plan))
    }

    fn cut(bytes: usize) -> TensorCut {
        TensorCut::new(bytes, 8, ByteCount::kib(2), CHUNKS_MAX)
    }

    #[test]
    fn an_all_reduce_takes_two_steps() {
        let bytes = 64 << 10;
        let cut = TensorCut::new(bytes, 4, ByteCount::kib(16), CHUNKS_MAX);
        let plan = all_reduce(GroupSeat::new(&RANKS, 1), &cut);
        assert_eq!(sent(&plan), (4 * 2 * 3, 2 * bytes * 3 / 4));
        let firsts: Vec<_> = plan.gates[0]
            .opens
            .iter()
            .map(|&at| plan.outbounds[at].to)
            .collect();
        assert_eq!(firsts[..3], [Rank(2), Rank(3), Rank(0)]);
    }

    #[test]
    fn a_reduce_scatter_takes_one_step() {
        let block = 16 << 10;
        let cut = TensorCut::new(block, 4, ByteCount::kib(16), CHUNKS_MAX);
        for world in (2..=9).chain([16]) {
            for plan in plans(world, |seat| reduce_scatter(seat, &cut, block)) {
                assert_eq!(sent(&plan), (world - 1, (world - 1) * block));
                assert!(
                    plan.outbounds
                        .iter()
                        .all(|out| out.gate == MessagePlan::START)
                );
            }
        }
    }

    #[test]
    fn a_reduce_sends_the_tensor_once() {
        for world in (2..=9).chain([16]) {
            let bytes = 3 * world * 512;
            let cut = TensorCut::new(bytes, 8, ByteCount::new(world as u64 * 512), CHUNKS_MAX);
            let all = plans(world, |seat| reduce(seat, &cut, 1));
            for (me, plan) in all.iter().enumerate() {
                let messages = if me == 1 { world - 1 } else { world };
                assert_eq!(plan.outbounds.len(), cut.chunks * messages);
                let exact = if me == 1 {
                    bytes - bytes / world
                } else {
                    bytes
                };
                assert_eq!(bytes_sent(plan), exact);
            }
            assert_eq!(bytes_received(&all[1]), 2 * bytes * (world - 1) / world);
        }
    }

    #[test]
    fn reductions_are_right_in_any_order_of_arrival() {
        for world in (2..=9).chain([16]) {
            for (seed, elements) in [1, 7, 1000].into_iter().enumerate() {
                let cut = cut(elements * 8);
                let root = world / 2;
                let whole = plans(world, |seat| all_reduce(seat, &cut));
                let rooted = plans(world, |seat| reduce(seat, &cut, root));
                for (plans, gets_it) in [(whole, 0..world), (rooted, root..root + 1)] {
                    let mut rehearsal = Rehearsal::new(plans, seed as u64);
                    rehearsal.fill_buffers(elements);
                    let expected = rehearsal.finished_sum(elements);
                    rehearsal.run();
                    for seat in gets_it {
                        assert!(rehearsal.buffers[seat] == expected, "{world} ranks");
                    }
                }
            }
        }
    }

    #[test]
    fn a_chunk_waits_for_the_fourth_before_it() {
        let cut = TensorCut::new(6 << 10, 4, ByteCount::kib(1), CHUNKS_MAX);
        let plan = all_reduce(GroupSeat::new(&RANKS[..2], 0), &cut);
        let at_start = plan.gates[0].opens.len();
        assert_eq!((cut.chunks, at_start), (6, CHUNKS_ON_THE_WAY));
    }

    #[test]
    fn short_tensors_leave_some_ranks_without_a_shard() {
        let cut = TensorCut::new(8, 4, ByteCount::kib(1), CHUNKS_MAX);
        let plan = all_reduce(GroupSeat::new(&RANKS, 3), &cut);
        assert_eq!(sent(&plan), (2, 8));
        assert_eq!(plan.inbounds.len(), 2);
    }
}

//! Broadcast: direct, or scattered and exchanged (after van de Geijn).
//!
//! With n ranks and a tensor of S bytes:
//!
//! | | steps | messages | bytes sent by the root | by each other rank |
//! |---|---|---|---|---|
//! | direct | 1 | n - 1 from the root (more beyond 64 MiB) | S (n - 1) | 0 |
//! | scattered | 2 | per chunk n - 1 from the root, n - 2 from others | S | S (n - 2) / (n - 1) |
//!
//! - Direct: the root sends the whole tensor to every rank. Its link is the bottleneck, which does
//!   not matter for small tensors.
//! - Scattered: each chunk is cut into one shard for every rank but the root. The root sends each
//!   rank its shard, the first to the rank after it. Each rank sends its shard to the others but
//!   the root as soon as it has it. No rank sends or receives more than S, and chunks follow each
//!   other without waiting.
//!
//! Both are lossless.

use crate::plan::{
    GroupSeat, MessagePlan, PARTS, PlannedReceive, PlannedSend, TensorCut, TensorRegion,
};

/// The maximum number of chunks whose messages can be numbered.
pub(crate) const CHUNKS_MAX: usize = PARTS as usize;

/// Direct broadcast of the result buffer of the rank at seat `root` into those of the others.
pub(crate) fn direct(seat: GroupSeat<'_>, bytes: usize, root: usize) -> MessagePlan {
    let mut plan = MessagePlan::new();
    let whole = TensorRegion::buffer(0, bytes);
    if seat.me != root {
        let complete = plan.gate();
        plan.receive_in_pieces(PlannedReceive::finished(
            seat.ranks[root],
            0,
            whole,
            complete,
        ));
        return plan.sealed();
    }
    for other in seat.others() {
        let (peer, start) = (seat.ranks[other], MessagePlan::START);
        plan.send_in_pieces(PlannedSend::finished(peer, 0, whole, start));
    }
    plan.sealed()
}

/// Scattered broadcast of the result buffer of the rank at seat `root` into those of the others.
pub(crate) fn scattered(seat: GroupSeat<'_>, cut: &TensorCut, root: usize) -> MessagePlan {
    let mut plan = MessagePlan::new();
    let complete = plan.gate();
    let shards = seat.world() - 1;
    // The rank that is d seats after the root has shard d - 1.
    let shard_of = |other: usize| (other + shards - root) % seat.world();
    for chunk in 0..cut.chunks {
        let part = chunk as u16;
        let region = |other| {
            let shard = cut.chunk(chunk).shard(shards, shard_of(other));
            shard.region()
        };
        if seat.me == root {
            for other in seat.others() {
                plan.send(PlannedSend::finished(
                    seat.ranks[other],
                    part,
                    region(other),
                    MessagePlan::START,
                ));
            }
            continue;
        }
        let scattered = plan.gate();
        plan.receive(PlannedReceive::finished(
            seat.ranks[root],
            part,
            region(seat.me),
            scattered,
        ));
        for other in seat.others().filter(|&other| other != root) {
            plan.send(PlannedSend::finished(
                seat.ranks[other],
                part,
                region(seat.me),
                scattered,
            ));
            plan.receive(PlannedReceive::finished(
                seat.ranks[other],
                part,
                region(other),
                complete,
            ));
        }
    }
    plan.sealed()
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::ByteCount;

    use super::*;
    use crate::plan::rehearsal::{Rehearsal, bytes_received, bytes_sent, contribution, plans};

    fn cut(bytes: usize) -> TensorCut {
        TensorCut::new(bytes, 8, ByteCount::new(4096), CHUNKS_MAX)
    }

    #[test]
    fn the_root_of_a_direct_broadcast_sends_everything() {
        let bytes = 65 << 20;
        for world in (2..=9).chain([16]) {
            for (me, plan) in (0..).zip(plans(world, |seat| direct(seat, bytes, 1))) {
                let root = (2 * (world - 1), bytes * (world - 1));
                let expected = if me == 1 { root } else { (0, 0) };
                assert_eq!((plan.outbounds.len(), bytes_sent(&plan)), expected);
            }
        }
    }

    #[test]
    fn scattered_broadcasts_send_at_most_the_tensor_per_rank() {
        for world in (2..=9).chain([16]) {
            let shards = world - 1;
            let (bytes, chunk) = (3 * shards * 512, ByteCount::new(shards as u64 * 512));
            let cut = TensorCut::new(bytes, 8, chunk, CHUNKS_MAX);
            let all = plans(world, |seat| scattered(seat, &cut, 1));
            for (me, plan) in all.iter().enumerate() {
                if me == 1 {
                    assert_eq!((bytes_sent(plan), bytes_received(plan)), (bytes, 0));
                    assert_eq!(plan.outbounds.len(), cut.chunks * (world - 1));
                } else {
                    assert_eq!(bytes_sent(plan), bytes * (world - 2) / shards);
                    assert_eq!(bytes_received(plan), bytes);
                    assert_eq!(plan.outbounds.len(), cut.chunks * (world - 2));
                }
            }
        }
    }

    #[test]
    fn every_broadcast_is_right_in_any_order() {
        for world in (2..=9).chain([16]) {
            for (seed, elements) in [1, 7, 1000].into_iter().enumerate() {
                let (root, cut) = (world / 2, cut(elements * 8));
                let whole = plans(world, |seat| direct(seat, elements * 8, root));
                let shards = plans(world, |seat| scattered(seat, &cut, root));
                for plans in [whole, shards] {
                    let mut rehearsal = Rehearsal::new(plans, seed as u64);
                    rehearsal.fill_buffers(elements);
                    rehearsal.run();
                    let expected = vec![contribution(root, elements); world];
                    assert!(rehearsal.buffers == expected, "{world} ranks");
                }
            }
        }
    }
}

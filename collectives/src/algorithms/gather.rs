//! Gather: every rank sends its block to the root.
//!
//! With n ranks and blocks of B bytes: 1 step; 1 message (more beyond 64 MiB) of B bytes from every
//! rank but the root, which receives B (n - 1), the minimum possible. Lossless.

use crate::plan::{
    GroupSeat, MessagePlan, PlannedReceive, PlannedSend, TensorMemory, TensorRegion,
};

/// Gather of `block` bytes per rank into the result buffer of the rank at seat `root`. Others send
/// their result buffer. The root's own block comes from `source`: its input, or its place in the
/// result buffer.
pub(crate) fn gather(
    seat: GroupSeat<'_>,
    block: usize,
    root: usize,
    source: TensorMemory,
) -> MessagePlan {
    let mut plan = MessagePlan::new();
    if seat.me != root {
        let own = TensorRegion::buffer(0, block);
        let start = MessagePlan::START;
        plan.send_in_pieces(PlannedSend::finished(seat.ranks[root], 0, own, start));
        return plan.sealed();
    }
    if source == TensorMemory::Input {
        let place = TensorRegion::buffer(seat.me * block, block);
        plan.copy = Some((TensorRegion::input(0, block), place));
    }
    let complete = plan.gate();
    for other in seat.others() {
        let (peer, theirs) = (
            seat.ranks[other],
            TensorRegion::buffer(other * block, block),
        );
        plan.receive_in_pieces(PlannedReceive::finished(peer, 0, theirs, complete));
    }
    plan.sealed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::rehearsal::{Rehearsal, bytes_received, bytes_sent, contribution, plans};

    #[test]
    fn every_rank_but_the_root_sends_its_block() {
        let block = 65 << 20;
        for world in (2..=9).chain([16]) {
            let all = plans(world, |seat| gather(seat, block, 1, TensorMemory::Buffer));
            for (me, plan) in all.iter().enumerate() {
                let expected = if me == 1 { (0, 0) } else { (2, block) };
                assert_eq!((plan.outbounds.len(), bytes_sent(plan)), expected);
            }
            assert_eq!(bytes_received(&all[1]), block * (world - 1));
        }
    }

    #[test]
    fn the_root_gets_all_blocks_in_seat_order() {
        let elements = 50;
        for world in (2..=9).chain([16]) {
            for own in [TensorMemory::Buffer, TensorMemory::Input] {
                let plans = plans(world, |seat| gather(seat, elements * 8, 1, own));
                let mut rehearsal = Rehearsal::new(plans, 1);
                rehearsal.fill_buffers(elements);
                let blocks: Vec<_> = (0..world)
                    .map(|rank| contribution(rank, elements))
                    .collect();
                let mut root = vec![0; elements * world];
                match own {
                    TensorMemory::Input => rehearsal.inputs[1].clone_from(&blocks[1]),
                    _ => root[elements..2 * elements].copy_from_slice(&blocks[1]),
                }
                rehearsal.buffers[1] = root;
                rehearsal.run();
                assert!(rehearsal.buffers[1] == blocks.concat(), "{world} ranks");
            }
        }
    }
}

//! Scatter: the root sends every rank its block.
//!
//! With n ranks and blocks of B bytes: 1 step; n - 1 messages from the root (more beyond 64 MiB a
//! block), the first to the rank after it; B (n - 1) bytes, the minimum possible. Lossless.

use crate::plan::{GroupSeat, MessagePlan, PlannedReceive, PlannedSend, TensorRegion};

/// Scatter of the input of the rank at seat `root`, `block` bytes per rank, into the result buffers
/// of one block.
pub(crate) fn scatter(seat: GroupSeat<'_>, block: usize, root: usize) -> MessagePlan {
    let mut plan = MessagePlan::new();
    if seat.me != root {
        let (own, complete) = (TensorRegion::buffer(0, block), plan.gate());
        plan.receive_in_pieces(PlannedReceive::finished(seat.ranks[root], 0, own, complete));
        return plan.sealed();
    }
    let own = TensorRegion::input(seat.me * block, block);
    plan.copy = Some((own, TensorRegion::buffer(0, block)));
    for other in seat.others() {
        let (peer, theirs) = (seat.ranks[other], TensorRegion::input(other * block, block));
        plan.send_in_pieces(PlannedSend::finished(peer, 0, theirs, MessagePlan::START));
    }
    plan.sealed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::rehearsal::{Rehearsal, bytes_received, bytes_sent, contribution, plans};

    #[test]
    fn only_the_root_of_a_scatter_sends() {
        let block = 65 << 20;
        for world in (2..=9).chain([16]) {
            for (me, plan) in (0..).zip(plans(world, |seat| scatter(seat, block, 1))) {
                let root = (2 * (world - 1), block * (world - 1), 0);
                let expected = if me == 1 { root } else { (0, 0, block) };
                let (sent, received) = (bytes_sent(&plan), bytes_received(&plan));
                assert_eq!((plan.outbounds.len(), sent, received), expected);
            }
        }
    }

    #[test]
    fn every_rank_gets_the_block_of_its_seat() {
        let elements = 50;
        for world in (2..=9).chain([16]) {
            let plans = plans(world, |seat| scatter(seat, elements * 8, 1));
            let mut rehearsal = Rehearsal::new(plans, 1);
            rehearsal.fill_inputs(elements * world, elements);
            rehearsal.run();
            let input = contribution(1, elements * world);
            assert!(rehearsal.buffers.concat() == input, "{world} ranks");
        }
    }
}

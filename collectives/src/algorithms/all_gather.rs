//! Direct all-gather: every rank sends its block to all others.
//!
//! With n ranks and blocks of B bytes: 1 step; n - 1 messages per rank (more beyond 64 MiB a
//! block); B (n - 1) bytes sent per rank. Each rank starts with the rank after itself. Lossless.

use crate::plan::{
    GroupSeat, MessagePlan, PlannedReceive, PlannedSend, TensorMemory, TensorRegion,
};

/// All-gather of `block` bytes per rank into the result buffer. A rank's own block comes from
/// `source`: the input, or its place in the result buffer.
pub(crate) fn all_gather(seat: GroupSeat<'_>, block: usize, source: TensorMemory) -> MessagePlan {
    let mut plan = MessagePlan::new();
    let place = |seat: usize| TensorRegion::buffer(seat * block, block);
    let own = match source {
        TensorMemory::Input => TensorRegion::input(0, block),
        _ => place(seat.me),
    };
    if source == TensorMemory::Input {
        plan.copy = Some((own, place(seat.me)));
    }
    let complete = plan.gate();
    for other in seat.others() {
        let peer = seat.ranks[other];
        plan.receive_in_pieces(PlannedReceive::finished(peer, 0, place(other), complete));
        plan.send_in_pieces(PlannedSend::finished(peer, 0, own, MessagePlan::START));
    }
    plan.sealed()
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::Rank;

    use super::*;

    #[test]
    fn an_all_gather_takes_one_step() {
        let ranks = [Rank(0), Rank(1), Rank(2)];
        for source in [TensorMemory::Buffer, TensorMemory::Input] {
            let plan = all_gather(GroupSeat::new(&ranks, 2), 1000, source);
            assert_eq!((plan.outbounds.len(), plan.inbounds.len()), (2, 2));
            assert_eq!(
                plan.outbounds
                    .iter()
                    .map(|out| out.region.bytes)
                    .sum::<usize>(),
                2000
            );
            assert_eq!(plan.copy.is_some(), source == TensorMemory::Input);
        }
    }
}

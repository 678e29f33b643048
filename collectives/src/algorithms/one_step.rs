//! One-step all-reduce, for small tensors: every rank sends its whole tensor to all others.
//!
//! With n ranks and a tensor of S bytes: 1 step; n - 1 messages per rank; S (n - 1) bytes sent per
//! rank, S n bytes of memory while it runs. `direct` sends 2 S (n - 1) / n bytes in two steps, so
//! this is for tensors that take less time to send than a step has to wait. Lossless.
//!
//! Received tensors are kept until all have arrived and are then reduced in rank order. So all
//! ranks end with the same bits, run after run. A rank sends its own tensor from a copy, because
//! the result may overwrite the original before the others have received it.

use gradwire_protocol::units::Rank;

use crate::plan::{GroupSeat, MessagePlan, PlannedReceive, PlannedSend, ScratchUse, TensorRegion};

/// All-reduce of `bytes` in place in the result buffer.
pub(crate) fn all_reduce(seat: GroupSeat<'_>, bytes: usize) -> MessagePlan {
    let mut plan = MessagePlan::new();
    let slot_of = |rank: &Rank| seat.ranks.iter().filter(|other| *other < rank).count();
    let (count, own) = (seat.world(), slot_of(&seat.ranks[seat.me]));
    plan.scratch = ScratchUse::Slots { count, own };
    let complete = plan.gate();
    plan.finish_at(complete, TensorRegion::buffer(0, bytes));
    let slot = |slot| TensorRegion::scratch(slot * bytes, bytes);
    for other in seat.others() {
        let peer = seat.ranks[other];
        let theirs = slot(slot_of(&peer));
        plan.receive(PlannedReceive::finished(peer, 0, theirs, complete));
        plan.send(PlannedSend::finished(
            peer,
            0,
            slot(own),
            MessagePlan::START,
        ));
    }
    plan.sealed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::rehearsal::{Rehearsal, bytes_sent, plans};

    #[test]
    fn an_all_reduce_takes_one_step() {
        for world in (2..=9).chain([16]) {
            for plan in plans(world, |seat| all_reduce(seat, 800)) {
                assert_eq!(plan.outbounds.len(), world - 1);
                assert!(
                    plan.outbounds
                        .iter()
                        .all(|out| out.gate == MessagePlan::START)
                );
                assert_eq!(bytes_sent(&plan), 800 * (world - 1));
            }
        }
    }

    #[test]
    fn every_world_is_right_in_any_order() {
        for world in (2..=9).chain([16]) {
            for (seed, elements) in [1, 7, 100].into_iter().enumerate() {
                let plans = plans(world, |seat| all_reduce(seat, elements * 8));
                let mut rehearsal = Rehearsal::new(plans, seed as u64);
                rehearsal.fill_buffers(elements);
                let expected = vec![rehearsal.finished_sum(elements); world];
                rehearsal.run();
                assert!(rehearsal.buffers == expected, "{world} ranks, {elements}");
            }
        }
    }
}

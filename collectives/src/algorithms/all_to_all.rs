//! Direct all-to-all: every rank sends every other one a block of its own.
//!
//! With n ranks and blocks of B bytes: 1 step; n - 1 messages per rank (more beyond 64 MiB a
//! block); B (n - 1) bytes sent per rank. Each rank starts with the rank after itself, so that they
//! do not all send to the same rank first. Lossless.
//!
//! With splits, blocks have different lengths. An empty block is a message, too: a rank without
//! bytes to exchange cannot know whether others have some, and the message reveals ranks whose
//! splits differ.

use crate::plan::{GroupSeat, MessagePlan, PlannedReceive, PlannedSend, TensorRegion};

/// All-to-all of an input of `input[i]` bytes for the rank at seat i into a result buffer of
/// `output[i]` bytes from it.
pub(crate) fn all_to_all(seat: GroupSeat<'_>, input: &[usize], output: &[usize]) -> MessagePlan {
    let mut plan = MessagePlan::new();
    let start = |splits: &[usize], at: usize| splits[..at].iter().sum::<usize>();
    let own = TensorRegion::input(start(input, seat.me), input[seat.me]);
    let place = TensorRegion::buffer(start(output, seat.me), output[seat.me]);
    plan.copy = Some((own, place));
    let complete = plan.gate();
    for other in seat.others() {
        let peer = seat.ranks[other];
        let theirs = TensorRegion::buffer(start(output, other), output[other]).or_nothing();
        let ours = TensorRegion::input(start(input, other), input[other]).or_nothing();
        plan.receive_in_pieces(PlannedReceive::finished(peer, 0, theirs, complete));
        plan.send_in_pieces(PlannedSend::finished(peer, 0, ours, MessagePlan::START));
    }
    plan.sealed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::rehearsal::{Rehearsal, bytes_received, bytes_sent, contribution, plans};

    #[test]
    fn an_all_to_all_takes_one_step() {
        let block = 65 << 20;
        for world in (2..=9).chain([16]) {
            for plan in plans(world, |seat| {
                all_to_all(seat, &vec![block; world], &vec![block; world])
            }) {
                assert_eq!(plan.outbounds.len(), 2 * (world - 1));
                assert_eq!(bytes_sent(&plan), block * (world - 1));
                assert_eq!(bytes_received(&plan), block * (world - 1));
                assert!(
                    plan.outbounds
                        .iter()
                        .all(|out| out.gate == MessagePlan::START)
                );
            }
        }
    }

    #[test]
    fn blocks_are_transposed_between_ranks() {
        let elements = 20;
        for world in (2..=9).chain([16]) {
            let plans = plans(world, |seat| {
                let even = vec![elements * 8; world];
                all_to_all(seat, &even, &even)
            });
            let mut rehearsal = Rehearsal::new(plans, 1);
            rehearsal.fill_inputs(elements * world, elements * world);
            rehearsal.run();
            for (seat, buffer) in rehearsal.buffers.iter().enumerate() {
                let block = seat * elements..(seat + 1) * elements;
                let column = |rank| contribution(rank, elements * world)[block.clone()].to_vec();
                let expected: Vec<_> = (0..world).map(column).collect();
                assert!(*buffer == expected.concat(), "{world} ranks");
            }
        }
    }

    /// Elements that a rank sends to another.
    fn split(from: usize, to: usize) -> usize {
        (from * 3 + to * 5) % 4 * 7
    }

    #[test]
    fn uneven_splits_take_one_message_per_pair() {
        for world in (2..=9).chain([16]) {
            let bytes = |from, to| 8 * split(from, to);
            let plans = plans(world, |seat| {
                let input: Vec<_> = (0..world).map(|to| bytes(seat.me, to)).collect();
                let output: Vec<_> = (0..world).map(|from| bytes(from, seat.me)).collect();
                all_to_all(seat, &input, &output)
            });
            for (me, plan) in plans.iter().enumerate() {
                let others = || (0..world).filter(|&other| other != me);
                assert_eq!(plan.outbounds.len(), world - 1);
                let sent: usize = others().map(|to| bytes(me, to)).sum();
                let received: usize = others().map(|from| bytes(from, me)).sum();
                assert_eq!((bytes_sent(plan), bytes_received(plan)), (sent, received));
            }
            let mut rehearsal = Rehearsal::new(plans, 1);
            let row = |from| (0..world).map(|to| split(from, to)).sum::<usize>();
            let column = |to| (0..world).map(|from| split(from, to)).sum::<usize>();
            for rank in 0..world {
                rehearsal.inputs[rank] = contribution(rank, row(rank));
                rehearsal.buffers[rank] = vec![0; column(rank)];
            }
            rehearsal.run();
            for (to, buffer) in rehearsal.buffers.iter().enumerate() {
                let part = |from: usize| {
                    let start: usize = (0..to).map(|to| split(from, to)).sum();
                    contribution(from, row(from))[start..start + split(from, to)].to_vec()
                };
                let expected: Vec<_> = (0..world).map(part).collect();
                assert!(*buffer == expected.concat(), "{world} ranks");
            }
        }
    }
}

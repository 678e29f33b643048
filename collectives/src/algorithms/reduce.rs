//! Reduce to a root, every tensor as a whole: the push of a parameter server.
//!
//! With n ranks and a tensor of S bytes: 1 step; 1 message per chunk from every rank but the root;
//! S bytes sent by each of them, S (n - 1) received by the root, whose link is the bottleneck. It
//! is for small tensors and for two ranks; `direct` has the reduce for large tensors, which takes
//! one step more and sends the root 2 S (n - 1) / n bytes.
//!
//! A lost segment costs one rank's contribution, so loss can be tolerated as in `direct`. The
//! buffers of the other ranks stay as they are.

use crate::plan::{GroupSeat, MessagePlan, PARTS, PlannedReceive, PlannedSend, TensorCut};

/// The maximum number of chunks whose messages can be numbered.
pub(crate) const CHUNKS_MAX: usize = PARTS as usize;

/// Reduce in place into the result buffer of the rank at seat `root`.
pub(crate) fn reduce(seat: GroupSeat<'_>, cut: &TensorCut, root: usize) -> MessagePlan {
    let mut plan = MessagePlan::new();
    for chunk in 0..cut.chunks {
        let (region, part) = (cut.chunk(chunk).region(), chunk as u16);
        if seat.me != root {
            plan.send(PlannedSend::contribution(
                seat.ranks[root],
                part,
                region,
                MessagePlan::START,
            ));
            continue;
        }
        let reduced = plan.gate();
        plan.finish_at(reduced, region);
        for other in seat.others() {
            plan.receive(PlannedReceive::contribution(
                seat.ranks[other],
                part,
                region,
                reduced,
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

    #[test]
    fn a_reduce_takes_one_step() {
        let bytes = 8000;
        let cut = TensorCut::new(bytes, 8, ByteCount::new(3000), CHUNKS_MAX);
        for world in (2..=9).chain([16]) {
            let all = plans(world, |seat| reduce(seat, &cut, 1));
            for (me, plan) in all.iter().enumerate() {
                let (sent, received) = (bytes_sent(plan), bytes_received(plan));
                if me == 1 {
                    assert_eq!((sent, received), (0, bytes * (world - 1)));
                } else {
                    assert_eq!((sent, received), (bytes, 0));
                    assert_eq!(plan.outbounds.len(), 3);
                }
            }
        }
    }

    #[test]
    fn only_the_root_of_a_reduce_changes() {
        let elements = 1000;
        let cut = TensorCut::new(elements * 8, 8, ByteCount::new(3000), CHUNKS_MAX);
        for world in (2..=9).chain([16]) {
            let root = world - 1;
            let mut rehearsal = Rehearsal::new(plans(world, |seat| reduce(seat, &cut, root)), 1);
            rehearsal.fill_buffers(elements);
            let mut expected: Vec<_> = (0..world)
                .map(|rank| contribution(rank, elements))
                .collect();
            expected[root] = rehearsal.finished_sum(elements);
            rehearsal.run();
            assert!(rehearsal.buffers == expected, "{world} ranks");
        }
    }
}

//! Direct all-to-all: every rank sends every other one a block of its own.
//!
//! With n ranks and blocks of B bytes: 1 step; n - 1 messages per rank (more beyond 64 MiB a
//! block); B (n - 1) bytes sent per rank. Each rank starts with the rank after itself, so that no
//! rank is everybody's first. Lossless.

use crate::buffer::Region;
use crate::plan::{Inbound, Landing, Outbound, Plan, Reliability, Seat, pieces};

/// All-to-all of an input of `block` bytes per rank into a result buffer of as many.
pub(crate) fn all_to_all(seat: Seat<'_>, block: usize) -> Plan {
    let mut plan = Plan::new();
    let own = seat.me * block;
    plan.copy = Some((Region::input(own, block), Region::buffer(own, block)));
    let complete = plan.gate();
    for other in seat.others() {
        for (part, offset, bytes) in pieces(block) {
            let offset = other * block + offset;
            plan.receive(Inbound {
                from: seat.ranks[other],
                part,
                region: Region::buffer(offset, bytes),
                landing: Landing::Copy,
                reliability: Reliability::Lossless,
                contributors: 1,
                gate: complete,
            });
            plan.send(Outbound {
                to: seat.ranks[other],
                part,
                region: Region::input(offset, bytes),
                reliability: Reliability::Lossless,
                contributors: 1,
                gate: Plan::START,
            });
        }
    }
    plan.sealed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rehearsal::{Rehearsal, bytes_received, bytes_sent, contribution, plans};

    #[test]
    fn an_all_to_all_takes_one_step_and_sends_every_block_but_the_own() {
        let block = 65 << 20;
        for world in (2..=9).chain([16]) {
            for plan in plans(world, |seat| all_to_all(seat, block)) {
                assert_eq!(plan.outbounds.len(), 2 * (world - 1));
                assert_eq!(bytes_sent(&plan), block * (world - 1));
                assert_eq!(bytes_received(&plan), block * (world - 1));
                assert!(plan.outbounds.iter().all(|out| out.gate == Plan::START));
            }
        }
    }

    #[test]
    fn block_i_of_rank_j_becomes_block_j_of_rank_i() {
        let elements = 20;
        for world in (2..=9).chain([16]) {
            let plans = plans(world, |seat| all_to_all(seat, elements * 8));
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
}

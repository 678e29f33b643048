//! Send and receive: one tensor from one rank to another.
//!
//! With S bytes: 1 step; 1 message (more beyond 64 MiB); S bytes sent. Lossless. Its parts lie
//! above those of collectives, and its sequence numbers count per pair and direction, so that they
//! may coincide with those of collectives in the same group.

use gradwire_protocol::units::Rank;

use crate::buffer::Region;
use crate::plan::{Inbound, Landing, Outbound, PARTS, Plan, Reliability, pieces};

/// The messages of a send of `bytes` to `to`.
pub(crate) fn send(to: Rank, bytes: usize) -> Plan {
    let mut plan = Plan::new();
    for (piece, offset, bytes) in pieces(bytes) {
        plan.send(Outbound {
            to,
            part: PARTS | piece,
            region: Region::buffer(offset, bytes),
            reliability: Reliability::Lossless,
            contributors: 1,
            gate: Plan::START,
        });
    }
    plan.sealed()
}

/// The messages of a receive of `bytes` from `from`.
pub(crate) fn receive(from: Rank, bytes: usize) -> Plan {
    let mut plan = Plan::new();
    let complete = plan.gate();
    for (piece, offset, bytes) in pieces(bytes) {
        plan.receive(Inbound {
            from,
            part: PARTS | piece,
            region: Region::buffer(offset, bytes),
            landing: Landing::Copy,
            reliability: Reliability::Lossless,
            contributors: 1,
            gate: complete,
        });
    }
    plan.sealed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_in_one_step_is_what_is_received() {
        let (sent, received) = (send(Rank(1), 65 << 20), receive(Rank(0), 65 << 20));
        assert_eq!((sent.outbounds.len(), received.inbounds.len()), (2, 2));
        for (out, inbound) in sent.outbounds.iter().zip(&received.inbounds) {
            assert_eq!((out.part, out.region), (inbound.part, inbound.region));
        }
    }
}

//! Direct broadcast: the root sends to all others.
//!
//! With n ranks and a tensor of S bytes: 1 step; n - 1 messages from the root (more beyond 64 MiB);
//! S (n - 1) bytes sent by the root, none by the others. The root's link is the bottleneck: time
//! grows with n, which is cheap for the few large broadcasts of a job's start. Lossless.

use crate::buffer::Region;
use crate::plan::{Inbound, Landing, Outbound, Plan, Reliability, Seat, pieces};

/// Broadcast of the result buffer of the rank at seat `root` into those of the others.
pub(crate) fn broadcast(seat: Seat<'_>, bytes: usize, root: usize) -> Plan {
    let mut plan = Plan::new();
    if seat.me != root {
        let complete = plan.gate();
        for (part, offset, bytes) in pieces(bytes) {
            plan.receive(Inbound {
                from: seat.ranks[root],
                part,
                region: Region::buffer(offset, bytes),
                landing: Landing::Copy,
                reliability: Reliability::Lossless,
                gate: complete,
            });
        }
        return plan.sealed();
    }
    for other in seat.others() {
        for (part, offset, bytes) in pieces(bytes) {
            plan.send(Outbound {
                to: seat.ranks[other],
                part,
                region: Region::buffer(offset, bytes),
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
    use gradwire_protocol::units::Rank;

    use super::*;

    #[test]
    fn only_the_root_sends_and_it_sends_everything_to_each_other_rank() {
        let ranks = [Rank(0), Rank(1), Rank(2)];
        let bytes = 65 << 20;
        let sent = [0, 1, 2].map(|me| {
            let plan = broadcast(Seat { ranks: &ranks, me }, bytes, 1);
            let bytes: usize = plan.outbounds.iter().map(|out| out.region.bytes).sum();
            (plan.outbounds.len(), bytes)
        });
        assert_eq!(sent, [(0, 0), (4, 2 * bytes), (0, 0)]);
    }
}

//! Send and receive: one tensor from one rank to another.
//!
//! With S bytes: 1 step; 1 message (more beyond 64 MiB, and one even for 0 bytes); S bytes sent.
//! Where segments are missing within the tolerance, the receiver's buffer keeps its old bytes.
//!
//! Sequence numbers count per pair, direction and tag (`matching`), so they may equal those of
//! collectives in the same group. Part numbers tell them apart: they lie above those of
//! collectives.

use gradwire_protocol::units::Rank;

use crate::plan::{MessagePlan, PARTS, PlannedReceive, PlannedSend, SegmentLanding, TensorRegion};

/// The messages of a send of `bytes` to `to`.
pub(crate) fn send(to: Rank, bytes: usize) -> MessagePlan {
    let mut plan = MessagePlan::new();
    let whole = TensorRegion::buffer(0, bytes).or_nothing();
    let start = MessagePlan::START;
    plan.send_in_pieces(PlannedSend::contribution(to, PARTS, whole, start));
    plan.sealed()
}

/// The messages of a receive of `bytes` from `from`.
pub(crate) fn receive(from: Rank, bytes: usize) -> MessagePlan {
    let mut plan = MessagePlan::new();
    let whole = TensorRegion::buffer(0, bytes).or_nothing();
    let complete = plan.gate();
    plan.receive_in_pieces(PlannedReceive {
        landing: SegmentLanding::Copy,
        ..PlannedReceive::contribution(from, PARTS, whole, complete)
    });
    plan.sealed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_and_received_messages_match() {
        let (sent, received) = (send(Rank(1), 65 << 20), receive(Rank(0), 65 << 20));
        assert_eq!((sent.outbounds.len(), received.inbounds.len()), (2, 2));
        for (out, inbound) in sent.outbounds.iter().zip(&received.inbounds) {
            assert_eq!((out.part, out.region), (inbound.part, inbound.region));
        }
    }

    #[test]
    fn an_empty_tensor_is_an_empty_message() {
        let (sent, received) = (send(Rank(1), 0), receive(Rank(0), 0));
        assert_eq!((sent.outbounds.len(), received.inbounds.len()), (1, 1));
        assert_eq!(sent.outbounds[0].region, received.inbounds[0].region);
    }
}

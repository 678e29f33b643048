//! Dissemination barrier (Hensgen, Finkel and Manber, 1988).
//!
//! With n ranks: log2 n steps, rounded up; as many messages per rank; no bytes but headers. In step
//! k rank r tells rank r + 2^k that it and every rank it has heard from have entered, and waits for
//! the same message from rank r - 2^k. After the last step each rank has heard of all others.
//!
//! A message of a later step may arrive first. But no step begins before all earlier ones are
//! complete; otherwise a rank would vouch for ranks that it has not heard of.

use crate::plan::{GroupSeat, MessagePlan, PlannedReceive, PlannedSend, TensorRegion};

/// The messages of a barrier.
pub(crate) fn barrier(seat: GroupSeat<'_>) -> MessagePlan {
    let mut plan = MessagePlan::new();
    let mut gate = MessagePlan::START;
    let rounds = seat.world().next_power_of_two().ilog2();
    for round in 0..rounds {
        let (distance, part) = (1 << round, round as u16);
        plan.send(PlannedSend::finished(
            seat.ranks[seat.after(distance)],
            part,
            TensorRegion::NOTHING,
            gate,
        ));
        gate = plan.gate_after(gate);
        plan.receive(PlannedReceive::finished(
            seat.ranks[seat.before(distance)],
            part,
            TensorRegion::NOTHING,
            gate,
        ));
    }
    plan.sealed()
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::Rank;

    use super::*;

    #[test]
    fn a_barrier_takes_log2_n_steps_rounded_up() {
        let ranks: Vec<Rank> = (0..9).map(Rank).collect();
        for (world, steps) in [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4)] {
            let plan = barrier(GroupSeat::new(&ranks[..world], world - 1));
            assert_eq!(plan.outbounds.len(), steps);
            assert_eq!(
                plan.gates[0].opens.len(),
                1,
                "each step waits for the one before"
            );
        }
    }
}

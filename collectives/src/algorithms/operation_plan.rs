//! The plan of an operation as the engine asks it: listed, or computed where a formula gives it.
//!
//! A list is asked faster, and kept for the next step if it is short. A long one is made for each
//! operation, and takes most of the memory of a rank in a large group.

use std::borrow::Cow;

use gradwire_protocol::units::Rank;

use crate::algorithms::ring::RingPlan;
use crate::plan::{
    GateId, MessagePlan, PlanGate, PlannedReceive, PlannedSend, ScratchUse, TensorRegion,
};

/// Maximum number of messages of a plan that is listed although there is a formula for it, and of
/// one that is kept: larger plans take so long to run that making them again costs little.
pub(crate) const SHORT_PLAN_MAX: usize = 512;

/// The messages of one operation on one rank, by their numbers.
#[derive(Clone, Debug)]
pub(crate) enum OperationPlan {
    /// Each of its messages and gates is kept.
    Listed(MessagePlan),
    /// None is.
    Ring(RingPlan),
}

impl From<MessagePlan> for OperationPlan {
    fn from(plan: MessagePlan) -> Self {
        Self::Listed(plan)
    }
}

impl OperationPlan {
    /// Whether it has few messages.
    pub(crate) fn is_short(&self) -> bool {
        let (inbounds, outbounds) = self.messages();
        inbounds + outbounds <= SHORT_PLAN_MAX
    }

    /// How many messages in there are, and how many out.
    pub(crate) fn messages(&self) -> (usize, usize) {
        match self {
            Self::Listed(plan) => (plan.inbounds.len(), plan.outbounds.len()),
            Self::Ring(plan) => (plan.messages(), plan.messages()),
        }
    }

    /// A message in.
    #[inline]
    pub(crate) fn inbound(&self, at: usize) -> PlannedReceive {
        match self {
            Self::Listed(plan) => plan.inbounds[at],
            Self::Ring(plan) => plan.inbound(at),
        }
    }

    /// A message out.
    #[inline]
    pub(crate) fn outbound(&self, at: usize) -> PlannedSend {
        match self {
            Self::Listed(plan) => plan.outbounds[at],
            Self::Ring(plan) => plan.outbound(at),
        }
    }

    /// The messages in, by number.
    pub(crate) fn inbounds(&self) -> impl Iterator<Item = PlannedReceive> {
        (0..self.messages().0).map(|at| self.inbound(at))
    }

    /// The messages out, by number.
    pub(crate) fn outbounds(&self) -> impl Iterator<Item = PlannedSend> {
        (0..self.messages().1).map(|at| self.outbound(at))
    }

    /// A gate.
    #[inline]
    pub(crate) fn gate(&self, gate: GateId) -> Cow<'_, PlanGate> {
        match self {
            Self::Listed(plan) => Cow::Borrowed(&plan.gates[gate.0]),
            Self::Ring(plan) => Cow::Owned(plan.gate(gate)),
        }
    }

    /// The gates, by number.
    pub(crate) fn gates(&self) -> impl Iterator<Item = Cow<'_, PlanGate>> {
        let count = match self {
            Self::Listed(plan) => plan.gates.len(),
            Self::Ring(plan) => plan.gates(),
        };
        (0..count).map(|gate| self.gate(GateId(gate)))
    }

    /// Messages and gates that each gate waits for; nothing if none waits for more than one.
    pub(crate) fn waits(&self) -> impl Iterator<Item = u32> {
        let gates = match self {
            Self::Listed(plan) => &*plan.gates,
            Self::Ring(_) => &[],
        };
        gates.iter().map(|gate| gate.waits as u32)
    }

    /// The gates that are open from the beginning.
    pub(crate) fn open_gates(&self) -> Vec<GateId> {
        match self {
            Self::Listed(plan) => {
                let gates = plan.gates.iter().zip(0..);
                let open = gates.filter(|(gate, _)| gate.waits == 0);
                open.map(|(_, number)| GateId(number)).collect()
            }
            Self::Ring(_) => vec![MessagePlan::START],
        }
    }

    /// The message in with this sender and part.
    pub(crate) fn find_inbound(&self, from: Rank, part: u16) -> Option<usize> {
        match self {
            Self::Listed(plan) => plan.find_inbound(from, part),
            Self::Ring(plan) => plan.find_inbound(from, part),
        }
    }

    /// The message out with this receiver and part.
    pub(crate) fn find_outbound(&self, to: Rank, part: u16) -> Option<usize> {
        match self {
            Self::Listed(plan) => plan.find_outbound(to, part),
            Self::Ring(plan) => plan.find_outbound(to, part),
        }
    }

    /// Bytes of all messages out.
    pub(crate) fn outbound_bytes(&self) -> usize {
        match self {
            Self::Listed(plan) => plan.outbound_bytes,
            Self::Ring(plan) => plan.outbound_bytes(),
        }
    }

    /// Bytes to copy before anything else: from where, to where.
    pub(crate) fn copy(&self) -> Option<(TensorRegion, TensorRegion)> {
        match self {
            Self::Listed(plan) => plan.copy,
            Self::Ring(_) => None,
        }
    }

    /// How the plan uses its scratch memory.
    pub(crate) fn scratch(&self) -> ScratchUse {
        match self {
            Self::Listed(plan) => plan.scratch,
            Self::Ring(_) => ScratchUse::Unused,
        }
    }

    /// The same plan with all its messages and gates.
    pub(crate) fn into_listed(self) -> MessagePlan {
        match self {
            Self::Listed(plan) => plan,
            Self::Ring(plan) => plan.listed(),
        }
    }
}

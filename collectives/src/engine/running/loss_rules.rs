//! How much of each message may be lost, how urgent it is, and how its values are mixed.
//!
//! The rules are fixed when the operation is submitted, from the job, the operation and the step.
//! They are asked once per message.

use gradwire_protocol::job::{GradientTransform, ToleranceUse};
use gradwire_protocol::message::{MessageRole, ReceiveOrder, ReceiveUrgency};
use gradwire_protocol::priority::{Policy, Urgency, UrgencyUnit};
use gradwire_protocol::units::{Layer, MessageKey, Share};

use crate::algorithms::operation_plan::OperationPlan;
use crate::numbers::hadamard::Mixing;
use crate::operation::{Collective, Operation};
use crate::plan::Reliability;
use crate::plan::region::{TensorMemory, TensorRegion};

/// The limits of an operation, from its job and its step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossLimits {
    /// Messages shorter than this many bytes are lossless.
    pub(crate) min_lossy: usize,
    /// Which longer ones use their tolerance.
    pub(crate) tolerance_use: ToleranceUse,
    /// Payload bytes of a full packet of the network.
    pub(crate) segment_bytes: u32,
    /// No message of this step tolerates more.
    pub(crate) cap: Share,
    /// How contributions that may lose segments are transformed.
    pub(crate) transform: GradientTransform,
}

/// The loss rules of one operation.
#[derive(Debug)]
pub(super) struct LossRules {
    limits: LossLimits,
    may_lose: bool,
    /// The layer nearest to the front; `None` if they are not known.
    front: Option<Layer>,
    /// Where the result buffer begins in the tensor that the layers describe, in bytes.
    buffer_offset: usize,
}

impl LossRules {
    pub(super) fn new(operation: &Operation, plan: &OperationPlan, limits: LossLimits) -> Self {
        let buffer_offset = match (operation.collective, plan.copy()) {
            // Layers describe the input; the result buffer is one block of it.
            (Collective::ReduceScatter, Some((own_block, _))) => own_block.offset,
            _ => 0,
        };
        Self {
            limits,
            may_lose: operation.may_lose(),
            front: (operation.layers.spans.iter())
                .map(|&(_, layer)| layer)
                .min(),
            buffer_offset,
        }
    }

    /// Whether any message of the operation may lose segments.
    pub(super) fn may_lose(&self) -> bool {
        self.may_lose
    }

    /// Which messages use their tolerance.
    pub(super) fn tolerance_use(&self) -> ToleranceUse {
        self.limits.tolerance_use
    }

    /// Payload bytes of a full packet of the network.
    pub(super) fn segment_bytes(&self) -> usize {
        self.limits.segment_bytes as usize
    }

    /// The share of the message that carries a region that may be missing in this step.
    pub(super) fn tolerance(
        &self,
        operation: &Operation,
        region: TensorRegion,
        reliability: Reliability,
        policy: &Policy,
    ) -> Share {
        match reliability {
            Reliability::Lossless => Share::NONE,
            Reliability::Tolerant => {
                let tolerance = self.usual_tolerance(operation, region, policy);
                tolerance.min(self.limits.cap)
            }
        }
    }

    /// How urgent the operation is to its senders; `None` if its layers are not known.
    pub(super) fn urgency(&self, operation: &Operation, policy: &Policy) -> Option<Urgency> {
        let unit = operation.collective.urgency_unit();
        policy.urgency(self.front, operation.layers.count, unit)
    }

    /// How urgent its messages are to their receivers.
    pub(super) fn grant_urgency(
        &self,
        operation: &Operation,
        policy: &Policy,
        order: ReceiveOrder,
    ) -> Option<ReceiveUrgency> {
        let urgency = self.urgency(operation, policy);
        let role = operation.collective.message_role();
        let order = match operation.collective.urgency_unit() {
            UrgencyUnit::Layer => Some(order),
            // A root takes what has arrived: some workers send late.
            UrgencyUnit::Class => None,
        };
        (urgency.is_some() || role == MessageRole::Part).then_some(ReceiveUrgency {
            operation: urgency,
            role,
            order,
        })
    }

    /// The layers of a region's elements.
    fn layers_of(
        &self,
        operation: &Operation,
        region: TensorRegion,
    ) -> impl Iterator<Item = Layer> {
        let offset = match region.place {
            TensorMemory::Buffer => self.buffer_offset + region.offset,
            _ => region.offset,
        };
        let within = operation.layers.within(offset..offset + region.bytes);
        within.map(|(_, layer)| layer)
    }

    /// Share of a contribution to a region that may be missing in a step without a cap.
    pub(super) fn usual_tolerance(
        &self,
        operation: &Operation,
        region: TensorRegion,
        policy: &Policy,
    ) -> Share {
        if !self.is_long(region) {
            return Share::NONE;
        }
        let layers = self.layers_of(operation, region);
        policy.tolerance(operation.loss.tolerance, layers, operation.layers.count)
    }

    /// How contributions to a region are mixed, or `None` if they are not. Message keys are equal
    /// on both sides, so all ranks mix with the same signs.
    pub(super) fn mixing(
        &self,
        operation: &Operation,
        region: TensorRegion,
        reliability: Reliability,
        key: MessageKey,
    ) -> Option<Mixing> {
        let is_mixed = self.limits.transform == GradientTransform::Hadamard
            && self.is_long(region)
            && reliability == Reliability::Tolerant;
        is_mixed.then(|| Mixing {
            dtype: operation.dtype,
            segment_bytes: self.segment_bytes(),
            seed: key.0,
        })
    }

    /// Whether a message with this region is long enough to lose segments.
    fn is_long(&self, region: TensorRegion) -> bool {
        self.may_lose && region.bytes >= self.limits.min_lossy
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::job::Job;
    use gradwire_protocol::units::{Rank, Step};

    use super::*;
    use crate::numbers::dtype::{DType, ReduceOp};
    use crate::operation::buffer::Buffer;
    use crate::operation::{Group, Layers, LossTerms};
    use crate::plan::MessagePlan;

    const BLOCK: usize = 4096;

    /// A reduce-scatter of two blocks: the front layer's, and the back layer's.
    fn reduce_scatter() -> Operation {
        Operation {
            group: Group {
                id: 0,
                ranks: [Rank(0), Rank(1)].into(),
            },
            sequence: 0,
            collective: Collective::ReduceScatter,
            dtype: DType::F32,
            op: ReduceOp::Sum,
            buffer: Buffer::Virtual(BLOCK),
            input: Some(Buffer::Virtual(2 * BLOCK)),
            splits: None,
            loss: LossTerms::NONE,
            step: Step(0),
            layers: Layers {
                count: 2,
                spans: vec![(0, Layer(0)), (BLOCK, Layer(1))],
            },
            tensor_key: 0,
            deadline: None,
        }
    }

    #[test]
    fn a_block_tolerates_as_much_here_as_at_its_senders() {
        let mut operation = reduce_scatter();
        operation.loss.tolerance = Share::ALL;
        let limits = LossLimits {
            min_lossy: 0,
            tolerance_use: ToleranceUse::Always,
            segment_bytes: 1024,
            cap: Share::ALL,
            transform: GradientTransform::None,
        };
        let tolerances = [0.01, 0.1].map(|share| Share::new(share).expect("a share"));
        let policy = Policy {
            layer_tolerances: tolerances.into(),
            ..Job::default().policy()
        };
        for (own, expected) in [0, BLOCK].into_iter().zip(tolerances) {
            let (block, buffer) = (
                TensorRegion::input(own, BLOCK),
                TensorRegion::buffer(0, BLOCK),
            );
            let mut plan = MessagePlan::new();
            plan.copy = Some((block, buffer));
            let rules = LossRules::new(&operation, &plan.into(), limits);
            for region in [block, buffer] {
                let tolerance = rules.tolerance(&operation, region, Reliability::Tolerant, &policy);
                assert_eq!(tolerance, expected, "the block from byte {own}");
                let urgency = rules.urgency(&operation, &policy);
                assert_eq!(urgency, Some(Urgency::of(Layer(0))), "of both layers");
            }
        }
    }
}

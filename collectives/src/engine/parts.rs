//! The parts of a communicator that running operations work with.

use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::{GradientTransform, SumOrder, ToleranceUse};
use gradwire_protocol::priority::Policy;
use gradwire_protocol::reach::Reach;
use gradwire_protocol::units::Rank;

use crate::engine::departures::DepartureQueue;
use crate::engine::memory::StepMemory;
use crate::engine::running::coding::{Coding, MessageCut};
use crate::engine::running::loss_rules::LossLimits;
use crate::operation::Operation;
use crate::plan::MessageForm;
use crate::plan::region::TensorRegion;

/// The endpoint, and everything that operations share.
#[derive(Debug)]
pub(crate) struct EngineParts {
    pub(crate) endpoint: Endpoint,
    pub(crate) memory: StepMemory,
    pub(crate) policy: Policy,
    pub(crate) departures: DepartureQueue,
    /// How the job transforms contributions that may lose segments.
    pub(crate) transform: GradientTransform,
    /// The order in which the job sums contributions.
    pub(crate) sums: SumOrder,
}

impl EngineParts {
    /// How a message to or from a rank is cut into segments, and encoded if it leaves the host.
    pub(crate) fn cut(
        &self,
        coding: &Coding,
        (region, form): (TensorRegion, MessageForm),
        peer: Rank,
    ) -> MessageCut {
        let segment_bytes = self.endpoint.segment_bytes_to(peer);
        let blocks = match self.endpoint.reach(peer) {
            Reach::Network => coding.blocks(form, region.bytes, segment_bytes),
            Reach::Host => None,
        };
        MessageCut::new(region, segment_bytes, blocks)
    }

    /// The limits of an operation that is submitted now; messages shorter than `min_lossy` bytes
    /// are lossless.
    pub(crate) fn loss_limits(
        &mut self,
        operation: &Operation,
        (min_lossy, tolerance_use): (usize, ToleranceUse),
    ) -> LossLimits {
        LossLimits {
            min_lossy,
            tolerance_use,
            segment_bytes: self.endpoint.segment_bytes(),
            cap: self.memory.phases.cap(operation),
            transform: self.transform_of(operation),
        }
    }

    /// How contributions of an operation are transformed. Contributions are not transformed if all
    /// ranks share a host, where nothing is lost, or if a layer of the tensor tolerates no loss, so
    /// that its bits are kept.
    fn transform_of(&self, operation: &Operation) -> GradientTransform {
        let (me, layers) = (self.me(), &operation.layers);
        let within = layers.within(0..operation.tensor_bytes());
        let within = within.map(|(_, layer)| layer);
        let most = operation.loss.tolerance;
        let least = self.policy.tolerance(most, within, layers.count);
        let is_remote = |&rank: &Rank| rank != me && self.endpoint.reach(rank) == Reach::Network;
        let loses = operation.collective.reduces()
            && operation.may_lose()
            && !least.is_none()
            && operation.codec().is_none();
        if loses && operation.group.ranks.iter().any(is_remote) {
            self.transform
        } else {
            GradientTransform::None
        }
    }

    /// The rank that this communicator belongs to.
    pub(crate) fn me(&self) -> Rank {
        self.endpoint.settings().identity.rank
    }
}

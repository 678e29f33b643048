//! What is trained, and how its gradients are exchanged.

use gradwire_protocol::job::ReduceAlgorithm;

use super::mixed::MixedPlan;
use crate::model::Model;

/// Several equal steps of training.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// The trained model.
    pub model: Model,
    /// The exchange of gradients.
    pub exchange: GradientExchange,
    /// The parts of gradients for servers, if there are servers.
    pub parts: Parts,
    /// The updates that a forward pass waits for.
    pub update: Update,
    /// Bytes at which a bucket is closed, if there are buckets.
    pub bucket: u64,
    /// When gradients leave.
    pub overlap: Overlap,
    /// Another model, trained by the same ranks in turn with this one (`training/crossover`).
    pub beside: Option<Model>,
    /// Number of steps, at least one.
    pub steps: u32,
    /// Computing time of the last worker over that of the others; 1 makes all equal.
    pub straggling: f64,
    /// The algorithm of all-reduces; `None` leaves it to the job.
    pub algorithm: Option<ReduceAlgorithm>,
    /// Divisor of all sizes and times, also of the sizes of buckets and parts; 1 takes the model
    /// unchanged. See [`Model::divided`].
    pub scale: u32,
}

/// The ways to sum gradients.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum GradientExchange {
    /// An all-reduce for each bucket, formed as PyTorch's DDP does: gradients in the order in which
    /// they are ready, a bucket closed at 25 MiB, the first one at 1 MiB (`reducer.hpp`:
    /// `kDefaultBucketBytesCap`, `kDefaultFirstBucketBytes`; the order is that of the buckets that
    /// DDP rebuilds after its first step).
    Buckets,
    /// An all-reduce for each gradient.
    Tensors,
    /// This many parameter servers, on the first hosts. Gradients are cut into [`Parts`], each for
    /// the server with the fewest bytes so far. A worker exchanges with each server in a group of
    /// two, as gradwire's own workers do.
    Servers(u32),
    /// None: the model's matrices are sharded over a grid of hosts, which exchange their blocks.
    Grid(ProductGrid),
    /// As a plan says for each block of the model.
    Mixed {
        /// The plan.
        plan: MixedPlan,
        /// Samples of each host; `None` takes those of the model.
        samples: Option<u32>,
    },
}

/// The parts of a gradient for parameter servers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Parts {
    /// Equal parts of at most this many bytes.
    OfBytes(u64),
    /// One part per gradient; each server gets an equal share of a gradient of a million elements
    /// or more, so that no server carries more than others (MXNet's `MXNET_KVSTORE_BIGARRAY_BOUND`,
    /// `env_var.md`).
    Whole,
}

impl Default for Parts {
    /// 4,096,000 bytes: BytePS's default (`docs/env.md`).
    fn default() -> Self {
        Self::OfBytes(4_096_000)
    }
}

/// The updates that a layer's forward pass waits for, besides the layer before it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Update {
    /// The layer's own gradients of the step before.
    Layer,
    /// All gradients of the step before, as with an optimizer that steps once for all of them.
    All,
}

/// Bytes at which PyTorch's DDP closes a bucket, unless it is told otherwise.
pub const BUCKET_BYTES: u64 = 25 << 20;

/// When the exchange of gradients begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Overlap {
    /// As soon as the gradients of a message are there.
    Backward,
    /// When the backward pass has ended.
    Off,
}

/// A grid of hosts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProductGrid {
    /// Rows, and columns, of a layer.
    pub side: u32,
    /// Number of layers.
    pub depth: u32,
    /// Tokens in one host's share of the batch.
    pub tokens: u32,
}

impl ProductGrid {
    /// Returns the number of its hosts.
    pub fn hosts(self) -> u32 {
        self.side * self.side * self.depth
    }
}

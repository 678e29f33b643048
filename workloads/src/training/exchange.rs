//! What is trained, and how its gradients are exchanged.

use gradwire_protocol::job::ReduceAlgorithm;
use gradwire_protocol::units::Rate;

use super::mixed::MixedPlan;
use crate::model::Model;
use crate::workload::Task;

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
    /// The steps that a worker may be ahead of its updates.
    pub staleness: Staleness,
    /// Workers of a team, which sums its gradients first; 1 where each is alone.
    pub team: u32,
    /// Number of steps, at least one.
    pub steps: u32,
    /// Computing time of the last worker over that of the others; 1 makes all equal.
    pub straggling: f64,
    /// The algorithm of all-reduces; `None` leaves it to the job.
    pub algorithm: Option<ReduceAlgorithm>,
    /// The time that codecs take; `None` if none. The exchange itself has the job's codec.
    pub codec: Option<CodecTime>,
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
    /// None: each worker has its own model, and averages it with one partner a step.
    Gossip(Partners),
    /// None: the model's matrices are sharded over a grid of hosts, which exchange their blocks.
    Grid(ProductGrid),
    /// Sums of activations: each matrix is split over all hosts in one dimension.
    Line(TensorLine),
    /// As a plan says for each block of the model.
    Mixed {
        /// The plan.
        plan: MixedPlan,
        /// Samples of each host; `None` takes those of the model.
        samples: Option<u32>,
    },
}

/// The partner of a worker in each step of a gossip. Two partners exchange by an all-reduce of two
/// ranks, which moves as many bytes as two messages with the whole model.
#[derive(Clone, Copy, Debug, Eq, PartialEq, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum Partners {
    /// The two neighbours of a ring in turn (D-PSGD, AD-PSGD). It needs an even number of workers.
    Ring,
    /// The workers at distance 1, 2, 4 and so on in turn (GossipGraD, SGP). It needs a power of 2.
    HalvingDoubling,
    /// The first host, which computes nothing and keeps the centre of all models (EASGD).
    Centre,
}

/// The steps that a worker may be ahead of its updates.
///
/// - With servers, a worker gets the new values when all others are at most this many steps behind
///   it (SSP); 0 is a barrier.
/// - With all-reduces and in a gossip, a forward pass waits for the exchange of this many steps
///   before the last one; 0 waits for the last one.
/// - Members of a team never wait for less than their own team's sum.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Staleness {
    /// At most this many.
    Steps(u32),
    /// Any number: nobody waits for another.
    Unbounded,
}

impl Staleness {
    /// The step whose exchange must have ended before `step` counts as exchanged.
    pub(super) fn awaited(self, step: u32) -> Option<u32> {
        match self {
            Self::Steps(steps) => step.checked_sub(steps),
            Self::Unbounded => None,
        }
    }
}

/// The part that a task has in a training step: the first word of its name.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum StepPart {
    /// A worker computes from front to back.
    Forward,
    /// A worker computes gradients.
    Backward,
    /// Members of a team send gradients to their leader.
    Collect,
    /// A leader sends gradients to a server.
    Push,
    /// A server sends new values to a leader.
    Pull,
    /// Leaders sum gradients.
    AllReduce,
    /// Two leaders average their models.
    Average,
    /// A leader sends new values to its team.
    Spread,
}

impl StepPart {
    /// The part of a task; `None` where it is no task of a training step.
    pub fn of(task: &Task) -> Option<Self> {
        task.name.split(' ').next()?.parse().ok()
    }
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

/// The time that a host takes to encode and decode messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CodecTime {
    /// Values that a host encodes or decodes, as bits in a second. Each message is encoded once and
    /// decoded once.
    pub rate: Rate,
    /// The unit that does it.
    pub unit: CodecUnit,
}

/// The unit of a host that encodes and decodes, one message at a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CodecUnit {
    /// Cores of their own: they code the blocks of a message while other blocks are on their way.
    Cores,
    /// The unit that computes: it encodes a message before it leaves, and decodes it when all of it
    /// has come.
    Compute,
}

/// Hosts that split each matrix in one dimension.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TensorLine {
    /// Their number.
    pub hosts: u32,
    /// Tokens in one host's share of the batch; each host computes a part of all of them.
    pub tokens: u32,
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

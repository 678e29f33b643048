//! Training steps: the computing of each worker, and the exchange of its gradients.
//!
//! A step is a forward pass, a backward pass, which makes the gradients in the order and at the
//! times of the [`Model`], and their exchange. A message leaves as soon as its gradients are ready.
//! In the next step a layer's forward pass waits for the layer before it and for its own update
//! ([`Update`]). An update takes no time.
//!
//! One more forward pass follows the last step. So the time from the end of one step's forward pass
//! to the end of the next one's has one backward pass, all of its communication and one forward
//! pass. [`StepEnds`] marks those ends, and the simulator measures between them.
//!
//! `messages` decides which gradients share a message, `programs` the order of tasks; `grid` has
//! both where matrices are sharded over the hosts. How a collective moves bytes is in
//! `gradwire_collectives`.

mod grid;
mod messages;
mod programs;
pub(crate) mod step_ends;

use gradwire_protocol::job::ReduceAlgorithm;

pub use grid::ProductGrid;
pub use step_ends::{StepEnds, Worker};

use crate::model::Model;
use crate::workload::Workload;

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
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
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

/// Maximum number of groups of two in a workload: the number of group ids on the wire.
const PAIRS_MAX: u32 = 60_000;

impl Training {
    /// Returns the fewest hosts that it needs.
    pub fn least_hosts(&self) -> u32 {
        match self.exchange {
            GradientExchange::Buckets | GradientExchange::Tensors => 2,
            GradientExchange::Servers(servers) => servers.saturating_add(1),
            GradientExchange::Grid(grid) => grid.hosts(),
        }
    }

    /// Returns the most hosts that it can use.
    pub fn most_hosts(&self) -> u32 {
        match self.exchange {
            GradientExchange::Buckets | GradientExchange::Tensors => u32::MAX,
            GradientExchange::Servers(servers) => {
                servers.saturating_add(PAIRS_MAX / servers.max(1))
            }
            GradientExchange::Grid(grid) => grid.hosts(),
        }
    }

    /// Returns whether a grid has matrices to multiply; true without a grid.
    pub fn multiplies(&self) -> bool {
        !matches!(self.exchange, GradientExchange::Grid(_)) || grid::multiplies(&self.model)
    }

    /// Returns the steps on `hosts` hosts, each a worker or a server.
    ///
    /// # Panics
    /// With fewer hosts than [`Self::least_hosts`] or more than [`Self::most_hosts`], or without
    /// servers where they are asked for.
    pub fn workload(&self, hosts: u32) -> Workload {
        let allowed = self.least_hosts()..=self.most_hosts();
        assert!(
            allowed.contains(&hosts),
            "{hosts} hosts, allowed are {allowed:?}"
        );
        let scaled = Self {
            model: self.model.clone().divided(self.scale),
            ..self.clone()
        };
        match self.exchange {
            GradientExchange::Grid(grid) => grid::workload(&scaled, &self.model, grid),
            _ => programs::workload(&scaled, hosts),
        }
    }
}

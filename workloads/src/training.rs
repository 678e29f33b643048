//! Training steps: what each worker computes, and when it exchanges which gradients.
//!
//! A step is the forward pass, the backward pass, which makes the gradients in the order and at
//! the times of the [`Model`], and their exchange, which begins as soon as the gradients of a
//! message are there. The next step's forward pass of a layer waits for the layer before it and for
//! its own update ([`Update`]). Updating takes no time.
//!
//! Behind the last step comes one more forward pass. So the time from the end of one step's
//! forward pass to the end of the next one's holds one backward pass, all of its communication and
//! one forward pass: [`StepEnds`] says where those ends are, and [`crate::steps`] measures them.
//!
//! Which gradients share a message is decided in `messages`, who does what after what in
//! `programs`. What is not here: how a collective moves bytes (`gradwire_collectives`).

mod messages;
mod programs;

use std::ops::Range;

use gradwire_protocol::job::ReduceAlgorithm;
use gradwire_protocol::units::Span;

use crate::model::Model;
use crate::workload::Workload;

/// Some steps of data-parallel training, all alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// What is trained.
    pub model: Model,
    /// How gradients are exchanged.
    pub exchange: Exchange,
    /// How they are cut for servers, where there are some.
    pub parts: Parts,
    /// What a forward pass waits for.
    pub update: Update,
    /// How many steps, at least one.
    pub steps: u32,
    /// How many times as long the last worker computes: 1 where all are alike.
    pub straggling: f64,
    /// The algorithm of all-reduces; `None` leaves it to the job.
    pub algorithm: Option<ReduceAlgorithm>,
    /// By what all sizes and times are divided, those at which buckets are closed and gradients
    /// are cut too; 1 takes the model as it is. See [`Model::divided`].
    pub scale: u32,
}

/// How gradients become sums.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exchange {
    /// An all-reduce for each bucket as PyTorch's DDP forms them: gradients in the order in which
    /// they are there, a bucket closed when it has 25 MiB or more, the first one 1 MiB
    /// (`reducer.hpp`: `kDefaultBucketBytesCap`, `kDefaultFirstBucketBytes`; the order is that of
    /// the buckets that DDP forms anew after its first step).
    Buckets,
    /// An all-reduce for each gradient.
    Tensors,
    /// So many parameter servers, the first hosts; gradients are cut into [`Parts`], each for the
    /// server that has least so far. A worker exchanges with each server in a group of two, as
    /// gradwire's own workers do.
    Servers(u32),
}

/// How a gradient is cut for parameter servers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Parts {
    /// Equal parts of so many bytes at most.
    OfBytes(u64),
    /// Not at all, but for gradients of a million elements or more, of which every server has an
    /// equal share, so that none has more to carry than others (MXNet's
    /// `MXNET_KVSTORE_BIGARRAY_BOUND`, `env_var.md`).
    Whole,
}

impl Default for Parts {
    /// 4,096,000 bytes: BytePS's default (`docs/env.md`).
    fn default() -> Self {
        Self::OfBytes(4_096_000)
    }
}

/// What the forward pass of a layer waits for, besides the layer before it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Update {
    /// The layer's own gradients of the step before.
    Layer,
    /// All gradients of the step before, as an optimizer does that steps once for all.
    All,
}

/// Where the steps of a training job begin and end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StepEnds {
    /// What the job is called: the workload that it came from.
    pub name: String,
    /// Its groups, by which its collectives are known from those of other jobs.
    pub groups: Range<u32>,
    /// How many steps.
    pub steps: u32,
    /// Names of the model's layers, in the order of the forward pass.
    pub layers: Vec<String>,
    /// Everybody who computes.
    pub workers: Vec<Worker>,
}

/// A host that computes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Worker {
    /// The host.
    pub host: u32,
    /// How long it computes in a step, forward and backward.
    pub compute: Span,
    /// The last task of each forward pass in its program: one more than there are steps.
    pub forward_ends: Vec<u32>,
}

/// Groups of two that a workload may have: as many as have numbers on the wire.
const PAIRS_MAX: u32 = 60_000;

impl Training {
    /// How many hosts it needs at least.
    pub fn least_hosts(&self) -> u32 {
        match self.exchange {
            Exchange::Buckets | Exchange::Tensors => 2,
            Exchange::Servers(servers) => servers.saturating_add(1),
        }
    }

    /// How many hosts it bears at most.
    pub fn most_hosts(&self) -> u32 {
        match self.exchange {
            Exchange::Buckets | Exchange::Tensors => u32::MAX,
            Exchange::Servers(servers) => servers.saturating_add(PAIRS_MAX / servers.max(1)),
        }
    }

    /// The steps on so many hosts, every host a worker or a server.
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
        programs::workload(&scaled, hosts)
    }
}

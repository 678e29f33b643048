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
//! Two jobs may take turns on the same ranks (`crossover`).
//!
//! `messages` decides which gradients share a message, `roster` which hosts exchange them,
//! `programs` the order of tasks; `grid` has all three where matrices are sharded over the hosts
//! in three dimensions, `line` where they are split in one, and `mixed` where each block of the
//! model has its own way, one of those of `block_run`. All four write steps by `workers`. How a
//! collective moves bytes is in `gradwire_collectives`.

mod block_run;
mod crossover;
mod exchange;
mod grid;
mod line;
mod messages;
mod mixed;
mod programs;
mod roster;
pub(crate) mod step_ends;
mod tasks;
mod workers;

pub use block_run::{
    ActivationLayout, BlockMemory, BlockPart, BlockRun, BlockStrategy, DeviceShare,
    KeptActivations, STATE_BYTES, WeightSpread, layout_change,
};
pub use exchange::{
    BUCKET_BYTES, CodecTime, CodecUnit, GradientExchange, Overlap, Partners, Parts, ProductGrid,
    Staleness, StepPart, TensorLine, Training, Update,
};
pub use mixed::{MixedPlan, MixedPlanError};
pub use step_ends::{StepEnds, Worker};

use crate::model::Model;
use crate::workload::Workload;

/// Maximum number of groups of two in a workload: the number of group ids on the wire.
const PAIRS_MAX: u32 = 60_000;

impl Training {
    /// Returns the fewest hosts that it needs.
    pub fn least_hosts(&self) -> u32 {
        match self.exchange {
            GradientExchange::Mixed { .. } => 2,
            GradientExchange::Buckets
            | GradientExchange::Tensors
            | GradientExchange::Gossip(Partners::Ring | Partners::HalvingDoubling) => 2 * self.team,
            GradientExchange::Servers(servers) => servers.saturating_add(self.team),
            GradientExchange::Gossip(Partners::Centre) => 1 + self.team,
            GradientExchange::Grid(grid) => grid.hosts(),
            GradientExchange::Line(line) => line.hosts,
        }
    }

    /// Returns the most hosts that it can use.
    pub fn most_hosts(&self) -> u32 {
        match self.exchange {
            GradientExchange::Buckets | GradientExchange::Tensors => u32::MAX,
            GradientExchange::Mixed { .. } => u32::MAX,
            GradientExchange::Gossip(_) => PAIRS_MAX / u32::BITS,
            GradientExchange::Servers(servers) => {
                servers.saturating_add(PAIRS_MAX / servers.max(1))
            }
            GradientExchange::Grid(grid) => grid.hosts(),
            GradientExchange::Line(line) => line.hosts,
        }
    }

    /// Says why this many hosts, which are neither too few nor too many, do not fit.
    pub fn misfit(&self, hosts: u32) -> Option<String> {
        let (team, leaders) = match self.exchange {
            GradientExchange::Grid(_) | GradientExchange::Line(_) => return None,
            GradientExchange::Servers(servers) => (self.team, hosts - servers),
            GradientExchange::Gossip(Partners::Centre) => (self.team, hosts - 1),
            _ => (self.team, hosts),
        };
        if !leaders.is_multiple_of(team) {
            return Some(format!("{leaders} workers are no teams of {team}"));
        }
        let leaders = leaders / team;
        match self.exchange {
            GradientExchange::Gossip(Partners::Ring) if leaders % 2 == 1 => Some(format!(
                "gossip=ring pairs all, so it needs an even number of workers or teams; there are \
                 {leaders}"
            )),
            GradientExchange::Gossip(Partners::HalvingDoubling) if !leaders.is_power_of_two() => {
                Some(format!(
                    "gossip=halving-doubling needs a power of two of workers or teams; there are \
                     {leaders}"
                ))
            }
            _ => None,
        }
    }

    /// Returns whether workers exchange whole gradients or models, so that they may be in teams,
    /// and ahead of their updates.
    pub fn exchanges_whole(&self) -> bool {
        match self.exchange {
            GradientExchange::Buckets
            | GradientExchange::Tensors
            | GradientExchange::Servers(_)
            | GradientExchange::Gossip(_) => true,
            GradientExchange::Grid(_)
            | GradientExchange::Line(_)
            | GradientExchange::Mixed { .. } => false,
        }
    }

    /// Returns whether all workers sum each message at once, before the next step.
    pub fn sums_at_once(&self) -> bool {
        let is_summed = matches!(
            self.exchange,
            GradientExchange::Buckets | GradientExchange::Tensors
        );
        is_summed && self.team == 1 && self.staleness == Staleness::Steps(0)
    }

    /// Says why a model has no matrices for hosts that share them; `None` where it has some, or
    /// where hosts share none.
    pub fn no_matrices(&self) -> Option<&'static str> {
        match self.exchange {
            GradientExchange::Grid(_) if !grid::multiplies(&self.model) => {
                Some("has no matrix with a bias, so a grid has nothing to multiply")
            }
            GradientExchange::Line(_) if !line::splits(&self.model) => {
                Some("has no pair of matrices, as transformers have them, that could be split")
            }
            _ => None,
        }
    }

    /// Returns the steps on `hosts` hosts, each a worker or a server.
    ///
    /// # Panics
    /// With fewer hosts than [`Self::least_hosts`] or more than [`Self::most_hosts`], with a
    /// [`Self::misfit`], or without servers where they are asked for.
    pub fn workload(&self, hosts: u32) -> Workload {
        let allowed = self.least_hosts()..=self.most_hosts();
        assert!(
            allowed.contains(&hosts),
            "{hosts} hosts, allowed are {allowed:?}"
        );
        assert_eq!(self.misfit(hosts), None, "{hosts} hosts");
        let scaled = Self {
            model: self.model.clone().divided(self.scale),
            ..self.clone()
        };
        let one = scaled.programs(&self.model, hosts);
        match &self.beside {
            None => one,
            Some(model) => {
                let other = Self {
                    model: model.clone().divided(self.scale),
                    ..scaled
                };
                crossover::crossover(one, other.programs(model, hosts))
            }
        }
    }

    /// Returns the steps of a model that is scaled already; `whole` is the model before that.
    fn programs(&self, whole: &Model, hosts: u32) -> Workload {
        match &self.exchange {
            GradientExchange::Grid(grid) => grid::workload(self, whole, *grid),
            GradientExchange::Line(line) => line::workload(self, whole, *line),
            GradientExchange::Mixed { plan, samples } => {
                let samples = samples.or(whole.samples).unwrap_or(1);
                let devices = hosts;
                mixed::workload(self, plan, DeviceShare { devices, samples })
            }
            _ => programs::workload(self, hosts),
        }
    }
}

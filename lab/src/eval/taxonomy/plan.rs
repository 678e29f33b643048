//! The runs of a cell: a simulation with lengths, and a training with values.
//!
//! Both follow from one [`CellPlan`]. In the simulation gradwire's packets, or those of SwitchML or
//! ATP, carry the gradients of VGG16; in the training `ranks` carries those of a small problem.

use gradwire_protocol::job::ReduceAlgorithm;
use gradwire_protocol::units::{Share, Span};
use gradwire_workloads::model::{Gradient, Model, ModelLayer};
use gradwire_workloads::training::{
    BUCKET_BYTES, GradientExchange, Overlap, Partners, Parts, Staleness, Training, Update,
};
use gradwire_workloads::workload::Workload;

use super::cells::{ExchangePattern, LossBound, ModelPlace, Timing, TrainingCell};
use super::learning::PARAMETERS;
use crate::eval::request::Extent;
use crate::sim::scenario::Scenario;

/// The fabric of all simulations: four switches with two hosts each; links between switches have
/// half the rate of those of hosts, and every link loses packets.
pub(super) const FABRIC: &str = "leaf-spine:4x2x1@100G/50G,loss=0.1%";
/// Share of a message that may be missing where loss is bounded, in a simulation.
pub(super) const TOLERANCE: f64 = 0.1;
/// The same in a training, whose shortest messages have five packets.
pub(super) const TRAINED_TOLERANCE: f64 = 0.25;
/// The steps that a worker may be ahead where staleness is bounded.
pub(super) const STALE_STEPS: u32 = 2;
/// Workers of a team.
pub(super) const TEAM: u32 = 2;
/// Hosts of a simulation, of which servers are the first two.
const SERVERS: u32 = 2;
/// Hosts of a training; with one server, six are workers.
const RANKS: u32 = 8;
/// Fewest workers of a training: those beside a server.
pub(super) const LEAST_WORKERS: usize = RANKS as usize - 2;
/// Steps of a training.
pub(super) const TRAINED_STEPS: u32 = 40;
/// Computing time of a training's step, a third of it forward.
const STEP_THIRD: Span = Span::from_micros(100);

/// The way in which a cell trains.
#[derive(Clone, Copy, Debug)]
pub(super) struct CellPlan {
    pub(super) cell: TrainingCell,
    staleness: Staleness,
    team: u32,
    algorithm: Option<ReduceAlgorithm>,
}

impl CellPlan {
    pub(super) fn of(cell: TrainingCell) -> Self {
        let algorithm = match (cell.architecture, cell.pattern) {
            (ModelPlace::AllReduce, ExchangePattern::Star | ExchangePattern::Hierarchical) => {
                Some(ReduceAlgorithm::Direct)
            }
            (ModelPlace::AllReduce, ExchangePattern::Ring) => Some(ReduceAlgorithm::Ring),
            (ModelPlace::AllReduce, ExchangePattern::HalvingDoubling) => {
                Some(ReduceAlgorithm::HalvingDoubling)
            }
            _ => None,
        };
        Self {
            cell,
            staleness: match cell.timing {
                Timing::Synchronous => Staleness::Steps(0),
                Timing::BoundedStale => Staleness::Steps(STALE_STEPS),
                Timing::Asynchronous => Staleness::Unbounded,
            },
            team: match cell.pattern {
                ExchangePattern::Hierarchical => TEAM,
                _ => 1,
            },
            algorithm,
        }
    }

    fn bound(self, tolerance: f64) -> Share {
        match self.cell.loss {
            LossBound::Lossless => Share::NONE,
            LossBound::Bounded => Share::new(tolerance).expect("it is a share"),
        }
    }

    pub(super) fn trained_tolerance(self) -> Share {
        self.bound(TRAINED_TOLERANCE)
    }

    /// How gradients are exchanged, given the number of servers where there are some.
    fn exchange(self, servers: u32) -> GradientExchange {
        match (self.cell.architecture, self.cell.pattern) {
            // The hosts of ATP's workers are its servers.
            (ModelPlace::Servers, ExchangePattern::InNetwork) | (ModelPlace::AllReduce, _) => {
                GradientExchange::Buckets
            }
            (ModelPlace::Servers, _) => GradientExchange::Servers(servers),
            (ModelPlace::Gossip, ExchangePattern::Star) => {
                GradientExchange::Gossip(Partners::Centre)
            }
            (ModelPlace::Gossip, ExchangePattern::HalvingDoubling) => {
                GradientExchange::Gossip(Partners::HalvingDoubling)
            }
            (ModelPlace::Gossip, _) => GradientExchange::Gossip(Partners::Ring),
        }
    }

    /// The simulation of the cell, as `gradwire sim run` takes it.
    pub(super) fn scenario(self, extent: Extent, seed: u64) -> Scenario {
        let how = match self.exchange(SERVERS) {
            GradientExchange::Servers(servers) => format!("ps={servers}"),
            GradientExchange::Gossip(Partners::Centre) => "gossip=centre".to_owned(),
            GradientExchange::Gossip(Partners::Ring) => "gossip=ring".to_owned(),
            GradientExchange::Gossip(Partners::HalvingDoubling) => {
                "gossip=halving-doubling".to_owned()
            }
            _ => "ddp".to_owned(),
        };
        let (scale, steps) = match extent {
            Extent::Quick => (1_024, 4),
            Extent::Whole => (64, 6),
            Extent::Thorough => (16, 6),
        };
        let mut workload = format!("step:vgg16:{how},scale={scale},steps={steps},slow=1.5");
        if let GradientExchange::Servers(_) = self.exchange(SERVERS) {
            // Parts of a scaled model would be single packets, which a tolerance never spares.
            workload += ",part=whole";
        }
        match self.staleness {
            Staleness::Steps(0) => {}
            Staleness::Steps(steps) => workload += &format!(",stale={steps}"),
            Staleness::Unbounded => workload += ",stale=any",
        }
        if self.team > 1 {
            workload += &format!(",team={}", self.team);
        }
        if let Some(algorithm) = self.algorithm {
            let name: &str = algorithm.into();
            workload += &format!(",algorithm={name}");
        }
        let transport = match (self.cell.architecture, self.cell.pattern) {
            (ModelPlace::Servers, ExchangePattern::InNetwork) => "atp",
            (_, ExchangePattern::InNetwork) => "switchml",
            _ => "gradwire",
        };
        let tolerance = self.bound(TOLERANCE);
        Scenario {
            transport: transport.to_owned(),
            tolerance: (!tolerance.is_none()).then_some(tolerance),
            seed,
            ..Scenario::new(FABRIC, &workload)
        }
    }

    /// The training of the cell, on lengths that `ranks` fills with values; its workers' steps
    /// take equally long.
    pub(super) fn training(self) -> Workload {
        let hosts = match self.exchange(1) {
            GradientExchange::Servers(_) => RANKS - 1,
            _ => RANKS,
        };
        let name = "layer".to_owned();
        let training = Training {
            model: Model {
                name: "softmax".to_owned(),
                times: String::new(),
                samples: None,
                layers: vec![ModelLayer {
                    name: name.clone(),
                    forward: STEP_THIRD,
                    values: None,
                }],
                gradients: vec![Gradient {
                    name,
                    layer: 0,
                    parameters: PARAMETERS as u64,
                    backward: STEP_THIRD + STEP_THIRD,
                }],
                remarks: Vec::new(),
            },
            exchange: self.exchange(1),
            parts: Parts::Whole,
            update: Update::Layer,
            bucket: BUCKET_BYTES,
            overlap: Overlap::Backward,
            beside: None,
            staleness: self.staleness,
            team: self.team,
            steps: TRAINED_STEPS,
            straggling: 1.0,
            algorithm: self.algorithm,
            codec: None,
            scale: 1,
        };
        training.workload(hosts)
    }
}

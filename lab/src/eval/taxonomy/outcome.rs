//! The runs of a cell, and the report of all cells.

use gradwire_fabric::topology::Device;
use gradwire_netsim::results::outcome::{LinkOutcome, Outcome, TaskOutcome};
use gradwire_netsim::results::statistics::{micros, rounded};
use gradwire_protocol::units::Instant;
use gradwire_workloads::training::StepEnds;
use serde::Serialize;

use super::cells::TrainingCell;
use super::systems::CrossingSystem;
use super::trained::TrainedModel;
use crate::eval::section::EvalGoal;

/// All cells.
#[derive(Clone, Debug, Serialize)]
pub struct TaxonomyReport {
    /// The version of gradwire.
    pub version: &'static str,
    /// The fabric of the simulations.
    pub fabric: &'static str,
    /// Seed of all draws.
    pub seed: u64,
    /// The cells, in the order of the axes.
    pub cells: Vec<MappedCell>,
    /// Systems that change a part of several cells.
    pub crossing: &'static [CrossingSystem],
    /// The goals.
    pub goals: Vec<EvalGoal>,
    /// Wall time of the run in seconds: the only part that differs between runs.
    pub wall_s: f64,
}

/// A cell, with its runs or the reason why it has none.
#[derive(Clone, Debug, Serialize)]
pub struct MappedCell {
    /// Its name.
    pub name: String,
    /// Its place on the axes.
    #[serde(flatten)]
    pub cell: TrainingCell,
    /// The published systems that it stands for.
    pub systems: &'static [&'static str],
    /// Its runs, the reason against it, or its failure.
    #[serde(flatten)]
    pub state: CellState,
}

/// The runs of a cell.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CellState {
    /// It ran twice.
    Ran(CellRuns),
    /// It makes no sense, and why.
    Illegal(&'static str),
    /// A run failed, and how.
    Failed(String),
}

/// Both runs of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellRuns {
    /// The command of the simulation.
    pub command: String,
    /// The simulated steps.
    pub simulated: SimulatedSteps,
    /// The trained model.
    pub trained: TrainedModel,
}

/// The simulated steps of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulatedSteps {
    /// Time of a worker's step in microseconds, mean of all workers and steps.
    pub step_us: f64,
    /// Bytes on links of hosts, both directions, per step.
    pub host_link_bytes: u64,
    /// Bytes on links between switches, both directions, per step.
    pub between_bytes: u64,
    /// Share of the segments whose loss was accepted.
    pub lost_share: f64,
}

impl CellState {
    /// Its runs, if it has any.
    pub fn runs(&self) -> Option<&CellRuns> {
        match self {
            Self::Ran(runs) => Some(runs),
            Self::Illegal(_) | Self::Failed(_) => None,
        }
    }
}

impl TaxonomyReport {
    /// The runs of the cell with which others are compared.
    pub fn reference(&self) -> Option<&CellRuns> {
        let mut cells = self.cells.iter();
        let reference = cells.find(|one| one.cell == TrainingCell::REFERENCE);
        reference.and_then(|one| one.state.runs())
    }

    /// The cells that failed, each with its failure.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.cells.iter().filter_map(|one| match &one.state {
            CellState::Failed(failure) => Some((one.name.as_str(), failure.as_str())),
            CellState::Ran(_) | CellState::Illegal(_) => None,
        })
    }

    /// The reasons against cells, each once, in the order of the cells.
    pub fn reasons(&self) -> Vec<&'static str> {
        let mut reasons = Vec::new();
        for one in &self.cells {
            if let CellState::Illegal(reason) = one.state
                && !reasons.contains(&reason)
            {
                reasons.push(reason);
            }
        }
        reasons
    }
}

impl SimulatedSteps {
    /// The steps of a run.
    pub(super) fn of(ends: &StepEnds, outcome: &Outcome) -> Self {
        let steps = f64::from(ends.steps);
        let ended = |host: u32, task: u32| -> Option<Instant> {
            let key = |one: &TaskOutcome| (one.host, one.task);
            let at = outcome.tasks.binary_search_by_key(&(host, task), key);
            outcome.tasks[at.ok()?].ended
        };
        let took = ends.workers.iter().filter_map(|worker| {
            let first = ended(worker.host, *worker.forward_ends.first()?)?;
            let last = ended(worker.host, *worker.forward_ends.last()?)?;
            Some(micros(last.since(first)) / steps)
        });
        let took: Vec<f64> = took.collect();
        let bytes = |is: fn(&LinkOutcome) -> bool| {
            let links = outcome.links.iter().filter(|link| is(link));
            let bytes: u64 = links.map(|link| link.bytes).sum();
            bytes / u64::from(ends.steps)
        };
        let is_of_host = |link: &LinkOutcome| {
            [link.from, link.to]
                .iter()
                .any(|end| matches!(end, Device::Host(_)))
        };
        let lost: u64 = outcome.tasks.iter().map(|task| task.lost_segments).sum();
        let expected: u64 = outcome
            .tasks
            .iter()
            .map(|task| task.expected_segments)
            .sum();
        Self {
            step_us: rounded(took.iter().sum::<f64>() / took.len().max(1) as f64),
            host_link_bytes: bytes(is_of_host),
            between_bytes: bytes(|link| {
                ![link.from, link.to]
                    .iter()
                    .any(|end| matches!(end, Device::Host(_)))
            }),
            lost_share: lost as f64 / expected.max(1) as f64,
        }
    }
}

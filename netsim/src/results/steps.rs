//! The training steps of a run: their times, the part that communication exposed, and the accepted
//! losses of each layer.

use gradwire_protocol::units::{Instant, Span};
use serde::{Deserialize, Serialize};

use crate::results::outcome::TaskOutcome;
use gradwire_workloads::training::StepEnds;
use gradwire_workloads::workload::{CollectiveKind, Task, Work, Workload};

/// The times and losses of a training job's steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// The name of the job.
    pub name: String,
    /// Of each step that ended on all workers, the time from the end of its forward pass to the
    /// end of the next one, each on the worker that is last.
    pub iterations: Vec<Span>,
    /// How long the slowest worker computes in a step, forward and backward: the time of a step
    /// whose communication is hidden completely.
    pub compute: Span,
    /// Completion times of the job's communication tasks that ended, on the side that sends: a push
    /// on the worker, a pull on the server, a collective on every rank. They begin when the task
    /// could start, so the wait for its turn counts.
    pub completions: Vec<Span>,
    /// By layer, the losses that all hosts accepted.
    pub losses: Vec<LayerLoss>,
}

/// Accepted losses of a layer's gradients, over all steps and hosts.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LayerLoss {
    /// The layer.
    pub layer: String,
    /// Share of the segments that others were to send to a host. A loss in a message of several
    /// layers counts for all of them alike, since the run does not record which bytes are missing.
    pub share: f64,
}

impl Steps {
    /// The steps of each training job of a workload; `outcomes` are the tasks of that workload, or
    /// those of its programs that come first.
    pub fn of(workload: &Workload, outcomes: &[TaskOutcome]) -> Vec<Self> {
        let jobs = workload.step_ends.iter();
        let steps = jobs.map(|job| {
            let compute = job.workers.iter().map(|worker| worker.compute).max();
            let exchanges = Exchanges::of(job, workload, outcomes);
            Self {
                name: job.name.clone(),
                iterations: iterations(job, outcomes),
                compute: compute.unwrap_or_default(),
                completions: exchanges.completions,
                losses: named(job, exchanges.sums),
            }
        });
        steps.collect()
    }

    /// For each step, the time in which communication kept all workers from computing.
    pub fn exposed(&self) -> impl Iterator<Item = Span> {
        let iterations = self.iterations.iter();
        iterations.map(|iteration| iteration.beyond(self.compute))
    }
}

fn iterations(step_ends: &StepEnds, outcomes: &[TaskOutcome]) -> Vec<Span> {
    let ended = |pass: usize| -> Option<Instant> {
        let mut last = Instant::START;
        for worker in &step_ends.workers {
            let task = worker.forward_ends[pass];
            last = last.max(find(outcomes, worker.host, task)?.ended?);
        }
        Some(last)
    };
    let ends: Vec<Instant> = (0..=step_ends.steps as usize).map_while(ended).collect();
    let pairs = ends.windows(2);
    pairs.map(|pair| pair[1].since(pair[0])).collect()
}

/// Outcomes are in the order of hosts, then tasks.
fn find(outcomes: &[TaskOutcome], host: u32, task: u32) -> Option<&TaskOutcome> {
    let found = outcomes.binary_search_by_key(&(host, task), |one| (one.host, one.task));
    found.ok().map(|at| &outcomes[at])
}

/// Times and losses of a job's communication tasks.
struct Exchanges {
    completions: Vec<Span>,
    /// By layer, the lost and the expected segments.
    sums: Vec<(f64, f64)>,
}

impl Exchanges {
    fn of(job: &StepEnds, workload: &Workload, outcomes: &[TaskOutcome]) -> Self {
        let mut exchanges = Self {
            completions: Vec::new(),
            sums: vec![(0.0, 0.0); job.layers.len()],
        };
        for program in &workload.programs {
            for (number, task) in (0..).zip(&program.tasks) {
                let Work::Collective { kind, group, .. } = task.work else {
                    continue;
                };
                if !job.groups.contains(&group) {
                    continue;
                }
                let Some(outcome) = find(outcomes, program.host, number) else {
                    continue;
                };
                exchanges.add_losses(task, outcome);
                let members = &workload.groups[group as usize];
                if sends(kind, members, program.host) {
                    let ended = outcome.started.zip(outcome.ended);
                    let took = ended.map(|(started, ended)| ended.since(started));
                    exchanges.completions.extend(took);
                }
            }
        }
        exchanges
    }

    /// Adds the lost and the expected segments of a task to the sums of its layers, by their bytes.
    fn add_losses(&mut self, task: &Task, outcome: &TaskOutcome) {
        let Work::Collective { bytes, layers, .. } = &task.work else {
            return;
        };
        let ends = layers.iter().skip(1).map(|(start, _)| *start);
        let ends = ends.chain([bytes.get()]);
        for ((start, layer), end) in layers.iter().zip(ends) {
            let share = (end - start) as f64 / bytes.get() as f64;
            // A trace may tell the numbers of layers without their names.
            let Some((lost, expected)) = self.sums.get_mut(usize::from(layer.0)) else {
                continue;
            };
            *lost += share * outcome.lost_segments as f64;
            *expected += share * outcome.expected_segments as f64;
        }
    }
}

/// Whether a host is on the side of a collective that sends the tensor.
fn sends(kind: CollectiveKind, members: &[u32], host: u32) -> bool {
    match kind {
        CollectiveKind::Reduce { root } => members[root as usize] != host,
        CollectiveKind::Broadcast { root } => members[root as usize] == host,
        CollectiveKind::AllReduce
        | CollectiveKind::ReduceScatter
        | CollectiveKind::AllGather
        | CollectiveKind::AllToAll
        | CollectiveKind::Barrier => true,
    }
}

fn named(job: &StepEnds, sums: Vec<(f64, f64)>) -> Vec<LayerLoss> {
    let sums = job.layers.iter().zip(sums);
    let losses = sums.map(|(name, (lost, expected))| LayerLoss {
        layer: name.clone(),
        share: if expected > 0.0 { lost / expected } else { 0.0 },
    });
    losses.collect()
}

//! How training steps went: their times, what of them was communication that nothing hid, and
//! which layers did without how much.

use gradwire_protocol::units::{Instant, Span};

use crate::outcome::TaskOutcome;
use crate::workload::{StepEnds, Task, Work, Workload};

/// What the steps of a run took.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// Of each step that ended on all workers, the time from the end of its forward pass to the
    /// end of the next one, each on the worker that is last.
    pub iterations: Vec<Span>,
    /// How long the slowest worker computes in a step, forward and backward: what a step takes
    /// where communication is hidden altogether.
    pub compute: Span,
    /// By layer, what all hosts did without.
    pub losses: Vec<LayerLoss>,
}

/// What was accepted as lost of a layer's gradients, over all steps and hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerLoss {
    /// The layer.
    pub name: String,
    /// Share of what others were to send to a host. What a message of several layers lost counts
    /// for all of them alike, since nobody records which bytes of it are missing.
    pub share: f64,
}

impl Steps {
    /// The steps of a workload that has some; `outcomes` are the tasks of that workload.
    pub fn of(workload: &Workload, outcomes: &[TaskOutcome]) -> Option<Self> {
        let step_ends = workload.step_ends.as_ref()?;
        let compute = step_ends.workers.iter().map(|worker| worker.compute).max();
        Some(Self {
            iterations: iterations(step_ends, outcomes),
            compute: compute.unwrap_or_default(),
            losses: losses(step_ends, workload, outcomes),
        })
    }

    /// The time of each step in which nobody computed because of communication.
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

fn losses(step_ends: &StepEnds, workload: &Workload, outcomes: &[TaskOutcome]) -> Vec<LayerLoss> {
    let mut sums = vec![(0.0, 0.0); step_ends.layers.len()];
    for program in &workload.programs {
        for (number, task) in (0..).zip(&program.tasks) {
            if let Some(outcome) = find(outcomes, program.host, number) {
                add_losses(&mut sums, task, outcome);
            }
        }
    }
    let sums = step_ends.layers.iter().zip(sums);
    let losses = sums.map(|(name, (lost, expected))| LayerLoss {
        name: name.clone(),
        share: if expected > 0.0 { lost / expected } else { 0.0 },
    });
    losses.collect()
}

/// Adds what a task lost and what it expected to the sums of its layers, by their bytes.
fn add_losses(sums: &mut [(f64, f64)], task: &Task, outcome: &TaskOutcome) {
    let Work::Collective { bytes, layers, .. } = &task.work else {
        return;
    };
    let ends = layers.iter().skip(1).map(|(start, _)| *start);
    let ends = ends.chain([bytes.get()]);
    for ((start, layer), end) in layers.iter().zip(ends) {
        let share = (end - start) as f64 / bytes.get() as f64;
        let (lost, expected) = &mut sums[usize::from(layer.0)];
        *lost += share * outcome.lost_segments as f64;
        *expected += share * outcome.expected_segments as f64;
    }
}

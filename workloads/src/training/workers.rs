//! What the programs of all workers have in common: a forward pass, then steps of a backward and a
//! forward pass each; and the workload that they make up.

use gradwire_protocol::units::Span;

use super::exchange::Training;
use super::step_ends::{StepEnds, Worker};
use super::tasks::ProgramTasks;
use crate::workload::{Program, Task, Workload};

/// The program of one worker so far.
pub(super) trait WorkerSteps {
    /// Its tasks.
    fn tasks(&mut self) -> &mut ProgramTasks;

    /// Adds a forward pass; returns its last task.
    fn forward(&mut self, step: u32) -> u32;

    /// Adds a backward pass, and the exchange of its gradients.
    fn backward(&mut self, step: u32);
}

/// The programs of a workload so far.
pub(super) struct TrainingPrograms<'a> {
    training: &'a Training,
    programs: Vec<Program>,
    workers: Vec<Worker>,
}

impl<'a> TrainingPrograms<'a> {
    pub(super) fn new(training: &'a Training) -> Self {
        Self {
            training,
            programs: Vec::new(),
            workers: Vec::new(),
        }
    }

    /// The tasks of a worker before its first pass. The last one of `workers` straggles.
    pub(super) fn tasks(&self, number: u32, workers: u32) -> ProgramTasks {
        ProgramTasks::new(match number + 1 == workers {
            true => self.training.straggling,
            false => 1.0,
        })
    }

    /// Adds a host that does not compute.
    pub(super) fn add_server(&mut self, host: u32, tasks: Vec<Task>) {
        self.programs.push(Program { host, tasks });
    }

    /// Adds a worker, and all steps to its program.
    pub(super) fn add_worker(&mut self, host: u32, mut steps: impl WorkerSteps) {
        let mut forward_ends = vec![steps.forward(0)];
        steps.tasks().took = Span::ZERO;
        for step in 0..self.training.steps {
            steps.backward(step);
            forward_ends.push(steps.forward(step + 1));
        }
        let tasks = steps.tasks();
        self.workers.push(Worker {
            host,
            compute: tasks.took.divided(u64::from(self.training.steps)),
            forward_ends,
        });
        let tasks = std::mem::take(&mut tasks.list);
        self.programs.push(Program { host, tasks });
    }

    /// The workload of hosts that exchange within these groups.
    pub(super) fn workload(self, groups: Vec<Vec<u32>>) -> Workload {
        let model = &self.training.model;
        Workload {
            programs: self.programs,
            layer_count: model.layers.len() as u16,
            algorithm: self.training.algorithm,
            step_ends: vec![StepEnds {
                name: model.name.clone(),
                groups: 0..groups.len() as u32,
                steps: self.training.steps,
                layers: model.layers.iter().map(|one| one.name.clone()).collect(),
                workers: self.workers,
            }],
            groups,
            ..Workload::default()
        }
    }
}

//! The tasks of one rank in one training step.

use gradwire_protocol::units::{Layer as LayerNumber, Span};

use super::file::{File, FileLayer, Pass, Scope, Strategy};
use super::groups::{Direction, Side, side};
use crate::workload::{Task, Work};

/// The unit that computes.
const COMPUTE: u16 = 0;
/// The unit that works after a collective.
const UPDATE: u16 = 1;

/// The tasks so far, and the tasks for which the next one waits.
pub(super) struct LayerStep<'a, G> {
    file: &'a File,
    /// Number of this rank's group of a kind, if it shares anything there.
    group: G,
    tasks: Vec<Task>,
    last: Vec<u32>,
}

impl<'a, G: Fn(Side) -> Option<u32>> LayerStep<'a, G> {
    /// Makes the tasks of a rank whose groups are `group`.
    pub(super) fn of(file: &'a File, group: G) -> Vec<Task> {
        let mut step = Self {
            file,
            group,
            tasks: Vec::new(),
            last: Vec::new(),
        };
        match file.strategy {
            Strategy::Micro => step.weights_only(),
            Strategy::Inference => step.forward(),
            Strategy::Dlrm => {
                step.forward_beside_embedding();
                step.backward_weight_first();
            }
            Strategy::Data => {
                step.forward();
                step.backward_weight_first();
            }
            _ => {
                step.forward();
                step.backward();
            }
        }
        step.tasks
    }

    fn weights_only(&mut self) {
        for number in 0..self.file.layers.len() {
            self.collective(number, Direction::Weight);
        }
    }

    fn forward(&mut self) {
        for number in 0..self.file.layers.len() {
            self.forward_layer(number);
        }
    }

    fn forward_layer(&mut self, number: usize) {
        self.compute(number, Direction::Forward);
        let shared = self.collective(number, Direction::Forward);
        self.block_on(shared);
    }

    /// The first layer is an embedding: its all-to-all runs in parallel with the bottom layers.
    fn forward_beside_embedding(&mut self) {
        let mut embedded = None;
        for number in 0..self.file.layers.len() {
            self.compute(number, Direction::Forward);
            if number == 0 {
                embedded = self.collective(number, Direction::Forward);
            }
            if number == self.file.keys.last_bottom {
                self.wait_for(embedded.take());
            }
        }
    }

    fn backward_weight_first(&mut self) {
        for number in (0..self.file.layers.len()).rev() {
            self.compute(number, Direction::Weight);
            self.collective(number, Direction::Weight);
            if number > 0 {
                self.compute(number, Direction::Input);
            }
            let embedding = self.file.strategy == Strategy::Dlrm;
            if embedding && number.checked_sub(1) == Some(self.file.keys.last_bottom) {
                self.collective(0, Direction::Input);
            }
        }
    }

    fn backward(&mut self) {
        for number in (0..self.file.layers.len()).rev() {
            if let Some(checkpoint) = self.file.layers[number].again_from {
                (checkpoint..number).for_each(|again| self.forward_layer(again));
            }
            self.compute(number, Direction::Input);
            if self.file.strategy == Strategy::Transformer {
                let shared = self.collective(number, Direction::Input);
                self.block_on(shared);
                self.compute(number, Direction::Weight);
                self.collective(number, Direction::Weight);
                continue;
            }
            let shared = (number > 0)
                .then(|| self.collective(number, Direction::Input))
                .flatten();
            self.compute(number, Direction::Weight);
            self.collective(number, Direction::Weight);
            self.wait_for(shared);
        }
    }

    /// The next task waits only for `task`, which itself waits for all earlier ones.
    fn block_on(&mut self, task: Option<u32>) {
        if let Some(task) = task {
            self.last = vec![task];
        }
    }

    /// The next task waits for `task`, too.
    fn wait_for(&mut self, task: Option<u32>) {
        self.last.extend(task);
    }

    fn compute(&mut self, number: usize, direction: Direction) {
        let layer = &self.file.layers[number];
        let span = pass(layer, direction).compute;
        if span > Span::ZERO {
            let name = format!("{} {}", layer.name, word(direction));
            let after = std::mem::take(&mut self.last);
            let work = Work::Compute {
                span,
                unit: COMPUTE,
            };
            let task = self.add(name, work, after);
            self.last = vec![task];
        }
    }

    /// Adds the collective of a direction, if ranks share it, and the work after it. Returns the
    /// last task of these.
    fn collective(&mut self, number: usize, direction: Direction) -> Option<u32> {
        let layer = &self.file.layers[number];
        let shared = pass(layer, direction).collective?;
        let embedding = self.file.strategy == Strategy::Dlrm && number == 0;
        let side = if embedding && shared.scope == Scope::Plain {
            Side::Everybody
        } else {
            side(layer, direction, shared.scope)?
        };
        let work = Work::Collective {
            kind: shared.kind,
            group: (self.group)(side)?,
            bytes: shared.bytes,
            layers: vec![(0, LayerNumber(number as u16))],
        };
        let name = format!("{} {} {}", layer.name, word(direction), shared.kind);
        let task = self.add(name, work, self.last.clone());
        if layer.update == Span::ZERO {
            return Some(task);
        }
        let work = Work::Compute {
            span: layer.update,
            unit: UPDATE,
        };
        let name = format!("{} {} update", layer.name, word(direction));
        Some(self.add(name, work, vec![task]))
    }

    fn add(&mut self, name: String, work: Work, after: Vec<u32>) -> u32 {
        self.tasks.push(Task::new(name, work, after));
        self.tasks.len() as u32 - 1
    }
}

fn pass(layer: &FileLayer, direction: Direction) -> Pass {
    match direction {
        Direction::Forward => layer.forward,
        Direction::Input => layer.input,
        Direction::Weight => layer.weight,
    }
}

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "forward",
        Direction::Input => "input gradient",
        Direction::Weight => "weight gradient",
    }
}

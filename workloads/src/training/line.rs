//! Training whose matrices are split over all hosts in one dimension: the tensor parallelism of
//! Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053, section 3), beside which `grid` is measured.
//!
//! Every host has a part of each matrix, and computes that part for the tokens of all hosts.
//! Matrices come in pairs: one or more that are split by their outputs, then one that is split by
//! its inputs. Each pair sums activations of all tokens twice:
//!
//! ```text
//! forward    behind the last matrix of a pair: an all-reduce of its outputs
//! backward   behind the first matrix of a pair: an all-reduce of the gradient of its inputs
//! ```
//!
//! A transformer's layer has two pairs: attention and feed-forward. Computing waits for the sums.
//! As in `grid`, all other tensors only compute, and the model's times are those of one host's
//! share of the batch: N times the tokens, an N-th of the work.

use gradwire_protocol::units::{ByteCount, Layer, Span};

use super::exchange::{TensorLine, Training};
use super::tasks::ProgramTasks;
use super::workers::{TrainingPrograms, WorkerSteps};
use crate::model::{ELEMENT_BYTES, Model, WeightSplit};
use crate::workload::{CollectiveKind, Task, Work, Workload};

/// The only group: all hosts.
const ALL: u32 = 0;

/// Elements of a token that a layer's passes sum; `None` where they sum nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct SummedElements {
    forward: Option<u64>,
    backward: Option<u64>,
}

/// Returns the sums of each layer.
fn sums(model: &Model) -> Vec<SummedElements> {
    let mut sums = vec![SummedElements::default(); model.layers.len()];
    let mut first: Option<(usize, u64)> = None;
    for (at, layer) in model.layers.iter().enumerate() {
        let Some(values) = layer.values else {
            continue;
        };
        match values.split {
            // An embedding is one by outputs, too; it reads indices, which have no gradient.
            WeightSplit::Columns if values.reads > 0 => {
                first = first.or(Some((at, values.reads)));
            }
            WeightSplit::Rows => {
                let (first, reads) = first.take().unwrap_or((at, values.reads));
                sums[at].forward = Some(values.writes);
                sums[first].backward = Some(reads);
            }
            WeightSplit::Columns | WeightSplit::Whole => {}
        }
    }
    sums
}

/// Returns whether a model has a pair of matrices.
pub(super) fn splits(model: &Model) -> bool {
    sums(model).iter().any(|sums| sums.forward.is_some())
}

/// Makes the workload of steps whose model is scaled already; `whole` is the model before that.
pub(super) fn workload(training: &Training, whole: &Model, line: TensorLine) -> Workload {
    let sums = sums(whole);
    let mut programs = TrainingPrograms::new(training);
    for host in 0..line.hosts {
        let steps = LineSteps {
            training,
            line,
            sums: &sums,
            tasks: programs.tasks(host, line.hosts),
            summed: None,
        };
        programs.add_worker(host, steps);
    }
    programs.workload(vec![(0..line.hosts).collect()])
}

/// The program of one host so far.
struct LineSteps<'a> {
    training: &'a Training,
    line: TensorLine,
    sums: &'a [SummedElements],
    tasks: ProgramTasks,
    /// The sum for which the next layer waits.
    summed: Option<u32>,
}

impl WorkerSteps for LineSteps<'_> {
    fn tasks(&mut self) -> &mut ProgramTasks {
        &mut self.tasks
    }

    fn forward(&mut self, step: u32) -> u32 {
        let mut last = 0;
        for (number, layer) in (0..).zip(&self.training.model.layers) {
            let name = format!("forward {}", layer.name);
            last = self.pass(&name, layer.forward, step);
            let elements = self.sums[usize::from(number)].forward;
            self.summed = elements.map(|elements| self.sum(elements, (&name, number), step));
        }
        last
    }

    fn backward(&mut self, step: u32) {
        let model = &self.training.model;
        let layers: Vec<_> = (0..).zip(&model.layers).collect();
        for (number, layer) in layers.into_iter().rev() {
            let span = model.backward_of(number);
            let name = format!("backward {}", layer.name);
            self.pass(&name, span, step);
            let elements = self.sums[usize::from(number)].backward;
            self.summed = elements.map(|elements| self.sum(elements, (&name, number), step));
        }
    }
}

impl LineSteps<'_> {
    /// Adds the computing of a layer, after the sum before it.
    fn pass(&mut self, name: &str, span: Span, step: u32) -> u32 {
        let after = self.summed.take().into_iter().collect();
        self.tasks.compute(name.to_owned(), span, after, step)
    }

    /// Adds a sum of this many elements of all tokens behind the last computing.
    fn sum(&mut self, elements: u64, (name, layer): (&str, u16), step: u32) -> u32 {
        let tokens = u64::from(self.line.tokens) * u64::from(self.line.hosts);
        let scaled = (tokens * elements).div_ceil(u64::from(self.training.scale.max(1)));
        let kind = CollectiveKind::AllReduce;
        let work = Work::Collective {
            kind,
            group: ALL,
            bytes: ByteCount::new(scaled * ELEMENT_BYTES),
            layers: vec![(0, Layer(layer))],
        };
        let after = self.tasks.computed().into_iter().collect();
        let task = Task::new(format!("{kind} {name}"), work, after);
        self.tasks.add(task, step)
    }
}

//! The tasks of a program, as they are added.

use gradwire_protocol::units::Span;

use crate::workload::{Task, Work};

/// The unit that computes.
pub(super) const COMPUTE: u16 = 0;

/// The tasks of a program so far; those that compute follow one another.
pub(super) struct ProgramTasks {
    pub(super) list: Vec<Task>,
    /// The last computing task.
    computed: Option<u32>,
    /// Computing time so far.
    pub(super) took: Span,
    /// Computing time over that of the model.
    slow: f64,
}

impl ProgramTasks {
    pub(super) fn new(slow: f64) -> Self {
        Self {
            list: Vec::new(),
            computed: None,
            took: Span::ZERO,
            slow,
        }
    }

    /// Adds a computing task after the last one and after `after`.
    pub(super) fn compute(&mut self, name: String, span: Span, after: Vec<u32>, step: u32) -> u32 {
        let picos = span.as_picos() as f64 * self.slow;
        let span = Span::from_picos(picos.round() as u64);
        self.took = self.took + span;
        let unit = COMPUTE;
        let others = after.into_iter().filter(|&one| Some(one) != self.computed);
        let after = self.computed.into_iter().chain(others).collect();
        let task = self.add(Task::new(name, Work::Compute { span, unit }, after), step);
        self.computed = Some(task);
        task
    }

    /// The last computing task.
    pub(super) fn computed(&self) -> Option<u32> {
        self.computed
    }

    pub(super) fn add(&mut self, task: Task, step: u32) -> u32 {
        self.list.push(Task { step, ..task });
        self.list.len() as u32 - 1
    }
}

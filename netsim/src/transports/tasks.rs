//! Tasks of a program that wait for each other: ready ones, computations, ended ones.
//!
//! Compute tasks of one unit run one at a time, in the order in which they become ready; all other
//! tasks start as soon as all their predecessors have ended or started. A `Communicator` or flows
//! of a reference transport carry them; this file does not decide which.

use std::collections::{BTreeMap, VecDeque};

use gradwire_protocol::units::Instant;

use crate::engine::host::HostProgress;
use crate::results::outcome::TaskOutcome;
use gradwire_workloads::order::TaskWaits;
use gradwire_workloads::workload::{Program, Task, Work};

/// Segments of a task that was carried.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Segments {
    /// Segments that others were to send to this host.
    pub(super) expected: u64,
    /// Of these, segments whose loss this host accepted.
    pub(super) lost: u64,
}

#[derive(Clone, Debug, Default)]
struct State {
    started: Option<Instant>,
    ended: Option<Instant>,
    segments: Segments,
}

/// A task that keeps a unit busy.
#[derive(Clone, Copy, Debug)]
struct Busy {
    until: Instant,
    task: u32,
}

#[derive(Debug, Default)]
struct Unit {
    busy: Option<Busy>,
    queue: VecDeque<u32>,
}

/// The tasks of a host's program.
#[derive(Debug)]
pub(super) struct Tasks {
    host: u32,
    tasks: Vec<Task>,
    states: Vec<State>,
    waits: TaskWaits,
    units: BTreeMap<u16, Unit>,
    ready: VecDeque<u32>,
    begun: bool,
    /// Ended tasks that were not reported yet.
    untold: u32,
}

impl Tasks {
    /// The tasks of a program, before any has started.
    pub(super) fn new(program: &Program) -> Self {
        Self {
            host: program.host,
            tasks: program.tasks.clone(),
            states: vec![State::default(); program.tasks.len()],
            waits: TaskWaits::new(&program.tasks),
            units: BTreeMap::new(),
            ready: VecDeque::new(),
            begun: false,
            untold: 0,
        }
    }

    /// A task.
    pub(super) fn task(&self, task: u32) -> &Task {
        &self.tasks[task as usize]
    }

    /// Whether a task has started.
    pub(super) fn has_started(&self, task: u32) -> bool {
        self.states[task as usize].started.is_some()
    }

    /// When a computation ends, or the program begins.
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        if !self.begun {
            return Some(Instant::START);
        }
        let busy = self.units.values().filter_map(|unit| unit.busy);
        busy.map(|busy| busy.until).min()
    }

    /// Makes all tasks ready that wait for no other, the first time that this is called.
    pub(super) fn begin(&mut self) {
        if self.begun {
            return;
        }
        self.begun = true;
        self.ready = self.waits.free().collect();
    }

    /// Ends the computations whose time is over.
    pub(super) fn end_computations(&mut self, now: Instant) {
        let over: Vec<u16> = (self.units.iter())
            .filter(|(_, unit)| unit.busy.is_some_and(|busy| busy.until <= now))
            .map(|(&number, _)| number)
            .collect();
        for number in over {
            let Some(unit) = self.units.get_mut(&number) else {
                continue;
            };
            let Some(busy) = unit.busy.take() else {
                continue;
            };
            let next = unit.queue.pop_front();
            self.end(now, busy.task, Segments::default());
            self.ready.extend(next);
        }
    }

    /// Starts ready tasks up to one that a transport must carry, and returns that one.
    pub(super) fn next_carried(&mut self, now: Instant) -> Option<u32> {
        loop {
            let task = self.ready.pop_front()?;
            if self.start(now, task) == Started::ToBeCarried {
                return Some(task);
            }
            self.end_computations(now);
        }
    }

    /// A task has ended.
    pub(super) fn end(&mut self, now: Instant, task: u32, segments: Segments) {
        let state = &mut self.states[task as usize];
        (state.ended, state.segments) = (Some(now), segments);
        self.untold += 1;
        self.ready.extend(self.waits.end(task));
    }

    /// Reports a task that has ended, once for each.
    pub(super) fn progress(&mut self) -> Option<HostProgress> {
        self.untold = self.untold.checked_sub(1)?;
        Some(HostProgress::Task)
    }

    /// The outcomes of all tasks.
    pub(super) fn outcomes(&self) -> Vec<TaskOutcome> {
        let states = self.states.iter().enumerate();
        let outcome = |(task, state): (usize, &State)| TaskOutcome {
            host: self.host,
            task: task as u32,
            started: state.started,
            ended: state.ended,
            expected_segments: state.segments.expected,
            lost_segments: state.segments.lost,
        };
        states.map(outcome).collect()
    }

    fn start(&mut self, now: Instant, task: u32) -> Started {
        let mut started = Started::ToBeCarried;
        if let Work::Compute { span, unit } = self.tasks[task as usize].work {
            let unit = self.units.entry(unit).or_default();
            if unit.busy.is_some() {
                unit.queue.push_back(task);
                return Started::OnAUnit;
            }
            let until = now + span;
            unit.busy = Some(Busy { until, task });
            started = Started::OnAUnit;
        }
        self.states[task as usize].started = Some(now);
        self.ready.extend(self.waits.start(task));
        started
    }
}

/// The resource that a ready task needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Started {
    /// A unit, which has it now or in its turn.
    OnAUnit,
    /// A transport.
    ToBeCarried,
}

//! Places a workload on hosts, and another workload in parallel.

use gradwire_protocol::units::Layer;

use crate::workload::{Flow, Over, Program, Start, Task, TriggerId, Work, Workload};

/// Reasons why a workload cannot be placed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PlacementError {
    /// The workload is for more hosts than the list has.
    #[error(
        "`{name}` uses host {host}, but it is put on {given} hosts: list at least {}",
        u64::from(*.host) + 1
    )]
    TooFew {
        /// Name of the workload.
        name: String,
        /// The host without a place.
        host: u32,
        /// Length of the list.
        given: usize,
    },
    /// A host is listed twice.
    #[error("host {0} is listed twice: list every host once")]
    Twice(u32),
    /// Two parallel workloads name different algorithms.
    #[error("`{one}` and `{other}` name different algorithms; all-reduces of one run have one")]
    Algorithms {
        /// Name of the first workload.
        one: String,
        /// Name of the second workload.
        other: String,
    },
}

impl Workload {
    /// Returns the workload with its host `i` on host `hosts[i]` of the fabric.
    ///
    /// # Errors
    /// [`PlacementError`] when a host has no place or two places.
    pub fn on_hosts(mut self, hosts: &[u32]) -> Result<Self, PlacementError> {
        let mut sorted = hosts.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(PlacementError::Twice(twice[0]));
        }
        let mut missing = None;
        self.for_each_host(|host| match hosts.get(*host as usize) {
            Some(&place) => *host = place,
            None => missing = Some(*host),
        });
        match missing {
            None => Ok(self),
            Some(host) => Err(PlacementError::TooFew {
                name: self.name,
                host,
                given: hosts.len(),
            }),
        }
    }

    /// Returns this workload with a background that loads the fabric.
    ///
    /// Only the training steps of this workload are measured. If it has some, a run ends when all
    /// programs have ended, also those of the background, and all flows of this workload. Flows of
    /// a background without layers travel like untagged traffic, in the last class.
    #[must_use]
    pub fn with_background(mut self, background: Self) -> Self {
        // Of several backgrounds the first one marks the end of the foreground.
        if !self.step_ends.is_empty() && self.over == Over::WithEverything {
            self.over = Over::WithForeground(count(self.flows.len()));
        }
        let mut background = Self {
            step_ends: Vec::new(),
            ..background
        };
        if background.layer_count == 0 {
            let flows = background.flows.iter_mut();
            flows.for_each(|flow| flow.layer = Layer::UNTAGGED);
        }
        self.and(background)
    }

    /// Returns this workload in parallel with another one; the training steps of both are measured.
    ///
    /// # Errors
    /// [`PlacementError::Algorithms`] when both name an algorithm and these differ.
    pub fn beside(self, other: Self) -> Result<Self, PlacementError> {
        let named = self.algorithm.zip(other.algorithm);
        if named.is_some_and(|(one, other)| one != other) {
            let (one, other) = (self.name, other.name);
            return Err(PlacementError::Algorithms { one, other });
        }
        Ok(self.and(other))
    }

    /// Adds another workload in parallel to this one. The other keeps its own triggers, groups,
    /// messages and compute units. A host with programs of both runs them side by side.
    ///
    /// The algorithm is this workload's, if it has one. Layers keep their numbers. The layer count
    /// outside training jobs is the larger one, so that a workload without layers competes as layer
    /// 0.
    fn and(mut self, background: Self) -> Self {
        self.name = format!("{} + {}", self.name, background.name);
        let shift = Shift {
            triggers: count(self.triggers.len()),
            groups: count(self.groups.len()),
            tags: self.first_free_tag(),
            units: self.first_free_unit(),
        };
        let flows = background.flows.into_iter();
        self.flows.extend(flows.map(|flow| shift.flow(flow)));
        self.triggers.extend(background.triggers);
        self.groups.extend(background.groups);
        let mut jobs = background.step_ends;
        for job in &mut jobs {
            job.groups.start += shift.groups;
            job.groups.end += shift.groups;
        }
        for program in background.programs {
            let host = program.host;
            let first = self.add_program(&shift, program);
            let workers = jobs.iter_mut().flat_map(|job| &mut job.workers);
            for worker in workers.filter(|worker| worker.host == host) {
                worker.forward_ends.iter_mut().for_each(|end| *end += first);
            }
        }
        self.step_ends.extend(jobs);
        self.layer_count = self.layer_count.max(background.layer_count);
        self.algorithm = self.algorithm.or(background.algorithm);
        self
    }

    /// Adds the tasks of a program to those of its host; returns the number of the first one.
    fn add_program(&mut self, shift: &Shift, program: Program) -> u32 {
        let host = program.host;
        let known = self.programs.iter().position(|own| own.host == host);
        let place = known.unwrap_or_else(|| {
            self.programs.push(Program {
                host,
                tasks: Vec::new(),
            });
            self.programs.len() - 1
        });
        let tasks = &mut self.programs[place].tasks;
        let first = count(tasks.len());
        let added = program.tasks.into_iter();
        tasks.extend(added.map(|task| shift.task(task, first)));
        first
    }

    fn for_each_host(&mut self, mut visit: impl FnMut(&mut u32)) {
        for flow in &mut self.flows {
            visit(&mut flow.source);
            visit(&mut flow.destination);
        }
        self.groups.iter_mut().flatten().for_each(&mut visit);
        let workers = self
            .step_ends
            .iter_mut()
            .flat_map(|step_ends| &mut step_ends.workers);
        workers.for_each(|worker| visit(&mut worker.host));
        for program in &mut self.programs {
            visit(&mut program.host);
            for task in &mut program.tasks {
                match &mut task.work {
                    Work::Send { to: peer, .. } | Work::Receive { from: peer, .. } => visit(peer),
                    Work::Compute { .. } | Work::Collective { .. } => {}
                }
            }
        }
    }

    fn works(&self) -> impl Iterator<Item = &Work> {
        let tasks = self.programs.iter().flat_map(|program| &program.tasks);
        tasks.map(|task| &task.work)
    }

    fn first_free_tag(&self) -> u32 {
        let tags = self.works().filter_map(|work| match work {
            Work::Send { tag, .. } | Work::Receive { tag, .. } => Some(tag.wrapping_add(1)),
            Work::Compute { .. } | Work::Collective { .. } => None,
        });
        tags.max().unwrap_or(0)
    }

    fn first_free_unit(&self) -> u16 {
        let units = self.works().filter_map(|work| match work {
            Work::Compute { unit, .. } => Some(unit.saturating_add(1)),
            _ => None,
        });
        units.max().unwrap_or(0)
    }
}

/// How far the numbers of the background are shifted, so that they follow those of the job.
struct Shift {
    triggers: u32,
    groups: u32,
    tags: u32,
    units: u16,
}

impl Shift {
    fn trigger(&self, trigger: TriggerId) -> TriggerId {
        TriggerId(trigger.0 + self.triggers)
    }

    fn flow(&self, flow: Flow) -> Flow {
        let start = match flow.start {
            Start::At(at) => Start::At(at),
            Start::On(trigger) => Start::On(self.trigger(trigger)),
        };
        Flow {
            start,
            when_sent: flow.when_sent.map(|trigger| self.trigger(trigger)),
            when_received: flow.when_received.map(|trigger| self.trigger(trigger)),
            ..flow
        }
    }

    fn task(&self, mut task: Task, first: u32) -> Task {
        for before in task.after.iter_mut().chain(&mut task.after_start) {
            *before += first;
        }
        match &mut task.work {
            Work::Compute { unit, .. } => *unit = unit.saturating_add(self.units),
            Work::Collective { group, .. } => *group += self.groups,
            Work::Send { tag, .. } | Work::Receive { tag, .. } => {
                *tag = tag.wrapping_add(self.tags);
            }
        }
        task
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("a workload that fits memory has fewer than 2^32 of each")
}

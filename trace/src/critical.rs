//! The critical path of a predicted run: from the end of its last forward pass back to its begin,
//! at each station to what it waited for longest.
//!
//! - A computation began when its unit was free and its predecessors had ended.
//! - A collective ended with its last message; a message was let go when a message before it had
//!   arrived or its credit came back, or when its collective began.
//! - A message waits until its links are free for it, and then travels.

use std::collections::BTreeMap;

use gradwire_netsim::fluid::{FluidMessage, LinkSide};
use gradwire_netsim::results::outcome::TaskOutcome;
use gradwire_protocol::units::Instant;
use gradwire_workloads::workload::{Task, Work, Workload};
use serde::Serialize;

use crate::replay::Prediction;

/// The resource that a station of the path holds.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PathResource {
    /// A rank computes.
    Compute,
    /// A message leaves over a rank's link.
    LinkUp,
    /// A message comes over a rank's link.
    LinkDown,
    /// A message waits for more urgent ones, or for its receiver.
    Queue,
    /// Nothing is busy: one way's latency, or the credit.
    Latency,
}

impl PathResource {
    /// The resource in words.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Compute => "computing",
            Self::LinkUp => "link up",
            Self::LinkDown => "link down",
            Self::Queue => "waiting for a link",
            Self::Latency => "latency",
        }
    }
}

/// A station of the path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathStation {
    /// The resource that it holds.
    pub resource: PathResource,
    /// The rank whose resource that is.
    pub rank: u32,
    /// The task: a layer's pass, or the bucket or tensor of a message.
    pub task: String,
    /// The other rank of a message.
    pub peer: Option<u32>,
    /// From when, in microseconds.
    pub from_us: f64,
    /// Until when, in microseconds.
    pub to_us: f64,
}

/// The critical path of the last iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CriticalPath {
    /// Its stations in order of time.
    pub stations: Vec<PathStation>,
}

impl CriticalPath {
    /// The path through the last iteration of a prediction.
    pub fn of(workload: &Workload, prediction: &Prediction) -> Self {
        let Some((last, begin)) = last_iteration(workload, prediction) else {
            return Self::default();
        };
        let mut walk = Walk::new(workload, prediction, begin);
        walk.task_ended(last);
        let mut stations = walk.stations;
        stations.reverse();
        Self { stations }
    }

    /// Microseconds of the path on each resource of each rank, the longest first.
    pub fn shares(&self) -> Vec<((PathResource, u32), f64)> {
        let mut shares: BTreeMap<(PathResource, u32), f64> = BTreeMap::new();
        for one in &self.stations {
            *shares.entry((one.resource, one.rank)).or_default() += one.to_us - one.from_us;
        }
        let mut shares: Vec<_> = shares.into_iter().collect();
        shares.sort_by(|one, other| other.1.total_cmp(&one.1));
        shares
    }

    /// Microseconds of the path on a resource, of all ranks.
    pub fn on(&self, resource: PathResource) -> f64 {
        let own = self.stations.iter().filter(|one| one.resource == resource);
        own.map(|one| one.to_us - one.from_us).sum()
    }
}

/// The last forward task of a run, and the end of the forward pass before.
fn last_iteration(workload: &Workload, prediction: &Prediction) -> Option<((u32, u32), Instant)> {
    let ends = workload.step_ends.first()?;
    let ended = |host: u32, task: u32| find(&prediction.outcome.tasks, host, task)?.ended;
    let pass = |number: usize| {
        let workers = ends.workers.iter().filter_map(|worker| {
            let task = *worker.forward_ends.get(number)?;
            Some((ended(worker.host, task)?, (worker.host, task)))
        });
        workers.max()
    };
    let number = ends.steps as usize;
    Some((pass(number)?.1, pass(number.checked_sub(1)?)?.0))
}

fn find(tasks: &[TaskOutcome], host: u32, task: u32) -> Option<&TaskOutcome> {
    let found = tasks.binary_search_by_key(&(host, task), |one| (one.host, one.task));
    found.ok().map(|at| &tasks[at])
}

struct Walk<'a> {
    workload: &'a Workload,
    prediction: &'a Prediction,
    /// The messages of each task, at its sender and at its receiver.
    out: BTreeMap<(u32, u32), Vec<&'a FluidMessage>>,
    into: BTreeMap<(u32, u32), Vec<&'a FluidMessage>>,
    /// Computations of each host, by their end.
    computed: BTreeMap<u32, BTreeMap<Instant, u32>>,
    begin: Instant,
    stations: Vec<PathStation>,
}

impl<'a> Walk<'a> {
    fn new(workload: &'a Workload, prediction: &'a Prediction, begin: Instant) -> Self {
        let mut walk = Self {
            workload,
            prediction,
            out: BTreeMap::new(),
            into: BTreeMap::new(),
            computed: BTreeMap::new(),
            begin,
            stations: Vec::new(),
        };
        for message in &prediction.outcome.messages {
            let (from, to) = (message.hosts.0, message.hosts.1);
            walk.out
                .entry((from, message.tasks.0))
                .or_default()
                .push(message);
            walk.into
                .entry((to, message.tasks.1))
                .or_default()
                .push(message);
        }
        for outcome in &prediction.outcome.tasks {
            let Some(task) = walk.task((outcome.host, outcome.task)) else {
                continue;
            };
            if let (Work::Compute { .. }, Some(ended)) = (&task.work, outcome.ended) {
                walk.computed
                    .entry(outcome.host)
                    .or_default()
                    .insert(ended, outcome.task);
            }
        }
        walk
    }

    fn task(&self, (host, task): (u32, u32)) -> Option<&'a Task> {
        let mut programs = self.workload.programs.iter();
        let program = programs.find(|program| program.host == host)?;
        program.tasks.get(task as usize)
    }

    fn outcome(&self, (host, task): (u32, u32)) -> Option<&'a TaskOutcome> {
        find(&self.prediction.outcome.tasks, host, task)
    }

    fn add(
        &mut self,
        resource: PathResource,
        place: (u32, u32, Option<u32>),
        times: (Instant, Instant),
    ) {
        let (rank, task, peer) = place;
        let micros = |at: Instant| at.since(Instant::START).as_secs_f64() * 1e6;
        let (from, to) = (times.0.max(self.begin), times.1.max(self.begin));
        if from >= to {
            return;
        }
        let name = self
            .task((rank, task))
            .map_or("", |task| &task.name)
            .to_owned();
        self.stations.push(PathStation {
            resource,
            rank,
            task: name,
            peer,
            from_us: micros(from),
            to_us: micros(to),
        });
    }

    /// Follows tasks back from the end of one until the iteration's begin.
    fn task_ended(&mut self, last: (u32, u32)) {
        let mut at = Some(last);
        while let Some(here) = at {
            let Some((task, outcome)) = self.task(here).zip(self.outcome(here)) else {
                return;
            };
            let (Some(started), Some(ended)) = (outcome.started, outcome.ended) else {
                return;
            };
            if ended <= self.begin {
                return;
            }
            at = match task.work {
                Work::Compute { .. } => {
                    self.add(
                        PathResource::Compute,
                        (here.0, here.1, None),
                        (started, ended),
                    );
                    self.cause_of_start(here, started)
                }
                _ => self.exchange_ended(here, ended),
            };
        }
    }

    /// The task whose end or start let this one start.
    fn cause_of_start(&self, here: (u32, u32), started: Instant) -> Option<(u32, u32)> {
        let task = self.task(here)?;
        let ended = |&before: &u32| {
            let place = (here.0, before);
            Some((self.outcome(place)?.ended?, place))
        };
        let awaited = task.after.iter().filter_map(ended);
        let unit = self
            .computed
            .get(&here.0)
            .filter(|_| matches!(task.work, Work::Compute { .. }));
        let unit = unit.and_then(|ends| ends.range(..=started).next_back());
        let unit = unit
            .map(|(&end, &task)| (end, (here.0, task)))
            .filter(|(_, place)| *place != here);
        let started = task.after_start.iter().filter_map(|&before| {
            let place = (here.0, before);
            let start = self.outcome(place)?.started?;
            Some((start, self.cause_of_start(place, start)?))
        });
        let causes = awaited.chain(unit).chain(started);
        causes.max_by_key(|(at, _)| *at).map(|(_, place)| place)
    }

    /// Follows the messages of a collective back to the task that let the first of them go.
    fn exchange_ended(&mut self, here: (u32, u32), ended: Instant) -> Option<(u32, u32)> {
        let (mut here, mut until) = (here, ended);
        loop {
            let started = self.outcome(here)?.started?;
            if started == until {
                return self.cause_of_start(here, started);
            }
            let arrived = self.latest(&self.into, here, until, |message| message.arrived);
            let heard = self.latest(&self.out, here, until, |message| message.acknowledged);
            let message = match (arrived, heard) {
                (Some(one), Some(other)) if other.acknowledged > one.arrived => other,
                (Some(one), _) => one,
                (None, Some(other)) => other,
                (None, None) => return self.cause_of_start(here, started),
            };
            self.travel(message, until);
            if message.begun <= self.begin {
                return None;
            }
            (here, until) = ((message.hosts.0, message.tasks.0), message.begun);
        }
    }

    /// The last message of a task that was done by a time, and begun before it.
    fn latest(
        &self,
        of: &BTreeMap<(u32, u32), Vec<&'a FluidMessage>>,
        here: (u32, u32),
        until: Instant,
        done: fn(&FluidMessage) -> Instant,
    ) -> Option<&'a FluidMessage> {
        let own = of.get(&here)?.iter().copied();
        let by_then = own.filter(|one| done(one) <= until && one.begun < until);
        by_then.max_by_key(|one| done(one))
    }

    fn travel(&mut self, message: &FluidMessage, until: Instant) {
        let (from, to) = message.hosts;
        let ways = message.acknowledged.since(message.arrived);
        let on_link = message.arrived.since(message.first).beyond(ways);
        let left = message.first + on_link;
        let here = (from, message.tasks.0, Some(to));
        self.add(PathResource::Latency, here, (left, until));
        let (resource, place) = match message.bound {
            LinkSide::Up => (PathResource::LinkUp, here),
            LinkSide::Down => (PathResource::LinkDown, (to, message.tasks.1, Some(from))),
        };
        self.add(resource, place, (message.first, left));
        self.add(PathResource::Queue, here, (message.begun, message.first));
    }
}

//! A rank that runs a program: tasks that wait for each other, on the `Communicator` that ships.
//!
//! Compute tasks of one unit run one at a time, in the order in which they become ready; all other
//! tasks start as soon as what they wait for is there. Buffers are lengths without bytes.

use std::collections::{BTreeMap, VecDeque};

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, Group, Layers, Loss, Operation, OperationId};
use gradwire_protocol::endpoint::{Counters, Endpoint};
use gradwire_protocol::job::Job;
use gradwire_protocol::machine::{Datagram, Machine, Transmit};
use gradwire_protocol::units::{Instant, Layer, Rank, Step};

use super::gradwire::{PROGRAMS, identity};
use crate::host::Progress;
use crate::outcome::TaskOutcome;
use crate::simulation::Setup;
use crate::workload::{CollectiveKind, Program, Task, Work};

/// Number of the groups of two for messages between pairs.
const PAIRS: u16 = u16::MAX;
/// Bytes of an element.
const ELEMENT: usize = 4;

#[derive(Clone, Debug, Default)]
struct State {
    /// How many tasks it still waits for.
    waits: u32,
    started: Option<Instant>,
    ended: Option<Instant>,
    expected_segments: u64,
    lost_segments: u64,
    /// Tasks that wait for it to end, and to start.
    then: Vec<u32>,
    then_started: Vec<u32>,
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

/// A rank and its program.
#[derive(Debug)]
pub(super) struct Player {
    rank: Rank,
    communicator: Communicator,
    tasks: Vec<Task>,
    states: Vec<State>,
    groups: Vec<Group>,
    loss: Loss,
    layer_count: u16,
    units: BTreeMap<u16, Unit>,
    operations: BTreeMap<OperationId, u32>,
    /// Of each task that is a collective, which one of its group it is, from 1.
    sequences: Vec<u32>,
    ready: VecDeque<u32>,
    begun: bool,
    /// Tasks that have ended and were not told yet.
    untold: u32,
}

impl Player {
    /// The rank of a program's host.
    pub(super) fn new(program: &Program, setup: &Setup) -> Self {
        let mut job: Job = setup.job.clone();
        if let Some(algorithm) = setup.workload.algorithm {
            job.collectives.algorithm = algorithm;
        }
        let host = program.host;
        let seed = setup.seed ^ u64::from(host).wrapping_mul(0xD1B5_4A32_D192_ED03);
        let endpoint = Endpoint::new(identity(host, setup, PROGRAMS), &job, seed);
        let groups = setup.workload.groups.iter().enumerate();
        let groups = groups.map(|(id, hosts)| Group {
            id: id as u16,
            ranks: hosts.iter().map(|&host| Rank(host as u16)).collect(),
        });
        Self {
            rank: Rank(host as u16),
            communicator: Communicator::new(endpoint, &job),
            states: states(&program.tasks),
            tasks: program.tasks.clone(),
            groups: groups.collect(),
            loss: Loss {
                tolerance: job.tolerance,
                holes: job.holes,
            },
            layer_count: setup.workload.layer_count,
            units: BTreeMap::new(),
            operations: BTreeMap::new(),
            sequences: sequences(&program.tasks),
            ready: VecDeque::new(),
            begun: false,
            untold: 0,
        }
    }

    pub(super) fn receive(&mut self, now: Instant, datagram: Datagram<'_>) {
        self.communicator.handle_datagram(now, datagram);
        self.go_on(now);
    }

    pub(super) fn wakes_at(&self) -> Option<Instant> {
        if !self.begun {
            return Some(Instant::START);
        }
        let busy = self.units.values().filter_map(|unit| unit.busy);
        let computed = busy.map(|busy| busy.until);
        computed.chain(self.communicator.poll_timeout()).min()
    }

    pub(super) fn wake(&mut self, now: Instant) {
        if !self.begun {
            self.begun = true;
            let free = self.states.iter().enumerate();
            let free = free.filter(|(_, state)| state.waits == 0);
            self.ready = free.map(|(task, _)| task as u32).collect();
        }
        if self.communicator.poll_timeout().is_some_and(|at| at <= now) {
            self.communicator.handle_timeout(now);
        }
        self.go_on(now);
    }

    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        self.communicator.poll_transmit(now)
    }

    pub(super) fn progress(&mut self) -> Option<Progress> {
        self.untold = self.untold.checked_sub(1)?;
        Some(Progress::Task)
    }

    pub(super) fn counters(&self) -> Counters {
        self.communicator.counters()
    }

    pub(super) fn outcomes(&self) -> Vec<TaskOutcome> {
        let states = self.states.iter().enumerate();
        let outcome = |(task, state): (usize, &State)| TaskOutcome {
            host: u32::from(self.rank.0),
            task: task as u32,
            started: state.started,
            ended: state.ended,
            expected_segments: state.expected_segments,
            lost_segments: state.lost_segments,
        };
        states.map(outcome).collect()
    }

    /// Lets everything happen that can happen now.
    fn go_on(&mut self, now: Instant) {
        loop {
            self.end_computations(now);
            while let Some(completion) = self.communicator.poll_completion() {
                if let Some(task) = self.operations.remove(&completion.id) {
                    if let Ok(outcome) = completion.result {
                        let state = &mut self.states[task as usize];
                        state.expected_segments = outcome.expected_segments;
                        state.lost_segments = outcome.lost_segments;
                    }
                    self.end(now, task);
                }
            }
            let Some(task) = self.ready.pop_front() else {
                return;
            };
            self.start(now, task);
        }
    }

    fn end_computations(&mut self, now: Instant) {
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
            self.end(now, busy.task);
            self.ready.extend(next);
        }
    }

    fn end(&mut self, now: Instant, task: u32) {
        self.states[task as usize].ended = Some(now);
        self.untold += 1;
        let then = std::mem::take(&mut self.states[task as usize].then);
        self.release(&then);
    }

    fn release(&mut self, tasks: &[u32]) {
        for &task in tasks {
            let state = &mut self.states[task as usize];
            state.waits -= 1;
            if state.waits == 0 {
                self.ready.push_back(task);
            }
        }
    }

    fn start(&mut self, now: Instant, task: u32) {
        let work = self.tasks[task as usize].work.clone();
        if let Work::Compute { span, unit } = work {
            let unit = self.units.entry(unit).or_default();
            if unit.busy.is_some() {
                unit.queue.push_back(task);
                return;
            }
            let until = now + span;
            unit.busy = Some(Busy { until, task });
        }
        self.states[task as usize].started = Some(now);
        let then = std::mem::take(&mut self.states[task as usize].then_started);
        self.release(&then);
        if let Some(operation) = self.operation(&work, task) {
            let id = self.communicator.submit(now, operation);
            let id = id.expect("a checked workload has valid operations, and no rank is lost");
            self.operations.insert(id, task);
        }
    }

    fn operation(&mut self, work: &Work, task: u32) -> Option<Operation> {
        match work {
            Work::Compute { .. } => None,
            Work::Collective {
                kind,
                group,
                bytes,
                layers,
            } => {
                let group = self.groups[*group as usize].clone();
                let (collective, buffer, input) = buffers(*kind, &group.ranks, bytes.as_usize());
                Some(Operation {
                    sequence: self.sequences[task as usize],
                    step: Step(self.tasks[task as usize].step),
                    input,
                    layers: self.layers(layers),
                    tensor_key: u64::from(task),
                    ..self.bare(group, collective, buffer)
                })
            }
            Work::Send { to, bytes, tag } => {
                let (to, tag) = (Rank(*to as u16), *tag as u16);
                Some(self.between(to, Collective::Send { to, tag }, bytes.as_usize()))
            }
            Work::Receive { from, bytes, tag } => {
                let (from, tag) = (Rank(*from as u16), *tag as u16);
                let collective = Collective::Receive { from, tag };
                Some(self.between(from, collective, bytes.as_usize()))
            }
        }
    }

    fn between(&self, peer: Rank, collective: Collective, bytes: usize) -> Operation {
        let ranks = [self.rank.min(peer), self.rank.max(peer)].into();
        let buffer = Buffer::Virtual(bytes.next_multiple_of(ELEMENT));
        let group = Group { id: PAIRS, ranks };
        self.bare(group, collective, buffer)
    }

    fn layers(&self, spans: &[(u64, Layer)]) -> Layers {
        if self.layer_count == 0 {
            return Layers::default();
        }
        let front = [(0, Layer(0))];
        let spans = if spans.is_empty() { &front } else { spans };
        Layers {
            count: self.layer_count,
            spans: spans
                .iter()
                .map(|&(at, layer)| (at as usize, layer))
                .collect(),
        }
    }

    fn bare(&self, group: Group, collective: Collective, buffer: Buffer) -> Operation {
        let messages = collective.is_point_to_point();
        Operation {
            group,
            sequence: 0,
            collective,
            dtype: DType::F32,
            op: ReduceOp::Sum,
            buffer,
            input: None,
            splits: None,
            loss: if messages { Loss::NONE } else { self.loss },
            step: Step(0),
            layers: Layers::default(),
            tensor_key: 0,
            deadline: None,
        }
    }
}

/// What a collective works on: its name, the result and the separate input.
fn buffers(
    kind: CollectiveKind,
    ranks: &[Rank],
    bytes: usize,
) -> (Collective, Buffer, Option<Buffer>) {
    let even = bytes.next_multiple_of(ELEMENT * ranks.len());
    let whole = Buffer::Virtual(bytes.next_multiple_of(ELEMENT));
    match kind {
        CollectiveKind::AllReduce => (Collective::AllReduce, whole, None),
        CollectiveKind::ReduceScatter => (
            Collective::ReduceScatter,
            Buffer::Virtual(even / ranks.len()),
            Some(Buffer::Virtual(even)),
        ),
        CollectiveKind::AllGather => (Collective::AllGather, Buffer::Virtual(even), None),
        CollectiveKind::AllToAll => (
            Collective::AllToAll,
            Buffer::Virtual(even),
            Some(Buffer::Virtual(even)),
        ),
        CollectiveKind::Broadcast { root } => {
            let root = ranks[root as usize];
            (Collective::Broadcast { root }, whole, None)
        }
        CollectiveKind::Reduce { root } => {
            let root = ranks[root as usize];
            (Collective::Reduce { root }, whole, None)
        }
        CollectiveKind::Barrier => (Collective::Barrier, Buffer::Virtual(0), None),
    }
}

/// Numbers the collectives of each group as they stand in the program, which is where a check
/// compares them: ranks may start them in different orders.
fn sequences(tasks: &[Task]) -> Vec<u32> {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    let numbers = tasks.iter().map(|task| match task.work {
        Work::Collective { group, .. } => {
            let count = counts.entry(group).or_default();
            *count += 1;
            *count
        }
        _ => 0,
    });
    numbers.collect()
}

fn states(tasks: &[Task]) -> Vec<State> {
    let mut states = vec![State::default(); tasks.len()];
    for (index, task) in tasks.iter().enumerate() {
        states[index].waits = (task.after.len() + task.after_start.len()) as u32;
        for &before in &task.after {
            states[before as usize].then.push(index as u32);
        }
        for &before in &task.after_start {
            states[before as usize].then_started.push(index as u32);
        }
    }
    states
}

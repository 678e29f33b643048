//! A rank that runs a program: tasks that wait for each other, on the `Communicator` that ships.
//!
//! `tasks` decides when the turn of a task comes. Buffers are lengths without bytes.

use std::collections::BTreeMap;

use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::operation::{
    Collective, Group, Layers, LossTerms, Operation, OperationId,
};
use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::{CodecTerms, Job};
use gradwire_protocol::machine::{Datagram, Machine, Transmit};
use gradwire_protocol::metrics::EndpointCounters;
use gradwire_protocol::units::{ByteCount, Instant, Layer, Rank, Step};
use gradwire_protocol::wire::Header;

use super::identity::{PROGRAMS, identity};
use super::operations;
use super::tasks::{Segments, Tasks};
use crate::engine::host::HostProgress;
use crate::results::outcome::{MessageOutcome, TaskOutcome};
use crate::setup::{JournalMode, Setup};
use gradwire_workloads::order::collective_numbers;
use gradwire_workloads::workload::{Program, Task, Work};

/// Number of the groups of two for messages between pairs.
const PAIRS: u16 = u16::MAX;

/// A rank and its program.
#[derive(Debug)]
pub(super) struct RankPlayer {
    rank: Rank,
    communicator: Communicator,
    tasks: Tasks,
    groups: Vec<Group>,
    loss: LossTerms,
    /// For each group, the layers of its model; 0 when they are not known.
    layer_counts: Vec<u16>,
    operations: BTreeMap<OperationId, u32>,
    /// For each task that is a collective, its position among those of its group, from 1.
    sequences: Vec<u32>,
}

impl RankPlayer {
    /// The rank of a program's host.
    pub(super) fn new(program: &Program, setup: &Setup) -> Self {
        let mut job: Job = setup.job.clone();
        if let Some(algorithm) = setup.workload.algorithm {
            job.collectives.algorithm = algorithm;
        }
        let host = program.host;
        let seed = setup.seed ^ u64::from(host).wrapping_mul(0xD1B5_4A32_D192_ED03);
        let endpoint = Endpoint::new(identity(host, setup, PROGRAMS), &job, seed);
        let endpoint = endpoint.with_limits(setup.limits());
        let mut communicator = Communicator::new(endpoint, &job);
        if setup.journal == JournalMode::Messages {
            communicator.keep_journal();
        }
        let groups = setup.workload.groups.iter().enumerate();
        let groups = groups.map(|(id, hosts)| Group {
            id: id as u16,
            ranks: hosts.iter().map(|&host| Rank(host as u16)).collect(),
        });
        Self {
            rank: Rank(host as u16),
            communicator,
            tasks: Tasks::new(program),
            groups: groups.collect(),
            loss: LossTerms {
                tolerance: job.greatest_tolerance(),
                holes: job.holes,
                codec: job.codec(),
            },
            layer_counts: (0..setup.workload.groups.len() as u32)
                .map(|group| setup.workload.layers_of(group))
                .collect(),
            operations: BTreeMap::new(),
            sequences: collective_numbers(&program.tasks),
        }
    }

    pub(super) fn receive(&mut self, now: Instant, datagram: Datagram<'_>) {
        self.communicator.handle_datagram(now, datagram);
        self.go_on(now);
    }

    pub(super) fn receive_trimmed(&mut self, now: Instant, header: &Header) {
        self.communicator.handle_trimmed(now, header);
        self.go_on(now);
    }

    pub(super) fn wakes_at(&self) -> Option<Instant> {
        let tasks = self.tasks.wakes_at();
        tasks
            .into_iter()
            .chain(self.communicator.poll_timeout())
            .min()
    }

    pub(super) fn wake(&mut self, now: Instant) {
        self.tasks.begin();
        if self.communicator.poll_timeout().is_some_and(|at| at <= now) {
            self.communicator.handle_timeout(now);
        }
        self.go_on(now);
    }

    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        self.communicator.poll_transmit(now)
    }

    pub(super) fn progress(&mut self) -> Option<HostProgress> {
        self.tasks.progress()
    }

    pub(super) fn counters(&self) -> EndpointCounters {
        self.communicator.counters()
    }

    pub(super) fn outcomes(&self) -> Vec<TaskOutcome> {
        self.tasks.outcomes()
    }

    pub(super) fn messages(&mut self) -> Vec<MessageOutcome> {
        let host = u32::from(self.rank.0);
        let records = self.communicator.take_journal().into_iter();
        records
            .map(|record| MessageOutcome { host, record })
            .collect()
    }

    /// Starts and ends all tasks that can start or end now.
    fn go_on(&mut self, now: Instant) {
        loop {
            self.tasks.end_computations(now);
            while let Some(completion) = self.communicator.poll_completion() {
                if let Some(task) = self.operations.remove(&completion.id) {
                    let outcome = completion.result.unwrap_or_default();
                    let segments = Segments {
                        expected: outcome.expected_segments,
                        lost: outcome.lost_segments,
                    };
                    self.tasks.end(now, task, segments);
                }
            }
            let Some(task) = self.tasks.next_carried(now) else {
                return;
            };
            if let Some(operation) = self.operation(task) {
                let id = self.communicator.submit(now, operation);
                let id = id.expect("a checked workload has valid operations, and no rank is lost");
                self.operations.insert(id, task);
            }
        }
    }

    fn operation(&self, number: u32) -> Option<Operation> {
        let task = self.tasks.task(number);
        match &task.work {
            Work::Compute { .. } => None,
            Work::Collective {
                kind,
                group,
                bytes,
                layers,
            } => {
                let layer_count = self.layer_counts[*group as usize];
                let group = self.groups[*group as usize].clone();
                let operation = operations::collective(*kind, group, *bytes);
                let codec = match operation.can_be_encoded() {
                    true => self.loss.codec,
                    false => CodecTerms::NONE,
                };
                Some(Operation {
                    sequence: self.sequences[number as usize],
                    step: Step(task.step),
                    layers: layers_of(layer_count, layers),
                    tensor_key: tensor_key(task, layers),
                    loss: LossTerms { codec, ..self.loss },
                    ..operation
                })
            }
            Work::Send { to, bytes, tag } => {
                let (to, tag) = (Rank(*to as u16), *tag as u16);
                Some(self.between(to, Collective::Send { to, tag }, *bytes))
            }
            Work::Receive { from, bytes, tag } => {
                let (from, tag) = (Rank(*from as u16), *tag as u16);
                Some(self.between(from, Collective::Receive { from, tag }, *bytes))
            }
        }
    }

    fn between(&self, peer: Rank, collective: Collective, bytes: ByteCount) -> Operation {
        let ranks = [self.rank.min(peer), self.rank.max(peer)].into();
        operations::message(Group { id: PAIRS, ranks }, collective, bytes)
    }
}

/// The same in each step, where a model says which layers an operation reduces. Elsewhere all
/// operations of one length in a group have the same: each is a step of one tensor.
fn tensor_key(task: &Task, layers: &[(u64, Layer)]) -> u64 {
    match (layers.first(), &task.work) {
        (Some(&(_, layer)), _) => (1 << 63) + u64::from(layer.0),
        (None, Work::Collective { group, bytes, .. }) => {
            (u64::from(*group) << 42) + 1 + (bytes.get() & ((1 << 42) - 1))
        }
        (None, _) => 0,
    }
}

fn layers_of(count: u16, spans: &[(u64, Layer)]) -> Layers {
    if count == 0 {
        return Layers::default();
    }
    let front = [(0, Layer(0))];
    let spans = if spans.is_empty() { &front } else { spans };
    let spans = spans.iter().map(|&(at, layer)| (at as usize, layer));
    Layers {
        count,
        spans: spans.collect(),
    }
}

//! The all-reduces of a rank that an aggregator sums, and how all ranks of a group agree on that.
//!
//! 1. **Start**: a small all-reduce among the ranks: the maximum of each block's exponent, and of
//!    one byte in front that is [`NOT_FINITE`] where a rank is not ready. If any byte of the result
//!    is that, the ranks sum alone. So all ranks decide alike, and know each block's exponent.
//! 2. **Sum**: packets to the aggregator and back ([`super::member`]), one tensor of a group after
//!    the other. The tensor stays as it is meanwhile.
//! 3. **Verdict**: a second small all-reduce: has every rank all sums? If not, the ranks sum the
//!    tensor alone. A rank gives up when it loses the aggregator, or when that is silent.
//! 4. **Alone** means: the operation runs as its caller has submitted it, by the algorithm that
//!    `auto` chooses.
//!
//! No rank sends packets of a tensor before all ranks have the verdict of the one before. So packet
//! numbers that a failed sum leaves behind do no harm, and a new aggregator needs no state.
//!
//! Start and verdict have groups of their own, and the sequence number of the operation: other
//! operations of the ranks, in any order, do not matter. Their failures are those of the operation.

use std::collections::{BTreeMap, VecDeque};

use gradwire_protocol::job::Job;
use gradwire_protocol::machine::{ArrivedRun, SegmentRun, Transmit};
use gradwire_protocol::rtt::Rtt;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{Instant, JobId, Span};
use gradwire_protocol::wire::{Flags, PacketKind};

use super::member::{MemberCounts, MemberShape, MemberSum};
use super::packets::{LeavingSums, SumHeader, SumPath, SumStream, WINDOW_MAX};
use super::{MEMBERS_MAX, SumKind};
use crate::communicator::Communicator;
use crate::numbers::dtype::{DType, ReduceOp};
use crate::numbers::fixed_point::{FixedPoint, NOT_FINITE, SumPart};
use crate::operation::buffer::Buffer;
use crate::operation::{
    Collective, Completion, Layers, LossTerms, Operation, OperationError, OperationId,
    OperationOutcome, SubmitError,
};

/// Shorter tensors take less time among the ranks, who wait for each other once or twice.
pub const TENSOR_MIN: usize = 64 << 10;
/// Groups of callers have smaller numbers. The next bits mark the groups of starts and verdicts.
const GROUPS: u16 = 1 << 14;
const START: u16 = 1 << 14;
const VERDICT: u16 = 1 << 15;
/// How long a rank does not use an aggregator that has failed, and the longest such time: it
/// doubles with each failure.
const REST_MIN: Span = Span::from_millis(1_000);
const REST_MAX: Span = Span::from_millis(64_000);

/// The in-network sums of a rank.
#[derive(Debug)]
pub struct NetworkSums {
    identity: Identity,
    packet_bytes: u16,
    path: SumPath,
    rtt: Rtt,
    pair: Option<AggregatorPair>,
    /// Until when the aggregator is not used, and how long that was the last time.
    rest: (Instant, Span),
    groups: BTreeMap<u16, GroupSums>,
    /// The operations among the ranks that belong to sums, with the group of each.
    own: BTreeMap<OperationId, u16>,
    /// Operations that end under the number of another one.
    alone: BTreeMap<OperationId, OperationId>,
    ended: VecDeque<Completion>,
    notices: VecDeque<SumNotice>,
    is_told: bool,
    run: SegmentRun,
    counts: SumCounts,
}

/// The aggregator, as this rank has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AggregatorPair {
    /// The job that both are.
    pub pair: JobId,
    /// Bytes of packets that its sockets buffer.
    pub receive_buffer: u64,
}

/// News for people.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SumNotice {
    /// The job wants all sums in the network, but no aggregator carries this one.
    #[error(
        "the ranks sum {0} alone: an aggregator carries sums and averages of f32, f16 and bf16 \
         without tolerance and codec, among 2 to {MEMBERS_MAX} ranks; this is told once"
    )]
    NotCarried(String),
    /// A sum had to be done again.
    #[error(
        "the aggregator did not finish a sum, so the ranks sum alone for {0}: look at its log, and \
         for losses between it and this host"
    )]
    Failed(Span),
}

/// How the sums of a rank have ended so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SumCounts {
    /// By the aggregator.
    pub in_network: u64,
    /// By the ranks alone, because a rank was not ready.
    pub not_started: u64,
    /// By the ranks alone, after the aggregator had failed.
    pub failed: u64,
    /// Packets to the aggregator, each counted once.
    pub sent: u64,
    /// Packets that were sent again.
    pub again: u64,
}

/// The sums of a group, in the order of their operations.
#[derive(Debug, Default)]
struct GroupSums {
    queue: VecDeque<QueuedSum>,
    era: u32,
    next: u32,
}

/// An operation, and how far it is.
#[derive(Debug)]
struct QueuedSum {
    id: OperationId,
    operation: Operation,
    shape: MemberShape,
    stage: SumStage,
}

#[derive(Debug)]
enum SumStage {
    /// The start is on its way.
    Starts,
    /// The ranks have agreed on the exponents.
    Agreed(Vec<u8>),
    /// A rank is not ready: the ranks sum alone.
    NotStarted,
    /// Packets are on their way.
    Sums(Box<MemberSum>),
    /// The verdict is on its way; `None` if this rank does not have the result.
    Decides(OperationId, Option<(Vec<u8>, MemberCounts)>),
    /// A rank does not have the result: the ranks sum alone.
    Refused,
    /// Every rank has the result.
    Done(Vec<u8>, MemberCounts),
    /// An operation among the ranks failed.
    Failed(OperationError),
}

impl NetworkSums {
    /// The sums of the rank that has this communicator.
    pub fn new(communicator: &Communicator, job: &Job) -> Self {
        let settings = communicator.endpoint().settings();
        Self {
            identity: settings.identity,
            packet_bytes: settings.segment_bytes as u16,
            path: SumPath::of(job),
            rtt: Rtt::new(job.transport.gap),
            pair: None,
            rest: (Instant::START, Span::ZERO),
            groups: BTreeMap::new(),
            own: BTreeMap::new(),
            alone: BTreeMap::new(),
            ended: VecDeque::new(),
            notices: VecDeque::new(),
            is_told: false,
            run: SegmentRun::default(),
            counts: SumCounts::default(),
        }
    }

    /// The aggregator is there.
    pub fn connect(&mut self, pair: AggregatorPair) {
        self.pair = Some(pair);
        self.rest = (Instant::START, Span::ZERO);
    }

    /// The aggregator is gone.
    pub fn disconnect(&mut self, now: Instant, communicator: &mut Communicator) {
        self.pair = None;
        self.advance_all(now, communicator);
    }

    /// Whether packets of this job are of the aggregator.
    pub fn is_pair(&self, job: JobId) -> bool {
        self.pair.is_some_and(|own| own.pair == job)
    }

    /// How sums have ended so far.
    pub const fn counts(&self) -> SumCounts {
        self.counts
    }

    /// News for people. Each is returned once.
    pub fn poll_notice(&mut self) -> Option<SumNotice> {
        self.notices.pop_front()
    }

    /// The next operation that has ended.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.ended.pop_front()
    }

    /// The shape of the sum of an operation; `None` if the ranks do it alone in any case.
    fn shape(&mut self, operation: &Operation) -> Option<MemberShape> {
        let bytes = operation.buffer.len();
        if operation.collective != Collective::AllReduce || bytes < TENSOR_MIN {
            return None;
        }
        let shape = self.carried(operation, bytes);
        if shape.is_none() && !self.is_told {
            self.is_told = true;
            let told = SumNotice::NotCarried(operation.label().to_string());
            self.notices.push_back(told);
        }
        shape
    }

    fn carried(&self, operation: &Operation, bytes: usize) -> Option<MemberShape> {
        let ranks = &operation.group.ranks;
        let seat = ranks.iter().position(|rank| *rank == self.identity.rank)?;
        let part = match operation.op {
            ReduceOp::Sum => SumPart::Whole,
            ReduceOp::Avg => SumPart::Mean,
            _ => return None,
        };
        let point = FixedPoint::new(operation.dtype, ranks.len())?;
        let is_plain = operation.codec().is_none() && !operation.may_lose();
        let is_whole = bytes.is_multiple_of(operation.dtype.bytes());
        let fits = (2..=MEMBERS_MAX).contains(&ranks.len()) && operation.group.id < GROUPS;
        let has_bytes = operation.buffer.bytes().is_some();
        (is_plain && is_whole && fits && has_bytes).then(|| MemberShape {
            point,
            part,
            bytes,
            first: SumHeader {
                stream: SumStream {
                    job: self.identity.job,
                    epoch: self.identity.epoch,
                    group: operation.group.id,
                    era: 0,
                },
                number: 0,
                seat: seat as u16,
                members: ranks.len() as u16,
                packet_bytes: self.packet_bytes,
            },
            window: WINDOW_MAX,
        })
    }

    /// Starts an operation, in the network if an aggregator carries it.
    ///
    /// # Errors
    /// As [`Communicator::submit`].
    pub fn submit(
        &mut self,
        now: Instant,
        communicator: &mut Communicator,
        operation: Operation,
    ) -> Result<OperationId, SubmitError> {
        let Some(shape) = self.shape(&operation) else {
            return communicator.submit(now, operation);
        };
        let bytes = operation.buffer.bytes().unwrap_or_default();
        let mut agreed = vec![0; 1 + shape.blocks() as usize];
        match self.is_ready(now) {
            true => {
                let blocks = bytes.chunks(shape.block_bytes());
                for (exponent, block) in agreed[1..].iter_mut().zip(blocks) {
                    *exponent = shape.point.exponent(block);
                }
            }
            false => agreed[0] = NOT_FINITE,
        }
        let start = among_ranks(&operation, START, agreed);
        let id = communicator.submit(now, start)?;
        let group = operation.group.id;
        self.own.insert(id, group);
        let queued = QueuedSum {
            id,
            operation,
            shape,
            stage: SumStage::Starts,
        };
        let sums = self.groups.entry(group).or_default();
        sums.queue.push_back(queued);
        Ok(id)
    }

    fn is_ready(&self, now: Instant) -> bool {
        self.pair.is_some() && self.rest.0 <= now
    }

    /// Takes the end of an operation among the ranks; returns that of an operation that is not part
    /// of a sum.
    pub fn take(
        &mut self,
        now: Instant,
        communicator: &mut Communicator,
        completion: Completion,
    ) -> Option<Completion> {
        if let Some(id) = self.alone.remove(&completion.id) {
            return Some(Completion { id, ..completion });
        }
        let Some(group) = self.own.remove(&completion.id) else {
            return Some(completion);
        };
        if let Some(sums) = self.groups.get_mut(&group) {
            let of_it = |queued: &&mut QueuedSum| queued.awaits(completion.id);
            if let Some(queued) = sums.queue.iter_mut().find(of_it) {
                queued.hear(completion);
            }
        }
        self.advance(now, communicator, group);
        None
    }

    fn advance_all(&mut self, now: Instant, communicator: &mut Communicator) {
        let groups: Vec<u16> = self.groups.keys().copied().collect();
        for group in groups {
            self.advance(now, communicator, group);
        }
    }

    /// Brings the first operations of a group as far as they can come now.
    fn advance(&mut self, now: Instant, communicator: &mut Communicator, group: u16) {
        let first = |sums: &mut GroupSums| sums.queue.pop_front();
        while let Some(mut queued) = self.groups.get_mut(&group).and_then(first) {
            let stage = std::mem::replace(&mut queued.stage, SumStage::Starts);
            match self.step(now, communicator, (queued, stage)) {
                Ok(()) => {}
                Err(waiting) => {
                    let sums = self.groups.entry(group).or_default();
                    sums.queue.push_front(*waiting);
                    return;
                }
            }
        }
    }

    /// Brings an operation to its end, or as far as it can come.
    fn step(
        &mut self,
        now: Instant,
        communicator: &mut Communicator,
        (mut queued, stage): (QueuedSum, SumStage),
    ) -> Result<(), Box<QueuedSum>> {
        let stage = match stage {
            SumStage::Agreed(exponents) => self.begin(now, &mut queued, exponents),
            other => other,
        };
        match stage {
            SumStage::NotStarted => {
                self.counts.not_started += 1;
                self.run_alone(now, communicator, queued);
            }
            SumStage::Refused => {
                self.counts.failed += 1;
                self.take_a_rest(now);
                self.run_alone(now, communicator, queued);
            }
            SumStage::Done(result, counts) => self.finish(queued, &result, counts),
            SumStage::Failed(error) => self.end(queued.id, queued.operation.buffer, Err(error)),
            SumStage::Sums(sum) if sum.is_done() => {
                let result = Some(sum.into_result());
                return self.decide(now, communicator, (queued, result));
            }
            // Also sums that started before another one failed.
            SumStage::Sums(sum) if !self.is_ready(now) || sum.ends_at() <= now => {
                return self.decide(now, communicator, (queued, None));
            }
            waits => {
                queued.stage = waits;
                return Err(Box::new(queued));
            }
        }
        Ok(())
    }

    /// Takes the next numbers of the group, as every rank does, and starts to send.
    fn begin(&mut self, now: Instant, queued: &mut QueuedSum, exponents: Vec<u8>) -> SumStage {
        let shape = &mut queued.shape;
        let sums = self.groups.entry(shape.first.stream.group).or_default();
        let blocks = shape.blocks();
        if sums.next.checked_add(blocks).is_none() {
            (sums.era, sums.next) = (sums.era.wrapping_add(1), 0);
        }
        (shape.first.stream.era, shape.first.number) = (sums.era, sums.next);
        sums.next += blocks;
        if let Some(pair) = self.pair {
            shape.window = pair.window(&shape.first);
        }
        SumStage::Sums(Box::new(MemberSum::new(now, *shape, exponents, &self.rtt)))
    }

    /// Tells the other ranks whether this one has the result.
    fn decide(
        &mut self,
        now: Instant,
        communicator: &mut Communicator,
        (mut queued, result): (QueuedSum, Option<(Vec<u8>, MemberCounts)>),
    ) -> Result<(), Box<QueuedSum>> {
        let word = match result {
            Some(_) => 0,
            None => NOT_FINITE,
        };
        let verdict = among_ranks(&queued.operation, VERDICT, vec![word]);
        match communicator.submit(now, verdict) {
            Ok(id) => {
                self.own.insert(id, queued.operation.group.id);
                queued.stage = SumStage::Decides(id, result);
                Err(Box::new(queued))
            }
            Err(refusal) => {
                let error = failed(refusal, &queued.operation);
                self.end(queued.id, queued.operation.buffer, Err(error));
                Ok(())
            }
        }
    }

    fn run_alone(&mut self, now: Instant, communicator: &mut Communicator, queued: QueuedSum) {
        let QueuedSum { id, operation, .. } = queued;
        let label = operation.label();
        match communicator.submit(now, operation) {
            Ok(new) => {
                self.alone.insert(new, id);
            }
            Err(refusal) => {
                let reason = refusal.to_string();
                let error = OperationError::Aborted { label, reason };
                self.end(id, Buffer::Owned(Vec::new()), Err(error));
            }
        }
    }

    fn take_a_rest(&mut self, now: Instant) {
        if self.rest.0 > now {
            return;
        }
        let length = (self.rest.1 * 2).max(REST_MIN).min(REST_MAX);
        self.rest = (now + length, length);
        self.notices.push_back(SumNotice::Failed(length));
    }

    fn finish(&mut self, queued: QueuedSum, result: &[u8], counts: MemberCounts) {
        let (mut buffer, blocks) = (queued.operation.buffer, queued.shape.blocks());
        if let Some(bytes) = buffer.bytes_mut() {
            bytes.copy_from_slice(result);
        }
        self.rest.1 = Span::ZERO;
        self.counts.in_network += 1;
        self.counts.sent += counts.sent;
        self.counts.again += counts.again;
        let outcome = OperationOutcome {
            expected_segments: blocks.into(),
            sent_segments: counts.sent,
            ..OperationOutcome::default()
        };
        self.end(queued.id, buffer, Ok(outcome));
    }

    fn end(
        &mut self,
        id: OperationId,
        buffer: Buffer,
        result: Result<OperationOutcome, OperationError>,
    ) {
        self.ended.push_back(Completion {
            id,
            buffer,
            input: None,
            holes: Vec::new(),
            result,
            unfinished: None,
        });
    }

    /// A group has ended on this rank.
    pub fn end_group(&mut self, now: Instant, communicator: &mut Communicator, group: u16) {
        if group < GROUPS {
            communicator.end_group(now, group | START);
            communicator.end_group(now, group | VERDICT);
            self.fail(
                now,
                communicator,
                (group, "its group has ended on this rank"),
            );
        }
    }

    /// Fails everything that is on its way in the network: the communicator was aborted.
    pub fn abort(&mut self, now: Instant, communicator: &mut Communicator, reason: &str) {
        let groups: Vec<u16> = self.groups.keys().copied().collect();
        for group in groups {
            self.fail(now, communicator, (group, reason));
        }
    }

    /// Fails the operations that wait for the aggregator. The communicator fails the rest.
    fn fail(
        &mut self,
        now: Instant,
        communicator: &mut Communicator,
        (group, reason): (u16, &str),
    ) {
        let Some(sums) = self.groups.get_mut(&group) else {
            return;
        };
        for queued in &mut sums.queue {
            if matches!(queued.stage, SumStage::Sums(_) | SumStage::Agreed(_)) {
                queued.stage = SumStage::Failed(OperationError::Aborted {
                    label: queued.operation.label(),
                    reason: reason.to_owned(),
                });
            }
        }
        self.advance(now, communicator, group);
    }

    /// Takes packets of the aggregator.
    pub fn handle_run(
        &mut self,
        now: Instant,
        communicator: &mut Communicator,
        run: &ArrivedRun<'_>,
    ) {
        let header = &run.first.header;
        for (index, sum) in (0..).zip(run.payloads.parts(run.length.packets)) {
            let bytes = sum.bytes().unwrap_or_default();
            let read = SumHeader::read(header, index);
            let read = read.filter(|read| usize::from(read.packet_bytes) == bytes.len());
            let Some(read) = read.filter(|_| header.kind == PacketKind::Total) else {
                continue;
            };
            let group = read.stream.group;
            let Some(sum) = self.groups.get_mut(&group).and_then(GroupSums::running) else {
                continue;
            };
            sum.take(now, &read, bytes, &mut self.rtt);
            if sum.is_done() {
                self.advance(now, communicator, group);
            }
        }
    }

    /// Gives up what the aggregator has not done in time. Call it when
    /// [`NetworkSums::poll_timeout`] has passed.
    pub fn handle_timeout(&mut self, now: Instant, communicator: &mut Communicator) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.advance_all(now, communicator);
        }
    }

    /// When it acts next without a packet.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let first = self.groups.values().filter_map(|sums| sums.queue.front());
        let wakes = first.filter_map(|queued| match &queued.stage {
            SumStage::Sums(sum) => Some(sum.wakes_at()),
            _ => None,
        });
        wakes.min()
    }

    /// The next packets for the aggregator.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        let pair = self.pair?.pair;
        let most = self.path.run_packets(self.packet_bytes);
        let run = &mut self.run;
        let (sum, first, kind) = self.groups.values_mut().find_map(|sums| {
            let queued = sums.queue.front_mut()?;
            let SumStage::Sums(sum) = &mut queued.stage else {
                return None;
            };
            let tensor = queued.operation.buffer.bytes()?;
            let (first, kind) = sum.send(now, tensor, (run, most))?;
            Some((sum, first, kind))
        })?;
        let sums = LeavingSums {
            kind: PacketKind::Sum,
            flags: match kind {
                SumKind::Again => Flags::REPAIR,
                _ => Flags::NONE,
            },
            pair,
            first,
            run: &self.run,
            memory: sum.memory(),
        };
        Some(self.path.transmit(now, sums))
    }
}

impl AggregatorPair {
    /// The packets that a member may have in flight, so that those of all members fit into half of
    /// the aggregator's buffers: a power of two, as [`WINDOW_MAX`] is.
    fn window(&self, first: &SumHeader) -> u32 {
        let all = u64::from(first.packet_bytes) * u64::from(first.members);
        let fitting = (self.receive_buffer / 2 / all.max(1)).max(1);
        1 << fitting.min(u64::from(WINDOW_MAX)).ilog2()
    }
}

impl GroupSums {
    /// The sum whose packets are on their way.
    fn running(&mut self) -> Option<&mut MemberSum> {
        match &mut self.queue.front_mut()?.stage {
            SumStage::Sums(sum) => Some(sum),
            _ => None,
        }
    }
}

impl QueuedSum {
    /// Whether it waits for this operation among the ranks.
    fn awaits(&self, id: OperationId) -> bool {
        match self.stage {
            SumStage::Starts => self.id == id,
            SumStage::Decides(verdict, _) => verdict == id,
            _ => false,
        }
    }

    /// Takes the end of the operation that it waits for.
    fn hear(&mut self, completion: Completion) {
        let stage = std::mem::replace(&mut self.stage, SumStage::Starts);
        let agreed = completion.buffer.bytes().unwrap_or(&[NOT_FINITE]);
        let is_agreed = !agreed.contains(&NOT_FINITE);
        self.stage = match (completion.result, stage) {
            (Err(error), _) => SumStage::Failed(relabelled(error, &self.operation)),
            (Ok(_), SumStage::Decides(_, Some((result, counts)))) if is_agreed => {
                SumStage::Done(result, counts)
            }
            (Ok(_), SumStage::Decides(..)) => SumStage::Refused,
            (Ok(_), _) if is_agreed => SumStage::Agreed(agreed[1..].to_vec()),
            (Ok(_), _) => SumStage::NotStarted,
        };
    }
}

/// The small all-reduce that belongs to an operation.
fn among_ranks(operation: &Operation, groups: u16, bytes: Vec<u8>) -> Operation {
    let mut group = operation.group.clone();
    group.id |= groups;
    Operation {
        group,
        sequence: operation.sequence,
        collective: Collective::AllReduce,
        dtype: DType::U8,
        op: ReduceOp::Max,
        buffer: Buffer::Owned(bytes),
        input: None,
        splits: None,
        loss: LossTerms::NONE,
        step: operation.step,
        layers: Layers::default(),
        tensor_key: 0,
        deadline: operation.deadline,
    }
}

/// The end of an operation whose small all-reduce was refused.
fn failed(refusal: SubmitError, operation: &Operation) -> OperationError {
    let label = operation.label();
    match refusal {
        SubmitError::PeerLost { rank, reason, .. } => OperationError::PeerLost {
            rank,
            reason,
            label,
        },
        other => OperationError::Aborted {
            label,
            reason: other.to_string(),
        },
    }
}

/// The error of a small all-reduce as that of the operation that it belongs to.
fn relabelled(mut error: OperationError, operation: &Operation) -> OperationError {
    match &mut error {
        OperationError::PeerLost { label, .. } | OperationError::Aborted { label, .. } => {
            *label = operation.label();
        }
        OperationError::TimedOut(late) => late.label = operation.label(),
        OperationError::Mismatch(_) => {}
    }
    error
}

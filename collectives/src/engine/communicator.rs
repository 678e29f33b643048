//! The machine of a rank: takes operations, drives an endpoint, returns completions.
//!
//! It has four kinds of method: commands ([`Communicator::submit`], [`Communicator::fail_peer`],
//! [`Communicator::end_group`], [`Communicator::abort`]), the verbs of [`Machine`],
//! [`Communicator::poll_completion`], and getters. This file submits and starts operations.
//! `events` hands each packet and event to its operation, and `failing` ends operations. `running`
//! works on the bytes of one operation.

mod events;
mod failing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use gradwire_protocol::endpoint::{Endpoint, WantedPayload};
use gradwire_protocol::job::Job;
use gradwire_protocol::machine::{ArrivedRun, Machine, Payload, Transmit, UnsentRun};
use gradwire_protocol::metrics::EndpointCounters;
use gradwire_protocol::path::PathFault;
use gradwire_protocol::units::{ByteCount, Instant, MessageKey, Rank, Span};
use gradwire_protocol::wire::Header;

use crate::algorithms::operation_plan::OperationPlan;
use crate::engine::agreement::Agreement;
use crate::engine::departures::DepartureQueue;
use crate::engine::failures::FailureRecord;
use crate::engine::journal::{MessageJournal, MessageRecord};
use crate::engine::limits::CommunicatorLimits;
use crate::engine::matching::Matching;
use crate::engine::memory::StepMemory;
use crate::engine::overdue::{
    DeadlineRule, DeadlineWatch, OverdueQuestion, PENDING_TOLD, QuestionSide, Whereabouts, earlier,
};
use crate::engine::parity::{ParitySums, sum_of_segments};
use crate::engine::parts::EngineParts;
use crate::engine::planner::Planner;
use crate::engine::promises::Promises;
use crate::engine::running::RunningOperation;
use crate::engine::stash::EarlyStash;
use crate::engine::table::OperationTable;
use crate::numbers::holes::{Residual, Residuals};
use crate::operation::{
    CallMismatch, Completion, Operation, OperationError, OperationId, OperationProgress,
    SubmitError,
};
use crate::plan::PARTS;

/// Messages that others still wait for although their operations have ended here. Two that are
/// equal mean that nothing has moved meanwhile.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Debt {
    /// The ranks that wait.
    pub ranks: BTreeSet<Rank>,
    messages: usize,
    /// Bytes on their way to these ranks, and segments sent to all.
    in_flight: u64,
    sent: u64,
}

/// All operations of one rank.
#[derive(Debug)]
pub struct Communicator {
    parts: EngineParts,
    planner: Planner,
    table: OperationTable,
    stash: EarlyStash,
    parity: ParitySums,
    /// The last parity that was sent.
    parity_sent: Vec<u8>,
    agreement: Agreement,
    matching: Matching,
    deadlines: DeadlineWatch,
    failures: FailureRecord,
    promises: Promises,
    /// Faults of paths that the caller has not yet taken.
    path_faults: Vec<(Rank, PathFault)>,
    completions: VecDeque<Completion>,
    journal: MessageJournal,
    next_id: u64,
}

impl Communicator {
    /// A communicator without operations over an endpoint of the same job.
    pub fn new(endpoint: Endpoint, job: &Job) -> Self {
        let agreement = Agreement::new(endpoint.settings().identity.rank);
        let parts = EngineParts {
            endpoint,
            policy: job.policy(),
            memory: StepMemory::of(job),
            departures: DepartureQueue::new(job.collectives.credit),
            transform: job.loss.transform,
            sums: job.collectives.sums,
        };
        Self {
            parts,
            planner: Planner::new(job),
            table: OperationTable::default(),
            stash: EarlyStash::default(),
            parity: ParitySums::default(),
            parity_sent: Vec::new(),
            agreement,
            matching: Matching::default(),
            deadlines: DeadlineWatch::default(),
            failures: FailureRecord::default(),
            promises: Promises::default(),
            path_faults: Vec::new(),
            completions: VecDeque::new(),
            journal: MessageJournal::default(),
            next_id: 0,
        }
    }

    /// Says which ranks share a host: rank i is on host `hosts[i]`. By default, and if `hosts` is
    /// empty, each rank has a host of its own. Must be equal on all ranks.
    ///
    /// # Panics
    /// If `hosts` is neither empty nor has one entry for every rank of the job.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Vec<u16>) -> Self {
        let world_size = usize::from(self.parts.endpoint.settings().identity.world_size);
        assert!(
            hosts.is_empty() || hosts.len() == world_size,
            "one host for each of {world_size} ranks"
        );
        self.planner.set_hosts(hosts);
        self
    }

    /// Says how far ranks are apart: rank 0 has measured the round trip `round_trips[i]` to rank i.
    /// By default all are near each other. Must be equal on all ranks.
    #[must_use]
    pub fn with_round_trips(mut self, round_trips: Vec<Span>) -> Self {
        self.planner.set_round_trips(round_trips);
        self
    }

    /// Counts the point-to-point messages of each pair and tag from `first` instead of 0. The
    /// counts wrap after 2^16 messages; a test that starts near the end reaches the wrap soon. Must
    /// be equal on all ranks.
    #[must_use]
    pub fn with_first_count(mut self, first: u16) -> Self {
        self.matching = Matching::starting_at(first);
        self
    }

    /// Remembers this much instead of the usual. The other ranks need not know.
    #[must_use]
    pub fn with_limits(mut self, limits: CommunicatorLimits) -> Self {
        self.agreement.keep(limits.completed);
        self.planner.keep_plans(limits.plans);
        self.parts.memory.times.learn_from(limits.learning);
        self
    }

    /// Lets the driver ask the other ranks about an operation that misses its deadline: it fails
    /// only when the driver calls [`Communicator::conclude`].
    #[must_use]
    pub fn with_inquiries(mut self) -> Self {
        self.deadlines.rule = DeadlineRule::Report;
        self
    }

    /// Keeps a record of every message that ends from now on, until it is taken.
    pub fn keep_journal(&mut self) {
        self.journal.open();
    }

    /// The messages that ended since the last call; none unless a journal is kept.
    pub fn take_journal(&mut self) -> Vec<MessageRecord> {
        self.journal.take()
    }

    /// Cuts tensors of later operations into chunks of this size. All ranks must change it between
    /// the same two operations: messages of one chunk size do not answer those of another.
    pub fn set_chunk(&mut self, chunk: ByteCount) {
        self.planner.set_chunk(chunk);
    }

    /// Lets this many bytes of gradients be on their way at once from now on, or any number if
    /// zero. Each rank may have a credit of its own.
    pub fn set_credit(&mut self, now: Instant, credit: ByteCount) {
        self.parts.departures.set_credit(credit);
        self.let_go(now);
        self.take_events(now);
    }

    /// Starts an operation. Its buffers belong to the communicator until the completion.
    ///
    /// In a group of one rank, an operation completes at once, and so does a collective of no
    /// bytes. Three kinds of operation wait for their peers even without bytes, because they inform
    /// them: send, receive and all-to-all.
    ///
    /// # Errors
    /// [`SubmitError`] if the operation contradicts itself or cannot complete any more. Nothing
    /// was sent then, and owned buffers are dropped.
    pub fn submit(
        &mut self,
        now: Instant,
        mut operation: Operation,
    ) -> Result<OperationId, SubmitError> {
        let me = self.me();
        let known = self.planner.find(&operation);
        // A known plan's group was checked when the plan was made.
        let seat = known.is_none().then(|| operation.check_group(me));
        let seat = seat.transpose()?;
        operation.check_tensor(me)?;
        if let Err(refusal) = self.failures.check(&operation, me) {
            if !operation.collective.is_point_to_point() {
                // Other ranks may be further ahead, and send messages that this rank will never
                // post.
                self.failures.broken.insert(operation.group.id);
                self.refuse_unposted();
            }
            return Err(refusal);
        }
        operation.sequence = self.matching.sequence(&operation);
        if self.table.has(&operation) {
            return Err(SubmitError::SequenceInUse {
                label: operation.label(),
            });
        }
        let id = OperationId(self.next_id);
        self.next_id += 1;
        self.deadlines.add(operation.deadline);
        if operation.collective.any_source_tag().is_some() {
            self.matching.wait(id, operation);
            self.start_matched(now);
        } else {
            let seat = seat.unwrap_or_default();
            let plan = known.unwrap_or_else(|| self.planner.make(&operation, seat));
            self.start(now, id, operation, plan);
        }
        self.take_events(now);
        Ok(id)
    }

    /// Starts receives from any rank for which a message has arrived.
    fn start_matched(&mut self, now: Instant) {
        while let Some((id, mut operation)) = self.matching.matched() {
            operation.sequence = self.matching.sequence(&operation);
            let known = self.planner.find(&operation);
            // A receive's plan is the same at every seat.
            let plan = known.unwrap_or_else(|| self.planner.make(&operation, 0));
            self.start(now, id, operation, plan);
        }
    }

    fn start(
        &mut self,
        now: Instant,
        id: OperationId,
        operation: Operation,
        plan: Arc<OperationPlan>,
    ) {
        self.matching.take(&operation);
        let planner = &self.planner;
        let lossy = (planner.min_lossy_bytes(), planner.tolerance_use());
        let limits = self.parts.loss_limits(&operation, lossy);
        let running = Box::new(RunningOperation::new(id, operation, plan, limits));
        let slot = self.table.insert(running);
        if let Some(mismatch) = self.enter(slot) {
            self.fail_all(slot, OperationError::Mismatch(Box::new(mismatch)));
            return;
        }
        self.advance(now, slot, |running, stash, parts| {
            running.start(now, stash, parts);
        });
    }

    /// Notes that this rank has reached a collective. Returns how an earlier message contradicts
    /// it.
    fn enter(&mut self, slot: usize) -> Option<CallMismatch> {
        let running = self.table.get(slot)?;
        if running.operation.collective.is_point_to_point() {
            return None;
        }
        let expects = |from, part| running.inbound(from, part).is_some();
        self.agreement.enter(running.call(), expects)
    }

    fn me(&self) -> Rank {
        self.parts.me()
    }

    /// The next operation that has ended.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// The progress of this rank, for a rank that asks.
    pub fn whereabouts(&self, asker: Rank, question: &OverdueQuestion) -> Whereabouts {
        let &OverdueQuestion {
            group,
            sequence,
            side,
        } = question;
        let part = if side == QuestionSide::Member {
            0
        } else {
            PARTS
        };
        let key = MessageKey::new(group, sequence, part);
        let running = self.table.counterpart(key, asker, side);
        let completed = || match side {
            QuestionSide::Member => self.agreement.completed(group, sequence),
            QuestionSide::Sender | QuestionSide::Receiver => None,
        };
        let pending = self.table.iter().map(|(_, running)| running.label);
        Whereabouts {
            there: running.map(Operation::label).or_else(completed),
            last: self.agreement.last(group),
            pending: pending.take(PENDING_TOLD).collect(),
        }
    }

    /// A fault of the path to or from a rank. Each is returned once.
    pub fn poll_path_fault(&mut self) -> Option<(Rank, PathFault)> {
        self.path_faults.pop()
    }

    /// Why everything was aborted, if it was.
    pub fn aborted(&self) -> Option<&str> {
        self.failures.aborted.as_deref()
    }

    /// The lost ranks, and why each was lost.
    pub fn lost(&self) -> &BTreeMap<Rank, String> {
        &self.failures.lost
    }

    /// How many operations are on their way.
    pub fn pending(&self) -> usize {
        self.table.len() + self.matching.waiting().len()
    }

    /// The ranks and bytes that each running operation still needs.
    pub fn progress(&self) -> impl Iterator<Item = (OperationId, OperationProgress)> {
        let running = self.table.iter();
        running.map(|(_, running)| (running.id, running.progress()))
    }

    /// Messages that are kept although no running operation needs them: copies for slower ranks,
    /// and messages that arrived before the operation that posts them. Messages on their way that
    /// parity covers count, too.
    pub fn kept_messages(&self) -> usize {
        let early = self.stash.len() + self.agreement.early() + self.matching.announced();
        self.promises.len() + early + self.parity.len() + self.parts.departures.left()
    }

    /// The messages of operations that have ended here and are still on their way.
    pub fn debt(&self) -> Debt {
        let ranks = self.promises.ranks();
        let in_flight = |&to: &Rank| self.parts.endpoint.in_flight(to).0.get();
        Debt {
            in_flight: ranks.iter().map(in_flight).sum(),
            sent: self.counters().sender.sent_segments,
            messages: self.promises.len(),
            ranks,
        }
    }

    /// The counters of the endpoint.
    pub fn counters(&self) -> EndpointCounters {
        self.parts.endpoint.counters()
    }

    /// Gradient messages that waited for credit before they left.
    pub fn held_messages(&self) -> u64 {
        self.parts.departures.held()
    }

    /// The endpoint below.
    pub fn endpoint(&self) -> &Endpoint {
        &self.parts.endpoint
    }

    /// The lost values that error feedback keeps for the next step: part of the training job's
    /// state.
    pub fn residuals(&self) -> &Residuals {
        &self.parts.memory.residuals
    }

    /// Multiplies the residual of a tensor by the factor by which the loss scale has changed: mixed
    /// precision scales gradients, and a residual has the scale of its step. Call it between steps,
    /// on every rank.
    pub fn scale_residual(&mut self, tensor_key: u64, factor: f64) {
        self.parts.memory.residuals.scale(tensor_key, factor);
    }

    /// Takes the residual of a tensor, for example into a checkpoint; the communicator no longer
    /// keeps it.
    pub fn take_residual(&mut self, tensor_key: u64) -> Option<Residual> {
        self.parts.memory.residuals.take(tensor_key)
    }
}

impl Machine for Communicator {
    fn handle_run(&mut self, now: Instant, run: &ArrivedRun<'_>) {
        let mut rest = Some(*run);
        while let Some(run) = rest {
            let taken = self.parts.endpoint.accept_run(now, &run);
            if let Some(placement) = taken.placement {
                self.place(placement, run.payloads.parts(taken.packets));
            }
            self.restore(run.first.payload);
            self.take_events(now);
            rest = run.after(taken.packets);
        }
    }

    fn handle_trimmed(&mut self, now: Instant, header: &Header) {
        self.parts.endpoint.handle_trimmed(now, header);
        self.take_events(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.parts.endpoint.handle_timeout(now);
        self.restore(Payload::Length(0));
        self.take_events(now);
        self.fail_overdue(now);
    }

    fn handle_host_drops(&mut self, now: Instant) {
        self.parts.endpoint.handle_host_drops(now);
    }

    fn handle_unsent(&mut self, now: Instant, unsent: &UnsentRun) {
        self.parts.endpoint.handle_unsent(now, unsent);
    }

    fn tolerates_loss(&self) -> bool {
        self.parts.endpoint.tolerates_loss()
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        let (table, promises) = (&mut self.table, &self.promises);
        let sum = &mut self.parity_sent;
        self.parts.endpoint.poll_transmit_from(now, move |wanted| {
            let WantedPayload { to, key, .. } = wanted;
            let kept = || promises.source(to, key);
            let message = table.source(to, key).or_else(kept)?;
            let Some(segments) = wanted.parity_of else {
                return Some(message);
            };
            let segment_bytes = wanted.segment_bytes as usize;
            sum_of_segments(message.bytes()?, segment_bytes, segments, sum);
            Some(Payload::Bytes(sum))
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        earlier(self.parts.endpoint.poll_timeout(), self.deadlines.timeout())
    }
}

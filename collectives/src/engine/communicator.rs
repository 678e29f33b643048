//! The machine of a rank: takes operations, drives an endpoint, gives completions.
//!
//! It has four kinds of method: commands ([`Communicator::submit`], [`Communicator::fail_peer`],
//! [`Communicator::abort`]), the verbs of [`Machine`], [`Communicator::poll_completion`], and
//! getters. How an operation works on its bytes is in `running`; this file finds the operation that
//! a packet belongs to, and decides who fails when something does.
//!
//! Failing. A lost rank fails every operation that needs it; operations of others go on. An
//! operation that misses its deadline or meets a tensor of another length leaves the ranks in
//! states that nobody knows: then everything fails and nothing is taken any more. Of an operation
//! that has ended while messages of it are on their way, because it failed or because it ends
//! early, copies of them are still sent: they may complete elsewhere.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::{GradientTransform, Job};
use gradwire_protocol::machine::{Datagram, Machine, Payload, Transmit};
use gradwire_protocol::message::MessageOutline;
use gradwire_protocol::metrics::EndpointCounters;
use gradwire_protocol::priority::Policy;
use gradwire_protocol::reach::Reach;
use gradwire_protocol::receiver::{Placement, Posting};
use gradwire_protocol::units::{ByteCount, Instant, MessageKey, Rank};

use crate::algorithms::selection::Preference;
use crate::engine::agreement::Agreement;
use crate::engine::departures::DepartureQueue;
use crate::engine::matching::Matching;
use crate::engine::memory::StepMemory;
use crate::engine::overdue::{
    DeadlinePatience, InquiryNews, OverdueOperation, OverdueQuestion, PENDING_TOLD, QuestionSide,
    Whereabouts,
};
use crate::engine::plan_cache::PlanCache;
use crate::engine::running::{EngineParts, OperationTerms, RunningOperation};
use crate::engine::stash::EarlyStash;
use crate::engine::table::{OperationTable, RunningMessage};
use crate::numbers::holes::{Residual, Residuals};
use crate::operation::{
    CallMismatch, Completion, Operation, OperationError, OperationId, OperationProgress,
    SubmitError,
};
use crate::plan::region::TensorRegion;
use crate::plan::{GroupSeat, MessagePlan, PARTS};

/// All operations of one rank.
#[derive(Debug)]
pub struct Communicator {
    endpoint: Endpoint,
    policy: Policy,
    transform: GradientTransform,
    preference: Preference,
    plans: PlanCache,
    memory: StepMemory,
    stash: EarlyStash,
    table: OperationTable,
    agreement: Agreement,
    patience: DeadlinePatience,
    matching: Matching,
    departures: DepartureQueue,
    next_deadline: Option<Instant>,
    /// Bytes of messages whose operations ended before they arrived.
    promised: BTreeMap<(Rank, MessageKey), Vec<u8>>,
    completions: VecDeque<Completion>,
    lost: BTreeMap<Rank, String>,
    aborted: Option<String>,
    next_id: u64,
}

impl Communicator {
    /// A communicator without operations over an endpoint of the same job.
    pub fn new(endpoint: Endpoint, job: &Job) -> Self {
        let agreement = Agreement::new(endpoint.settings().identity.rank);
        Self {
            endpoint,
            policy: job.policy(),
            transform: job.loss.transform,
            preference: Preference::of(job),
            plans: PlanCache::default(),
            memory: StepMemory::of(job),
            stash: EarlyStash::default(),
            table: OperationTable::default(),
            agreement,
            matching: Matching::default(),
            departures: DepartureQueue::new(job.collectives.credit),
            next_deadline: None,
            patience: DeadlinePatience::default(),
            promised: BTreeMap::new(),
            completions: VecDeque::new(),
            lost: BTreeMap::new(),
            aborted: None,
            next_id: 0,
        }
    }

    /// The communicator of a job whose ranks share hosts: rank i is on host `hosts[i]`. Without, or
    /// with nothing in it, each rank has a host of its own. Equal on all ranks.
    ///
    /// # Panics
    /// When `hosts` has neither an entry for every rank of the job nor none.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Vec<u16>) -> Self {
        let world_size = usize::from(self.endpoint.settings().identity.world_size);
        assert!(
            hosts.is_empty() || hosts.len() == world_size,
            "one host for each of {world_size} ranks"
        );
        self.preference = self.preference.with_hosts(hosts);
        self
    }

    /// The communicator, which does not fail an operation that misses its deadline until
    /// [`Communicator::conclude`] says what has become of it. Whoever drives it asks the other
    /// ranks meanwhile.
    #[must_use]
    pub fn with_inquiries(mut self) -> Self {
        self.patience = DeadlinePatience::Asks;
        self
    }

    /// Cuts tensors into such chunks from now on; what was submitted before keeps its own. All
    /// ranks must change it between the same two operations: messages of one chunk do not answer
    /// those of another.
    pub fn set_chunk(&mut self, chunk: ByteCount) {
        self.preference = self.preference.clone().with_chunk(chunk);
        self.plans = PlanCache::default();
    }

    /// Lets so many bytes of gradients be on their way at once from now on, zero for any number;
    /// each rank may have its own.
    pub fn set_credit(&mut self, now: Instant, credit: ByteCount) {
        self.departures.set_credit(credit);
        self.let_go(now);
    }

    /// Starts an operation. Its buffers belong to the communicator until the completion.
    ///
    /// A group of one rank completes at once, and so does a collective of no bytes, without waiting
    /// for anybody. A send or a receive of no bytes does wait for its peer, and an all-to-all of
    /// none for all others, to which it may mean something.
    ///
    /// # Errors
    /// [`SubmitError`] when the operation contradicts itself or cannot complete any more. Nothing
    /// was sent then, and owned buffers are dropped.
    pub fn submit(
        &mut self,
        now: Instant,
        mut operation: Operation,
    ) -> Result<OperationId, SubmitError> {
        let me = self.me();
        let known = self.plans.find(&operation);
        let seat = known.is_none().then(|| operation.check_group(me));
        let seat = seat.transpose()?;
        operation.check_tensor(me)?;
        self.check_standing(&operation)?;
        operation.sequence = self.matching.sequence(&operation);
        if self.table.has(&operation) {
            return Err(SubmitError::SequenceInUse {
                label: operation.label(),
            });
        }
        let id = OperationId(self.next_id);
        self.next_id += 1;
        self.next_deadline = earlier(self.next_deadline, operation.deadline);
        if operation.collective.any_source_tag().is_some() {
            self.matching.wait(id, operation);
            self.start_matched(now);
        } else {
            let seat = seat.unwrap_or_default();
            let plan = known.unwrap_or_else(|| self.new_plan(&operation, seat));
            self.start(now, id, operation, plan);
        }
        self.take_events(now);
        Ok(id)
    }

    /// This rank has come as far as a collective; tells what contradicts it.
    fn enter(&mut self, slot: usize) -> Option<CallMismatch> {
        let running = self.table.get(slot)?;
        if running.operation.collective.is_point_to_point() {
            return None;
        }
        let expects = |from, part| running.inbound(from, part).is_some();
        self.agreement.enter(running.called(), expects)
    }

    fn start(
        &mut self,
        now: Instant,
        id: OperationId,
        operation: Operation,
        plan: Arc<MessagePlan>,
    ) {
        self.matching.take(&operation);
        let terms = OperationTerms {
            min_lossy: self.preference.min_lossy_bytes(),
            segment_bytes: self.endpoint.segment_bytes(),
            cap: self.memory.phases.cap(&operation),
            transform: self.transform_of(&operation),
        };
        let running = RunningOperation::new(id, operation, plan, terms);
        let slot = self.table.insert(running);
        if let Some(mismatch) = self.enter(slot) {
            self.fail_all(slot, OperationError::Mismatch(Box::new(mismatch)));
            return;
        }
        self.advance(now, slot, |running, stash, desk| running.start(stash, desk));
    }

    /// What the contributions of an operation that may lose go through. Where all ranks share a
    /// host nothing is lost, and where a layer of the tensor must be whole its bits are kept.
    fn transform_of(&self, operation: &Operation) -> GradientTransform {
        let (me, layers) = (self.me(), &operation.layers);
        let within = layers.within(0..operation.tensor_bytes());
        let within = within.map(|(_, layer)| layer);
        let least = (self.policy).tolerance(operation.loss.tolerance, within, layers.count);
        let is_remote = |&rank: &Rank| rank != me && self.endpoint.reach(rank) == Reach::Network;
        let loses = operation.collective.reduces() && operation.may_lose() && !least.is_none();
        if loses && operation.group.ranks.iter().any(is_remote) {
            self.transform
        } else {
            GradientTransform::None
        }
    }

    /// Starts receives from any rank for which there is a message.
    fn start_matched(&mut self, now: Instant) {
        while let Some((id, mut operation)) = self.matching.matched() {
            operation.sequence = self.matching.sequence(&operation);
            let plan = self.plans.find(&operation);
            // A receive's plan is the same at every seat.
            let plan = plan.unwrap_or_else(|| self.new_plan(&operation, 0));
            self.start(now, id, operation, plan);
        }
    }

    fn new_plan(&mut self, operation: &Operation, me: usize) -> Arc<MessagePlan> {
        let plan = self.plan(operation, me);
        self.plans.keep(operation, plan)
    }

    fn plan(&self, operation: &Operation, me: usize) -> MessagePlan {
        let ranks = &operation.group.ranks;
        if operation.needs_nobody() {
            return MessagePlan::new();
        }
        if ranks.len() > 1 {
            return self.preference.plan(operation, GroupSeat::new(ranks, me));
        }
        let mut plan = MessagePlan::new();
        if let Some(input) = &operation.input {
            plan.copy = Some((
                TensorRegion::input(0, input.len()),
                TensorRegion::buffer(0, input.len()),
            ));
        }
        plan
    }

    fn check_standing(&self, operation: &Operation) -> Result<(), SubmitError> {
        if let Some(reason) = self.aborted.clone() {
            return Err(SubmitError::Aborted { reason });
        }
        if self.lost.is_empty() {
            return Ok(());
        }
        let lost = operation.stopped_by(self.me(), |rank| self.lost.contains_key(&rank));
        let lost = lost.and_then(|rank| self.lost.get_key_value(&rank));
        lost.map_or(Ok(()), |(&rank, reason)| {
            let label = operation.label();
            Err(SubmitError::PeerLost {
                rank,
                reason: reason.clone(),
                label,
            })
        })
    }

    fn me(&self) -> Rank {
        self.endpoint.settings().identity.rank
    }

    /// The next operation that has ended.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// A rank is gone, for example because its control connection broke: fails every operation
    /// that needs it, and refuses later ones.
    pub fn fail_peer(&mut self, rank: Rank, reason: &str) {
        if self.lost.contains_key(&rank) {
            return;
        }
        self.lost.insert(rank, reason.to_owned());
        self.endpoint.fail_peer(rank);
        self.stash.forget(rank);
        self.agreement.forget(rank);
        self.matching.forget(rank);
        let (me, lost) = (self.me(), self.lost.clone());
        self.fail_where(
            |operation| {
                operation.participants().contains(&rank)
                    && operation
                        .stopped_by(me, |rank| lost.contains_key(&rank))
                        .is_some()
            },
            |operation| OperationError::PeerLost {
                rank,
                reason: reason.to_owned(),
                label: operation.label(),
            },
        );
        self.promised.retain(|&(to, _), _| to != rank);
        self.departures.forget(rank);
    }

    /// Fails every operation and refuses later ones. Nothing is sent or taken any more.
    pub fn abort(&mut self, reason: &str) {
        if self.aborted.is_some() {
            return;
        }
        self.aborted = Some(reason.to_owned());
        for rank in 0..self.endpoint.settings().identity.world_size {
            self.endpoint.fail_peer(Rank(rank));
        }
        self.stash = EarlyStash::default();
        self.fail_where(
            |_| true,
            |operation| OperationError::Aborted {
                label: operation.label(),
                reason: reason.to_owned(),
            },
        );
        self.promised.clear();
    }

    /// An operation that has missed its deadline, once, until it is concluded or completes.
    pub fn poll_overdue(&mut self) -> Option<OverdueOperation> {
        let DeadlinePatience::Asked(id, InquiryNews::No) = self.patience else {
            return None;
        };
        self.patience = DeadlinePatience::Asked(id, InquiryNews::Yes);
        let (_, running) = self.running(id)?;
        Some(OverdueOperation::of(id, &running.operation))
    }

    /// Fails an overdue operation, and everything else with it: the verdict says where the other
    /// ranks are, in words. Nothing happens to one that has ended.
    pub fn conclude(&mut self, now: Instant, id: OperationId, verdict: String) {
        if let Some((slot, running)) = self.running(id) {
            let error = running.timed_out(now, Some(verdict));
            self.fail_all(slot, error);
        }
    }

    fn running(&self, id: OperationId) -> Option<(usize, &RunningOperation)> {
        self.table.iter().find(|(_, running)| running.id == id)
    }

    /// Where this rank is, for a rank that asks.
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
        let running = self.table.counterpart(key, (asker, side));
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

    /// Why nothing works any more, if so.
    pub fn aborted(&self) -> Option<&str> {
        self.aborted.as_deref()
    }

    /// The ranks that are gone, and why.
    pub fn lost(&self) -> &BTreeMap<Rank, String> {
        &self.lost
    }

    /// Operations on their way.
    pub fn pending(&self) -> usize {
        self.table.len() + self.matching.waiting().len()
    }

    /// What each operation on its way still needs.
    pub fn progress(&self) -> impl Iterator<Item = (OperationId, OperationProgress)> {
        let running = self.table.iter();
        running.map(|(_, running)| (running.id, running.progress()))
    }

    /// What the endpoint counted.
    pub fn counters(&self) -> EndpointCounters {
        self.endpoint.counters()
    }

    /// Gradient messages that waited for credit before they left.
    pub fn held_messages(&self) -> u64 {
        self.departures.held()
    }

    /// The endpoint below.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// What error feedback keeps for the next step: part of the training job's state.
    pub fn residuals(&self) -> &Residuals {
        &self.memory.residuals
    }

    /// Gives the residual of a tensor away, for example into a checkpoint.
    pub fn take_residual(&mut self, tensor_key: u64) -> Option<Residual> {
        self.memory.residuals.take(tensor_key)
    }

    fn fail_where(
        &mut self,
        fails: impl Fn(&Operation) -> bool,
        error: impl Fn(&Operation) -> OperationError,
    ) {
        let failing: Vec<(usize, OperationError)> = (self.table.iter())
            .filter(|(_, running)| fails(&running.operation))
            .map(|(slot, running)| (slot, error(&running.operation)))
            .collect();
        for (slot, error) in failing {
            self.end(slot, Err(error));
        }
        self.fail_waiting(fails, error);
    }

    /// Fails receives from any rank that have no message; gives one of the errors.
    fn fail_waiting(
        &mut self,
        fails: impl Fn(&Operation) -> bool,
        error: impl Fn(&Operation) -> OperationError,
    ) -> Option<OperationError> {
        let mut last = None;
        for (id, operation) in self.matching.fail(fails) {
            let error = error(&operation);
            last = Some(error.clone());
            self.completions.push_back(Completion {
                id,
                buffer: operation.buffer,
                input: operation.input,
                holes: Vec::new(),
                result: Err(error),
                unfinished: None,
            });
        }
        if last.is_some() {
            self.next_deadline = self.operations().filter_map(|one| one.deadline).min();
        }
        last
    }

    fn end(&mut self, slot: usize, result: Result<(), OperationError>) {
        let running = self
            .table
            .remove(slot)
            .expect("ended once, by whoever found it running");
        if matches!(self.patience, DeadlinePatience::Asked(id, _) if id == running.id) {
            self.patience = DeadlinePatience::Asks;
        }
        if self.aborted.is_none() {
            self.promised.extend(running.promises());
        }
        let operation = &running.operation;
        if result.is_ok() && !operation.collective.is_point_to_point() {
            self.agreement.complete(running.called());
        }
        let had_deadline = operation.deadline.is_some();
        let completion = running.into_completion(result, &mut self.memory);
        self.completions.push_back(completion);
        if had_deadline {
            self.next_deadline = self.operations().filter_map(|one| one.deadline).min();
        }
    }

    fn operations(&self) -> impl Iterator<Item = &Operation> {
        let running = self.table.iter().map(|(_, running)| &running.operation);
        let waiting = self.matching.waiting().iter();
        running.chain(waiting.map(|(_, operation)| operation))
    }

    /// An operation fails and leaves the ranks in states that nobody knows.
    fn fail_all(&mut self, slot: usize, error: OperationError) {
        let reason = error.to_string();
        self.end(slot, Err(error));
        self.abort(&reason);
    }

    fn place(&mut self, placement: Placement, payload: Payload<'_>) {
        if placement.posting == Posting::Early {
            self.stash.keep(placement, payload);
            return;
        }
        // A failed operation's messages still arrive; nobody wants them.
        let Some(found) = self.table.find_in(placement.from, placement.key) else {
            return;
        };
        if let Some(running) = self.table.get_mut(found.slot) {
            running.place(found.message, placement.offset, payload);
        }
    }

    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            self.take_event(now, event);
        }
    }

    fn take_event(&mut self, now: Instant, event: EndpointEvent) {
        match event {
            EndpointEvent::Announced { from, key, outline } => {
                self.matching.announce(from, key);
                self.start_matched(now);
                self.take_announced(from, key, outline);
            }
            EndpointEvent::Received { from, key, holes } => {
                let Some(RunningMessage { slot, message }) = self.table.find_in(from, key) else {
                    return;
                };
                self.advance(now, slot, |running, _, desk| {
                    running.on_received(message, holes.as_ref(), desk);
                });
            }
            EndpointEvent::StandsStill { to, key } => {
                self.departures.finished(to, key);
                self.let_go(now);
            }
            EndpointEvent::Sent { to, key, missing } => {
                self.departures.finished(to, key);
                let Some(RunningMessage { slot, message }) = self.table.find_out(to, key) else {
                    self.promised.remove(&(to, key));
                    self.let_go(now);
                    return;
                };
                self.advance(now, slot, |running, _, desk| {
                    running.on_sent(message, missing.as_ref(), desk.memory);
                });
            }
            EndpointEvent::Mismatch {
                from,
                key,
                ours,
                theirs,
            } => {
                let Some(RunningMessage { slot, .. }) = self.table.find_in(from, key) else {
                    return;
                };
                let Some(running) = self.table.get(slot) else {
                    return;
                };
                let called = running.called();
                let mismatch = (self.agreement).contradicts(from, called, (ours, theirs));
                self.fail_all(slot, OperationError::Mismatch(Box::new(mismatch)));
            }
            EndpointEvent::PeerSilent { rank, silent } => {
                self.fail_peer(rank, &format!("it answered nothing for {silent}"));
            }
        }
    }

    /// A message has come that no operation has posted.
    fn take_announced(&mut self, from: Rank, key: MessageKey, outline: MessageOutline) {
        if self.table.find_in(from, key).is_some() {
            return;
        }
        let (slot, running) = self.table.collective(key).unzip();
        let running = running.map(RunningOperation::called);
        let Some(mismatch) = self.agreement.announce((from, key), outline, running) else {
            return;
        };
        match slot {
            Some(slot) => self.fail_all(slot, OperationError::Mismatch(Box::new(mismatch))),
            None => self.abort(&mismatch.to_string()),
        }
    }

    /// Lets something happen to a running operation, and ends it if that completes it.
    fn advance(
        &mut self,
        now: Instant,
        slot: usize,
        happen: impl FnOnce(&mut RunningOperation, &mut EarlyStash, &mut EngineParts<'_>),
    ) {
        let Some(running) = self.table.get_mut(slot) else {
            return;
        };
        let mut desk = EngineParts {
            now,
            endpoint: &mut self.endpoint,
            memory: &mut self.memory,
            policy: &self.policy,
            departures: &mut self.departures,
        };
        happen(running, &mut self.stash, &mut desk);
        if running.is_complete() {
            self.end(slot, Ok(()));
        }
        self.let_go(now);
    }

    /// Sends what waits and whose turn has come.
    fn let_go(&mut self, now: Instant) {
        while let Some((to, key)) = self.departures.next() {
            let found = self.table.find_out(to, key);
            let running = found.and_then(|found| self.table.get_mut(found.slot));
            let (Some(found), Some(running)) = (found, running) else {
                // Its operation has failed.
                self.departures.finished(to, key);
                continue;
            };
            let mut desk = EngineParts {
                now,
                endpoint: &mut self.endpoint,
                memory: &mut self.memory,
                policy: &self.policy,
                departures: &mut self.departures,
            };
            running.depart(found.message, &mut desk);
            if running.is_complete() {
                self.end(found.slot, Ok(()));
            }
        }
    }

    fn fail_overdue(&mut self, now: Instant) {
        if self.next_deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        let is_overdue = |operation: &Operation| {
            let deadline = operation.deadline;
            deadline.is_some_and(|deadline| deadline <= now)
        };
        let overdue = (self.table.iter()).find(|(_, running)| is_overdue(&running.operation));
        if let Some((slot, running)) = overdue {
            match self.patience {
                DeadlinePatience::None => {
                    let error = running.timed_out(now, None);
                    self.fail_all(slot, error);
                }
                DeadlinePatience::Asks => {
                    self.patience = DeadlinePatience::Asked(running.id, InquiryNews::No);
                }
                DeadlinePatience::Asked(..) => {}
            }
            return;
        }
        let me = self.me();
        let timed_out = self.fail_waiting(is_overdue, |operation| {
            OperationError::never_sent(operation, me)
        });
        if let Some(error) = timed_out {
            self.abort(&error.to_string());
        }
    }
}

impl Machine for Communicator {
    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        if let Some(placement) = self.endpoint.accept(now, &datagram) {
            self.place(placement, datagram.payload);
        }
        self.take_events(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
        self.take_events(now);
        self.fail_overdue(now);
    }

    fn handle_host_drops(&mut self, now: Instant) {
        self.endpoint.handle_host_drops(now);
    }

    fn tolerates_loss(&self) -> bool {
        self.endpoint.tolerates_loss()
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        let (table, promised) = (&mut self.table, &self.promised);
        self.endpoint.poll_transmit_from(now, move |to, key| {
            let kept = || promised.get(&(to, key)).map(|bytes| Payload::Bytes(bytes));
            table.source(to, key).or_else(kept)
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let deadline = match self.patience {
            DeadlinePatience::Asked(..) => None,
            DeadlinePatience::None | DeadlinePatience::Asks => self.next_deadline,
        };
        earlier(self.endpoint.poll_timeout(), deadline)
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}

//! Fails operations, and keeps the messages that a failed one leaves behind.
//!
//! - A lost rank fails every operation that needs it. Operations of other ranks continue.
//! - A group that has ended on this rank fails its operations here and cancels their messages.
//! - A message that no operation will post is refused, so that its sender forgets it, too.
//! - A missed deadline, or a call that contradicts another rank's, leaves the ranks in states that
//!   no rank knows. Then everything fails, and later operations are refused.
//! - An operation can end while messages of it are on their way, because it failed or because it
//!   ended early. Copies of them are still sent: elsewhere they may complete an operation.

use gradwire_protocol::units::{Instant, MessageKey, Rank};

use crate::engine::agreement::Agreement;
use crate::engine::communicator::Communicator;
use crate::engine::matching::Matching;
use crate::engine::overdue::{DeadlineRule, OverdueOperation};
use crate::engine::parity::ParitySums;
use crate::engine::promises::Promises;
use crate::engine::running::RunningOperation;
use crate::engine::stash::EarlyStash;
use crate::operation::{Completion, Operation, OperationError, OperationId};

impl Communicator {
    /// Fails every operation that needs a lost rank, and refuses later ones. Call it for example
    /// when the control connection to the rank broke.
    pub fn fail_peer(&mut self, rank: Rank, reason: &str) {
        if self.failures.lost.contains_key(&rank) {
            return;
        }
        self.failures.lost.insert(rank, reason.to_owned());
        self.parts.endpoint.fail_peer(rank);
        self.stash.forget(rank);
        self.parity.forget_rank(rank);
        self.agreement.forget(rank);
        self.matching.forget(rank);
        let (me, lost) = (self.me(), self.failures.lost.clone());
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
        self.promises.forget(rank);
        self.parts.departures.forget(rank);
        self.failures.broken.extend(self.agreement.groups_of(rank));
        self.refuse_unposted();
    }

    /// The caller submits nothing more in a group: this fails the group's operations here and
    /// cancels their messages. Messages of operations that have completed are still delivered to
    /// slower ranks. Messages that other ranks send in the group from now on are refused, which
    /// fails their sends to this rank. The group's number is not used again.
    pub fn end_group(&mut self, now: Instant, group: u16) {
        if self.failures.aborted.is_some() || !self.failures.ended.insert(group) {
            return;
        }
        let of_group = |operation: &Operation| operation.group.id == group;
        let error = |operation: &Operation| OperationError::Aborted {
            label: operation.label(),
            reason: format!("group {group} has ended on this rank"),
        };
        for (slot, error) in self.failing(of_group, error) {
            self.cancel(slot, error);
        }
        self.fail_waiting(of_group, error);
        self.refuse_unposted();
        self.matching.end_group(group);
        self.agreement.end_group(group);
        self.let_go(now);
        self.take_events(now);
    }

    /// Fails every operation and refuses later ones. Stops sending and receiving packets.
    pub fn abort(&mut self, reason: &str) {
        if self.failures.aborted.is_some() {
            return;
        }
        self.failures.aborted = Some(reason.to_owned());
        for rank in 0..self.parts.endpoint.settings().identity.world_size {
            self.parts.endpoint.fail_peer(Rank(rank));
        }
        self.stash = EarlyStash::default();
        self.parity = ParitySums::default();
        self.fail_where(
            |_| true,
            |operation| OperationError::Aborted {
                label: operation.label(),
                reason: reason.to_owned(),
            },
        );
        self.promises = Promises::default();
        self.agreement = Agreement::new(self.me());
        self.matching = Matching::default();
    }

    /// The operation that has missed its deadline. Returned once, until it is concluded or
    /// completes.
    pub fn poll_overdue(&mut self) -> Option<OverdueOperation> {
        let id = self.deadlines.report()?;
        let (_, running) = self.running(id)?;
        Some(OverdueOperation::of(id, &running.operation))
    }

    /// Fails an overdue operation, and everything else with it. The verdict says in words how far
    /// the other ranks are. Has no effect if the operation has ended.
    pub fn conclude(&mut self, now: Instant, id: OperationId, verdict: String) {
        if let Some((slot, running)) = self.running(id) {
            let error = running.timed_out(now, Some(verdict));
            self.fail_all(slot, error);
        }
    }

    fn running(&self, id: OperationId) -> Option<(usize, &RunningOperation)> {
        self.table.iter().find(|(_, running)| running.id == id)
    }

    fn fail_where(
        &mut self,
        fails: impl Fn(&Operation) -> bool,
        error: impl Fn(&Operation) -> OperationError,
    ) {
        for (slot, error) in self.failing(&fails, &error) {
            self.end(slot, Err(error));
        }
        self.fail_waiting(fails, error);
    }

    /// The running operations that fail, and why.
    fn failing(
        &self,
        fails: impl Fn(&Operation) -> bool,
        error: impl Fn(&Operation) -> OperationError,
    ) -> Vec<(usize, OperationError)> {
        let running = self.table.iter();
        let failing = running.filter(|(_, running)| fails(&running.operation));
        let failing = failing.map(|(slot, running)| (slot, error(&running.operation)));
        failing.collect()
    }

    /// Fails receives from any rank that have no message. Returns the last error.
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
            self.reset_deadlines();
        }
        last
    }

    /// Ends a running operation. Its messages in flight are still delivered.
    pub(super) fn end(&mut self, slot: usize, result: Result<(), OperationError>) {
        let running = self.table.remove(slot);
        let running = running.expect("ended once, by the caller that found it running");
        if self.failures.aborted.is_none() {
            self.promises.keep(running.promises());
        }
        self.conclude_running(running, result);
    }

    /// Fails a running operation, and cancels its messages in flight.
    pub(super) fn cancel(&mut self, slot: usize, error: OperationError) {
        let running = self.table.remove(slot);
        let running = running.expect("ended once, by the caller that found it running");
        for (to, key) in running.on_their_way() {
            self.parts.endpoint.cancel(to, key);
            self.parts.departures.finished(to, key);
        }
        self.conclude_running(running, Err(error));
    }

    fn conclude_running(
        &mut self,
        running: Box<RunningOperation>,
        result: Result<(), OperationError>,
    ) {
        self.deadlines.end(running.id);
        if result.is_err() && self.failures.aborted.is_none() {
            for (from, key) in running.missing() {
                self.parts.endpoint.refuse(from, key);
                self.parity.forget(from, key);
                self.stash.take(from, key);
            }
        }
        let operation = &running.operation;
        if result.is_ok() && !operation.collective.is_point_to_point() {
            self.agreement.complete(running.call());
        }
        let had_deadline = operation.deadline.is_some();
        let completion = running.into_completion(result, &mut self.parts.memory);
        self.completions.push_back(completion);
        if had_deadline {
            self.reset_deadlines();
        }
    }

    /// Refuses all messages that have arrived and that no operation will post.
    pub(super) fn refuse_unposted(&mut self) {
        let unposted = self.parts.endpoint.unposted();
        let in_vain = unposted.filter(|&(_, key)| !self.failures.may_take(key));
        let in_vain: Vec<(Rank, MessageKey)> = in_vain.collect();
        for (from, key) in in_vain {
            self.parts.endpoint.refuse(from, key);
            self.forget_unposted(from, key);
        }
    }

    /// Forgets a message that no operation has posted.
    pub(super) fn forget_unposted(&mut self, from: Rank, key: MessageKey) {
        self.stash.take(from, key);
        self.parity.forget(from, key);
        self.agreement.withdraw(from, key);
        self.matching.withdraw(from, key);
    }

    fn reset_deadlines(&mut self) {
        let running = self.table.iter().map(|(_, running)| &running.operation);
        let waiting = self.matching.waiting().iter();
        let operations = running.chain(waiting.map(|(_, operation)| operation));
        self.deadlines
            .reset(operations.filter_map(|operation| operation.deadline));
    }

    /// Fails an operation, and everything else because no rank knows the state of the others.
    pub(super) fn fail_all(&mut self, slot: usize, error: OperationError) {
        let reason = error.to_string();
        self.end(slot, Err(error));
        self.abort(&reason);
    }

    /// Fails or reports an operation whose deadline has passed.
    pub(super) fn fail_overdue(&mut self, now: Instant) {
        if !self.deadlines.is_due(now) {
            return;
        }
        let is_overdue = |operation: &Operation| {
            let deadline = operation.deadline;
            deadline.is_some_and(|deadline| deadline <= now)
        };
        let overdue = (self.table.iter()).find(|(_, running)| is_overdue(&running.operation));
        if let Some((slot, running)) = overdue {
            match self.deadlines.rule {
                DeadlineRule::Fail => {
                    let error = running.timed_out(now, None);
                    self.fail_all(slot, error);
                }
                DeadlineRule::Report => self.deadlines.rule = DeadlineRule::Due(running.id),
                DeadlineRule::Due(_) | DeadlineRule::Asked(_) => {}
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

//! Fails operations, and keeps the messages that a failed one leaves behind.
//!
//! - A lost rank fails every operation that needs it. Operations of other ranks go on.
//! - A missed deadline, or a call that contradicts another rank's, leaves the ranks in states that
//!   no rank knows. Then everything fails, and later operations are refused.
//! - An operation can end while messages of it are on their way, because it failed or because it
//!   ended early. Copies of them are still sent: elsewhere they may complete an operation.

use gradwire_protocol::units::{Instant, Rank};

use crate::engine::communicator::Communicator;
use crate::engine::overdue::{DeadlineRule, OverdueOperation};
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
        self.promised.retain(|&(to, _), _| to != rank);
        self.parts.departures.forget(rank);
    }

    /// Fails every operation and refuses later ones. Sends and receives no packet any more.
    pub fn abort(&mut self, reason: &str) {
        if self.failures.aborted.is_some() {
            return;
        }
        self.failures.aborted = Some(reason.to_owned());
        for rank in 0..self.parts.endpoint.settings().identity.world_size {
            self.parts.endpoint.fail_peer(Rank(rank));
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

    /// The operation that has missed its deadline. Returned once, until it is concluded or
    /// completes.
    pub fn poll_overdue(&mut self) -> Option<OverdueOperation> {
        let id = self.deadlines.report()?;
        let (_, running) = self.running(id)?;
        Some(OverdueOperation::of(id, &running.operation))
    }

    /// Fails an overdue operation, and everything else with it. The verdict says in words where the
    /// other ranks are. Nothing happens if the operation has ended.
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
        let failing: Vec<(usize, OperationError)> = (self.table.iter())
            .filter(|(_, running)| fails(&running.operation))
            .map(|(slot, running)| (slot, error(&running.operation)))
            .collect();
        for (slot, error) in failing {
            self.end(slot, Err(error));
        }
        self.fail_waiting(fails, error);
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

    /// Ends a running operation.
    pub(super) fn end(&mut self, slot: usize, result: Result<(), OperationError>) {
        let running = self.table.remove(slot);
        let running = running.expect("ended once, by the caller that found it running");
        self.deadlines.end(running.id);
        if self.failures.aborted.is_none() {
            self.promised.extend(running.promises());
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

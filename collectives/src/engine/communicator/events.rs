//! Hands each packet and each event of the endpoint to the operation that it belongs to.

use gradwire_protocol::endpoint::EndpointEvent;
use gradwire_protocol::machine::Payload;
use gradwire_protocol::path::PathFault;
use gradwire_protocol::receiver::{Placement, Posting, Restoration};
use gradwire_protocol::units::{Instant, MessageKey, Rank};

use crate::engine::agreement::UnpostedMessage;
use crate::engine::communicator::Communicator;
use crate::engine::departures::DepartingMessage;
use crate::engine::journal::{MessageRecord, MessageSide};
use crate::engine::parts::EngineParts;
use crate::engine::running::RunningOperation;
use crate::engine::stash::EarlyStash;
use crate::engine::table::RunningMessage;
use crate::operation::OperationError;
use crate::plan::PARTS;

impl Communicator {
    /// Puts segments into their operation's memory, or keeps them until their message is posted.
    /// Their payloads are parts of the placement that follow each other.
    pub(super) fn place<'p>(
        &mut self,
        placement: Placement,
        parts: impl Iterator<Item = Payload<'p>> + Clone,
    ) {
        if let Some(covered) = placement.parity {
            let message = (placement.from, placement.key);
            self.parity.add_run(message, covered, parts.clone());
        }
        if placement.posting == Posting::Early {
            self.stash.keep(placement, parts);
            return;
        }
        let Some(found) = self.table.find_in(placement.from, placement.key) else {
            return; // its operation has failed
        };
        if let Some(running) = self.table.get_mut(found.slot) {
            let cells = &mut self.parts.memory.cells;
            running.place(found.message, placement.offset, parts, cells);
        }
    }

    /// Places the segments that parity has restored after a packet with this payload.
    pub(super) fn restore(&mut self, payload: Payload<'_>) {
        while let Some(restoration) = self.parts.endpoint.poll_restoration() {
            match restoration {
                Restoration::Parity { from, key, group } => {
                    self.parity.add((from, key), group, payload);
                }
                Restoration::Segment { placement, group } => {
                    let message = (placement.from, placement.key);
                    let bytes = self.parity.restored(message, group, placement.length);
                    let length = Payload::Length(placement.length as usize);
                    let payload = bytes.as_deref().map_or(length, Payload::Bytes);
                    self.place(placement, std::iter::once(payload));
                }
            }
        }
    }

    pub(super) fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.parts.endpoint.poll_event() {
            self.take_event(now, event);
        }
    }

    fn take_event(&mut self, now: Instant, event: EndpointEvent) {
        self.journal.note(|| recorded(now, &event));
        match event {
            EndpointEvent::Announced { from, key, outline } => {
                if !self.failures.may_take(key) && self.table.find_in(from, key).is_none() {
                    self.parts.endpoint.refuse(from, key);
                    self.forget_unposted(from, key);
                    return;
                }
                self.matching.announce(from, key);
                self.start_matched(now);
                self.take_announced(UnpostedMessage { from, key, outline });
            }
            EndpointEvent::Received {
                from, key, holes, ..
            } => {
                self.parity.forget(from, key);
                let Some(RunningMessage { slot, message }) = self.table.find_in(from, key) else {
                    return;
                };
                self.advance(now, slot, |running, _, parts| {
                    running.on_received(message, holes.as_ref(), now, parts);
                });
            }
            EndpointEvent::StandsStill { to, key } => {
                self.parts.departures.finished(to, key);
                self.let_go(now);
            }
            EndpointEvent::Sent {
                to, key, missing, ..
            } => {
                self.parts.departures.finished(to, key);
                let Some(RunningMessage { slot, message }) = self.table.find_out(to, key) else {
                    self.promises.settle(to, key);
                    self.let_go(now);
                    return;
                };
                self.advance(now, slot, |running, _, _| {
                    running.on_sent(message, missing.as_ref());
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
                let (call, expected) = (running.call(), Some(ours.bytes));
                let mismatch = self.agreement.mismatch(call, from, theirs, expected);
                self.fail_all(slot, OperationError::Mismatch(Box::new(mismatch)));
            }
            EndpointEvent::Refused { to, key } => self.take_refused(now, to, key),
            EndpointEvent::Reset { from, key } => self.take_reset(from, key),
            EndpointEvent::PathFault { rank, fault } => self.take_path_fault(rank, fault),
            EndpointEvent::PeerSilent { rank, silent } => {
                self.fail_peer(rank, &format!("it did not answer for {silent}"));
            }
        }
    }

    /// A path to a rank has a fault. A path that carries no long packet ends the job: that rank
    /// lives and waits, and only this one knows why.
    fn take_path_fault(&mut self, rank: Rank, fault: PathFault) {
        if let PathFault::LongPacketsLost { bytes, lasting } = fault {
            let reason = format!(
                "no packet of {bytes} bytes from rank {} has reached rank {rank} for {lasting}, \
                 while shorter ones do: a link on the path takes less than the job's MTU; set \
                 transport.mtu to the size that `gradwire doctor` finds on that path",
                self.me()
            );
            self.abort(&reason);
        }
        self.path_faults.push((rank, fault));
    }

    /// A rank has reported that it accepts no more of a message. A send fails then. A collective
    /// goes on: that rank does not need the message any more.
    fn take_refused(&mut self, now: Instant, to: Rank, key: MessageKey) {
        self.parts.departures.finished(to, key);
        let found = self.table.find_out(to, key);
        let running = found.and_then(|found| self.table.get(found.slot));
        let (Some(RunningMessage { slot, message }), Some(running)) = (found, running) else {
            self.promises.settle(to, key);
            self.let_go(now);
            return;
        };
        if running.operation.collective.is_point_to_point() {
            let error = OperationError::Aborted {
                label: running.label,
                reason: format!("rank {to} no longer accepts it, since it has ended the group"),
            };
            self.cancel(slot, error);
            self.let_go(now);
            return;
        }
        self.advance(now, slot, |running, _, _| running.on_sent(message, None));
    }

    /// A rank has cancelled a message, because it has ended the group.
    fn take_reset(&mut self, from: Rank, key: MessageKey) {
        let found = self.table.find_in(from, key);
        let running = found.and_then(|found| self.table.get(found.slot));
        if let (Some(RunningMessage { slot, .. }), Some(running)) = (found, running) {
            let error = OperationError::Aborted {
                label: running.label,
                reason: format!("rank {from} has cancelled it, since it has ended the group"),
            };
            self.end(slot, Err(error));
        } else {
            self.forget_unposted(from, key);
        }
        let (group, _, part) = key.parts();
        if part < PARTS && self.failures.broken.insert(group) {
            self.refuse_unposted();
        }
    }

    /// A message has arrived before any operation posted it.
    fn take_announced(&mut self, message: UnpostedMessage) {
        if self.table.find_in(message.from, message.key).is_some() {
            return;
        }
        let (slot, running) = self.table.collective(message.key).unzip();
        let running = running.map(RunningOperation::call);
        let Some(mismatch) = self.agreement.announce(message, running) else {
            return;
        };
        match slot {
            Some(slot) => self.fail_all(slot, OperationError::Mismatch(Box::new(mismatch))),
            None => self.abort(&mismatch.to_string()),
        }
    }

    /// Applies an event to a running operation, and ends the operation if that completes it.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        slot: usize,
        happen: impl FnOnce(&mut RunningOperation, &mut EarlyStash, &mut EngineParts),
    ) {
        let Some(running) = self.table.get_mut(slot) else {
            return;
        };
        happen(running, &mut self.stash, &mut self.parts);
        running.post_results(now, &mut self.stash, &mut self.parts);
        if running.is_complete(&self.parts, &self.promises) {
            self.end(slot, Ok(()));
        }
        self.let_go(now);
    }

    /// Sends the messages that the scheduler releases.
    pub(super) fn let_go(&mut self, now: Instant) {
        while let Some(departing) = self.parts.departures.next() {
            let DepartingMessage { to, key, tolerance } = departing;
            let found = self.table.find_out(to, key);
            let running = found.and_then(|found| self.table.get_mut(found.slot));
            let (Some(found), Some(running)) = (found, running) else {
                // Its operation has failed.
                self.parts.departures.finished(to, key);
                continue;
            };
            running.depart(found.message, tolerance, now, &mut self.parts);
            running.post_results(now, &mut self.stash, &mut self.parts);
            if running.is_complete(&self.parts, &self.promises) {
                self.end(found.slot, Ok(()));
            }
        }
    }
}

/// The record of a message that has ended; `None` of any other event, and of a message of which
/// nothing arrived.
fn recorded(now: Instant, event: &EndpointEvent) -> Option<MessageRecord> {
    let (side, peer, key, bytes, (first, last)) = match *event {
        EndpointEvent::Sent {
            to,
            key,
            bytes,
            first,
            ..
        } => (MessageSide::Sent, to, key, bytes, (first, now)),
        EndpointEvent::Received {
            from,
            key,
            bytes,
            arrived,
            ..
        } => (MessageSide::Received, from, key, bytes, arrived?),
        _ => return None,
    };
    Some(MessageRecord {
        side,
        peer,
        key,
        bytes,
        first,
        last,
    })
}

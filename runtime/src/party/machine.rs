//! The machine of a party: an endpoint for each connection, by job.
//!
//! - Message n of a connection has the key n. Its memory is here from its request until it is done,
//!   or until the connection ends.
//! - A message that arrives before its receive is posted is kept in pieces, as much of it as the
//!   endpoint has granted.
//! - A connection whose peer was silent, or whose path carries no long packet, has failed for good:
//!   its open requests fail, and so does each later one.
//! - Connections with packets to send take turns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use gradwire_collectives::buffer::LentMemory;
use gradwire_protocol::endpoint::{Endpoint, EndpointEvent, NextPackets};
use gradwire_protocol::machine::{ArrivedRun, Machine, Payload, Transmit, UnsentRun};
use gradwire_protocol::message::{LengthRule, ReceiveRequest, SendRequest};
use gradwire_protocol::path::PathFault;
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::receiver::{Placement, Posting};
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::units::{Instant, MessageKey, Rank, Share, Signature, Step};
use gradwire_transport::driver::GuestName;

use super::connection::{RequestError, RequestState};
use crate::path_faults;

/// The endpoints of all connections of a process.
#[derive(Debug, Default)]
pub(super) struct PartyMachine {
    ends: BTreeMap<GuestName, ConnectionEnd>,
    /// Connections that may have packets to send, in turn.
    ready: VecDeque<GuestName>,
    deadlines: BTreeSet<(Instant, GuestName)>,
}

/// This process's end of a connection.
#[derive(Debug)]
struct ConnectionEnd {
    endpoint: Endpoint,
    peer: Rank,
    messages: BTreeMap<MessageKey, PendingMessage>,
    early: BTreeMap<MessageKey, Vec<EarlyPiece>>,
    /// Why it has failed, if it has: its endpoint tells that only once.
    failed: Option<RequestError>,
    /// Whether the machine has it among its ready ones.
    is_ready: bool,
    /// Its time among the machine's deadlines.
    due: Option<Instant>,
}

/// A piece of a message that no receive is posted for.
#[derive(Debug)]
struct EarlyPiece {
    offset: u32,
    bytes: Vec<u8>,
}

/// A message with its memory.
#[derive(Debug)]
pub(super) struct PendingMessage {
    pub(super) memory: Box<dyn LentMemory>,
    pub(super) request: Arc<RequestState>,
}

impl PartyMachine {
    /// Takes a connection.
    pub(super) fn begin(&mut self, name: GuestName, endpoint: Endpoint) {
        let end = ConnectionEnd {
            endpoint,
            peer: name.rank,
            messages: BTreeMap::new(),
            early: BTreeMap::new(),
            failed: None,
            is_ready: false,
            due: None,
        };
        self.ends.insert(name, end);
    }

    /// Forgets a connection, and the memory of its messages.
    pub(super) fn end(&mut self, name: GuestName) {
        if let Some(end) = self.ends.remove(&name)
            && let Some(due) = end.due
        {
            self.deadlines.remove(&(due, name));
        }
    }

    /// Lets go of the memory of a message that its peer does not need.
    pub(super) fn forget(&mut self, name: GuestName, key: MessageKey) {
        if let Some(end) = self.ends.get_mut(&name) {
            end.messages.remove(&key);
        }
    }

    /// Sends a message.
    pub(super) fn send(
        &mut self,
        now: Instant,
        name: GuestName,
        (key, message): (MessageKey, PendingMessage),
    ) {
        if let Some(end) = self.working(name, &message) {
            end.send(now, key, message);
            self.touch(name);
        }
    }

    /// Posts a receive with room for as many bytes as its memory has.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        name: GuestName,
        (key, message): (MessageKey, PendingMessage),
    ) {
        if let Some(end) = self.working(name, &message) {
            end.receive(now, key, message);
            self.touch(name);
        }
    }

    /// The connection of a new message, which fails if the connection has failed.
    fn working(&mut self, name: GuestName, message: &PendingMessage) -> Option<&mut ConnectionEnd> {
        let end = self.ends.get_mut(&name)?;
        if let Some(error) = &end.failed {
            message.request.end(Err(error.clone()));
            return None;
        }
        Some(end)
    }

    /// Something of a connection has changed.
    fn touch(&mut self, name: GuestName) {
        let Some(end) = self.ends.get_mut(&name) else {
            return;
        };
        end.take_events();
        if !end.is_ready {
            end.is_ready = true;
            self.ready.push_back(name);
        }
        self.note_due(name);
    }

    fn note_due(&mut self, name: GuestName) {
        let Some(end) = self.ends.get_mut(&name) else {
            return;
        };
        let due = end.endpoint.poll_timeout();
        if due == end.due {
            return;
        }
        if let Some(before) = end.due {
            self.deadlines.remove(&(before, name));
        }
        if let Some(due) = due {
            self.deadlines.insert((due, name));
        }
        end.due = due;
    }

    /// The next packets of any connection.
    fn poll_next(&mut self, now: Instant) -> Option<(GuestName, NextPackets)> {
        while let Some(name) = self.ready.pop_front() {
            let Some(end) = self.ends.get_mut(&name) else {
                continue;
            };
            let next = end.endpoint.poll_next(now);
            end.is_ready = next.is_some();
            if let Some(next) = next {
                self.ready.push_back(name);
                return Some((name, next));
            }
            end.take_events();
            self.note_due(name);
        }
        None
    }
}

impl Machine for PartyMachine {
    fn handle_run(&mut self, now: Instant, run: &ArrivedRun<'_>) {
        let (job, rank) = (run.first.header.job, run.first.header.source);
        let name = GuestName { job, rank };
        if let Some(end) = self.ends.get_mut(&name) {
            let mut rest = Some(*run);
            while let Some(run) = rest {
                let taken = end.endpoint.accept_run(now, &run);
                if let Some(placement) = taken.placement {
                    end.place(&placement, run.payloads.parts(taken.packets));
                }
                rest = run.after(taken.packets);
            }
            self.touch(name);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(due, name)) = self.deadlines.first() {
            if due > now {
                return;
            }
            self.deadlines.pop_first();
            if let Some(end) = self.ends.get_mut(&name) {
                end.due = None;
                end.endpoint.handle_timeout(now);
                self.touch(name);
            }
        }
    }

    fn handle_host_drops(&mut self, _now: Instant) {}

    fn tolerates_loss(&self) -> bool {
        false
    }

    fn handle_unsent(&mut self, now: Instant, unsent: &UnsentRun) {
        let (job, rank) = (unsent.template.job, unsent.to);
        let name = GuestName { job, rank };
        if let Some(end) = self.ends.get_mut(&name) {
            end.endpoint.handle_unsent(now, unsent);
            self.touch(name);
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        let (name, next) = self.poll_next(now)?;
        let end = self.ends.get_mut(&name).expect("it has just been asked");
        let ConnectionEnd {
            endpoint, messages, ..
        } = end;
        let transmit = endpoint.transmit(next, |wanted| {
            let message = messages.get(&wanted.key)?;
            Some(Payload::Bytes(message.memory.bytes()))
        });
        Some(transmit)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(due, _)| due)
    }

    fn handle_end(&mut self, _now: Instant, reason: &str) {
        for end in self.ends.values_mut() {
            end.fail(&RequestError::Driver(reason.to_owned()));
        }
    }
}

impl ConnectionEnd {
    fn send(&mut self, now: Instant, key: MessageKey, message: PendingMessage) {
        let bytes = message.memory.length() as u32;
        let cut = Segmentation::new(bytes, self.endpoint.segment_bytes());
        let shape = MessageShape {
            segments: cut.segments(),
            layer_count: 0,
        };
        let request = SendRequest {
            key,
            signature: Signature::NONE,
            step: Step(0),
            bytes,
            tolerance: Share::NONE,
            contributors: 1,
            tags: self.endpoint.settings().policy.lossless(shape, &[]),
        };
        self.messages.insert(key, message);
        self.endpoint.send(now, self.peer, request);
    }

    fn receive(&mut self, now: Instant, key: MessageKey, mut message: PendingMessage) {
        let room = message.memory.length();
        for EarlyPiece { offset, bytes } in self.early.remove(&key).unwrap_or_default() {
            write(&mut *message.memory, offset, &bytes);
        }
        self.messages.insert(key, message);
        let request = ReceiveRequest {
            key,
            signature: Signature::NONE,
            step: Step(0),
            bytes: u32::try_from(room).unwrap_or(u32::MAX),
            length: LengthRule::AtMost,
            tolerance: Share::NONE,
            urgency: None,
            patience_ends: None,
        };
        self.endpoint.expect(now, self.peer, request);
    }

    /// Puts segments that follow each other into their message's memory, or keeps them until its
    /// receive is posted.
    fn place<'p>(&mut self, placement: &Placement, parts: impl Iterator<Item = Payload<'p>>) {
        let parts = parts.map(|payload| payload.bytes().unwrap_or_default());
        let Placement {
            key, mut offset, ..
        } = *placement;
        match placement.posting {
            Posting::Posted => {
                if let Some(message) = self.messages.get_mut(&key) {
                    for bytes in parts {
                        write(&mut *message.memory, offset, bytes);
                        offset += bytes.len() as u32;
                    }
                }
            }
            Posting::Early => {
                let bytes = parts.collect::<Vec<_>>().concat();
                let piece = EarlyPiece { offset, bytes };
                self.early.entry(key).or_default().push(piece);
            }
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                EndpointEvent::Received { key, bytes, .. } => self.done(key, Ok(bytes)),
                EndpointEvent::Sent { key, .. } => {
                    let message = self.messages.get(&key);
                    let bytes = message.map_or(0, |message| message.memory.length() as u32);
                    self.done(key, Ok(bytes));
                }
                EndpointEvent::Mismatch {
                    key, ours, theirs, ..
                } => {
                    let (room, came) = (ours.bytes, theirs.bytes);
                    self.endpoint.refuse(self.peer, key);
                    self.early.remove(&key);
                    self.done(key, Err(RequestError::TooLong { room, came }));
                }
                EndpointEvent::Refused { key, .. } => {
                    let message = self.messages.get(&key);
                    let bytes = message.map_or(0, |message| message.memory.length() as u32);
                    self.done(key, Err(RequestError::Refused { bytes }));
                }
                EndpointEvent::Reset { key, .. } => self.done(key, Err(RequestError::Ended)),
                EndpointEvent::PeerSilent { silent, .. } => {
                    self.fail(&RequestError::Silent(silent));
                }
                EndpointEvent::PathFault { rank, fault } => {
                    let text = path_faults::line(rank, fault);
                    log::warn!("{text}");
                    if matches!(fault, PathFault::LongPacketsLost { .. }) {
                        self.fail(&RequestError::Path(text));
                    }
                }
                EndpointEvent::Announced { .. } | EndpointEvent::StandsStill { .. } => {}
            }
        }
    }

    fn done(&mut self, key: MessageKey, result: Result<u32, RequestError>) {
        if let Some(message) = self.messages.remove(&key) {
            message.request.end(result);
        }
    }

    fn fail(&mut self, error: &RequestError) {
        self.failed.get_or_insert_with(|| error.clone());
        while let Some((_, message)) = self.messages.pop_first() {
            message.request.end(Err(error.clone()));
        }
    }
}

/// Writes a piece, if the memory has room for all of it.
fn write(memory: &mut dyn LentMemory, offset: u32, bytes: &[u8]) {
    let at = offset as usize;
    let memory = memory.bytes_mut();
    if let Some(place) = memory.and_then(|memory| memory.get_mut(at..at + bytes.len())) {
        place.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::job::Job;
    use gradwire_protocol::settings::Identity;
    use gradwire_protocol::units::{JobId, Span};

    use super::*;

    /// Memory of a message without bytes.
    #[derive(Debug)]
    struct NoBytes;

    impl LentMemory for NoBytes {
        fn length(&self) -> usize {
            0
        }

        fn bytes(&self) -> &[u8] {
            &[]
        }

        fn bytes_mut(&mut self) -> Option<&mut [u8]> {
            None
        }
    }

    fn message(key: u64) -> ((MessageKey, PendingMessage), Arc<RequestState>) {
        let request = Arc::new(RequestState::default());
        let pending = PendingMessage {
            memory: Box::new(NoBytes),
            request: Arc::clone(&request),
        };
        ((MessageKey(key), pending), request)
    }

    #[test]
    fn requests_after_a_silent_peer_fail_at_once() {
        let (job, own, peer) = (JobId(7), Rank(0), Rank(1));
        let name = GuestName { job, rank: peer };
        let identity = Identity {
            rank: own,
            world_size: 2,
            job,
            epoch: 0,
        };
        let mut machine = PartyMachine::default();
        machine.begin(name, Endpoint::new(identity, &Job::default(), 1));
        let mut now = Instant::START + Span::from_millis(1);
        let (first, request) = message(0);
        machine.send(now, name, first);
        while request.ended().is_none() {
            while machine.poll_transmit(now).is_some() {}
            now = machine.poll_timeout().expect("a request is open");
            machine.handle_timeout(now);
        }
        let silent =
            |request: &RequestState| matches!(request.ended(), Some(Err(RequestError::Silent(_))));
        assert!(silent(&request));
        let (second, sent) = message(1);
        machine.send(now, name, second);
        let (third, received) = message(2);
        machine.receive(now, name, third);
        assert!(silent(&sent) && silent(&received));
    }
}

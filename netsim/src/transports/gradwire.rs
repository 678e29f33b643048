//! gradwire as a host of a simulated fabric: it drives the machines that ship, and adds no rule.
//!
//! Flows are messages of an [`Endpoint`], posted when their first packet arrives; a flow beyond
//! `PIECE_BYTES` is several messages. A program runs on a `Communicator` ([`super::program`]). Each
//! is a job of its own on the same link. Messages are lengths without payload.

use std::collections::{BTreeMap, VecDeque};

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::Job;
use gradwire_protocol::machine::{Datagram, Machine, Payload, Transmit};
use gradwire_protocol::message::{LengthRule, ReceiveRequest, SendRequest};
use gradwire_protocol::priority::{CONTROL, MessageShape, Policy};
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::units::{
    ByteCount, Instant, Magnitude, MessageKey, Rank, Share, Signature, Step,
};
use gradwire_protocol::wire::{Header, PacketKind};

use super::identity::{FLOWS, PROGRAMS, identity};
use super::program::RankPlayer;
use crate::engine::host::{Begin, Envelope, Host, HostProgress, Load};
use crate::results::outcome::{MessageOutcome, TaskOutcome, TransportCounts};
use crate::setup::Setup;

/// Longer flows are cut into messages of this many bytes.
const PIECE_BYTES: u64 = 16 << 20;
/// At most this many packets of flows wait for those of a program.
const WAITING_MAX: usize = 4;

/// The content of a packet: its header, and the body of a control packet.
#[derive(Debug, Default)]
pub struct GradwireCargo {
    header: Option<Header>,
    body: Vec<u8>,
}

/// A host that speaks gradwire.
#[derive(Debug)]
pub struct Gradwire {
    source: PacketSource,
    flows: FlowMessages,
    player: Option<Box<RankPlayer>>,
    /// Packets of the last run that have not left.
    rest: VecDeque<(Header, Envelope)>,
    /// Packets of flows that wait for those of the program.
    waiting: VecDeque<(Envelope, GradwireCargo)>,
}

/// The sending end of a host's packets.
#[derive(Debug)]
struct PacketSource {
    host: u32,
    /// Bytes that every packet takes on the wire beyond its own.
    framing: u32,
}

impl Gradwire {
    /// Host `host` of a setup.
    pub fn new(host: u32, setup: &Setup) -> Self {
        let programs = setup.workload.programs.iter();
        let program = programs.clone().find(|program| program.host == host);
        Self {
            source: PacketSource {
                host,
                framing: setup.fabric.framing + setup.job.security.tag_bytes(),
            },
            flows: FlowMessages::new(host, setup),
            player: program.map(|program| Box::new(RankPlayer::new(program, setup))),
            rest: VecDeque::new(),
            waiting: VecDeque::new(),
        }
    }

    fn receive_trimmed(&mut self, now: Instant, header: &Header) {
        match &mut self.player {
            Some(player) if header.job == PROGRAMS => player.receive_trimmed(now, header),
            _ => self.flows.endpoint.handle_trimmed(now, header),
        }
    }
}

/// The next packet of a machine; further packets of its run go to `rest`.
fn take(
    transmit: &Transmit<'_>,
    source: &PacketSource,
    cargo: &mut GradwireCargo,
    rest: &mut VecDeque<(Header, Envelope)>,
) -> Envelope {
    let header = transmit.header(0);
    let mut envelope = Envelope {
        source: source.host,
        destination: u32::from(transmit.to.0),
        bytes: header.packet_bytes().get() as u32 + source.framing,
        dscp: transmit.dscp,
        ecn: transmit.ecn,
        entropy: u16::from(transmit.entropy.0),
        load: Load::Control,
        urgency: 0,
    };
    cargo.body.clear();
    cargo.header = Some(header);
    if header.kind.has_segments() {
        envelope.load = Load::Data;
    } else if let Payload::Bytes(body) = transmit.message {
        cargo.body.extend_from_slice(body);
    }
    for index in 1..transmit.packets() {
        let header = transmit.header(index);
        let bytes = header.packet_bytes().get() as u32 + source.framing;
        rest.push_back((header, Envelope { bytes, ..envelope }));
    }
    envelope
}

impl Host for Gradwire {
    type Cargo = GradwireCargo;

    fn begin(&mut self, now: Instant, begin: Begin) {
        self.flows.begin(now, begin);
    }

    fn receive(&mut self, now: Instant, envelope: &Envelope, cargo: &mut GradwireCargo) {
        let Some(header) = cargo.header.take() else {
            return;
        };
        let data = header.kind.has_segments();
        if envelope.load == Load::Trimmed {
            self.receive_trimmed(now, &header);
            return;
        }
        let payload = if data {
            Payload::Length(usize::from(header.length))
        } else {
            Payload::Bytes(&cargo.body)
        };
        let datagram = Datagram {
            header,
            payload,
            ecn: envelope.ecn,
        };
        match &mut self.player {
            Some(player) if header.job == PROGRAMS => player.receive(now, datagram),
            _ => self.flows.receive(now, &datagram),
        }
    }

    fn wake(&mut self, now: Instant) {
        if is_due(self.flows.endpoint.poll_timeout(), now) {
            self.flows.wake(now);
        }
        if let Some(player) = &mut self.player
            && is_due(player.wakes_at(), now)
        {
            player.wake(now);
        }
    }

    fn wakes_at(&self) -> Option<Instant> {
        let player = self.player.as_ref().and_then(|player| player.wakes_at());
        let flows = self.flows.endpoint.poll_timeout();
        flows.into_iter().chain(player).min()
    }

    fn transmit(&mut self, now: Instant, cargo: &mut GradwireCargo) -> Option<Envelope> {
        if let Some((header, envelope)) = self.rest.pop_front() {
            cargo.header = Some(header);
            return Some(envelope);
        }
        let Some(player) = &mut self.player else {
            let transmit = self.flows.endpoint.poll_transmit(now)?;
            return Some(take(&transmit, &self.source, cargo, &mut self.rest));
        };
        // The host's own queues know classes, too (`gradwire switch render linux:host`): flows
        // beside a program wait for it, but their control packets do not.
        if self.waiting.len() < WAITING_MAX
            && let Some(transmit) = self.flows.endpoint.poll_transmit(now)
        {
            let is_urgent = transmit.class == CONTROL && transmit.template.kind != PacketKind::Data;
            let envelope = take(&transmit, &self.source, cargo, &mut self.rest);
            if is_urgent {
                return Some(envelope);
            }
            self.waiting.push_back((envelope, std::mem::take(cargo)));
            let rest = self.rest.drain(..).map(|(header, envelope)| {
                let header = Some(header);
                (
                    envelope,
                    GradwireCargo {
                        header,
                        ..GradwireCargo::default()
                    },
                )
            });
            self.waiting.extend(rest);
        }
        if let Some(transmit) = player.poll_transmit(now) {
            return Some(take(&transmit, &self.source, cargo, &mut self.rest));
        }
        let (envelope, waited) = self.waiting.pop_front()?;
        *cargo = waited;
        Some(envelope)
    }

    fn progress(&mut self) -> Option<HostProgress> {
        let task = self.player.as_mut().and_then(|player| player.progress());
        task.or_else(|| self.flows.told.pop_front())
    }

    fn tasks(&self) -> Vec<TaskOutcome> {
        let player = self.player.as_ref();
        player.map_or_else(Vec::new, |player| player.outcomes())
    }

    fn messages(&mut self) -> Vec<MessageOutcome> {
        let player = self.player.as_mut();
        player.map_or_else(Vec::new, |player| player.messages())
    }

    fn counts(&self) -> TransportCounts {
        let mut sum = TransportCounts::default();
        let player = self.player.as_ref().map(|player| player.counters());
        for counters in [self.flows.endpoint.counters()].into_iter().chain(player) {
            sum.sent += counters.sender.sent_segments;
            sum.repaired += counters.sender.repaired_segments;
            sum.duplicates += counters.receiver.duplicate_segments;
            sum.lost_within_tolerance += counters.receiver.lost_segments;
            sum.marks += counters.receiver.marks;
        }
        sum
    }
}

fn is_due(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| at <= now)
}

/// Flows as messages. The key of a message says to which flow it belongs (sequence), which of its
/// messages it is (part) and how many there are (group).
#[derive(Debug)]
struct FlowMessages {
    endpoint: Endpoint,
    policy: Policy,
    tolerance: Share,
    min_lossy: ByteCount,
    /// Bytes of messages that are being received.
    arriving: BTreeMap<(Rank, MessageKey), u32>,
    /// Messages received and bytes lost, of flows of several messages.
    received: BTreeMap<u32, (u16, u64)>,
    /// Messages acknowledged, of flows of several messages.
    sent: BTreeMap<u32, u16>,
    /// Progress that was not reported yet.
    told: VecDeque<HostProgress>,
}

impl FlowMessages {
    fn new(host: u32, setup: &Setup) -> Self {
        let job: &Job = &setup.job;
        let seed = setup.seed ^ u64::from(host).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let endpoint = Endpoint::new(identity(host, setup, FLOWS), job, seed);
        Self {
            endpoint: endpoint.with_limits(setup.limits()),
            policy: job.policy(),
            tolerance: job.tolerance,
            min_lossy: job.min_lossy_message(),
            arriving: BTreeMap::new(),
            received: BTreeMap::new(),
            sent: BTreeMap::new(),
            told: VecDeque::new(),
        }
    }

    fn tolerance_of(&self, bytes: u32) -> Share {
        if u64::from(bytes) < self.min_lossy.get() {
            Share::NONE
        } else {
            Segmentation::new(bytes, self.endpoint.segment_bytes()).usable(self.tolerance)
        }
    }

    fn begin(&mut self, now: Instant, begin: Begin) {
        let pieces = begin.bytes.get().div_ceil(PIECE_BYTES).max(1);
        let (layer, layer_count) = (begin.layer, begin.layer_count);
        for piece in 0..pieces {
            let bytes = (begin.bytes.get() - piece * PIECE_BYTES).min(PIECE_BYTES) as u32;
            let tolerance = self.tolerance_of(bytes);
            let cut = Segmentation::new(bytes, self.endpoint.segment_bytes());
            let shape = MessageShape {
                segments: cut.segments(),
                layer_count,
            };
            let tags = if tolerance.is_none() {
                self.policy.lossless(shape, &[(0, layer)])
            } else {
                // Without bytes all magnitudes are equal, and the first segments stand for the
                // share that the job protects.
                let magnitudes = vec![Magnitude(1); shape.segments as usize];
                self.policy.lossy(shape, &[(0, layer)], magnitudes)
            };
            let outgoing = SendRequest {
                key: MessageKey::new(pieces as u16, begin.flow, piece as u16),
                signature: Signature::NONE,
                step: Step(0),
                bytes,
                tolerance,
                contributors: 1,
                tags,
            };
            let to = Rank(begin.destination as u16);
            self.endpoint.send(now, to, outgoing);
        }
    }

    fn receive(&mut self, now: Instant, datagram: &Datagram<'_>) {
        self.endpoint.accept(now, datagram);
        while let Some(event) = self.endpoint.poll_event() {
            self.take_event(now, event);
        }
    }

    fn wake(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
        while let Some(event) = self.endpoint.poll_event() {
            self.take_event(now, event);
        }
    }

    fn take_event(&mut self, now: Instant, event: EndpointEvent) {
        match event {
            EndpointEvent::Announced { from, key, outline } => {
                self.post(now, from, key, outline.bytes);
            }
            EndpointEvent::Received {
                from, key, holes, ..
            } => {
                let bytes = self.arriving.remove(&(from, key)).unwrap_or(0);
                let cut = Segmentation::new(bytes, self.endpoint.segment_bytes());
                let holes = holes.iter().flat_map(|holes| holes.iter_ones());
                let lost = holes.map(|segment| u64::from(cut.length(segment))).sum();
                self.on_received(key, lost);
            }
            EndpointEvent::Sent { key, .. } => self.on_sent(key),
            EndpointEvent::StandsStill { .. }
            | EndpointEvent::Refused { .. }
            | EndpointEvent::Reset { .. }
            | EndpointEvent::Mismatch { .. }
            | EndpointEvent::PeerSilent { .. }
            | EndpointEvent::PathFault { .. } => {}
        }
    }

    /// A receiver is always ready.
    fn post(&mut self, now: Instant, from: Rank, key: MessageKey, bytes: u32) {
        self.arriving.insert((from, key), bytes);
        let incoming = ReceiveRequest {
            key,
            signature: Signature::NONE,
            step: Step(0),
            bytes,
            length: LengthRule::Exact,
            tolerance: self.tolerance_of(bytes),
            urgency: None,
            patience_ends: None,
        };
        self.endpoint.expect(now, from, incoming);
    }

    fn on_received(&mut self, key: MessageKey, lost: u64) {
        let (pieces, flow, _) = key.parts();
        let entry = self.received.entry(flow).or_default();
        *entry = (entry.0 + 1, entry.1 + lost);
        let (received, lost_bytes) = *entry;
        if received == pieces {
            self.received.remove(&flow);
            self.told
                .push_back(HostProgress::Received { flow, lost_bytes });
        }
    }

    fn on_sent(&mut self, key: MessageKey) {
        let (pieces, flow, _) = key.parts();
        let sent = self.sent.entry(flow).or_default();
        *sent += 1;
        if *sent == pieces {
            self.sent.remove(&flow);
            self.told.push_back(HostProgress::Acknowledged { flow });
        }
    }
}

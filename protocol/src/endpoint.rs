//! One rank's side of all its messages: a machine that routes packets to senders and receivers.
//!
//! It has four kinds of method: commands ([`Endpoint::send`], [`Endpoint::expect`],
//! [`Endpoint::fail_peer`]), the verbs of [`Machine`], [`Endpoint::poll_event`], and getters. What
//! a message means is the collectives' business; what may be lost is decided in
//! [`crate::receiver`], what goes again in [`crate::sender`].

use std::collections::VecDeque;

use crate::bitmap::Bitmap;
use crate::budget::Ledger;
use crate::job::{Job, Mtu};
use crate::machine::{Datagram, Ecn, Machine, Payload, Run, Transmit};
use crate::priority::{CONTROL, Policy};
use crate::receiver::{Arrived, Incoming, Placement, Receiver, ReceiverCounters, Scene};
use crate::rtt::Rtt;
use crate::segment;
use crate::sender::{Outgoing, ReportPacket, Sender, SenderCounters};
use crate::units::{ByteCount, Instant, JobId, Rank, Share, Span, Tag};
use crate::wire::{HEADER_BYTES, Header, Kind, Report};

/// The most bytes of one run: what one GSO send can carry, with room for the kernel's headers.
const RUN_BYTES_MAX: u32 = 65_000;
/// The IP packet size when nobody found out what the path carries.
const MTU_DEFAULT: u32 = 1500;
/// A window is acknowledged in this many parts.
const ACKS_PER_WINDOW: u64 = 8;

/// Who a rank is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Identity {
    /// Its number.
    pub rank: Rank,
    /// How many ranks there are.
    pub world_size: u16,
    /// The job, drawn by rank 0.
    pub job: JobId,
    /// The membership epoch.
    pub epoch: u16,
}

/// What a job says, in the units of the machine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who this rank is.
    pub identity: Identity,
    /// Payload bytes of a full packet.
    pub segment_bytes: u32,
    /// Most bytes in flight to one peer.
    pub window: ByteCount,
    /// Bytes in flight at the start.
    pub initial_window: ByteCount,
    /// Bytes of a message that may be sent before its receiver has posted it.
    pub unscheduled: ByteCount,
    /// Most segments of one run.
    pub run_segments: usize,
    /// Paths to each peer.
    pub entropies: u8,
    /// Least gap after which holes are accepted.
    pub gap: Span,
    /// Round-trip time above the least that is no congestion.
    pub delay_target: Span,
    /// A peer that says nothing for this long, while it should, is silent.
    pub peer_timeout: Span,
    /// Classes, DSCPs and protection.
    pub policy: Policy,
}

impl Settings {
    fn new(identity: Identity, job: &Job) -> Self {
        let mtu = match job.transport.mtu {
            Mtu::Auto => MTU_DEFAULT,
            Mtu::Bytes(bytes) => bytes,
        };
        let segment_bytes = segment::segment_bytes(mtu);
        let fitting = RUN_BYTES_MAX / (segment_bytes + HEADER_BYTES as u32);
        let run_segments = u32::from(job.transport.spray_burst).min(fitting).max(1);
        Self {
            identity,
            segment_bytes,
            window: job.transport.window,
            initial_window: job.transport.initial_window,
            unscheduled: job.transport.unscheduled,
            run_segments: run_segments as usize,
            entropies: job.transport.entropies,
            gap: job.transport.gap,
            delay_target: job.transport.delay_target,
            peer_timeout: job.transport.peer_timeout,
            policy: job.policy(),
        }
    }

    /// Segments of a message that may be sent before its receiver has posted it.
    pub fn unscheduled_segments(&self) -> u32 {
        (self.unscheduled.get() / u64::from(self.segment_bytes)).max(1) as u32
    }

    /// Segments after which an acknowledgement waits no longer.
    pub fn ack_segments(&self) -> u32 {
        let part = self.window.get() / ACKS_PER_WINDOW / u64::from(self.segment_bytes);
        part.max(1) as u32
    }
}

/// What happened, for whoever gave the commands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// A posted message is complete.
    Received {
        /// Its sender.
        from: Rank,
        /// Its tag.
        tag: Tag,
        /// The segments that it lacks, if any.
        holes: Option<Bitmap>,
    },
    /// A message was received, as far as it ever will be: its bytes may be reused.
    Sent {
        /// Its receiver.
        to: Rank,
        /// Its tag.
        tag: Tag,
        /// The segments that the receiver did without, if any.
        missing: Option<Bitmap>,
    },
    /// A message came whose length is not the posted one.
    Mismatch {
        /// Its sender.
        from: Rank,
        /// Its tag.
        tag: Tag,
        /// The posted length in bytes.
        ours: u32,
        /// The length that came.
        theirs: u32,
    },
    /// A peer that has messages of ours to acknowledge said nothing for too long.
    PeerSilent {
        /// The peer.
        rank: Rank,
        /// For how long.
        silent: Span,
    },
}

/// Counts over all peers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// What the senders did.
    pub sender: SenderCounters,
    /// What the receivers saw.
    pub receiver: ReceiverCounters,
    /// Packets of other jobs, epochs or ranks, and packets that contradict themselves.
    pub foreign: u64,
}

#[derive(Debug)]
struct Peer {
    sender: Sender,
    receiver: Receiver,
    rtt: Rtt,
    heard: Instant,
    forgotten: VecDeque<Header>,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Standing {
    Well,
    /// It was reported silent.
    Silent,
    /// It was lost: nothing goes to it, nothing is taken from it.
    Failed,
}

/// One rank's messages to and from all peers.
#[derive(Debug)]
pub struct Endpoint {
    settings: Settings,
    seed: u64,
    peers: Vec<Peer>,
    ledger: Ledger,
    events: VecDeque<Event>,
    body: Vec<u8>,
    turn: usize,
    /// Counts of peers that were lost, and of packets that belong to no peer.
    past: Counters,
}

impl Endpoint {
    /// An endpoint without messages. An MTU that the job leaves open is 1,500 bytes.
    pub fn new(identity: Identity, job: &Job, seed: u64) -> Self {
        let settings = Settings::new(identity, job);
        let ranks = (0..identity.world_size).map(Rank);
        let peers = ranks.map(|rank| Peer::new(rank, &settings, seed)).collect();
        let cap = job.loss.step_tolerance.unwrap_or(Share::ALL);
        Self {
            settings,
            seed,
            peers,
            ledger: Ledger::new(cap),
            events: VecDeque::new(),
            body: Vec::new(),
            turn: 0,
            past: Counters::default(),
        }
    }

    /// Sends a message.
    ///
    /// # Panics
    /// When `to` is this rank or no rank of the job.
    pub fn send(&mut self, now: Instant, to: Rank, outgoing: Outgoing) {
        assert_ne!(
            to, self.settings.identity.rank,
            "a rank does not send to itself"
        );
        let peer = &mut self.peers[usize::from(to.0)];
        if peer.standing == Standing::Failed {
            return;
        }
        if !peer.sender.is_busy() {
            peer.heard = peer.heard.max(now);
        }
        peer.sender.send(now, outgoing, &self.settings);
    }

    /// Posts a message that `from` sends or will send; [`Event::Received`] tells when it is there.
    ///
    /// # Panics
    /// When `from` is this rank or no rank of the job.
    pub fn expect(&mut self, now: Instant, from: Rank, incoming: Incoming) {
        assert_ne!(
            from, self.settings.identity.rank,
            "a rank does not receive from itself"
        );
        let peer = &mut self.peers[usize::from(from.0)];
        let gap = peer.gap(&self.settings);
        let mut scene = Scene {
            now,
            settings: &self.settings,
            ledger: &mut self.ledger,
            gap,
        };
        peer.receiver.expect(incoming, &mut scene);
        self.collect(from);
    }

    /// Forgets all messages to and from a peer that was lost, and ignores it from now on.
    pub fn fail_peer(&mut self, rank: Rank) {
        let peer = &mut self.peers[usize::from(rank.0)];
        self.past.sender.add(peer.sender.counters());
        self.past.receiver.add(peer.receiver.counters());
        *peer = Peer::new(rank, &self.settings, self.seed);
        peer.standing = Standing::Failed;
    }

    /// Takes a packet; for a new segment gives its place. Exactly once per segment.
    pub fn accept(&mut self, now: Instant, datagram: &Datagram<'_>) -> Option<Placement> {
        let header = &datagram.header;
        let Some(peer) = self.known_peer(header) else {
            self.past.foreign += 1;
            return None;
        };
        let peer = &mut self.peers[peer];
        peer.heard = now;
        if peer.standing == Standing::Silent {
            peer.standing = Standing::Well;
        }
        match header.kind {
            Kind::Data | Kind::Probe => {
                let gap = peer.gap(&self.settings);
                let scene = Scene {
                    now,
                    settings: &self.settings,
                    ledger: &mut self.ledger,
                    gap,
                };
                if peer.receiver.forgotten(header) {
                    peer.forgotten.push_back(*header);
                    return None;
                }
                let placement = peer.receiver.handle(header, datagram.ecn, &scene);
                self.collect(header.source);
                placement
            }
            Kind::Ack | Kind::Bitmap | Kind::Stop => {
                let body = datagram.payload.bytes().and_then(Report::decode);
                match body {
                    Some((report, bitmap)) => {
                        let packet = ReportPacket {
                            header,
                            report,
                            bitmap,
                        };
                        peer.sender.handle_report(now, &packet, &mut peer.rtt);
                        self.collect(header.source);
                    }
                    None => self.past.foreign += 1,
                }
                None
            }
            Kind::Close => {
                peer.receiver.close(header.message);
                None
            }
        }
    }

    fn known_peer(&self, header: &Header) -> Option<usize> {
        let us = &self.settings.identity;
        let ours = header.job == us.job
            && header.epoch == us.epoch
            && header.source != us.rank
            && header.source.0 < us.world_size;
        let data = matches!(header.kind, Kind::Data | Kind::Probe);
        let sound = !data || crate::receiver::is_consistent(header, self.settings.segment_bytes);
        let peer = usize::from(header.source.0);
        (ours && sound && self.peers[peer].standing != Standing::Failed).then_some(peer)
    }

    fn collect(&mut self, rank: Rank) {
        let peer = &mut self.peers[usize::from(rank.0)];
        while let Some(arrived) = peer.receiver.take_arrived() {
            self.events.push_back(match arrived {
                Arrived::Complete { tag, holes } => Event::Received {
                    from: rank,
                    tag,
                    holes,
                },
                Arrived::Mismatch { tag, ours, theirs } => Event::Mismatch {
                    from: rank,
                    tag,
                    ours,
                    theirs,
                },
            });
        }
        while let Some(sent) = peer.sender.take_sent() {
            self.events.push_back(Event::Sent {
                to: rank,
                tag: sent.tag,
                missing: sent.missing,
            });
        }
    }

    /// What happened since the last call, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The settings that the job resolved to.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Payload bytes of a full packet; equal on all ranks of a job.
    pub fn segment_bytes(&self) -> u32 {
        self.settings.segment_bytes
    }

    /// The loss budget.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Bytes in flight to a peer and the window that bounds them.
    pub fn in_flight(&self, to: Rank) -> (ByteCount, ByteCount) {
        let sender = &self.peers[usize::from(to.0)].sender;
        (sender.in_flight(), sender.window())
    }

    /// Whether any message has not ended.
    pub fn is_busy(&self) -> bool {
        self.peers
            .iter()
            .any(|peer| peer.sender.is_busy() || peer.receiver.is_waiting())
    }

    /// Counts over all peers.
    pub fn counters(&self) -> Counters {
        let mut sum = self.past;
        for peer in &self.peers {
            sum.sender.add(peer.sender.counters());
            sum.receiver.add(peer.receiver.counters());
        }
        sum
    }

    fn poll_control(&mut self, now: Instant) -> Option<(usize, Header)> {
        let count = self.peers.len();
        for offset in 0..count {
            let at = (self.turn + offset) % count;
            let peer = &mut self.peers[at];
            if peer.standing == Standing::Failed {
                continue;
            }
            if let Some(header) = peer.poll_report(now, &self.settings, &mut self.body) {
                return Some((at, header));
            }
            if let Some(header) = peer.sender.poll_control(now, &peer.rtt) {
                self.body.clear();
                return Some((at, header));
            }
        }
        None
    }

    fn control_transmit(&mut self, at: usize, mut header: Header) -> Transmit<'_> {
        header.source = self.settings.identity.rank;
        header.class = CONTROL;
        header.checksum = 0;
        header.entropy = self.peers[at].sender.take_entropy();
        Transmit {
            to: Rank(at as u16),
            class: CONTROL,
            dscp: self.settings.policy.dscp_of(CONTROL),
            ecn: Ecn::Ect,
            entropy: header.entropy,
            template: header,
            run: Run::one(0),
            segment_bytes: self.settings.segment_bytes,
            tags: None,
            message: Payload::Bytes(&self.body),
        }
    }

    fn data_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        let count = self.peers.len();
        let (at, burst) = (0..count).find_map(|offset| {
            let at = (self.turn + offset) % count;
            let peer = &mut self.peers[at];
            let burst = peer.sender.poll_data(now, &peer.rtt, &self.settings)?;
            Some((at, burst))
        })?;
        self.turn = (at + 1) % count;
        let template = burst.template;
        Some(Transmit {
            to: Rank(at as u16),
            class: template.class,
            dscp: self.settings.policy.dscp_of(template.class),
            ecn: burst.ecn,
            entropy: template.entropy,
            template,
            run: burst.run,
            segment_bytes: self.settings.segment_bytes,
            tags: self.peers[at].sender.tags(template.message),
            message: Payload::Length(template.message_bytes as usize),
        })
    }
}

impl Machine for Endpoint {
    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        self.accept(now, &datagram);
    }

    fn handle_timeout(&mut self, now: Instant) {
        for at in 0..self.peers.len() {
            let peer = &mut self.peers[at];
            let gap = peer.gap(&self.settings);
            let mut scene = Scene {
                now,
                settings: &self.settings,
                ledger: &mut self.ledger,
                gap,
            };
            peer.receiver.handle_timeout(&mut scene);
            let silent = now - peer.heard;
            let rank = Rank(at as u16);
            let waits = peer.standing == Standing::Well && peer.sender.is_busy();
            if waits && silent > self.settings.peer_timeout {
                peer.standing = Standing::Silent;
                self.events.push_back(Event::PeerSilent { rank, silent });
            }
            self.collect(rank);
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        if let Some((at, header)) = self.poll_control(now) {
            return Some(self.control_transmit(at, header));
        }
        self.data_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = self
            .peers
            .iter()
            .filter(|peer| peer.standing != Standing::Failed);
        deadlines
            .flat_map(|peer| [peer.sender.poll_timeout(), peer.receiver.poll_timeout()])
            .flatten()
            .min()
    }
}

impl Peer {
    fn new(rank: Rank, settings: &Settings, seed: u64) -> Self {
        Self {
            sender: Sender::new(rank, settings, seed),
            receiver: Receiver::new(rank),
            rtt: Rtt::default(),
            heard: Instant::START,
            forgotten: VecDeque::new(),
            standing: Standing::Well,
        }
    }

    /// How long nothing must have arrived before what is missing counts as lost.
    fn gap(&self, settings: &Settings) -> Span {
        settings.gap.max(self.rtt.answer_wait())
    }

    fn poll_report(
        &mut self,
        now: Instant,
        settings: &Settings,
        body: &mut Vec<u8>,
    ) -> Option<Header> {
        let Some(probe) = self.forgotten.pop_front() else {
            return self.receiver.poll_report(now, settings, body);
        };
        let all = probe.segments;
        let report = Report {
            echo: probe.sent_at,
            received: all,
            granted: all,
            cumulative: all,
            first: all,
            ..Report::default()
        };
        body.clear();
        report.encode(body);
        Some(Header {
            kind: Kind::Stop,
            length: body.len() as u16,
            ..probe
        })
    }
}

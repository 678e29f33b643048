//! One rank's messages to and from all peers: a machine that routes packets to senders and
//! receivers.
//!
//! It has four kinds of method: commands ([`Endpoint::send`], [`Endpoint::expect`],
//! [`Endpoint::cancel`], [`Endpoint::refuse`], [`Endpoint::fail_peer`]), the verbs of [`Machine`],
//! [`Endpoint::poll_event`], and getters.
//!
//! The collectives know the meaning of a message. [`crate::receiver`] decides which holes are
//! accepted, [`crate::sender`] which segments are repaired.

mod metrics;
mod peer;
mod peers;
mod send_queue;
mod transmit;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use self::peer::{EndpointPeer, PeerEntry};
use self::peers::Peers;
use self::send_queue::SendQueue;
use crate::budget::Ledger;
use crate::grants::{GrantNeed, NextGrant};
use crate::job::{Job, ToleranceUse};
use crate::machine::{ArrivedRun, Datagram, Machine, RunLength, SegmentRun, Transmit, UnsentRun};
use crate::message::{LengthRule, ReceiveRequest, SendRequest, is_consistent};
use crate::metrics::{ClassTimes, EndpointCounters, PeerStanding};
use crate::reach::{MemoryPath, RankState, Reach};
use crate::receiver::{DataEffect, Placement, Restoration};
use crate::sender::ReportPacket;
use crate::settings::{EndpointLimits, EndpointSettings, Identity};
use crate::units::{ByteCount, Instant, MessageId, MessageKey, PathNumber, Rank, Share, Span};
use crate::wire::{Header, PacketKind, SegmentReport};

pub use self::transmit::{NextPackets, WantedPayload};
pub use crate::event::EndpointEvent;

/// Stands for the grants among the peers in [`Endpoint::deadlines`].
const GRANTS: u32 = u32::MAX;

/// The packets of a run that an endpoint has processed together.
#[derive(Clone, Copy, Debug)]
pub struct TakenPackets {
    /// How many, from the first one on.
    pub packets: u32,
    /// Where their payloads belong, if their segments are new: exactly once for each segment.
    pub placement: Option<Placement>,
}

/// One rank's messages to and from all peers.
///
/// A peer exists from its first message or packet on, and the endpoint looks only at peers with
/// work: a rank of a job with a thousand ranks pays only for the peers that it talks with.
#[derive(Debug)]
pub struct Endpoint {
    common: RankState,
    seed: u64,
    peers: Peers,
    /// Peers with a control packet to send, in turn.
    talkers: VecDeque<u32>,
    /// Peers that may have data to send, in turn.
    senders: SendQueue,
    /// When to look at which peer again. When a peer's time was moved, older entries remain and are
    /// skipped.
    deadlines: BinaryHeap<Reverse<(Instant, u32)>>,
    /// Whether [`GRANTS`] is in `deadlines`.
    look_armed: bool,
    events: VecDeque<EndpointEvent>,
    /// Restorations that the last packet brought.
    restorations: VecDeque<Restoration>,
    /// The body of the last control packet.
    body: Vec<u8>,
    /// The segments of the last data packets.
    run: SegmentRun,
    /// Packets of other jobs, epochs or ranks, and packets that contradict themselves.
    foreign: u64,
    /// Kept after [`Endpoint::keep_metrics`].
    message_times: Option<Box<ClassTimes>>,
}

impl Endpoint {
    /// An endpoint without messages. An MTU that the job leaves open is 1,500 bytes.
    pub fn new(identity: Identity, job: &Job, seed: u64) -> Self {
        let cap = job.loss.step_tolerance.unwrap_or(Share::ALL);
        let settings = EndpointSettings::new(identity, job);
        Self {
            peers: Peers::new(settings.limits.awake_peers),
            common: RankState::new(settings, Ledger::new(cap)),
            seed,
            talkers: VecDeque::new(),
            senders: SendQueue::default(),
            deadlines: BinaryHeap::new(),
            look_armed: false,
            events: VecDeque::new(),
            restorations: VecDeque::new(),
            body: Vec::new(),
            run: SegmentRun::default(),
            foreign: 0,
            message_times: None,
        }
    }

    /// Makes the endpoint reach `ranks` through memory of this host. Those ranks must do the same,
    /// with segments of the same size.
    ///
    /// # Panics
    /// When messages have been sent or posted already.
    #[must_use]
    pub fn with_neighbours(mut self, ranks: Vec<Rank>, near: MemoryPath) -> Self {
        assert!(self.peers.is_empty(), "neighbours are known before peers");
        self.common.bring_near(ranks, near);
        self
    }

    /// Gives the first message to each peer this id instead of 1. Ids wrap after 2^32 messages; a
    /// test that starts near the end sees that in its first messages. The peers need not know.
    ///
    /// # Panics
    /// When messages have been sent or posted already.
    #[must_use]
    pub fn with_first_message(mut self, first: MessageId) -> Self {
        assert!(self.peers.is_empty(), "the first message is still to come");
        self.common.begin_with(first);
        self
    }

    /// Counts the packets of each path from this number instead of 0, as all ranks of the job must:
    /// numbers wrap after 2^32 packets, and a test sees that in its first ones.
    ///
    /// # Panics
    /// When messages have been sent or posted already.
    #[must_use]
    pub fn with_first_number(mut self, first: PathNumber) -> Self {
        assert!(self.peers.is_empty(), "the first packet is still to come");
        self.common.begin_paths_with(first);
        self
    }

    /// Remembers this much instead of the usual. The peers need not know.
    ///
    /// # Panics
    /// When messages have been sent or posted already.
    #[must_use]
    pub fn with_limits(mut self, limits: EndpointLimits) -> Self {
        assert!(self.peers.is_empty(), "limits are known before peers");
        self.common.remember(limits);
        self.peers.set_awake_max(limits.awake_peers);
        self
    }

    /// The peer of a rank of the job, new if need be.
    fn place(&mut self, rank: Rank) -> usize {
        self.peers.place(rank, &self.common, self.seed)
    }

    /// Queues a peer for its next actions. Called after every change of the peer.
    fn touch(&mut self, now: Instant, at: usize) {
        let PeerEntry {
            standing, sends, ..
        } = self.peers[at];
        if standing == PeerStanding::Failed {
            return;
        }
        let peer = self.peers.wake(at);
        let outlook = peer.outlook(now);
        let settings = self.common.settings(peer.reach);
        let joins = !sends && peer.sender.has_room(settings);
        let entry = &mut self.peers[at];
        self.senders.on_change(at, entry);
        if outlook.talks && !entry.talks {
            entry.talks = true;
            self.talkers.push_back(at as u32);
        }
        if joins {
            entry.sends = true;
            self.senders.push(at);
        }
        if let Some(due) = outlook.due {
            self.arm(at, due);
        }
    }

    fn arm(&mut self, at: usize, due: Instant) {
        let entry = &mut self.peers[at];
        if entry.armed.is_none_or(|armed| due < armed) {
            entry.armed = Some(due);
            self.deadlines.push(Reverse((due, at as u32)));
        }
    }

    /// Sends a message.
    ///
    /// # Panics
    /// When `to` is this rank or not a rank of the job, or when the message needs more than
    /// [`SEGMENTS_MAX`](crate::wire::SEGMENTS_MAX) segments, which no MTU that a job allows makes.
    pub fn send(&mut self, now: Instant, to: Rank, outgoing: SendRequest) {
        assert_ne!(
            to, self.common.network.identity.rank,
            "a rank does not send to itself"
        );
        let at = self.place(to);
        let reach = self.peers[at].reach;
        let may_speculate = self.common.settings(reach).speculative_segments() > 0;
        let is_alone = may_speculate && !self.is_sending();
        if self.peers[at].standing == PeerStanding::Failed {
            return;
        }
        let settings = self.common.settings(reach);
        let peer = self.peers.wake(at);
        let was_busy = peer.sender.is_busy();
        match is_alone {
            true => peer.sender.send_alone(now, outgoing, settings),
            false => peer.sender.send(now, outgoing, settings),
        }
        if !was_busy {
            let entry = &mut self.peers[at];
            entry.heard = entry.heard.max(now);
        }
        self.touch(now, at);
    }

    /// Posts a message that `from` sends or will send; [`EndpointEvent::Received`] reports its
    /// arrival.
    ///
    /// # Panics
    /// When `from` is this rank or not a rank of the job, or when a message whose length is open
    /// has patience.
    pub fn expect(&mut self, now: Instant, from: Rank, incoming: ReceiveRequest) {
        assert_ne!(
            from, self.common.network.identity.rank,
            "a rank does not receive from itself"
        );
        let is_open = incoming.length == LengthRule::AtMost;
        assert!(
            !is_open || incoming.patience_ends.is_none(),
            "its sum is not known"
        );
        let at = self.place(from);
        let peer = self.peers.wake(at);
        let mut lent = self.common.lend(now, at, peer.reach, &peer.rtt);
        peer.receiver.expect(incoming, &mut lent);
        self.collect(at);
        self.grant(now);
        self.touch(now, at);
    }

    /// Cancels the message to `to` with this key, if it has not ended: its bytes may be reused at
    /// once. The receiver is told until it answers, and reports [`EndpointEvent::Reset`] unless the
    /// message was complete there.
    pub fn cancel(&mut self, to: Rank, key: MessageKey) {
        if let Some(at) = self.peers.find(to) {
            self.peers.wake(at).sender.cancel(key);
            self.turn_to(at);
        }
    }

    /// Gives up the message from `from` with this key, whether it is posted or has only begun to
    /// arrive. Its sender is told and reports [`EndpointEvent::Refused`]. A message that is
    /// complete stays so, and one of which no packet has arrived can still be announced.
    pub fn refuse(&mut self, from: Rank, key: MessageKey) {
        if let Some(at) = self.peers.find(from) {
            let receiver = &mut self.peers.wake(at).receiver;
            let settled = receiver.refuse(key, &mut self.common.ledger);
            self.common.grants.settle(at as u32, settled);
            self.turn_to(at);
        }
    }

    /// The messages that have begun to arrive and are not posted, by sender and key.
    pub fn unposted(&self) -> impl Iterator<Item = (Rank, MessageKey)> {
        self.peers.views().flat_map(|peer| {
            let keys: Vec<_> = peer.receiver.unposted().collect();
            keys.into_iter().map(move |key| (peer.rank, key))
        })
    }

    /// Queues a peer for control packets and for data, which it may now have.
    fn turn_to(&mut self, at: usize) {
        let entry = &mut self.peers[at];
        if entry.standing == PeerStanding::Failed {
            return;
        }
        self.senders.on_change(at, entry);
        if !entry.talks {
            entry.talks = true;
            self.talkers.push_back(at as u32);
        }
    }

    /// Grants segments until the allowed number is in flight.
    fn grant(&mut self, now: Instant) {
        while let Some(next) = self.common.grants.take() {
            let at = next.place as usize;
            let peer = self.peers.wake(at);
            let mut lent = self.common.lend(now, at, peer.reach, &peer.rtt);
            let wants = peer.receiver.grant(next.message, next.most, &mut lent);
            if wants == GrantNeed::More {
                let NextGrant { turn, place, .. } = next;
                self.common.grants.wait(turn, place, next.message);
            }
            self.touch(now, at);
        }
        if !self.look_armed
            && let Some(look_at) = self.common.grants.look_at(self.common.network.gap)
        {
            self.look_armed = true;
            self.deadlines.push(Reverse((look_at.max(now), GRANTS)));
        }
    }

    /// Continues granting although granted segments have not arrived.
    fn look_at_grants(&mut self, now: Instant) {
        self.look_armed = false;
        let gap = self.common.network.gap;
        if self.common.grants.look_at(gap).is_some_and(|at| at <= now) {
            self.common.grants.doubt(now, gap);
        }
        self.grant(now);
    }

    /// Forgets all messages to and from a lost peer, and ignores its packets from now on.
    pub fn fail_peer(&mut self, rank: Rank) {
        let at = self.place(rank);
        let peer = self.peers.wake(at);
        peer.receiver.release(&mut self.common.ledger);
        self.common.grants.forget(at as u32);
        let mut lost = EndpointPeer::new(rank, &self.common, self.seed);
        lost.traffic = peer.traffic.take();
        lost.sender.add_counters(peer.sender.counters());
        lost.receiver.add_counters(peer.receiver.counters());
        *peer = lost;
        let entry = &mut self.peers[at];
        self.senders.on_change(at, entry);
        *entry = PeerEntry {
            standing: PeerStanding::Failed,
            talks: entry.talks,
            sends: entry.sends,
            armed: entry.armed,
            ..PeerEntry::new(rank, &self.common)
        };
    }

    /// Processes a packet; for a new segment returns its place, exactly once per segment. After
    /// that, [`Endpoint::poll_restoration`] has the segments that it restores.
    pub fn accept(&mut self, now: Instant, datagram: &Datagram<'_>) -> Option<Placement> {
        let alone = RunLength::of_one(&datagram.header);
        self.accept_first(now, datagram, alone).placement
    }

    /// Processes the first packet of a run, and as many of those behind it as do the same. After
    /// that, [`Endpoint::poll_restoration`] has the segments that a single packet restores.
    pub fn accept_run(&mut self, now: Instant, run: &ArrivedRun<'_>) -> TakenPackets {
        self.accept_first(now, &run.first, run.length)
    }

    fn accept_first(
        &mut self,
        now: Instant,
        datagram: &Datagram<'_>,
        run: RunLength,
    ) -> TakenPackets {
        self.restorations.clear();
        let header = &datagram.header;
        let mut taken = TakenPackets {
            packets: 1,
            placement: None,
        };
        if !self.is_ours(header) {
            self.foreign += 1;
            return taken;
        }
        let at = self.place(header.source);
        let entry = &mut self.peers[at];
        match entry.standing {
            PeerStanding::Failed => {
                self.foreign += 1;
                return taken;
            }
            PeerStanding::Silent => entry.standing = PeerStanding::Well,
            PeerStanding::Well => {}
        }
        entry.heard = now;
        let peer = self.peers.wake(at);
        let settings = self.common.settings(peer.reach);
        if header.kind == PacketKind::Data && run.is_consistent(header, settings.segment_bytes) {
            taken.packets = peer.receiver.alike(header, run.packets, settings);
        }
        if let Some(traffic) = &mut peer.traffic {
            let first = run.first(taken.packets, header.length);
            traffic.on_received(datagram, first);
        }
        if header.kind.has_segments() {
            self.common.grants.on_arrival(now, at as u32);
        } else if peer.reach == Reach::Network
            && let Some(fault) = peer.receiver.note_ecn(datagram.ecn)
        {
            let rank = header.source;
            self.events
                .push_back(EndpointEvent::PathFault { rank, fault });
        }
        if header.kind == PacketKind::Data {
            let mut lent = self.common.lend(now, at, peer.reach, &peer.rtt);
            let receiver = &mut peer.receiver;
            taken.placement = receiver.handle_data(header, taken.packets, datagram.ecn, &mut lent);
            let effect = receiver.effect();
            if self.is_quiet(at, effect) {
                return taken;
            }
        } else {
            self.take_other(now, at, datagram);
        }
        self.collect(at);
        self.grant(now);
        self.touch(now, at);
        taken
    }

    /// Whether the last DATA packet of a peer changed nothing that the endpoint must act on. So for
    /// most packets the endpoint does not look at queues, grants and deadlines.
    fn is_quiet(&self, at: usize, effect: DataEffect) -> bool {
        let PeerEntry { reach, talks, .. } = self.peers[at];
        !self.common.grants_in_turn(reach)
            && match effect {
                DataEffect::None => true,
                DataEffect::ReportIsDue => talks,
                DataEffect::Changed => false,
            }
    }

    /// Processes a packet that is not DATA. The caller handles DATA itself, so that its peer is
    /// looked up once.
    fn take_other(&mut self, now: Instant, at: usize, datagram: &Datagram<'_>) {
        let header = &datagram.header;
        let peer = self.peers.wake(at);
        match header.kind {
            PacketKind::Data => debug_assert!(false, "the caller handles DATA"),
            PacketKind::Parity => {
                let mut lent = self.common.lend(now, at, peer.reach, &peer.rtt);
                peer.receiver.handle_parity(header, datagram.ecn, &mut lent);
            }
            PacketKind::Probe => {
                let mut lent = self.common.lend(now, at, peer.reach, &peer.rtt);
                let body = datagram.payload.bytes().unwrap_or_default();
                peer.receiver.handle_probe(header, body, &mut lent);
            }
            PacketKind::Ack | PacketKind::Bitmap | PacketKind::Stop => {
                match datagram.payload.bytes().and_then(SegmentReport::decode) {
                    Some((report, bitmap)) => {
                        let packet = ReportPacket {
                            header,
                            report,
                            bitmap,
                        };
                        let was_known = peer.rtt.is_known();
                        let (rtt, settings) = (&mut peer.rtt, self.common.settings(peer.reach));
                        peer.sender.handle_report(now, &packet, rtt, settings);
                        let first = peer.rtt.is_known() && !was_known;
                        let first = first.then(|| peer.rtt.smoothed());
                        peer.note_round_trip();
                        if self.common.note_report(peer.reach, first, &peer.sender) {
                            self.hasten_first_answers(now);
                        }
                    }
                    None => self.foreign += 1,
                }
            }
            PacketKind::Close => {
                let mut lent = self.common.lend(now, at, peer.reach, &peer.rtt);
                peer.receiver.handle_close(header, &mut lent);
            }
            PacketKind::Reset => {
                let mut lent = self.common.lend(now, at, peer.reach, &peer.rtt);
                peer.receiver.handle_reset(header, &mut lent);
            }
            PacketKind::Refuse => peer.sender.handle_refuse(now, header),
            // An aggregator speaks them, and no rank of the job.
            PacketKind::Sum | PacketKind::Total => self.foreign += 1,
            PacketKind::Trimmed => {
                let settings = self.common.settings(peer.reach);
                (peer.sender).handle_trimmed(now, header, &peer.rtt, settings);
            }
        }
    }

    /// From now on it is known how long a first report may take. Peers that have sent none are
    /// asked after this time at the latest, no longer after a gap or 300 us. Called once.
    #[inline(never)]
    fn hasten_first_answers(&mut self, now: Instant) {
        let sending: Vec<usize> = (0..)
            .zip(self.peers.works())
            .filter_map(|(at, work)| work.sends.then_some(at))
            .collect();
        for at in sending {
            let peer = self.peers.wake(at);
            if peer.reach == Reach::Network && !peer.rtt.is_known() {
                peer.expect_first(&self.common);
                let gap = self.common.network.gap;
                peer.sender.ask_within(peer.rtt.retry_wait(gap, 0));
                self.touch(now, at);
            }
        }
    }

    fn is_ours(&self, header: &Header) -> bool {
        let us = &self.common.network.identity;
        let ours = header.job == us.job
            && header.epoch == us.epoch
            && header.source != us.rank
            && header.source.0 < us.world_size;
        let of_sender = matches!(
            header.kind,
            PacketKind::Data | PacketKind::Parity | PacketKind::Probe | PacketKind::Reset
        );
        let segment_bytes = self.segment_bytes_to(header.source);
        ours && (!of_sender || is_consistent(header, segment_bytes))
    }

    fn collect(&mut self, at: usize) {
        let peer = self.peers.wake(at);
        while let Some(event) = peer.receiver.take_event() {
            self.events.push_back(event);
        }
        while let Some(restoration) = peer.receiver.take_restoration() {
            self.restorations.push_back(restoration);
        }
        if peer.sender.has_news() {
            self.collect_sent(at);
        }
    }

    /// The oldest event that was not taken yet.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.events.pop_front()
    }

    /// The next restoration that the last packet brought. The caller takes them before it gives the
    /// endpoint anything else.
    pub fn poll_restoration(&mut self) -> Option<Restoration> {
        self.restorations.pop_front()
    }

    /// The settings that the job resolved to.
    pub fn settings(&self) -> &EndpointSettings {
        &self.common.network
    }

    /// Payload bytes of a full packet of the network; equal on all ranks of a job.
    pub fn segment_bytes(&self) -> u32 {
        self.common.network.segment_bytes
    }

    /// Payload bytes of a full packet to or from a rank.
    pub fn segment_bytes_to(&self, rank: Rank) -> u32 {
        self.common.settings(self.reach(rank)).segment_bytes
    }

    /// The way to a rank.
    pub fn reach(&self, rank: Rank) -> Reach {
        self.common.reach(rank)
    }

    /// The loss budget.
    pub fn ledger(&self) -> &Ledger {
        &self.common.ledger
    }

    /// Bytes in flight to a peer, and its window.
    pub fn in_flight(&self, to: Rank) -> (ByteCount, ByteCount) {
        match self.peers.find(to) {
            Some(at) => {
                let peer = self.peers.view(at);
                (peer.sender.in_flight(), peer.sender.window())
            }
            None => {
                let settings = self.common.settings(self.reach(to));
                (ByteCount::new(0), settings.initial_window)
            }
        }
    }

    /// The least recent round trip to a peer, if any was measured.
    pub fn round_trip(&self, to: Rank) -> Option<Span> {
        let peer = self.peers.view(self.peers.find(to)?);
        peer.rtt.is_known().then(|| peer.rtt.least())
    }

    /// Whether a message of so many segments to a peer may gain by a tolerance: the paths have lost
    /// or marked one of the last 65,536 packets, or not carried as many yet. Without marks it must
    /// also be likely to pay, if only such messages use theirs.
    pub fn favours_tolerance(&self, to: Rank, segments: u32, uses: ToleranceUse) -> bool {
        self.peers.find(to).is_none_or(|at| {
            let peer = self.peers.view(at);
            (peer.sender).favours_tolerance(segments, uses, &peer.rtt)
        })
    }

    /// Whether any message has not ended.
    pub fn is_busy(&self) -> bool {
        (self.peers.works()).any(|work| work.sends || work.receives)
    }

    /// Whether any message that this rank sends has not ended.
    fn is_sending(&self) -> bool {
        self.peers.works().any(|work| work.sends)
    }

    /// Counts over all peers.
    pub fn counters(&self) -> EndpointCounters {
        let mut sum = EndpointCounters {
            foreign: self.foreign,
            ..EndpointCounters::default()
        };
        for peer in self.peers.views() {
            sum.sender += *peer.sender.counters();
            sum.receiver += *peer.receiver.counters();
        }
        sum
    }
}

impl Machine for Endpoint {
    fn handle_run(&mut self, now: Instant, run: &ArrivedRun<'_>) {
        let mut rest = Some(*run);
        while let Some(run) = rest {
            let taken = self.accept_run(now, &run);
            rest = run.after(taken.packets);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(&Reverse((due, at))) = self.deadlines.peek() {
            let is_live = at == GRANTS || self.peers[at as usize].waits_for(due);
            if due > now && is_live {
                return;
            }
            self.deadlines.pop();
            if !is_live {
                // An earlier deadline has replaced it: it would wake the driver in vain.
                continue;
            }
            if at == GRANTS {
                self.look_at_grants(now);
                continue;
            }
            let at = at as usize;
            self.peers[at].armed = None;
            let peer = self.peers.wake(at);
            let mut lent = self.common.lend(now, at, peer.reach, &peer.rtt);
            peer.receiver.handle_timeout(&mut lent);
            let is_busy = peer.sender.is_busy();
            let entry = &mut self.peers[at];
            let (rank, silent) = (entry.rank, now - entry.heard);
            let waits = entry.standing == PeerStanding::Well && is_busy;
            if waits && silent > self.common.network.peer_timeout {
                entry.standing = PeerStanding::Silent;
                self.events
                    .push_back(EndpointEvent::PeerSilent { rank, silent });
            }
            self.collect(at);
            if !self.restorations.is_empty() {
                // As after a packet that brings segments.
                self.grant(now);
            }
            self.touch(now, at);
        }
    }

    fn handle_trimmed(&mut self, now: Instant, header: &Header) {
        if header.kind != PacketKind::Data || !self.is_ours(header) {
            self.foreign += 1;
            return;
        }
        let at = self.place(header.source);
        let entry = &mut self.peers[at];
        if entry.standing == PeerStanding::Failed {
            self.foreign += 1;
            return;
        }
        (entry.standing, entry.heard) = (PeerStanding::Well, now);
        let peer = self.peers.wake(at);
        let mut lent = self.common.lend(now, at, peer.reach, &peer.rtt);
        peer.receiver.handle_trimmed(header, &mut lent);
        self.common.grants.on_arrival(now, at as u32);
        self.collect(at);
        self.grant(now);
        self.touch(now, at);
    }

    fn handle_host_drops(&mut self, now: Instant) {
        self.common.ledger.on_host_drops(now);
    }

    fn handle_unsent(&mut self, now: Instant, unsent: &UnsentRun) {
        let Some(at) = self.peers.find(unsent.to) else {
            return;
        };
        let peer = self.peers.wake(at);
        match unsent.template.kind {
            PacketKind::Data => peer.sender.take_back(unsent),
            PacketKind::Close => peer.sender.close_again(now, &unsent.template),
            // Another one follows soon: PROBE and RESET are repeated, and REFUSE answers them.
            PacketKind::Probe | PacketKind::Reset | PacketKind::Refuse => {}
            // It is not repaired either when the network loses it.
            PacketKind::Parity | PacketKind::Sum | PacketKind::Total => {}
            // Time shows the loss, too.
            PacketKind::Trimmed => {}
            PacketKind::Ack | PacketKind::Bitmap | PacketKind::Stop => {
                peer.receiver.report_again(&unsent.template);
            }
        }
        self.touch(now, at);
    }

    fn tolerates_loss(&self) -> bool {
        self.common.ledger.is_owed()
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        self.poll_transmit_from(now, |_| None)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.peek().map(|&Reverse((due, _))| due)
    }
}

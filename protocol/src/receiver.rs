//! One rank's messages from one peer: placing segments, accepting holes, reporting.
//!
//! A message is complete when all of it is there. With holes it is complete only when it is posted
//! and tolerates them, its sender has said "all sent", every protected segment is there, the
//! step's budget bears the holes, and nothing of it has arrived for a gap that is longer than
//! packets overtake each other by. Of more holes than that so many are accepted, and BITMAP asks
//! for the others: with the last of those the message is complete. What is accepted is never asked
//! for; where it comes all the same it is taken. So loss is accepted and never created: on a path
//! that loses nothing, nothing is lost. Nor is what this host's own kernel dropped: while it may
//! have made a hole, the hole is repaired.

mod message;

use std::collections::{BTreeSet, VecDeque};

use self::message::{EchoStamp, ReceiveMessage, ReceiveStage, ReportDue};
use crate::bitmap::Bitmap;
use crate::budget::Ledger;
use crate::grants::{GrantNeed, Grants};
use crate::machine::Ecn;
use crate::message::{MessageOutline, ReceiveRequest};
use crate::settings::EndpointSettings;
use crate::units::{Instant, MessageId, MessageKey, Rank, Span};
use crate::wire::{Header, PacketKind, SegmentReport};

/// An acknowledgement waits at most this long for more segments to report.
const ACK_WAIT: Span = Span::from_micros(50);
/// Early messages of one peer; more are refused. A peer can only be ahead by the operations that
/// it has not finished, far fewer than this.
const EARLY_MESSAGES_MAX: usize = 4096;
/// Segments of one peer's early messages, so that invented headers cannot take all memory.
const EARLY_SEGMENTS_MAX: u64 = 1 << 26;
/// How often STOP is said without being asked, until a message is closed without a CLOSE.
const STOPS_MAX: u32 = 12;
/// Complete messages of one peer that are kept until CLOSE comes.
const COMPLETE_KEPT: usize = 1024;

/// Where a new segment's payload belongs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Placement {
    /// Its sender.
    pub from: Rank,
    /// Its message.
    pub key: MessageKey,
    /// Its index in the message.
    pub segment: u32,
    /// Where it starts in the message, in bytes.
    pub offset: u32,
    /// Its length in bytes.
    pub length: u32,
    /// How many ranks' values are summed in it.
    pub contributors: u16,
    /// Whether its message is posted.
    pub posting: Posting,
}

/// Whether a message was posted when a segment of it arrived.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Posting {
    /// It is posted.
    Posted,
    /// Not yet: the caller keeps the bytes until it posts.
    Early,
}

/// What happened at a receiver.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ReceiverEvent {
    /// A message that is not posted has begun to arrive.
    Announced {
        /// Its key.
        key: MessageKey,
        /// What it says of itself.
        outline: MessageOutline,
    },
    /// A posted message is complete, apart from these holes if any.
    Complete {
        /// Its key.
        key: MessageKey,
        /// The missing segments.
        holes: Option<Bitmap>,
    },
    /// A message came that is not the posted one. It is not taken.
    Mismatch {
        /// Its key.
        key: MessageKey,
        /// What was posted.
        ours: MessageOutline,
        /// What came.
        theirs: MessageOutline,
    },
}

/// Counts of what a receiver saw.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReceiverCounters {
    /// Distinct segments that arrived.
    pub received_segments: u64,
    /// Segments that arrived again.
    pub duplicate_segments: u64,
    /// Segments accepted as lost.
    pub lost_segments: u64,
    /// Segments that arrived after their message was completed without them.
    pub late_segments: u64,
    /// DATA packets that arrived with CE.
    pub marks: u64,
    /// Packets that contradict their message or come in excess.
    pub refused: u64,
}

impl ReceiverCounters {
    /// Adds another receiver's counts.
    pub fn add(&mut self, other: &Self) {
        self.received_segments += other.received_segments;
        self.duplicate_segments += other.duplicate_segments;
        self.lost_segments += other.lost_segments;
        self.late_segments += other.late_segments;
        self.marks += other.marks;
        self.refused += other.refused;
    }
}

/// All messages from one peer.
#[derive(Debug)]
pub struct Receiver {
    peer: Rank,
    messages: Vec<ReceiveMessage>,
    /// Posted messages of which nothing has come, by key.
    expected: VecDeque<ReceiveRequest>,
    closed_floor: u32,
    closed: BTreeSet<MessageId>,
    complete: VecDeque<MessageId>,
    early_segments: u64,
    arrived: VecDeque<ReceiverEvent>,
    counters: ReceiverCounters,
    last: usize,
    after: DataEffect,
    /// No later than the next report of any message, and the end of any gap.
    dues: ReceiverDeadlines,
}

/// When something is due, if anything is.
#[derive(Clone, Copy, Debug, Default)]
struct ReceiverDeadlines {
    report: Option<Instant>,
    gap: Option<Instant>,
}

impl ReceiverDeadlines {
    fn with(self, receiving: &ReceiveMessage) -> Self {
        let report = match receiving.due {
            ReportDue::Nothing => None,
            ReportDue::AckBy(by) => Some(by),
            ReportDue::Whole(..) => Some(Instant::START),
        };
        let earlier = |a: Option<Instant>, b: Option<Instant>| a.into_iter().chain(b).min();
        Self {
            report: earlier(self.report, report),
            gap: earlier(self.gap, receiving.gap_ends),
        }
    }
}

/// What is to be done after a DATA packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DataEffect {
    /// Nothing that was not to be done before: no time changed and nothing ended. Most packets are
    /// of this kind or the next.
    None,
    /// Only a report, which was due before already.
    ReportIsDue,
    /// A time changed, or something ended: everything is to be looked at.
    Changed,
}

impl Receiver {
    /// A receiver from `peer` without messages.
    pub fn new(peer: Rank) -> Self {
        Self {
            peer,
            messages: Vec::new(),
            expected: VecDeque::new(),
            closed_floor: 0,
            closed: BTreeSet::new(),
            complete: VecDeque::new(),
            early_segments: 0,
            arrived: VecDeque::new(),
            counters: ReceiverCounters::default(),
            last: 0,
            after: DataEffect::Changed,
            dues: ReceiverDeadlines::default(),
        }
    }

    /// What was counted so far.
    pub fn counters(&self) -> &ReceiverCounters {
        &self.counters
    }

    /// Goes on from counts made before.
    pub(crate) fn add_counters(&mut self, before: &ReceiverCounters) {
        self.counters.add(before);
    }

    /// What happened since the last call, oldest first.
    pub fn take_arrived(&mut self) -> Option<ReceiverEvent> {
        self.arrived.pop_front()
    }

    /// Whether a posted message is not complete yet.
    pub fn is_waiting(&self) -> bool {
        !self.expected.is_empty()
            || self
                .messages
                .iter()
                .any(|receiving| matches!(receiving.state, ReceiveStage::Posted(_)))
    }

    /// Segments that are on their way.
    pub(crate) fn expected(&self) -> u32 {
        self.messages.iter().map(ReceiveMessage::expected).sum()
    }

    /// Posts a message. It may have arrived already, in part or whole.
    pub fn expect(&mut self, incoming: ReceiveRequest, scene: &mut RankResources<'_>) {
        if !incoming.tolerance.is_none() {
            scene
                .ledger
                .owe(incoming.step, incoming.bytes, incoming.tolerance);
        }
        let early = |receiving: &ReceiveMessage| {
            receiving.key == incoming.key && receiving.state == ReceiveStage::Early
        };
        match self.messages.iter().position(early) {
            Some(at) => self.post(at, &incoming, scene),
            None => match self.find_expected(incoming.key) {
                Ok(at) => self.expected[at] = incoming,
                Err(at) => self.expected.insert(at, incoming),
            },
        }
    }

    fn post(&mut self, at: usize, incoming: &ReceiveRequest, scene: &mut RankResources<'_>) {
        let receiving = &mut self.messages[at];
        self.early_segments -= u64::from(receiving.cut.segments());
        let (ours, theirs) = (incoming.outline(), receiving.outline());
        if ours != theirs {
            self.arrived.push_back(ReceiverEvent::Mismatch {
                key: incoming.key,
                ours,
                theirs,
            });
            self.early_segments += u64::from(receiving.cut.segments());
            return;
        }
        receiving.state = ReceiveStage::Posted(incoming.tolerance);
        receiving.step = incoming.step;
        receiving.due = ReportDue::AckBy(scene.now);
        receiving.restart_gap(scene.now, scene.gap);
        if scene.grants.is_unlimited() {
            receiving.grant(scene.now, u32::MAX);
        } else {
            let turn = incoming.turn();
            scene.grants.wait(turn, scene.place, receiving.id);
        }
        self.complete_if_done(at, scene);
        self.note(at);
    }

    /// Something of a message may be due earlier than was known.
    fn note(&mut self, at: usize) {
        if let Some(receiving) = self.messages.get(at) {
            self.dues = self.dues.with(receiving);
        }
    }

    /// Finds out what is due.
    fn look_again(&mut self) {
        self.dues = self
            .messages
            .iter()
            .fold(ReceiverDeadlines::default(), ReceiverDeadlines::with);
    }

    /// Grants a message up to `most` segments more; tells whether it needs still more.
    pub(crate) fn grant(
        &mut self,
        id: MessageId,
        most: u32,
        scene: &mut RankResources<'_>,
    ) -> GrantNeed {
        let Some(at) = self.find(id) else {
            return GrantNeed::Nothing;
        };
        let receiving = &mut self.messages[at];
        if !matches!(receiving.state, ReceiveStage::Posted(_)) {
            return GrantNeed::Nothing;
        }
        let (more, wants) = receiving.grant(scene.now, most);
        scene.grants.expect(scene.now, scene.place, more);
        self.note(at);
        wants
    }

    /// Takes a DATA packet whose header is consistent; for a new segment gives its place.
    pub fn handle_data(
        &mut self,
        header: &Header,
        ecn: Ecn,
        scene: &mut RankResources<'_>,
    ) -> Option<Placement> {
        self.after = DataEffect::Changed;
        let at = self.message_of(header, scene)?;
        let ack_by = self.messages[at].ack_by();
        let placement = self.on_data(at, header, ecn, scene);
        let unchanged = ack_by.is_some()
            && self.arrived.is_empty()
            && self
                .messages
                .get(at)
                .is_some_and(|receiving| receiving.ack_by() == ack_by);
        if !unchanged {
            self.note(at);
        }
        self.after = match ack_by {
            Some(by) if unchanged && by > scene.now => DataEffect::None,
            Some(_) if unchanged => DataEffect::ReportIsDue,
            _ => DataEffect::Changed,
        };
        placement
    }

    /// What is to be done after the last DATA packet.
    pub(crate) fn after(&self) -> DataEffect {
        self.after
    }

    /// Takes a PROBE packet whose header is consistent, and what it says is lost.
    pub fn handle_probe(&mut self, header: &Header, body: &[u8], scene: &mut RankResources<'_>) {
        let Some(at) = self.message_of(header, scene) else {
            return;
        };
        let less = self.messages[at].on_lost(SegmentReport::decode(body));
        scene.grants.settle(scene.place, less);
        self.on_probe(at, header, scene);
        self.end_gap_if_settled(at, scene.now);
        self.note(at);
    }

    fn message_of(&mut self, header: &Header, scene: &mut RankResources<'_>) -> Option<usize> {
        let at = match self.find(header.message) {
            Some(at) => at,
            None if self.is_closed(header.message) => return None,
            None => self.open(header, scene)?,
        };
        self.last = at;
        if !self.messages[at].fits(header) {
            self.counters.refused += 1;
            return None;
        }
        Some(at)
    }

    fn find(&self, id: MessageId) -> Option<usize> {
        if self
            .messages
            .get(self.last)
            .is_some_and(|receiving| receiving.id == id)
        {
            return Some(self.last);
        }
        self.messages
            .iter()
            .position(|receiving| receiving.id == id)
    }

    fn find_expected(&self, key: MessageKey) -> Result<usize, usize> {
        self.expected
            .binary_search_by_key(&key, |incoming| incoming.key)
    }

    fn is_closed(&self, id: MessageId) -> bool {
        id.0 <= self.closed_floor || self.closed.contains(&id)
    }

    fn open(&mut self, header: &Header, scene: &mut RankResources<'_>) -> Option<usize> {
        let segments = u64::from(header.segments);
        let mut receiving = ReceiveMessage::new(scene.now, header, scene.settings);
        let consistent = receiving.fits(header) && header.message.0 != 0;
        let posted = self.find_expected(header.key).ok();
        let early = posted.is_none();
        let excess = self.messages.len() >= EARLY_MESSAGES_MAX
            || self.early_segments + segments > EARLY_SEGMENTS_MAX;
        if !consistent || (early && excess) {
            self.counters.refused += 1;
            return None;
        }
        receiving.due = ReportDue::AckBy(scene.now + ACK_WAIT);
        self.early_segments += segments;
        if header.kind == PacketKind::Probe {
            // Its sender would not probe if what it sent before were on its way.
            receiving.announce(header.segment);
        }
        scene
            .grants
            .expect(scene.now, scene.place, receiving.expected());
        self.messages.push(receiving);
        let at = self.messages.len() - 1;
        if let Some(posted) = posted {
            let incoming = self.expected.remove(posted).expect("just found");
            self.post(at, &incoming, scene);
        } else {
            let (key, outline) = (header.key, self.messages[at].outline());
            self.arrived
                .push_back(ReceiverEvent::Announced { key, outline });
        }
        self.note(at);
        Some(at)
    }

    fn on_data(
        &mut self,
        at: usize,
        header: &Header,
        ecn: Ecn,
        scene: &mut RankResources<'_>,
    ) -> Option<Placement> {
        let receiving = &mut self.messages[at];
        if ecn == Ecn::Ce {
            self.counters.marks += 1;
            receiving.on_mark(header);
        }
        if receiving.state == ReceiveStage::Complete {
            let late = !receiving.received.has(header.segment);
            self.counters.late_segments += u64::from(late);
            self.counters.duplicate_segments += u64::from(!late);
            receiving.due = ReportDue::Whole(PacketKind::Stop, 0);
            return None;
        }
        let new = receiving.on_data(scene.now, header, scene.ledger);
        let ready = scene.settings.is_worth_an_ack(receiving.unreported());
        receiving.due = match receiving.due {
            ReportDue::Whole(kind, first) => ReportDue::Whole(kind, first),
            ReportDue::AckBy(by) if ready => ReportDue::AckBy(by.min(scene.now)),
            ReportDue::AckBy(by) => ReportDue::AckBy(by),
            ReportDue::Nothing if ready => ReportDue::AckBy(scene.now),
            ReportDue::Nothing => ReportDue::AckBy(scene.now + ACK_WAIT),
        };
        if !new {
            self.counters.duplicate_segments += 1;
            return None;
        }
        self.counters.received_segments += 1;
        scene.grants.settle(scene.place, receiving.settle_one());
        receiving.restart_gap(scene.now, scene.gap);
        let posting = if receiving.state == ReceiveStage::Early {
            Posting::Early
        } else {
            Posting::Posted
        };
        let placement = Placement {
            from: self.peer,
            key: receiving.key,
            segment: header.segment,
            offset: header.offset,
            length: u32::from(header.length),
            contributors: header.contributors,
            posting,
        };
        self.end_gap_if_settled(at, scene.now);
        self.complete_if_done(at, scene);
        Some(placement)
    }

    /// Where waiting brings nothing the gap is over, and the next timeout decides about the holes:
    /// by then it is known whether this host has dropped packets.
    fn end_gap_if_settled(&mut self, at: usize, now: Instant) {
        if self.messages[at].is_settled() {
            self.messages[at].end_gap(now);
        }
    }

    fn on_probe(&mut self, at: usize, header: &Header, scene: &RankResources<'_>) {
        let receiving = &mut self.messages[at];
        let knew_all_sent = receiving.gap_ends.is_some();
        receiving.on_probe(scene.now, header);
        if receiving.state == ReceiveStage::Complete {
            receiving.complete(scene.now, scene.gap);
            return;
        }
        if !matches!(receiving.due, ReportDue::Whole(PacketKind::Bitmap, _)) {
            receiving.due = ReportDue::Whole(PacketKind::Ack, 0);
        }
        if !knew_all_sent {
            receiving.restart_gap(scene.now, scene.gap);
        }
    }

    /// Ends a posted message that needs nothing more.
    fn complete_if_done(&mut self, at: usize, scene: &mut RankResources<'_>) {
        let receiving = &mut self.messages[at];
        if !receiving.needs_nothing() || !matches!(receiving.state, ReceiveStage::Posted(_)) {
            return;
        }
        receiving.complete(scene.now, scene.gap);
        scene.grants.settle(scene.place, receiving.settle());
        let holes = receiving.take_holes(scene.ledger);
        let (key, id) = (receiving.key, receiving.id);
        self.counters.lost_segments += u64::from(holes.as_ref().map_or(0, Bitmap::ones));
        self.arrived
            .push_back(ReceiverEvent::Complete { key, holes });
        self.remember_complete(id);
    }

    fn remember_complete(&mut self, id: MessageId) {
        self.complete.push_back(id);
        if self.complete.len() > COMPLETE_KEPT {
            let oldest = self.complete.pop_front().expect("longer than a constant");
            self.close(oldest);
            self.look_again();
        }
    }

    /// Lets gaps end: accepts the holes of messages that can do without, asks for the others'.
    pub fn handle_timeout(&mut self, scene: &mut RankResources<'_>) {
        let over =
            |receiving: &ReceiveMessage| receiving.gap_ends.is_some_and(|at| at <= scene.now);
        let due: Vec<MessageId> = (self.messages.iter())
            .filter(|receiving| over(receiving))
            .map(|receiving| receiving.id)
            .collect();
        for id in due {
            // An earlier one's end may have closed it.
            if let Some(at) = self.find(id) {
                self.on_gap_over(at, scene);
            }
        }
        self.look_again();
    }

    fn on_gap_over(&mut self, at: usize, scene: &mut RankResources<'_>) {
        let receiving = &mut self.messages[at];
        if receiving.state == ReceiveStage::Complete {
            if receiving.stops_said() < STOPS_MAX {
                receiving.say_stop(scene.now, scene.gap);
            } else {
                let id = receiving.id;
                self.close(id);
            }
            return;
        }
        if !scene.ledger.blames_host(receiving.begun) {
            receiving.accept_holes(scene.ledger);
        }
        if receiving.needs_nothing() {
            self.complete_if_done(at, scene);
        } else {
            receiving.ask_repair(scene.now, scene.gap);
        }
    }

    /// Whether a report may be to be sent now, and the earliest that the next report or the end of
    /// a gap can be due.
    pub fn outlook(&self, now: Instant) -> (bool, Option<Instant>) {
        let ReceiverDeadlines { report, gap } = self.dues;
        let later = report.filter(|&at| at > now);
        let talks = report.is_some() && later.is_none();
        (talks, later.into_iter().chain(gap).min())
    }

    /// Writes the next report that is due into `body` and gives its header.
    ///
    /// When one message has something to say, all do, and none echoes a packet that was sent after
    /// one of which another one has yet to tell: a sender takes a segment for lost when later ones
    /// are known to have arrived, and those may be another message's.
    pub fn poll_report(
        &mut self,
        now: Instant,
        settings: &EndpointSettings,
        body: &mut Vec<u8>,
    ) -> Option<Header> {
        if self.dues.report.is_none_or(|due| due > now) {
            return None;
        }
        if !self.messages.iter().any(|receiving| receiving.is_due(now)) {
            self.look_again();
            return None;
        }
        let room = settings.segment_bytes as usize;
        let says = |receiving: &ReceiveMessage| receiving.due != ReportDue::Nothing;
        let at = self.messages.iter().position(says)?;
        let others = self.messages[at + 1..].iter();
        let untold = others.filter_map(ReceiveMessage::first_unreported);
        let untold = untold.reduce(EchoStamp::older);
        self.messages[at].poll_report(now, untold, room, body)
    }

    /// Takes CLOSE: the sender heard STOP.
    pub fn close(&mut self, id: MessageId) {
        let Some(at) = self
            .messages
            .iter()
            .position(|receiving| receiving.id == id)
        else {
            return;
        };
        if self.messages[at].state != ReceiveStage::Complete {
            self.counters.refused += 1;
            return;
        }
        self.messages.remove(at);
        self.complete.retain(|&kept| kept != id);
        if id.0 != self.closed_floor + 1 {
            self.closed.insert(id);
            return;
        }
        self.closed_floor = id.0;
        while self.closed.remove(&MessageId(self.closed_floor + 1)) {
            self.closed_floor += 1;
        }
    }

    /// The answer to a PROBE for a message that is closed: its STOP must have been forgotten.
    pub fn forgotten(&self, header: &Header) -> bool {
        header.kind == PacketKind::Probe && self.is_closed(header.message)
    }
}

/// What a receiver works with and does not own.
#[derive(Debug)]
pub struct RankResources<'a> {
    /// The time.
    pub now: Instant,
    /// The rank's settings.
    pub settings: &'a EndpointSettings,
    /// The rank's loss budget.
    pub ledger: &'a mut Ledger,
    /// The rank's grants.
    pub grants: &'a mut Grants,
    /// The peer's place, by which grants know it.
    pub place: u32,
    /// How long nothing must have arrived before holes are accepted.
    pub gap: Span,
}

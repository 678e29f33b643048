//! Messages from one peer: where segments belong, which holes are accepted, and when to report.
//!
//! A message is *early* (its segments arrive, and it is not posted), *posted*, or *complete* (it
//! waits until the sender has heard so).
//!
//! 1. The first packet of a message opens it: posted if [`Receiver::expect`] has posted it before,
//!    and otherwise early. It matches a post of its own length, or a post of that length or more
//!    with [`LengthRule::AtMost`]. The unscheduled start of an early message is taken; when the
//!    message is posted, the rest is granted in turn ([`crate::grants`]).
//! 2. A new segment is placed exactly once (`Receiver::handle_data`), in any order: no segment
//!    waits for another one.
//! 3. A posted message is complete as soon as every segment has arrived or is accepted as a hole.
//! 4. Holes are accepted when a *gap* ends: no segment of the message has arrived for longer than
//!    the time by which packets overtake each other. There is a gap only if the message is posted,
//!    its sender has said ALL_SENT, and the message tolerates loss or its sender leaves holes.
//!    Where paths keep order (`order.rs`), the gap ends as soon as they have passed the end of the
//!    message, and it restarts, a few times, as long as they have not. Elsewhere it also ends at
//!    once when the sender has named every missing segment as lost. Where paths are trusted, that
//!    they have passed these segments is enough.
//! 5. At the end of a gap the receiver accepts as many holes as the message tolerates and the
//!    step's ledger allows, protected segments not counted (`receiver/holes.rs`). If more is
//!    missing, it requests the rest with BITMAP, whose repairs no queue drops early. With the last
//!    of them the message is complete (rule 3). The ends may tolerate different losses, and the
//!    receiver decides: it requests the segments that its sender leaves and it does not tolerate.
//! 6. A segment that arrives after it was accepted as a hole is taken, as long as the message is
//!    not complete.
//! 7. No hole is accepted while this host's own kernel may have dropped the packets
//!    ([`Ledger::blames_host`]): everything is requested. A gap that ended more than a gap ago
//!    restarts, once: this host stood still, and packets may wait below its sockets.
//! 8. A complete message says STOP, which names its holes, until its sender has heard it. So both
//!    ends name the same holes, however long the path is cut. RESET forgets a message, and REFUSE
//!    says that it is forgotten (`receiver/ending.rs`).
//! 9. DATA is acknowledged by ACK: at once when the segments fill a part of the window, and
//!    otherwise a little later. A PROBE is answered with a report of the whole message. A grant
//!    whose segments do not come is reported again (`receiver/repeat.rs`).
//! 10. A posted message may have limited patience ([`ReceiveRequest::patience_ends`]). When that
//!     has ended, all missing segments become holes as soon as the sum that the message belongs to
//!     can do without them ([`crate::budget`]), although they may be on their way: protected ones
//!     too, and also all of a message that has not begun to arrive (`receiver/absent.rs`). Its STOP
//!     says so ([`crate::wire::Flags::LATE`]), before any other report tells of later packets.
//!
//! 11. The header of a DATA packet that a switch has cut is answered by TRIMMED
//!     (`receiver/trimmed.rs`).
//!
//! So a segment that is lost within the tolerance stays missing, and the collectives fill the hole
//! as the job's `holes` says. One that is lost beyond the tolerance is repaired: its sender finds
//! that it has more holes than tolerated (rule 6 of [`crate::sender`]), or BITMAP asks for it (rule
//! 5). Loss is accepted and never created, except by rule 10, which a job has to ask for: on a path
//! that loses no packet, no segment is missing.
//! `gradwire perf all-reduce --drop 20% --tolerance 10%` shows both: the column `lost` counts the
//! segments that stayed missing, `repaired` those that were sent again.

mod absent;
mod asked;
mod closed;
mod counters;
mod ending;
mod holes;
mod message;
mod parity;
mod passing;
mod patience;
mod posted;
mod repeat;
mod report;
mod restoring;
mod runs;
mod trimmed;
mod unsent;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use self::closed::ClosedMessages;
pub use self::counters::ReceiverCounters;
use self::message::{ReceiveMessage, ReceiveStage};
use self::patience::AbsentMessages;
use self::posted::PostedMessages;
use self::repeat::GrantWatch;
use self::report::{EchoStamp, ReportDue};
use crate::budget::Ledger;
use crate::event::EndpointEvent;
use crate::footprint::EndpointFootprint;
use crate::grants::{GrantNeed, Grants};
use crate::job::PacketOrder;
use crate::machine::Ecn;
use crate::message::{LengthRule, ReceiveRequest, find_open};
use crate::order::{ArrivalOrder, OrderTrust};
use crate::outlook::{ControlOutlook, earlier};
use crate::parity::{CoveredRun, ParityGroup};
use crate::path::{EcnWatch, PathFault};
use crate::rtt::Rtt;
use crate::settings::{EndpointLimits, EndpointSettings};
use crate::units::{Instant, MessageId, MessageKey, MessageSerial, Rank, Span};
use crate::wire::{Flags, Header, PacketKind, PathMark, REPORT_BYTES, paths_named};

/// Where the payload of a new segment belongs, or of several that follow each other.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Placement {
    /// Its sender.
    pub from: Rank,
    /// Its message.
    pub key: MessageKey,
    /// Its index in the message, or the first one's of a run of segments.
    pub segment: u32,
    /// Where it starts in the message, in bytes.
    pub offset: u32,
    /// Its length in bytes, of a run of all segments together.
    pub length: u32,
    /// How many ranks' values are summed in it.
    pub contributors: u16,
    /// Whether its message is posted.
    pub posting: Posting,
    /// The groups whose sums its bytes go into, if parity covers it.
    pub parity: Option<CoveredRun>,
}

/// A task for the owner of the payload after a packet, apart from placing its segment.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Restoration {
    /// The packet is parity: its payload goes into the sum of a group.
    Parity {
        /// Its sender.
        from: Rank,
        /// Its message.
        key: MessageKey,
        /// The group.
        group: ParityGroup,
    },
    /// A segment is restored: its bytes are the sum of a group so far, up to its length. They are
    /// placed like any others, and go into the sums of its groups.
    Segment {
        /// Where it belongs.
        placement: Placement,
        /// The group.
        group: ParityGroup,
    },
}

/// Whether a message was posted when a segment of it arrived.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Posting {
    /// It is posted.
    Posted,
    /// Not yet: the caller keeps the bytes until it posts.
    Early,
}

/// All messages from one peer.
#[derive(Debug, Deserialize, Serialize)]
pub struct Receiver {
    peer: Rank,
    /// By number.
    messages: Vec<ReceiveMessage>,
    /// Posted messages of which no packet has arrived.
    posted: PostedMessages,
    absent: AbsentMessages,
    closed: ClosedMessages,
    /// The REFUSE and TRIMMED that are due.
    answers: VecDeque<Header>,
    early_segments: u64,
    /// When the sender was last told that this rank lives, but takes no more messages.
    turned_away: Option<Instant>,
    events: VecDeque<EndpointEvent>,
    /// In the order in which the caller has to take them.
    restorations: VecDeque<Restoration>,
    counters: ReceiverCounters,
    ecn: EcnWatch,
    order: ArrivalOrder,
    granted: GrantWatch,
    /// Reports so far, and the message of the last one.
    reports: (u32, Option<MessageSerial>),
    /// Paths that have skipped numbers that no report has named yet.
    skipped: SmallVec<[PathMark; 2]>,
    /// Those that the last report has named.
    named: SmallVec<[PathMark; 2]>,
    /// Whether a message may end its gap when a path passes its end.
    watches_paths: bool,
    last: usize,
    effect: DataEffect,
    /// No later than the next report of any message, and the end of any gap.
    deadlines: ReceiverDeadlines,
}

/// When something is due, if anything is.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct ReceiverDeadlines {
    report: Option<Instant>,
    /// The end of a gap, of patience, or of the wait for a late segment.
    gap: Option<Instant>,
}

impl ReceiverDeadlines {
    fn with(self, receiving: &ReceiveMessage) -> Self {
        Self {
            report: earlier(self.report, receiving.report.due.time()),
            gap: [
                receiving.gap_ends(),
                receiving.patience_ends(),
                receiving.restores_at(),
            ]
            .into_iter()
            .fold(self.gap, earlier),
        }
    }
}

/// How much a DATA packet has changed for its endpoint.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum DataEffect {
    /// No time changed, and no message ended. Most packets have this effect or the next.
    None,
    /// The same, but a report is due, and was due before.
    ReportIsDue,
    /// A time changed, or a message ended: the endpoint looks at everything.
    Changed,
}

impl Receiver {
    /// A receiver from `peer` without messages.
    pub fn new(peer: Rank, limits: &EndpointLimits) -> Self {
        Self {
            peer,
            messages: Vec::new(),
            posted: PostedMessages::default(),
            absent: AbsentMessages::default(),
            closed: ClosedMessages::default(),
            answers: VecDeque::new(),
            early_segments: 0,
            turned_away: None,
            events: VecDeque::new(),
            restorations: VecDeque::new(),
            counters: ReceiverCounters::default(),
            ecn: EcnWatch::default(),
            order: ArrivalOrder::new(limits.order_proof),
            granted: GrantWatch::new(),
            reports: (0, None),
            skipped: SmallVec::new(),
            named: SmallVec::new(),
            watches_paths: false,
            last: 0,
            effect: DataEffect::Changed,
            deadlines: ReceiverDeadlines::default(),
        }
    }

    /// Whether the peer's packets keep their order.
    pub(crate) fn order_trust(&self, order: PacketOrder) -> OrderTrust {
        self.order.trust(order)
    }

    /// Its counts so far.
    pub fn counters(&self) -> &ReceiverCounters {
        &self.counters
    }

    /// Adds what it keeps.
    pub(crate) fn add_footprint(&self, sum: &mut EndpointFootprint) {
        sum.incoming += self.messages.len();
        sum.posted += self.posted.len() + self.absent.len();
        sum.closed_ranges += self.closed.ranges();
    }

    /// A control packet has arrived with these ECN bits; returns a fault of the path that they
    /// show.
    pub(crate) fn note_ecn(&mut self, ecn: Ecn) -> Option<PathFault> {
        self.counters.cleared_ecn += u64::from(ecn == Ecn::NotEct);
        self.ecn.on_control(ecn)
    }

    /// Adds the counts of the receiver that it replaces.
    pub(crate) fn add_counters(&mut self, before: &ReceiverCounters) {
        self.counters += *before;
    }

    /// The oldest event that was not taken yet.
    pub fn take_event(&mut self) -> Option<EndpointEvent> {
        self.events.pop_front()
    }

    /// The next restoration that the last packet brought.
    pub fn take_restoration(&mut self) -> Option<Restoration> {
        self.restorations.pop_front()
    }

    /// Whether a posted message is not complete yet.
    pub fn is_waiting(&self) -> bool {
        !self.posted.is_empty() || self.messages.iter().any(ReceiveMessage::is_posted)
    }

    /// Messages that have begun to arrive and are not posted.
    pub(crate) fn unposted(&self) -> impl Iterator<Item = MessageKey> {
        let is_early = |message: &&ReceiveMessage| message.stage == ReceiveStage::Early;
        let early = self.messages.iter().filter(is_early);
        early.map(ReceiveMessage::key)
    }

    /// Posts a message. It may have arrived already, in part or whole.
    pub fn expect(&mut self, request: ReceiveRequest, lent: &mut RankResources<'_>) {
        if request.length == LengthRule::Exact {
            lent.ledger
                .owe(request.step, request.bytes, request.tolerance);
        }
        if request.patience_ends.is_some() {
            lent.ledger.share_patience(&request);
        }
        let early = |receiving: &ReceiveMessage| {
            receiving.key() == request.key && receiving.stage == ReceiveStage::Early
        };
        match self.messages.iter().position(early) {
            Some(at) => self.post(at, &request, lent),
            None => {
                self.absent.await_patience(request.patience_ends);
                self.deadlines.gap = earlier(self.deadlines.gap, request.patience_ends);
                self.posted.post(request);
            }
        }
    }

    fn post(&mut self, at: usize, request: &ReceiveRequest, lent: &mut RankResources<'_>) {
        let receiving = &mut self.messages[at];
        let (ours, theirs) = (request.outline(), receiving.outline());
        if !request.takes(theirs) {
            // The ranks disagree, which ends the job: the message stays early until then.
            self.events.push_back(EndpointEvent::Mismatch {
                from: self.peer,
                key: request.key,
                ours,
                theirs,
            });
            return;
        }
        if request.length == LengthRule::AtMost {
            lent.ledger
                .owe(request.step, theirs.bytes, request.tolerance);
        }
        self.early_segments -= u64::from(receiving.cut.segments());
        receiving.on_posted(request);
        receiving.report.due = ReportDue::AckBy(lent.now);
        receiving.restart_gap(lent);
        if lent.grants.is_unlimited() {
            receiving.grant(lent.now, u32::MAX);
            if receiving.has_unheard_grant() {
                self.granted.on_grant(lent);
            }
        } else {
            let turn = lent.grants.turn(request.step, request.urgency);
            receiving.wait_in(turn, lent);
        }
        self.complete_if_done(at, lent);
        self.note(at);
    }

    /// A message may have something due earlier than was known.
    fn note(&mut self, at: usize) {
        if let Some(receiving) = self.messages.get(at) {
            self.deadlines = self.deadlines.with(receiving);
        }
    }

    /// Finds the deadlines of all messages again.
    fn look_again(&mut self) {
        let of_absent = ReceiverDeadlines {
            gap: self.absent.patience_ends(),
            ..ReceiverDeadlines::default()
        };
        let messages = self.messages.iter();
        self.deadlines = messages.fold(of_absent, ReceiverDeadlines::with);
    }

    /// Grants a message up to `most` segments more; returns whether it needs still more.
    pub(crate) fn grant(
        &mut self,
        serial: MessageSerial,
        most: u32,
        lent: &mut RankResources<'_>,
    ) -> GrantNeed {
        let of_message = |receiving: &ReceiveMessage| receiving.serial;
        let Ok(at) = self.messages.binary_search_by_key(&serial, of_message) else {
            return GrantNeed::Nothing;
        };
        let receiving = &mut self.messages[at];
        if !receiving.is_posted() {
            return GrantNeed::Nothing;
        }
        let (more, need) = receiving.grant(lent.now, most);
        let more = receiving.of_turn(more);
        lent.grants.expect(lent.now, lent.place, more);
        self.granted.on_grant(lent);
        self.note(at);
        need
    }

    /// Processes DATA packets whose headers are consistent: one, or the first of a run with this
    /// header and the others that are [`alike`](Self::alike). If their segments are new, returns
    /// their place.
    pub(crate) fn handle_data(
        &mut self,
        header: &Header,
        packets: u32,
        ecn: Ecn,
        lent: &mut RankResources<'_>,
    ) -> Option<Placement> {
        self.effect = DataEffect::Changed;
        let passage = self.note_order(header, lent);
        if packets > 1 {
            (self.order).on_followers(PathMark::of(header), packets - 1, lent.settings);
        }
        let Some(at) = self.message_of(header, lent) else {
            self.tell_skips(header, passage, lent);
            return None;
        };
        let before = self.messages[at].times();
        let (ack_by, _) = before;
        self.note_mark(at, header, packets, ecn);
        let placement = self.on_data(at, header, packets, lent);
        self.tell_skips(header, passage, lent);
        // Most packets change no time and end no message; then nothing has to be looked at again.
        let unchanged = ack_by.is_some()
            && self.events.is_empty()
            && self.restorations.is_empty()
            && self
                .messages
                .get(at)
                .is_some_and(|receiving| receiving.times() == before);
        if !unchanged {
            self.note(at);
        }
        self.effect = match ack_by {
            Some(by) if unchanged && by > lent.now => DataEffect::None,
            Some(_) if unchanged => DataEffect::ReportIsDue,
            _ => DataEffect::Changed,
        };
        if self.watches_paths {
            self.look_at_paths(lent);
        }
        placement
    }

    /// The effect of the last DATA packet.
    pub(crate) fn effect(&self) -> DataEffect {
        self.effect
    }

    fn message_of(&mut self, header: &Header, lent: &mut RankResources<'_>) -> Option<usize> {
        let at = match self.find(header.message) {
            Some(at) => at,
            None => self.open(header, lent)?,
        };
        self.last = at;
        if !self.messages[at].fits(header) {
            self.counters.refused += 1;
            return None;
        }
        Some(at)
    }

    fn find(&self, id: MessageId) -> Option<usize> {
        // Packets of one message come in runs.
        let last = self.messages.get(self.last);
        if last.is_some_and(|receiving| receiving.id() == id) {
            return Some(self.last);
        }
        let newest = self.closed.newest(id);
        let number = |receiving: &ReceiveMessage| receiving.serial;
        let search = |serial| self.messages.binary_search_by_key(&serial, number).ok();
        find_open(newest, id, search, self.messages.iter().map(number))
    }

    fn open(&mut self, header: &Header, lent: &mut RankResources<'_>) -> Option<usize> {
        let serial = self.closed.serial(header.message);
        if self.closed.is_closed(serial) {
            return None;
        }
        self.hear_ended(header, lent);
        let segments = u64::from(header.segments);
        let mut receiving = ReceiveMessage::new(lent.now, serial, header, lent.settings);
        let consistent = receiving.fits(header);
        let limits = &lent.settings.limits;
        let excess = self.messages.len() >= limits.early_messages
            || self.early_segments + segments > limits.early_segments;
        let is_known = self.posted.has(header.key) || self.absent.has(header.key);
        if !consistent || (!is_known && excess) {
            self.counters.refused += 1;
            return None;
        }
        self.early_segments += segments;
        if header.kind == PacketKind::Probe {
            // Its sender would not probe if the segments that it sent before were on their way.
            receiving.announce(header.segment);
        }
        let start = receiving.of_turn(receiving.expected());
        lent.grants.expect(lent.now, lent.place, start);
        self.closed.on_open(serial);
        let at = (self.messages).partition_point(|before| before.serial < serial);
        if self.messages.capacity() == 0 {
            // Most pairs of a large group have one message at a time, and messages are large.
            self.messages.reserve_exact(1);
        }
        if at == self.messages.len() {
            self.messages.push(receiving);
        } else {
            self.messages.insert(at, receiving);
        }
        if let Some(request) = self.posted.take(header.key) {
            self.post(at, &request, lent);
        } else if self.absent.take(header.key) {
            self.end_given_up(at, lent);
        } else {
            let (from, key) = (self.peer, header.key);
            let outline = self.messages[at].outline();
            self.events
                .push_back(EndpointEvent::Announced { from, key, outline });
        }
        self.note(at);
        Some(at)
    }

    fn on_data(
        &mut self,
        at: usize,
        header: &Header,
        packets: u32,
        lent: &mut RankResources<'_>,
    ) -> Option<Placement> {
        let receiving = &mut self.messages[at];
        let is_new = !receiving.received.has(header.segment);
        if receiving.stage == ReceiveStage::Complete {
            let count = match is_new {
                true => &mut self.counters.late_segments,
                false => &mut self.counters.duplicate_segments,
            };
            *count += u64::from(packets);
            receiving.report.due = ReportDue::Whole(PacketKind::Stop, 0);
            return None;
        }
        (receiving.report).on_data(lent.now, header, packets, lent.settings);
        if !is_new {
            self.counters.duplicate_segments += u64::from(packets);
            return None;
        }
        let placement = self.take_segments(at, header, packets, lent);
        if placement.parity.is_some() {
            self.restore(at, header, lent);
        }
        self.complete_if_done(at, lent);
        Some(placement)
    }

    /// This many new segments are there; returns their place.
    fn take_segments(
        &mut self,
        at: usize,
        header: &Header,
        segments: u32,
        lent: &mut RankResources<'_>,
    ) -> Placement {
        let opens_parity = header.parity.is_some() && !self.messages[at].has_parity();
        let takes_parity = !opens_parity || self.takes_parity();
        let receiving = &mut self.messages[at];
        receiving.on_data(header, segments, lent.ledger);
        receiving.last_data = lent.now;
        self.counters.received_segments += u64::from(segments);
        self.granted.on_segment(lent.now);
        if header.flags.has(Flags::REPAIR) {
            self.granted.on_loss();
        }
        if let Some(took) = receiving.hear_grant(lent.now, receiving.received.ones()) {
            self.granted.on_answer(took, lent);
        }
        let landed = receiving.settle_some(segments);
        lent.grants.settle(lent.place, landed);
        receiving.restart_gap(lent);
        let placement = Placement {
            from: self.peer,
            key: receiving.key(),
            segment: header.segment,
            offset: receiving.cut.offset(header.segment),
            length: receiving.cut.length_of(header.segment, segments),
            contributors: header.contributors,
            posting: match receiving.stage {
                ReceiveStage::Early => Posting::Early,
                _ => Posting::Posted,
            },
            parity: match takes_parity {
                true => receiving.cover(header, segments, lent.late()),
                false => None,
            },
        };
        receiving.end_gap_if_settled(lent, &self.order);
        placement
    }

    /// Ends a posted message that needs no segment any more.
    fn complete_if_done(&mut self, at: usize, lent: &mut RankResources<'_>) {
        let receiving = &mut self.messages[at];
        receiving.give_up(lent.now, lent.ledger);
        if !receiving.needs_nothing() || !receiving.is_posted() {
            return;
        }
        receiving.complete(lent.now, lent.gap);
        lent.grants.settle(lent.place, receiving.settle());
        let holes = receiving.take_holes(lent.ledger);
        let (from, key, bytes) = (self.peer, receiving.key(), receiving.cut.bytes());
        let arrived = Some((receiving.begun, receiving.last_data));
        if let Some(holes) = &holes {
            self.counters.lost_segments += u64::from(holes.ones());
            self.counters.given_up_segments += u64::from(receiving.given_up(holes));
        }
        self.events.push_back(EndpointEvent::Received {
            from,
            key,
            bytes,
            holes,
            arrived,
        });
    }

    /// Ends the gaps that are over: accepts holes, and requests the other missing segments. Ends
    /// patience.
    pub fn handle_timeout(&mut self, lent: &mut RankResources<'_>) {
        for at in 0..self.messages.len() {
            self.restore_late(at, lent);
            let ends = self.messages[at].patience_ends();
            if ends.is_some_and(|ends| ends <= lent.now) {
                self.complete_if_done(at, lent);
            }
            let ends = self.messages[at].gap_ends();
            if ends.is_some_and(|ends| ends <= lent.now) {
                self.on_gap_over(at, lent);
            }
        }
        self.give_up_absent(lent);
        self.repeat_grants(lent);
        self.look_again();
    }

    fn on_gap_over(&mut self, at: usize, lent: &mut RankResources<'_>) {
        let receiving = &mut self.messages[at];
        if receiving.stage == ReceiveStage::Complete {
            self.on_stop_unheard(at, lent);
            return;
        }
        if receiving.renew_gap(lent) || receiving.waits_for_late() {
            return;
        }
        if receiving.waits_for_ends(lent, &self.order) {
            return;
        }
        // The network did not lose the packets that this host's own kernel may have dropped.
        if !lent.ledger.blames_host(receiving.begun) {
            receiving.accept_holes(lent.ledger);
        }
        if receiving.needs_nothing() {
            self.complete_if_done(at, lent);
        } else {
            receiving.ask_repair(lent.now, lent.gap);
        }
    }

    /// When the receiver has a report to send or a gap to end, as far as that is known.
    pub fn outlook(&self, now: Instant) -> ControlOutlook {
        let ReceiverDeadlines { report, gap } = self.deadlines;
        let later = report.filter(|&at| at > now);
        ControlOutlook {
            talks: !self.answers.is_empty() || (report.is_some() && later.is_none()),
            due: earlier(earlier(later, gap), self.granted.due()),
        }
    }

    /// Writes the next REFUSE, TRIMMED or report that is due into `body` and gives its header.
    ///
    /// When the report of one message is due, those of all messages are sent that have any. No
    /// report echoes a packet that was sent after one that another message has yet to report: a
    /// sender takes a segment for lost when it knows that a later one has arrived, of whatever
    /// message.
    pub fn poll_report(
        &mut self,
        now: Instant,
        settings: &EndpointSettings,
        body: &mut Vec<u8>,
    ) -> Option<Header> {
        let answer = self.poll_answer(now, body);
        if answer.is_some() || self.deadlines.report.is_none_or(|due| due > now) {
            return answer;
        }
        let mut reports = self.messages.iter().map(|receiving| &receiving.report);
        if !reports.any(|report| report.is_due(now)) {
            self.look_again();
            return None;
        }
        let late = self.messages.iter().position(ReceiveMessage::says_late);
        let mut reports = self.messages.iter().map(|receiving| &receiving.report);
        let at = late.or_else(|| reports.position(|report| report.due != ReportDue::None))?;
        let others = self.messages.iter().enumerate();
        let others = others.filter(|&(other, _)| other != at);
        let untold = others.filter_map(|(_, receiving)| receiving.report.first_unreported());
        let untold = untold.reduce(EchoStamp::older);
        let room = settings.segment_bytes as usize;
        let polled = self.messages[at].poll_report(now, untold, room, body)?;
        let mut report = polled.report;
        report.keeps_order = self.order.may_be_kept();
        if polled.answers {
            report.awaited = self.messages[at].awaited(&self.order, settings);
        }
        // Only when all arrived packets are reported do the packets before a number count as lost,
        // and only when all that was given up is said, too.
        let is_said = !self.messages.iter().any(ReceiveMessage::says_late);
        if untold.is_none() && is_said && polled.is_whole {
            for path in self.paths_to_name(paths_named(room)) {
                body.extend(self.order.passed(path, settings.entropies).encoded());
                report.passed += 1;
            }
            // Where no other report is about to leave, the losses of several paths are told twice.
            let is_once = self.skipped.is_empty() && self.named.len() < 2;
            let receiving = &mut self.messages[at];
            if !is_once && !receiving.is_in_midstream(settings) {
                receiving.report.ack_now(now);
            }
        }
        let (number, last) = self.reports;
        let serial = Some(self.messages[at].serial);
        report.repeats = last == serial && !polled.continues;
        self.reports = (number.wrapping_add(1), serial);
        body[..REPORT_BYTES].copy_from_slice(&report.encoded());
        Some(Header {
            number: settings.first_number.plus(number),
            length: body.len() as u16,
            ..polled.header
        })
    }
}

/// The parts of a rank that its receivers work with, lent for one call.
#[derive(Debug)]
pub struct RankResources<'a> {
    /// The time.
    pub now: Instant,
    /// The settings towards the peer.
    pub settings: &'a EndpointSettings,
    /// The rank's loss budget.
    pub ledger: &'a mut Ledger,
    /// The rank's grants.
    pub grants: &'a mut Grants,
    /// The peer's place, by which grants know it.
    pub place: u32,
    /// How long an answer of the peer may take.
    pub gap: Span,
    /// How long no segment may arrive before holes are accepted.
    pub overtaking: Span,
    /// How long parity waits for a late segment.
    pub hold: Span,
    /// Where packets are lost: how long peers have taken to answer their first grants.
    pub first_answers: Option<&'a mut Rtt>,
}

impl RankResources<'_> {
    /// Whether the network has lost a packet of this rank.
    fn has_lost(&self) -> bool {
        self.first_answers.is_some()
    }

    /// The end of the wait for a late segment that others overtake now; `None` without a wait.
    fn late(&self) -> Option<Instant> {
        (self.hold > Span::ZERO).then(|| self.now + self.hold)
    }
}

//! One incoming message: its stage, its grants, and how its holes and reports follow.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::RankResources;
use super::holes::{HoleLimits, HoleState};
use super::parity::ParityState;
use super::patience::MessagePatience;
use super::repeat::UnheardGrant;
use super::report::{EchoStamp, ReportDue, ReportState};
use crate::bitmap::Bitmap;
use crate::budget::{BudgetVerdict, Ledger};
use crate::grants::{GrantNeed, GrantTurn, TurnSegments};
use crate::message::{MessageOutline, ReceiveRequest, SumName};
use crate::order::ArrivalOrder;
use crate::priority::{CONTROL, TieBreaker};
use crate::segment::Segmentation;
use crate::settings::EndpointSettings;
use crate::units::{Instant, MessageId, MessageKey, MessageSerial, Share, Span, Step};
use crate::wire::{
    Flags, Header, HoleProof, PacketKind, PathMark, ProbeBody, REPORT_BYTES, SegmentReport,
    bitmap_room,
};

/// How often a gap restarts because a path has not passed the end of the message.
const ENDS_AWAITED: u32 = 2;
/// A gap is at most 2 to this power times as long as the first one of its message.
const GAP_DOUBLINGS: u32 = 4;
/// BITMAPs that follow each other at that pace while no packet of the message arrives. After them
/// each wait is twice as long: the sender is cut off, and will ask when it is back.
const UNHEARD_FREE: u32 = 8;
/// The same holds for the wait after STOP.
const STOP_DOUBLINGS: u32 = 20;
/// The longest wait for stragglers, or between two STOPs, unless a gap is longer.
const WAIT_MAX: Span = Span::from_millis(1_000);

/// Where a message stands.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) enum ReceiveStage {
    /// Not posted: segments are accepted up to the grant, and the message cannot end.
    Early,
    /// Posted, with the share that may be missing.
    Posted(Share),
    /// Complete: it waits until the sender has heard STOP.
    Complete,
}

/// The segments that the sender may send.
#[derive(Debug, Deserialize, Serialize)]
struct GrantState {
    /// How many, in sending order.
    granted: u32,
    /// How many its sender may have begun with, whether or not they have been sent.
    start: u32,
    /// How many more it has sent in place of holes.
    freed: u32,
    /// Holes that it has named so far.
    named: u32,
    /// How many were used up by packets that were trimmed.
    trimmed: u32,
    /// Its turn, once it is posted.
    turn: GrantTurn,
    /// Whether it waits for its turn.
    waits: bool,
    /// How many of all these are still in flight, as far as is known.
    expected: u32,
    /// The last grant, until it is heard.
    unheard: Option<UnheardGrant>,
    /// A grant whose answer is timed.
    timed: Option<UnheardGrant>,
}

/// Waits for stragglers of a posted message, and, once it is complete, until STOP is heard.
#[derive(Debug, Default, Deserialize, Serialize)]
struct GapTimer {
    ends: Option<Instant>,
    /// How many waits have ended in this stage; each one is longer than the one before.
    rounds: u32,
    /// BITMAPs since a packet of the message arrived.
    unheard: u32,
    /// Whether this wait restarted because its host had slept through the end of the first.
    is_second: bool,
}

impl GapTimer {
    /// Waits for stragglers.
    fn restart(&mut self, now: Instant, gap: Span) {
        let unheard = self
            .unheard
            .saturating_sub(UNHEARD_FREE)
            .min(STOP_DOUBLINGS);
        let doubled = gap * (1 << self.rounds.min(GAP_DOUBLINGS)) * (1 << unheard);
        self.ends = Some(now + doubled.min(WAIT_MAX.max(gap)));
        self.is_second = false;
    }

    /// Waits until the sender has heard STOP.
    fn await_heard(&mut self, now: Instant, gap: Span) {
        let doubled = gap * (1 << self.rounds.min(STOP_DOUBLINGS));
        self.ends = Some(now + doubled.min(WAIT_MAX.max(gap)));
    }
}

/// A message that has not been closed.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct ReceiveMessage {
    pub(super) serial: MessageSerial,
    /// Header of its first packet. Reports answer with its fields.
    header: Header,
    /// The step whose budget its holes count against: the sender's, until the message is posted.
    pub(super) step: Step,
    pub(super) cut: Segmentation,
    pub(super) stage: ReceiveStage,
    pub(super) received: Bitmap,
    /// When its first packet arrived.
    pub(super) begun: Instant,
    /// When a segment arrived last.
    pub(super) last_data: Instant,
    grants: GrantState,
    pub(super) report: ReportState,
    gap: GapTimer,
    patience: MessagePatience,
    holes: HoleState,
    pub(super) parity: Option<Box<ParityState>>,
    /// Segments that parity has restored.
    pub(super) restored: u32,
    /// Its last packet on each path, once its sender has said that all was sent.
    ends: SmallVec<[PathMark; 2]>,
}

impl ReceiveMessage {
    /// The message that a packet belongs to, not posted. It may send its unscheduled start.
    pub(super) fn new(
        now: Instant,
        serial: MessageSerial,
        header: &Header,
        settings: &EndpointSettings,
    ) -> Self {
        let cut = Segmentation::new(header.message_bytes, settings.segment_bytes);
        let start = settings.unscheduled_segments().min(cut.segments());
        Self {
            serial,
            header: *header,
            step: header.step,
            cut,
            stage: ReceiveStage::Early,
            received: Bitmap::new(cut.segments()),
            begun: now,
            last_data: now,
            grants: GrantState {
                granted: start,
                start,
                freed: 0,
                named: 0,
                trimmed: 0,
                turn: None,
                waits: false,
                expected: start,
                unheard: None,
                timed: None,
            },
            report: ReportState::new(header, now),
            gap: GapTimer::default(),
            patience: MessagePatience::default(),
            holes: HoleState::new(header.protected.min(cut.segments())),
            parity: None,
            restored: 0,
            ends: SmallVec::new(),
        }
    }

    pub(super) fn id(&self) -> MessageId {
        self.header.message
    }

    /// Header of its first packet.
    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    pub(super) fn key(&self) -> MessageKey {
        self.header.key
    }

    /// The sum that it is a contribution to.
    fn sum(&self) -> SumName {
        SumName {
            step: self.step,
            key: self.key(),
        }
    }

    /// Whether it is posted and not complete.
    pub(super) fn is_posted(&self) -> bool {
        matches!(self.stage, ReceiveStage::Posted(_))
    }

    /// The share that may be missing; none unless the message is posted.
    fn tolerance(&self) -> Share {
        match self.stage {
            ReceiveStage::Posted(tolerance) => tolerance,
            ReceiveStage::Early | ReceiveStage::Complete => Share::NONE,
        }
    }

    /// A number of its segments, with its turn.
    pub(super) fn of_turn(&self, segments: u32) -> TurnSegments {
        let turn = self.grants.turn;
        TurnSegments { turn, segments }
    }

    /// Segments in flight.
    pub(super) fn expected(&self) -> u32 {
        self.grants.expected
    }

    /// Whether enough segments are in flight for the next report.
    pub(super) fn is_in_midstream(&self, settings: &EndpointSettings) -> bool {
        settings.is_worth_an_ack(self.grants.expected)
    }

    /// Lets the sender send up to `most` segments more; returns how many more are in flight, and
    /// whether the message needs still more.
    pub(super) fn grant(&mut self, now: Instant, most: u32) -> (u32, GrantNeed) {
        let grants = &mut self.grants;
        let landed = self.received.ones() + grants.trimmed;
        // A sender that announced itself by PROBE in the middle of its unscheduled start has sent
        // the rest of it, too: segments that have arrived need no grant and are not in flight.
        grants.granted = grants.granted.max(landed.saturating_sub(grants.freed));
        // A trimmed packet has used up a grant, and its segment needs another one.
        let segments = self.cut.segments() + grants.trimmed;
        let more = most.min(segments.saturating_sub(grants.granted + grants.freed));
        grants.granted += more;
        let before = grants.expected;
        let sendable = grants.granted + grants.freed;
        grants.expected = before.max((before + more).min(sendable.saturating_sub(landed)));
        if more > 0 {
            let grant = UnheardGrant {
                before: (grants.granted - more).saturating_sub(grants.trimmed),
                told: now,
                repeats: 0,
            };
            grants.unheard = Some(grant);
            grants.timed.get_or_insert(grant);
            self.report.ack_now(now);
        }
        let need = match sendable < segments {
            true => GrantNeed::More,
            false => GrantNeed::Nothing,
        };
        grants.waits = need == GrantNeed::More;
        (grants.expected - before, need)
    }

    /// It waits for grants of its turn from now on.
    pub(super) fn wait_in(&mut self, turn: GrantTurn, lent: &mut RankResources<'_>) {
        if turn != self.grants.turn {
            let segments = self.grants.expected;
            let start = TurnSegments { turn, segments };
            lent.grants.turn_is_known(lent.place, start);
        }
        (self.grants.turn, self.grants.waits) = (turn, true);
        lent.grants.wait(turn, lent.place, self.serial);
    }

    /// A switch has trimmed a packet whose segment it needs, which has used up a grant. Returns how
    /// many segments that were counted as in flight are so no longer.
    pub(super) fn on_trimmed(&mut self) -> TurnSegments {
        self.grants.trimmed += 1;
        self.settle_some(1)
    }

    /// A trimmed packet has used up a grant: waits for another one, unless it waits already or is
    /// not posted.
    pub(super) fn wait_again(&mut self, lent: &mut RankResources<'_>) {
        if self.is_posted() && !self.grants.waits {
            self.wait_in(self.grants.turn, lent);
        }
    }

    /// Whether its sender may not have heard of a grant.
    pub(super) fn has_unheard_grant(&self) -> bool {
        self.is_posted() && self.grants.unheard.is_some()
    }

    /// Notes that `segments` segments have arrived, or were sent as PROBE says. If that answers a
    /// grant that is timed, returns how long the answer took.
    #[inline]
    pub(super) fn hear_grant(&mut self, now: Instant, segments: u32) -> Option<Span> {
        self.grants.unheard?;
        let is_heard = |grant: &mut UnheardGrant| grant.before < segments;
        self.grants.unheard.take_if(is_heard);
        let timed = self.grants.timed.take_if(is_heard);
        timed.map(|timed| now - timed.told)
    }

    /// Stops timing the answer to its last grant.
    pub(super) fn time_no_answer(&mut self) {
        self.grants.timed = None;
    }

    /// Repeats a grant that is not heard, if it was last told at least `age` ago and was repeated
    /// less than `most` times; returns whether it does.
    pub(super) fn tell_grant_again(&mut self, now: Instant, age: Span, most: u32) -> bool {
        let is_posted = self.is_posted();
        let is_due = |grant: &&mut UnheardGrant| {
            is_posted && grant.told + age <= now && grant.repeats < most
        };
        let Some(grant) = self.grants.unheard.as_mut().filter(is_due) else {
            return false;
        };
        grant.told = now;
        grant.repeats += 1;
        self.report.ack_now(now);
        true
    }

    /// Its first packet is a PROBE, so the segments that were sent, if any, are lost, and the
    /// others wait for a grant.
    pub(super) fn announce(&mut self, sent: u32) {
        if sent == 0 {
            self.grants.start = 0;
        }
        self.grants.granted = self.grants.granted.min(sent);
        self.grants.expected = 0;
    }

    /// No segment is in flight any more; returns how many were thought to be.
    pub(super) fn settle(&mut self) -> TurnSegments {
        self.settle_some(u32::MAX)
    }

    /// `segments` segments have arrived or are lost; returns how many of them were in flight.
    pub(super) fn settle_some(&mut self, segments: u32) -> TurnSegments {
        let less = segments.min(self.grants.expected);
        self.grants.expected -= less;
        self.of_turn(less)
    }

    /// Processes the holes that a PROBE names, and that its sender has sent `sent` segments, some
    /// perhaps in place of holes; returns how many were in flight before, and how many are.
    pub(super) fn on_lost(
        &mut self,
        told: Option<(SegmentReport, &[u8])>,
        sent: u32,
    ) -> (u32, u32) {
        let news = self.holes.on_lost(told, &self.received);
        let grants = &mut self.grants;
        grants.named = grants.named.saturating_add(news);
        // The rest of the start takes no hole's place. Too small a guess grants more than needed;
        // one that is too large would leave the sender without a grant for its last segments.
        let granted = grants.granted.max(grants.start);
        let beyond = sent.saturating_sub(granted).min(grants.named);
        let more = beyond.saturating_sub(grants.freed);
        grants.freed += more;
        let before = grants.expected;
        let landed = self.received.ones() + self.holes.named() + grants.trimmed;
        let most = (grants.granted + grants.freed).saturating_sub(landed);
        grants.expected = (before + more).saturating_sub(news).min(most);
        (before, grants.expected)
    }

    /// Its length and signature, as its sender says.
    pub(super) fn outline(&self) -> MessageOutline {
        MessageOutline {
            bytes: self.cut.bytes(),
            signature: self.header.signature,
        }
    }

    /// Whether a packet can belong to this message.
    pub(super) fn fits(&self, header: &Header) -> bool {
        header.message_bytes == self.cut.bytes()
            && header.segments == self.cut.segments()
            && header.key == self.header.key
    }

    /// How many of these packets do the same as the first, which has this header.
    pub(super) fn alike(&self, header: &Header, packets: u32) -> u32 {
        let end = self.received.len().min(header.segment + packets);
        if header.segment >= end || self.holes.are_accepted() {
            return 1;
        }
        self.received.alike(header.segment..end)
    }

    /// Stores this many new segments, from the one with this header on.
    pub(super) fn on_data(&mut self, header: &Header, segments: u32, ledger: &mut Ledger) {
        let segment = header.segment;
        self.received.insert_range(segment..segment + segments);
        // Where holes are accepted, segments come one by one.
        if self.holes.fill(segment) {
            ledger.release(self.sum(), u64::from(self.cut.length(segment)));
        }
        self.holes.on_segments(header, segments);
    }

    /// Takes a PROBE.
    pub(super) fn on_probe(&mut self, now: Instant, header: &Header, body: &ProbeBody<'_>) {
        self.gap.unheard = 0;
        self.report.on_probe(now, header);
        self.holes.on_probe(header);
        // Others came late, or were short.
        if header.flags.has(Flags::ALL_SENT) {
            self.ends.clear();
            self.ends.extend(body.ends());
        }
    }

    /// Whether its last packets on a path may still arrive: the paths keep order, and not all have
    /// passed the end of the message.
    pub(super) fn awaits_ends(&self, order: &ArrivalOrder, settings: &EndpointSettings) -> bool {
        order.is_trusted(settings.order)
            && !self
                .ends
                .iter()
                .all(|&end| order.has_passed(end, settings.entropies))
    }

    /// The ends that paths have yet to pass before its holes are accepted, as a report names them.
    pub(super) fn awaited(&self, order: &ArrivalOrder, settings: &EndpointSettings) -> u64 {
        if !self.has_gaps() || !order.is_trusted(settings.order) {
            return 0;
        }
        let ends = (0..64).zip(&self.ends);
        let awaited = ends.filter(|&(_, &end)| !order.has_passed(end, settings.entropies));
        awaited.fold(0, |bits, (bit, _)| bits | 1 << bit)
    }

    /// Whether all paths have passed the end of the message, so that no packet of it is in flight.
    fn is_passed(&self, order: &ArrivalOrder, settings: &EndpointSettings) -> bool {
        order.is_trusted(settings.order)
            && !self.ends.is_empty()
            && !self.awaits_ends(order, settings)
    }

    /// Whether the passing of a path may end its gap.
    pub(super) fn watches_paths(&self) -> bool {
        !self.ends.is_empty() && self.gap.ends.is_some() && self.is_posted()
    }

    /// A PROBE asks for a report of the whole message. A BITMAP is one already.
    pub(super) fn answer_probe(&mut self) {
        if !matches!(self.report.due, ReportDue::Whole(PacketKind::Bitmap, _)) {
            self.report.due = ReportDue::Whole(PacketKind::Ack, 0);
        }
    }

    /// When it stops waiting for stragglers, or says STOP again; `None`: it does not wait.
    pub(super) fn gap_ends(&self) -> Option<Instant> {
        self.gap.ends
    }

    /// When its patience ends, unless it has ended; `None` also if it is endless.
    pub(super) fn patience_ends(&self) -> Option<Instant> {
        self.patience.ends().filter(|_| self.is_posted())
    }

    /// Whether gaps end for it: it may end with holes, or its sender would let it, and must be
    /// asked for the segments that it leaves.
    fn has_gaps(&self) -> bool {
        self.is_posted() && (!self.tolerance().is_none() || self.holes.are_left())
    }

    /// Restarts the wait for stragglers, if gaps end for the message. Repairs that were asked for
    /// take a round trip.
    pub(super) fn restart_gap(&mut self, lent: &RankResources<'_>) {
        self.gap.unheard = 0;
        self.wait_for_stragglers(lent.now, self.straggler_wait(lent));
    }

    fn straggler_wait(&self, lent: &RankResources<'_>) -> Span {
        match self.gap.rounds {
            0 => lent.overtaking,
            _ => lent.gap,
        }
    }

    fn wait_for_stragglers(&mut self, now: Instant, gap: Span) {
        if self.has_gaps() && self.holes.all_sent() && self.received.zeros() > 0 {
            self.gap.restart(now, gap);
        } else {
            self.gap.ends = None;
        }
    }

    /// Moves the end of the gap to the end of the wait for a late segment. Returns false if parity
    /// waits for none.
    pub(super) fn waits_for_late(&mut self) -> bool {
        let until = self.restores_at();
        self.gap.ends = until.or(self.gap.ends);
        until.is_some()
    }

    /// Restarts the gap, once, if it ended more than a gap ago; returns whether it did. The host
    /// has stood still since, perhaps below its sockets as well: packets that reached it in time
    /// may be delivered only now.
    pub(super) fn renew_gap(&mut self, lent: &RankResources<'_>) -> bool {
        let (now, gap) = (lent.now, self.straggler_wait(lent));
        let overslept = self.gap.ends.is_some_and(|end| end + gap < now);
        let renewed = overslept && self.is_posted() && !self.gap.is_second;
        if renewed {
            self.gap.restart(now, gap);
            self.gap.is_second = true;
        }
        renewed
    }

    /// Ends the gap now if all missing segments are known to be lost: none would come. The next
    /// timeout decides about the holes: by then it is known whether this host has dropped packets.
    #[inline]
    pub(super) fn end_gap_if_settled(&mut self, lent: &RankResources<'_>, order: &ArrivalOrder) {
        if self.has_gaps() && self.received.zeros() > 0 {
            self.end_settled_gap(lent, order);
        }
    }

    /// Not inlined, so that the many packets of messages without gaps stay fast.
    #[inline(never)]
    fn end_settled_gap(&mut self, lent: &RankResources<'_>, order: &ArrivalOrder) {
        // A sender that has answered no BITMAP is asked again only when a gap is over.
        if self.gap.unheard == 0 && self.is_settled(order, lent.settings) {
            self.gap.ends = Some(lent.now);
        }
    }

    /// Whether all missing segments are lost: all paths have passed the end of the message, or the
    /// sender names each of them, and their paths have passed them or are not trusted to tell.
    fn is_settled(&self, order: &ArrivalOrder, settings: &EndpointSettings) -> bool {
        self.is_passed(order, settings)
            || match self.holes.proof_of_all(&self.received) {
                Some(HoleProof::Sure) => !self.awaits_ends(order, settings),
                Some(HoleProof::Passed) => order.is_trusted(settings.order),
                None => false,
            }
    }

    /// The gap is over. If a path has yet to pass the end of the message, and that matters, it
    /// waits on, but not forever, and has the sender mark the ends again; returns whether it does.
    pub(super) fn waits_for_ends(
        &mut self,
        lent: &RankResources<'_>,
        order: &ArrivalOrder,
    ) -> bool {
        let waits = self.gap.rounds < ENDS_AWAITED
            && self.awaits_ends(order, lent.settings)
            && !self.is_settled(order, lent.settings);
        if waits {
            self.gap.rounds += 1;
            self.gap.restart(lent.now, lent.gap);
            self.answer_probe();
        }
        waits
    }

    /// The gap is over and not all holes are accepted: asks the sender to repair the others.
    pub(super) fn ask_repair(&mut self, now: Instant, gap: Span) {
        self.gap.rounds += 1;
        self.holes.forget_lost();
        self.report.due = ReportDue::Whole(PacketKind::Bitmap, 0);
        self.gap.unheard += 1;
        self.wait_for_stragglers(now, gap);
    }

    /// It is posted with this request.
    pub(super) fn on_posted(&mut self, request: &ReceiveRequest) {
        self.stage = ReceiveStage::Posted(request.tolerance);
        self.step = request.step;
        self.patience = MessagePatience::new(request.patience_ends);
    }

    /// Gives up all missing segments, if its patience has ended and its sum can do without them.
    pub(super) fn give_up(&mut self, now: Instant, ledger: &mut Ledger) {
        self.patience.look(now);
        let is_over = self.patience == MessagePatience::Over && self.is_posted();
        // The network is not late with packets that this host's own kernel may have dropped.
        if !is_over || self.received.zeros() == 0 || ledger.blames_host(self.begun) {
            return;
        }
        let bytes = self.holes.open_bytes(&self.received, self.cut);
        if ledger.give_up(self.sum(), bytes) == BudgetVerdict::Accepted {
            self.holes.give_up(&self.received);
            self.patience = MessagePatience::Used;
        }
    }

    /// Its first packet has come after all of it was given up.
    pub(super) fn on_given_up(&mut self) {
        self.patience = MessagePatience::Used;
    }

    /// Whether a STOP is due after which segments may still come.
    pub(super) fn says_late(&self) -> bool {
        self.patience == MessagePatience::Used
            && matches!(self.report.due, ReportDue::Whole(PacketKind::Stop, _))
    }

    /// Segments of these holes that it has given up although their sender has not found them lost.
    pub(super) fn given_up(&self, holes: &Bitmap) -> u32 {
        match self.patience {
            MessagePatience::Used => self.holes.not_lost(holes),
            _ => 0,
        }
    }

    fn hole_limits(&self) -> HoleLimits {
        HoleLimits {
            cut: self.cut,
            tolerance: self.tolerance(),
            sum: self.sum(),
        }
    }

    /// Accepts as many holes as the message may end with.
    pub(super) fn accept_holes(&mut self, ledger: &mut Ledger) {
        if !self.is_posted() {
            return;
        }
        let limits = self.hole_limits();
        // The sender draws the same numbers, so both prefer the same segments.
        let tie_breaker = TieBreaker::of(self.header.source, self.id());
        self.holes
            .accept(&self.received, &limits, tie_breaker, ledger);
    }

    /// Whether every segment has arrived or is accepted as a hole.
    pub(super) fn needs_nothing(&self) -> bool {
        self.holes.are_all_accepted(&self.received)
    }

    /// Takes the accepted holes, and books them as lost.
    pub(super) fn take_holes(&mut self, ledger: &mut Ledger) -> Option<Bitmap> {
        self.holes.take(self.sum(), self.cut, ledger)
    }

    /// The message needs no more segments, or the sender asks again because it has not heard STOP.
    pub(super) fn complete(&mut self, now: Instant, gap: Span) {
        self.stage = ReceiveStage::Complete;
        self.parity = None;
        self.gap.rounds = 0;
        self.say_stop(now, gap);
    }

    /// Says STOP, and waits before it says so again.
    pub(super) fn say_stop(&mut self, now: Instant, gap: Span) {
        self.report.due = ReportDue::Whole(PacketKind::Stop, 0);
        self.gap.rounds += 1;
        self.wait_until_heard(now, gap);
    }

    /// Waits until STOP is said again.
    pub(super) fn wait_until_heard(&mut self, now: Instant, gap: Span) {
        self.gap.await_heard(now, gap);
    }

    /// Releases its accepted holes in the ledger.
    pub(super) fn release(&mut self, ledger: &mut Ledger) {
        self.holes.release(self.sum(), self.cut, ledger);
    }

    /// How often STOP was said since the sender last asked.
    pub(super) fn stops_said(&self) -> u32 {
        self.gap.rounds
    }

    /// When an ACK is due, unless the message waits for anything else, too.
    fn ack_by(&self) -> Option<Instant> {
        match (self.report.due, self.gap.ends) {
            (ReportDue::AckBy(by), None) => Some(by),
            _ => None,
        }
    }

    /// The deadlines that DATA may change.
    pub(super) fn times(&self) -> (Option<Instant>, Option<Instant>) {
        (self.ack_by(), self.restores_at())
    }

    /// Writes the bitmap of the next report into `body`, after room for the report; the total has
    /// at most `room` bytes. `None` when none is due. It echoes no packet sent after `untold`.
    pub(super) fn poll_report(
        &mut self,
        now: Instant,
        untold: Option<EchoStamp>,
        room: usize,
        body: &mut Vec<u8>,
    ) -> Option<PolledReport> {
        if self.stage == ReceiveStage::Complete {
            self.report.stop_in_place_of_ack();
        }
        let (kind, first) = self.report.next()?;
        let flags = match self.says_late() {
            true => Flags::LATE,
            false => Flags::NONE,
        };
        let answers = self.report.due == ReportDue::Whole(PacketKind::Ack, 0);
        let continues = matches!(self.report.due, ReportDue::Whole(_, 1..));
        let shown = match kind {
            PacketKind::Bitmap => self.holes.shown(&self.received),
            _ => Cow::Borrowed(&self.received),
        };
        let cumulative = shown.first_zero(0);
        let segments = self.cut.segments();
        let first = first.min(segments).max(cumulative);
        body.clear();
        body.resize(REPORT_BYTES, 0);
        let bits = shown.encode(first, bitmap_room(room), body);
        let report = SegmentReport {
            received: self.received.ones(),
            granted: self.grants.granted,
            restored: self.restored as u8,
            cumulative,
            first,
            bits,
            ..self.report.draft(now, untold)
        };
        self.report.on_reported(first + bits, segments);
        let header = Header {
            kind,
            flags,
            class: CONTROL,
            sent_at: now.wire_micros().max(1),
            ..self.header
        };
        let is_whole = first + bits == segments;
        Some(PolledReport {
            header,
            report,
            answers,
            continues,
            is_whole,
        })
    }
}

/// A report that leaves now.
#[derive(Debug)]
pub(super) struct PolledReport {
    pub(super) header: Header,
    pub(super) report: SegmentReport,
    /// Whether it answers a PROBE.
    pub(super) answers: bool,
    /// Whether it continues the window of the report before, and repeats no news of that.
    pub(super) continues: bool,
    /// Whether its bitmap reaches to the end of the message.
    pub(super) is_whole: bool,
}

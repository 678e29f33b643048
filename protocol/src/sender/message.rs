//! One outgoing message: its header, its progress, its lost segments, and its probes.

use std::collections::VecDeque;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use super::acked::NewlyAcked;
use super::flight::{FlightRun, RunDeparture, SegmentFlight, count_alike};
use super::history::PathRecord;
use super::parity::MessageParity;
use super::probe::{PROBE_WAIT_MAX, ProbeState, ReportWait, SendStage};
use super::repair::{self, RepairState};
use super::speculation::Speculation;
use super::stop::StopHeard;
use super::tail::PathEnds;
use crate::bitmap::Bitmap;
use crate::entropy::LandedRun;
use crate::machine::{Ecn, SegmentRun};
use crate::message::SendRequest;
use crate::priority::{CONTROL, Policy, SegmentTags, SendAttempt, SendTurn, TieBreaker};
use crate::segment::Segmentation;
use crate::settings::EndpointSettings;
use crate::units::{
    Class, Entropy, Instant, Layer, Magnitude, MessageId, MessageKey, MessageSerial, PathNumber,
    Share, Span, Stamp,
};
use crate::wire::{
    EndedEarlier, Flags, HEADER_BYTES, Header, HoleProof, PacketKind, ProbeBody, SEGMENTS_MAX,
};

/// A message that only waits for a grant is probed after this many waits: the grant may be lost.
const GRANT_WAITS: u64 = 16;
/// But no later than this, unless one wait is longer: a host that stood still, or a clock that
/// jumped, can make the first round trip one of seconds.
const GRANT_WAIT_MAX: Span = Span::from_millis(1_000);

/// When a message that only waits for a grant is probed, of a peer that is probed after `wait`.
pub(super) fn grant_wait(wait: Span) -> Span {
    (wait * GRANT_WAITS).min(GRANT_WAIT_MAX.max(wait))
}

/// How the segments of a run are sent.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct TakenRun {
    pub(super) class: Class,
    pub(super) ecn: Ecn,
}

/// How much of a message may be sent before its receiver grants any; by default no segment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnscheduledStart {
    pub(super) segments: u32,
    /// Segments that may be sent as packets which long queues drop.
    pub(super) speculative: u32,
    /// Bytes that the message takes from its receiver's unscheduled start.
    pub(super) bytes: u64,
}

/// Repairs that have just left and leave once more (`sender/copies.rs`).
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct RepairCopy {
    pub(super) message: MessageId,
    pub(super) segments: Vec<u32>,
    pub(super) sent_as: TakenRun,
}

/// The progress of a message.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SendProgress {
    /// Bytes taken from the unscheduled start that are not given back.
    unscheduled: u64,
    /// Segments, in sending order, that the receiver is ready to take.
    pub(super) granted: u32,
    /// Segments that became holes, each of which leaves its place in the grant to another one.
    freed: u32,
    pub(super) speculation: Speculation,
    /// Segments that are lost and wait for a grant: their packets were trimmed, or sent without
    /// one.
    ungranted: VecDeque<u32>,
    /// Grants that such segments have used.
    regranted: u32,
    /// Position in the sending order of the first segment never sent.
    next: u32,
    /// Index of the lane that `next` lies in.
    lane: usize,
    in_flight: Bitmap,
    pub(super) acked: Bitmap,
    /// Time stamp of each segment's last packet.
    sent_at: SmallVec<[Stamp; 4]>,
    /// Path of each segment's last packet.
    paths: SmallVec<[Entropy; 8]>,
    /// Packets that have arrived since the sender last asked.
    landed: SmallVec<[LandedRun; 4]>,
    /// CE marks that the receiver has reported.
    pub(super) marks: u32,
    /// The number of the newest report of the message. Before the first one it is that of the
    /// peer's next report.
    pub(super) reported: PathNumber,
}

impl SendProgress {
    /// Segments that may be sent by now, those included that are granted again.
    fn credit(&self) -> u32 {
        let freed = self.freed.saturating_add(self.speculation.lost);
        self.granted.saturating_add(freed)
    }

    /// Segments, in sending order, for which there are grants, if those in doubt have used up none:
    /// where many were dropped, others fill the receiver's link meanwhile.
    fn sendable(&self) -> u32 {
        let credit = self.credit().saturating_add(self.speculation.in_doubt());
        credit.saturating_sub(self.regranted)
    }
}

/// A message that has not ended.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SendMessage {
    pub(super) serial: MessageSerial,
    /// The header fields that its packets have in common, apart from the time stamp.
    header: Header,
    pub(super) tags: SegmentTags,
    pub(super) cut: Segmentation,
    pub(super) tolerance: Share,
    /// When it was given to the sender.
    pub(super) begun: Instant,
    /// When its first packet left, of its data or a PROBE.
    pub(super) first_sent: Option<Instant>,
    pub(super) progress: SendProgress,
    repair: RepairState,
    pub(super) probe: ProbeState,
    pub(super) parity: MessageParity,
    pub(super) stop: StopHeard,
    /// The last of its packets in flight on each path when it last asked.
    pub(super) ends: PathEnds,
    /// How sure it is that its holes are lost.
    pub(super) proof: HoleProof,
    /// Whether some of its repairs have left twice.
    pub(super) is_copied: bool,
}

impl SendMessage {
    /// A message before its first packet. If it has no unscheduled start, a PROBE announces it now.
    pub(super) fn new(
        serial: MessageSerial,
        request: SendRequest,
        settings: &EndpointSettings,
        start: UnscheduledStart,
        now: Instant,
    ) -> Self {
        let cut = Segmentation::new(request.bytes, settings.segment_bytes);
        assert!(
            cut.is_countable(),
            "{} bytes in segments of {} bytes: a message has at most {SEGMENTS_MAX}",
            cut.bytes(),
            cut.segment_bytes()
        );
        let segments = cut.segments();
        let (stage, probe_at) = match start.segments {
            0 => (SendStage::Unannounced, now),
            _ => (SendStage::Unsent, now + PROBE_WAIT_MAX),
        };
        Self {
            serial,
            header: header_of(serial.id(), &request, settings, cut),
            tags: request.tags,
            cut,
            tolerance: request.tolerance,
            begun: now,
            first_sent: None,
            progress: SendProgress {
                unscheduled: start.bytes,
                granted: start.segments.min(segments),
                freed: 0,
                speculation: Speculation::new(start.speculative, segments),
                ungranted: VecDeque::new(),
                regranted: 0,
                next: 0,
                lane: 0,
                in_flight: Bitmap::new(segments),
                acked: Bitmap::new(segments),
                sent_at: smallvec![Stamp::default(); segments as usize],
                paths: smallvec![Entropy::default(); segments as usize],
                landed: SmallVec::new(),
                marks: 0,
                reported: PathNumber::default(),
            },
            repair: RepairState::new(segments),
            probe: ProbeState::new(stage, now, probe_at),
            parity: MessageParity::default(),
            stop: StopHeard::default(),
            ends: PathEnds::new(),
            proof: HoleProof::default(),
            is_copied: false,
        }
    }

    pub(super) fn id(&self) -> MessageId {
        self.header.message
    }

    pub(super) fn key(&self) -> MessageKey {
        self.header.key
    }

    pub(super) fn segments(&self) -> u32 {
        self.header.segments
    }

    /// Time stamp of a segment's last packet.
    #[inline]
    pub(super) fn sent_at(&self, segment: u32) -> Stamp {
        self.progress.sent_at[segment as usize]
    }

    /// Whether every segment was sent at least once, all with a grant, and none waits to be
    /// repaired.
    pub(super) fn all_sent(&self) -> bool {
        let is_sent = self.sent() == self.segments() && self.repair.is_idle();
        is_sent && !self.has_ungranted_repairs() && self.granted() == self.segments()
    }

    /// Whether the receiver must hear of the message. A message that only waits for the window
    /// needs no probe; one that waits for grants does.
    pub(super) fn is_told(&self) -> bool {
        self.probe.stage != SendStage::Unsent
    }

    /// Whether a report that echoes a packet of this stamp answers its last PROBE.
    pub(super) fn is_answered(&self, echo: Stamp) -> bool {
        self.probe.unanswered > 0 && echo >= self.probe.asked.stamp()
    }

    /// Whether its next PROBE is the first packet by which its receiver learns of it.
    pub(super) fn is_news(&self) -> bool {
        self.probe.stage == SendStage::Unannounced
    }

    /// Segments that were sent at least once.
    pub(super) fn sent(&self) -> u32 {
        self.progress.next
    }

    /// Gives back the bytes of the unscheduled start that it took.
    pub(super) fn release(&mut self) -> u64 {
        std::mem::take(&mut self.progress.unscheduled)
    }

    /// When to probe if no report comes earlier. A message that tolerates loss is probed at once
    /// when more of it is found lost: until its receiver knows, it grants less to all peers. And,
    /// unless its paths are proven clean, when all of it was sent, since its receiver waits for
    /// that information. On lossy paths the end of every message is told at once, or later if
    /// others mark it. On unproven paths that is done for long messages; other messages ask a round
    /// trip after their end.
    pub(super) fn next_probe(&self, now: Instant, wait: ReportWait<'_>) -> Instant {
        let ReportWait {
            rtt, gap, record, ..
        } = wait;
        if self.has_news(record) {
            return now.max(self.probe.marks_from);
        }
        let usual = rtt.probe_wait(gap);
        let first = match self.may_wait(wait) {
            true => usual,
            false => rtt.retry_wait(gap, self.probe.retries).min(usual),
        };
        now + match self.waits_for_grant() {
            true => grant_wait(first),
            false => wait.or_at_end(first, self.probe.retries),
        }
    }

    /// Whether the message asks only after the usual wait. Its round trip is known, and its paths
    /// are clean, or unproven with packets still to come that would show a loss.
    pub(super) fn may_wait(&self, wait: ReportWait<'_>) -> bool {
        let is_record_good = match wait.record {
            PathRecord::Clean => true,
            PathRecord::Unproven(_) => !self.is_at_end(),
            PathRecord::Lossy => false,
        };
        is_record_good && wait.rtt.is_known()
    }

    /// Whether marks follow its end on paths with this record.
    pub(super) fn needs_marks(&self, record: PathRecord) -> bool {
        record.needs_marks(self.segments(), self.in_flight())
    }

    /// Whether its receiver is to hear of it at once.
    pub(super) fn has_news(&self, record: PathRecord) -> bool {
        let says_all_sent = self.is_at_end() && self.probe.stage != SendStage::SaidAllSent;
        let may_miss = !self.tolerance.is_none();
        // On clean paths a receiver lacks only trimmed segments.
        let may_lack = record != PathRecord::Clean || self.repair.holes().ones() > 0;
        let needs_end = self.needs_marks(record) || self.is_in_doubt() || (may_miss && may_lack);
        let is_news = (says_all_sent && needs_end) || (may_miss && self.has_untold_holes());
        is_news && self.progress.acked.zeros() > 0
    }

    /// Whether more of it is lost than its receiver was told.
    pub(super) fn has_untold_holes(&self) -> bool {
        self.repair.holes().ones() > self.probe.holes_told
    }

    /// Segments, in sending order, that may be sent by now.
    pub(super) fn allowed(&self) -> u32 {
        self.sendable().max(self.progress.speculation.until)
    }

    /// Segments, in sending order, that may be sent as granted ones.
    pub(super) fn sendable(&self) -> u32 {
        self.progress.sendable().min(self.segments())
    }

    /// Segments, in sending order, that have a grant.
    pub(super) fn granted(&self) -> u32 {
        let credit = self.progress.credit();
        credit
            .saturating_sub(self.progress.regranted)
            .min(self.segments())
    }

    /// Whether all granted segments were sent, and none of them is in flight.
    fn has_landed(&self) -> bool {
        self.progress.next >= self.allowed() && self.progress.in_flight.ones() == 0
    }

    /// Whether the sender can only wait: the receiver grants others first.
    pub(super) fn waits_for_grant(&self) -> bool {
        self.has_landed() && !self.all_sent()
    }

    /// Whether the sender can send nothing until the receiver grants more: the message is not
    /// posted there, or others are granted before it.
    pub(super) fn stands_still(&self) -> bool {
        self.has_landed() && self.repair.is_idle()
    }

    /// The lowest class of the segments sent so far, which a PROBE must not overtake.
    pub(super) fn lowest_class(&self, policy: &Policy) -> Class {
        if self.progress.next == 0 {
            return CONTROL;
        }
        let last = self.tags.at(self.progress.next - 1);
        self.tags.class_and_ecn(policy, last).0
    }

    /// A probe goes out now; the next one is due at `next`. If the message has waited for a grant
    /// in vain, its receiver may not know of the packets that were trimmed: they wait no longer.
    pub(super) fn on_probe(&mut self, now: Instant, next: Instant) {
        if self.waits_for_grant() {
            for segment in std::mem::take(&mut self.progress.ungranted) {
                self.queue_repair(segment);
            }
        }
        self.probe.on_probe(now, next, self.repair.holes().ones());
        if self.is_at_end() && !self.probe.is_short() {
            self.probe.stage = SendStage::SaidAllSent;
        }
    }

    /// Writes the body of a PROBE, of at most `room` bytes: the holes, and the ends of its paths if
    /// it tolerates loss and all of it was sent.
    pub(super) fn write_probe(&self, room: usize, body: &mut Vec<u8>) {
        let ends = match self.all_sent() && !self.tolerance.is_none() {
            true => self.ends.as_slice(),
            false => &[],
        };
        ProbeBody::encode(ends, self.repair.holes(), room, body);
    }

    /// Segments that may be in flight.
    pub(super) fn in_flight(&self) -> u32 {
        self.progress.in_flight.ones()
    }

    /// The turn of the segment that would be sent next; `None` when there is none to send.
    pub(super) fn next_turn(&mut self) -> Option<SendTurn> {
        while let Some(segment) = self.repair.front() {
            if !self.progress.acked.has(segment) {
                return Some(self.tags.turn(self.repair.attempt()));
            }
            self.repair.pop();
        }
        (self.progress.next < self.allowed()).then(|| self.tags.turn(SendAttempt::First))
    }

    /// Takes up to `most` segments of equal class and ECN into `run`: repairs first, since the
    /// receiver has waited for them longest, and new ones of their turn behind them. A packet alone
    /// costs both hosts as much as a long run.
    pub(super) fn take_run(
        &mut self,
        most: usize,
        settings: &EndpointSettings,
        run: &mut SegmentRun,
    ) -> TakenRun {
        run.clear();
        let policy = &settings.policy;
        let Some(first) = self.repair.front() else {
            return self.take_new(most, run);
        };
        let (class, ecn) = self.tags.class_and_ecn_again(policy, first);
        let again = TakenRun { class, ecn };
        self.take_repairs(again, most, policy, run);
        let is_short = run.last() == Some(self.segments() - 1);
        if is_short || !self.repair.is_idle() || self.progress.next >= self.allowed() {
            return again;
        }
        if self.new_run() == again {
            self.take_new(most, run);
        }
        again
    }

    /// How its next new segments are sent.
    fn new_run(&self) -> TakenRun {
        let lane = self.tags.lanes()[self.progress.lane];
        let ecn = match lane.ecn {
            _ if self.speculates() => Ecn::NotEct,
            // Others may begin without grants, too, and fill the queues that would drop it.
            Ecn::NotEct if self.progress.speculation.in_doubt() > 0 => Ecn::Ect,
            Ecn::NotEct if self.has_spent_half() => Ecn::Ect,
            ecn => ecn,
        };
        TakenRun {
            class: lane.class,
            ecn,
        }
    }

    fn take_new(&mut self, most: usize, run: &mut SegmentRun) -> TakenRun {
        let taken = self.new_run();
        let (last, speculates) = (self.segments() - 1, self.speculates());
        let allowed = match speculates {
            true => self.allowed(),
            false => self.sendable(),
        };
        let progress = &mut self.progress;
        let lane = self.tags.lanes()[progress.lane];
        let room = (most - run.len()) as u32;
        let end = (progress.next + room).min(lane.end).min(allowed);
        while progress.next < end {
            let segments = self.tags.stretch(progress.next..end);
            progress.next += segments.end - segments.start;
            let is_short = segments.end == last + 1;
            if speculates {
                progress.speculation.on_sent(segments.clone());
            }
            run.push_range(segments);
            // The last segment may be shorter, and only the last packet of a run may be.
            if is_short {
                break;
            }
        }
        if progress.next == lane.end {
            progress.lane += 1;
        }
        taken
    }

    /// Whether half of the holes that it tolerates exist: then no more of it should be dropped.
    fn has_spent_half(&self) -> bool {
        self.repair.holes().ones() * 2 >= self.cut.holes_allowed(self.tolerance)
    }

    fn take_repairs(&mut self, like: TakenRun, most: usize, policy: &Policy, run: &mut SegmentRun) {
        let last = self.segments() - 1;
        while let Some(segment) = self.repair.front() {
            let (class, ecn) = self.tags.class_and_ecn_again(policy, segment);
            if like != (TakenRun { class, ecn }) || run.len() == most {
                break;
            }
            self.repair.pop();
            if self.progress.acked.has(segment) {
                continue;
            }
            run.push_repair(segment);
            if segment == last {
                break;
            }
        }
    }

    /// The segments of a run are in flight from now on; returns their bytes.
    pub(super) fn on_sent(
        &mut self,
        run: &SegmentRun,
        departure: RunDeparture,
        flights: &mut VecDeque<FlightRun>,
    ) -> u64 {
        self.probe.on_sent();
        let leave = |range| self.take_off(range, departure);
        let bytes = run.ranges().map(leave).sum();
        flights.extend(departure.flights(self.id(), run));
        bytes
    }

    /// Segments leave at this time; returns the bytes that this adds to those in flight.
    fn take_off(&mut self, segments: Range<u32>, departure: RunDeparture) -> u64 {
        let progress = &mut self.progress;
        let places = segments.start as usize..segments.end as usize;
        progress.sent_at[places.clone()].fill(departure.at);
        progress.paths[places].fill(departure.first.entropy);
        let last = self.header.segments - 1;
        let with_last = segments.contains(&last) && !progress.in_flight.has(last);
        let new = progress.in_flight.insert_range(segments);
        // All segments are of one size but the last.
        let short = self.packet_bytes(0) - self.packet_bytes(last);
        u64::from(new) * self.packet_bytes(0) - if with_last { short } else { 0 }
    }

    /// Bytes of a segment.
    pub(super) fn segment_length(&self, segment: u32) -> u32 {
        self.cut.length(segment)
    }

    fn packet_bytes(&self, segment: u32) -> u64 {
        u64::from(self.segment_length(segment)) + HEADER_BYTES as u64
    }

    /// A segment is no longer in flight; returns the bytes that it had there.
    pub(super) fn land(&mut self, segment: u32) -> u64 {
        match self.progress.in_flight.remove(segment) {
            true => self.packet_bytes(segment),
            false => 0,
        }
    }

    /// The paths of its segments in flight.
    pub(super) fn paths_in_flight(&self) -> impl Iterator<Item = Entropy> {
        let in_flight = self.progress.in_flight.iter_ones();
        in_flight.map(|segment| self.path_of(segment))
    }

    /// Path of a segment's last packet.
    pub(super) fn path_of(&self, segment: u32) -> Entropy {
        self.progress.paths[segment as usize]
    }

    /// Nothing is in flight any more; returns the bytes that were.
    pub(super) fn land_all(&mut self) -> u64 {
        let parity = self.parity.land_all();
        if self.progress.in_flight.ones() == 0 {
            return parity;
        }
        let in_flight: Vec<u32> = self.progress.in_flight.iter_ones().collect();
        let segments = in_flight.into_iter();
        segments.map(|segment| self.land(segment)).sum::<u64>() + parity
    }

    /// Whether a flight was the segment's last one and has not landed.
    #[inline]
    pub(super) fn is_current(&self, flight: &SegmentFlight) -> bool {
        self.progress.in_flight.has(flight.segment)
            && self.sent_at(flight.segment) == flight.sent_at
    }

    /// The first current flight of a run of this message, from segment `from` on.
    pub(super) fn current_from(&self, run: &FlightRun, from: u32) -> Option<SegmentFlight> {
        let segments = run.segments();
        let mut segment = from.max(segments.start);
        loop {
            segment = self.progress.in_flight.first_one(segment);
            if segment >= segments.end {
                return None;
            }
            if self.sent_at(segment) == run.sent_at {
                return Some(run.flight(segment));
            }
            segment += 1;
        }
    }

    /// Whether a packet of this run has arrived that left behind the one with this segment.
    pub(super) fn has_passed(&self, run: &FlightRun, segment: u32) -> bool {
        let next = self.progress.acked.first_one(segment + 1);
        next < run.segments().end && self.sent_at(next) == run.sent_at
    }

    /// The current flights of a run of this message.
    pub(super) fn current_of(&self, run: &FlightRun) -> impl Iterator<Item = SegmentFlight> {
        let next = |flight: &SegmentFlight| self.current_from(run, flight.segment + 1);
        std::iter::successors(self.current_from(run, 0), next)
    }

    /// Segments have arrived.
    pub(super) fn on_acked(&mut self, segments: Range<u32>) -> NewlyAcked {
        let end = segments.end.min(self.segments());
        let segments = segments.start.min(end)..end;
        let new = self.progress.acked.insert_range(segments.clone());
        if new > 0 {
            self.probe.retries = 0;
        }
        self.repair.on_acked(segments.clone());
        self.progress.speculation.on_acked(segments.clone());
        if new > 0 {
            self.note_landed(segments.clone());
        }
        let last = self.segments() - 1;
        let in_flight = &mut self.progress.in_flight;
        let with_last = segments.contains(&last) && in_flight.has(last);
        let landed = u64::from(in_flight.remove_range(segments));
        // All segments are of one size but the last.
        let short = self.packet_bytes(0) - self.packet_bytes(last);
        NewlyAcked {
            bytes: landed * self.packet_bytes(0) - if with_last { short } else { 0 },
            segments: new,
        }
    }

    /// Notes the paths of the segments in flight among these.
    fn note_landed(&mut self, segments: Range<u32>) {
        let SendProgress {
            in_flight,
            sent_at,
            paths,
            landed,
            ..
        } = &mut self.progress;
        let class = self.tags.lanes().first().map_or(CONTROL, |lane| lane.class);
        let mut first = in_flight.first_one(segments.start);
        while first < segments.end {
            let end = in_flight.first_zero(first).min(segments.end);
            let places = first as usize..end as usize;
            let together = count_alike(&sent_at[places.clone()]);
            let alike = count_alike(&paths[places][..together]) as u32;
            landed.push(LandedRun {
                path: paths[first as usize],
                sent_at: sent_at[first as usize],
                packets: alike,
                class,
            });
            first = in_flight.first_one(first + alike);
        }
    }

    /// The packets that have arrived since the last call.
    pub(super) fn take_landed(&mut self) -> impl Iterator<Item = LandedRun> {
        self.progress.landed.drain(..)
    }

    /// Processes segments that a BITMAP shows. Those that are protected may be shown although they
    /// are missing, since the receiver cannot tell which they are: for them it proves nothing.
    pub(super) fn on_shown(&mut self, segments: Range<u32>) -> NewlyAcked {
        let mut acked = NewlyAcked::default();
        for segment in segments.start..segments.end.min(self.segments()) {
            if !self.tags.is_protected(segment) {
                acked.add(self.on_acked(segment..segment + 1));
            }
        }
        acked
    }

    /// Whether a segment may stay missing, as far as the sender decides.
    pub(super) fn may_miss(&self, segment: u32) -> bool {
        !self.tolerance.is_none() && self.repair.may_leave() && !self.tags.is_protected(segment)
    }

    /// A segment is lost: leaves it as a hole if the message tolerates that, or repairs it. Some
    /// holes are kept for the end, if the paths lose this share of packets.
    pub(super) fn on_lost(&mut self, segment: u32, share: f64) {
        if !self.may_miss(segment) {
            self.queue_repair(segment);
            return;
        }
        let kept = match self.sent() < self.segments() {
            true => repair::holes_to_keep(share, self.in_flight()),
            false => 0,
        };
        let tie_breaker = TieBreaker::of(self.header.source, self.id());
        let need = self.tags.need(tie_breaker, segment);
        let tolerated = self.cut.holes_allowed(self.tolerance).saturating_sub(kept);
        let before = self.repair.holes().ones();
        self.repair
            .leave(segment, need, tolerated, &self.progress.acked);
        self.progress.freed += self.repair.holes().ones().saturating_sub(before);
    }

    /// A segment is lost whose repair waits for a grant.
    pub(super) fn wait_for_grant_of(&mut self, segment: u32) {
        self.progress.ungranted.push_back(segment);
        self.spend_grants();
    }

    /// Whether lost segments wait for a grant.
    pub(super) fn has_ungranted_repairs(&self) -> bool {
        !self.progress.ungranted.is_empty()
    }

    /// Queues lost segments for repair as far as they are granted again.
    pub(super) fn spend_grants(&mut self) {
        while let Some(&segment) = self.progress.ungranted.front() {
            let progress = &mut self.progress;
            if !progress.acked.has(segment) {
                if progress.sendable() <= progress.next {
                    return;
                }
                progress.regranted += 1;
            }
            progress.ungranted.pop_front();
            self.queue_repair(segment);
        }
    }

    /// A BITMAP has arrived: the receiver has chosen its holes, and needs all other segments.
    pub(super) fn on_chosen(&mut self) {
        self.repair.on_chosen();
    }

    /// Queues a segment that this host took back, unless it has arrived.
    pub(super) fn queue_unsent(&mut self, segment: u32) {
        self.queue_repair(segment);
        self.repair.on_unsent();
    }

    /// Queues a segment to be sent again, unless it has arrived.
    pub(super) fn queue_repair(&mut self, segment: u32) {
        self.progress.speculation.on_repair(segment);
        self.repair.queue(segment, &self.progress.acked);
    }

    /// Its first packet leaves.
    pub(super) fn on_begun(&mut self, now: Instant) {
        self.first_sent = Some(now);
        self.probe.last = now;
    }

    /// Its packets say that all messages before `open` have ended, if they can.
    pub(super) fn say_ended(&mut self, open: MessageSerial) -> bool {
        self.header.ended = EndedEarlier::before(open, self.serial);
        self.header.ended != EndedEarlier::NOT_SAID
    }

    /// The header fields that packets which leave now have in common.
    pub(super) fn template(&self, now: Instant) -> Header {
        Header {
            sent_at: now.wire_micros(),
            ..self.header
        }
    }
}

fn header_of(
    id: MessageId,
    request: &SendRequest,
    settings: &EndpointSettings,
    cut: Segmentation,
) -> Header {
    let segments = cut.segments();
    Header {
        kind: PacketKind::Data,
        flags: Flags::NONE,
        class: Class(0),
        ended: EndedEarlier::NOT_SAID,
        parity: None,
        job: settings.identity.job,
        epoch: settings.identity.epoch,
        source: settings.identity.rank,
        step: request.step,
        key: request.key,
        message: id,
        signature: request.signature,
        segment: 0,
        segments,
        number: PathNumber(0),
        message_bytes: cut.bytes(),
        length: 0,
        layer: Layer(0),
        magnitude: Magnitude(0),
        entropy: Entropy(0),
        contributors: request.contributors,
        sent_at: 0,
        protected: request.tags.protected_segments(segments),
        checksum: 0,
    }
}

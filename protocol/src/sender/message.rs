//! One message on its way out: what was sent, what landed, what must go again.

use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use crate::bitmap::Bitmap;
use crate::machine::{Ecn, SegmentRun};
use crate::message::SendRequest;
use crate::priority::{CONTROL, Policy, RepairNeed, SegmentTags, SendTurn, TieBreaker};
use crate::segment::Segmentation;
use crate::settings::EndpointSettings;
use crate::units::{
    Class, Entropy, Instant, JobId, Layer, Magnitude, MessageId, MessageKey, Rank, Share,
    Signature, Span, Step,
};
use crate::wire::{
    Flags, HEADER_BYTES, Header, PacketKind, REPORT_BYTES, SEGMENTS_MAX, SegmentReport,
};

/// A message that only waits for a grant is probed this much later: the grant may have been lost.
const GRANT_WAITS: u64 = 16;

/// A segment on its way. It is current as long as the segment was not sent again and has not
/// landed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentFlight {
    pub(crate) message: MessageId,
    pub(crate) segment: u32,
    pub(crate) sent_at: u32,
    pub(crate) entropy: Entropy,
}

/// Segments taken for sending.
pub(crate) struct TakenRun {
    pub(crate) class: Class,
    pub(crate) ecn: Ecn,
    pub(crate) flags: Flags,
}

/// What of a message may be sent before its receiver says anything; nothing when it is announced.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnscheduledStart {
    pub(crate) segments: u32,
    /// Bytes of what may go to its receiver so that are kept for it.
    pub(crate) bytes: u64,
}

/// A message that has not ended.
#[derive(Debug)]
pub(crate) struct SendMessage {
    pub(crate) id: MessageId,
    pub(crate) tags: SegmentTags,
    /// Whether a PROBE tells its receiver of it, which then grants all of it.
    announced: bool,
    /// Bytes of what may go to its receiver unscheduled that are kept for it.
    reserved: u64,
    /// Segments, in sending order, that the receiver is ready to take.
    pub(crate) granted: u32,
    pub(crate) acked: Bitmap,
    /// CE marks reported so far.
    pub(crate) marks: u32,
    /// Probes since the last report.
    pub(crate) unanswered: u32,
    /// When the first of them was sent.
    pub(crate) asked: Instant,
    said_all_sent: bool,
    /// Whether it was probed for.
    probed: bool,
    /// Whether it was told that it stands still.
    pub(crate) told_still: bool,
    /// How many holes the last probe named.
    said_holes: u32,
    pub(crate) probe_at: Instant,
    /// When it was given to the sender.
    pub(crate) begun: Instant,
    /// What STOP said was missing, as far as it was heard.
    pub(crate) missing: Option<Bitmap>,
    key: MessageKey,
    signature: Signature,
    step: Step,
    cut: Segmentation,
    tolerance: Share,
    contributors: u16,
    job: JobId,
    epoch: u16,
    source: Rank,
    /// Position in the sending order of the first segment never sent.
    next: u32,
    lane: usize,
    in_flight: Bitmap,
    sent_at: SmallVec<[u32; 4]>,
    repairs: VecDeque<u32>,
    repair_queued: Bitmap,
    /// Lost, neither acknowledged nor queued for repair: tolerated so far.
    holes: Bitmap,
    /// What was ever a hole, the most needed first. What is no hole any more is passed over.
    by_need: BinaryHeap<(RepairNeed, u32)>,
    /// Whether the receiver has chosen what it does without: it needs all else.
    is_chosen: bool,
    stop_heard: u32,
}

impl SendMessage {
    /// A message; if nothing of it may be sent unscheduled, it is announced now.
    pub(crate) fn new(
        id: MessageId,
        outgoing: SendRequest,
        (settings, unscheduled): (&EndpointSettings, UnscheduledStart),
        now: Instant,
    ) -> Self {
        let cut = Segmentation::new(outgoing.bytes, settings.segment_bytes);
        assert!(
            cut.is_countable(),
            "{} bytes in segments of {} bytes: a message has at most {SEGMENTS_MAX}",
            cut.bytes(),
            cut.segment_bytes()
        );
        let segments = cut.segments();
        Self {
            id,
            tags: outgoing.tags,
            announced: unscheduled.segments == 0,
            reserved: unscheduled.bytes,
            granted: unscheduled.segments,
            acked: Bitmap::new(segments),
            marks: 0,
            unanswered: 0,
            asked: now,
            said_all_sent: false,
            probed: false,
            told_still: false,
            said_holes: 0,
            probe_at: now,
            begun: now,
            missing: None,
            key: outgoing.key,
            signature: outgoing.signature,
            step: outgoing.step,
            cut,
            tolerance: outgoing.tolerance,
            contributors: outgoing.contributors,
            job: settings.identity.job,
            epoch: settings.identity.epoch,
            source: settings.identity.rank,
            next: 0,
            lane: 0,
            in_flight: Bitmap::new(segments),
            sent_at: smallvec![0; segments as usize],
            repairs: VecDeque::new(),
            repair_queued: Bitmap::new(segments),
            holes: Bitmap::new(segments),
            by_need: BinaryHeap::new(),
            is_chosen: false,
            stop_heard: 0,
        }
    }

    pub(crate) fn key(&self) -> MessageKey {
        self.key
    }

    pub(crate) fn segments(&self) -> u32 {
        self.cut.segments()
    }

    pub(crate) fn sent_at(&self, segment: u32) -> u32 {
        self.sent_at[segment as usize]
    }

    /// Whether every segment was sent at least once and nothing waits to be repaired.
    pub(crate) fn all_sent(&self) -> bool {
        self.next == self.segments() && self.repairs.is_empty()
    }

    /// Whether anything of the message was sent, or is to be: before, it waits for the window and
    /// needs no probe. One that is announced is probed for its grants.
    pub(crate) fn is_told(&self) -> bool {
        self.next > 0 || self.announced
    }

    /// Whether its next PROBE is the first that its receiver hears of it.
    pub(crate) fn is_news(&self) -> bool {
        self.next == 0 && !self.probed
    }

    /// Segments that were sent at least once.
    pub(crate) fn sent(&self) -> u32 {
        self.next
    }

    /// Its receiver knows of it: nothing is kept for it any more. Tells how much had been.
    pub(crate) fn release(&mut self) -> u64 {
        std::mem::take(&mut self.reserved)
    }

    /// When to probe if nothing is heard. A message that tolerates loss is probed as soon as all
    /// of it was sent, since its receiver waits for that word, and whenever it turns out that more
    /// of it is lost: as long as its receiver does not know, it grants less to everybody.
    pub(crate) fn next_probe(&self, now: Instant, wait: Span) -> Instant {
        let news = self.has_unsaid_holes() || (self.all_sent() && !self.said_all_sent);
        if !self.tolerance.is_none() && news && self.acked.zeros() > 0 {
            now
        } else if self.waits_for_grant() {
            now + wait * GRANT_WAITS
        } else {
            now + wait
        }
    }

    /// Whether more of it is lost than its receiver was told.
    pub(crate) fn has_unsaid_holes(&self) -> bool {
        self.holes.ones() > self.said_holes
    }

    /// Whether all that may be sent was sent and is accounted for: the receiver's turn will come.
    fn waits_for_grant(&self) -> bool {
        let sent_all_granted = self.next == self.granted.min(self.segments());
        sent_all_granted && !self.all_sent() && self.in_flight.ones() == 0
    }

    /// The lowest class of what was sent so far: a PROBE must not overtake it.
    pub(crate) fn lowest_class(&self, policy: &Policy) -> Class {
        if self.next == 0 {
            return CONTROL;
        }
        let last = self.tags.at(self.next - 1);
        self.tags.class_and_ecn(policy, last).0
    }

    /// A probe goes out now; the next one is due at `next`. Writes into `body` which segments are
    /// lost and not repaired, if any is, in at most `room` bytes.
    pub(crate) fn on_probe(
        &mut self,
        (now, next): (Instant, Instant),
        room: usize,
        body: &mut Vec<u8>,
    ) {
        self.said_all_sent |= self.all_sent();
        self.probed = true;
        if self.unanswered == 0 {
            self.asked = now;
        }
        self.unanswered += 1;
        self.probe_at = next;
        body.clear();
        self.said_holes = self.holes.ones();
        if self.said_holes == 0 {
            return;
        }
        let first = self.holes.first_one(0);
        let mut window = Vec::with_capacity(64);
        let bits = self.holes.encode(first, room - REPORT_BYTES, &mut window);
        SegmentReport {
            first,
            bits,
            ..SegmentReport::default()
        }
        .encode(body);
        body.extend_from_slice(&window);
    }

    /// Whether nothing of it is on its way and nothing could be, until its receiver says more: it
    /// is not posted there, or other messages are granted before it.
    pub(crate) fn stands_still(&self) -> bool {
        let sent_all_granted = self.next == self.granted.min(self.segments());
        sent_all_granted && self.in_flight.ones() == 0 && self.repairs.is_empty()
    }

    /// The turn of what would be sent next; `None` when there is nothing to send.
    pub(crate) fn next_turn(&mut self, settings: &EndpointSettings) -> Option<SendTurn> {
        while let Some(&segment) = self.repairs.front() {
            if !self.acked.has(segment) {
                let policy = &settings.policy;
                let (class, _) = self.tags.class_and_ecn(policy, segment);
                return Some(self.tags.turn(policy, class, segment));
            }
            self.repairs.pop_front();
            self.repair_queued.remove(segment);
        }
        let ready = self.next < self.segments().min(self.granted);
        ready.then(|| {
            let class = self.tags.lanes()[self.lane].class;
            let segment = self.tags.at(self.next);
            self.tags.turn(&settings.policy, class, segment)
        })
    }

    /// Takes up to `most` segments of equal class and ECN: repairs first.
    /// Writes them into `run`.
    pub(crate) fn take_run(
        &mut self,
        most: usize,
        settings: &EndpointSettings,
        run: &mut SegmentRun,
    ) -> TakenRun {
        run.clear();
        if self.repairs.is_empty() {
            return self.take_new(most as u32, run);
        }
        self.take_repairs(most, settings, run)
    }

    fn take_new(&mut self, most: u32, run: &mut SegmentRun) -> TakenRun {
        let lane = self.tags.lanes()[self.lane];
        let end = (self.next + most).min(lane.end).min(self.granted);
        let last = self.segments() - 1;
        while self.next < end {
            let segment = self.tags.at(self.next);
            run.push(segment);
            self.next += 1;
            if segment == last {
                break;
            }
        }
        if self.next == lane.end {
            self.lane += 1;
        }
        TakenRun {
            class: lane.class,
            ecn: lane.ecn,
            flags: Flags::NONE,
        }
    }

    fn take_repairs(
        &mut self,
        most: usize,
        settings: &EndpointSettings,
        run: &mut SegmentRun,
    ) -> TakenRun {
        let first = *self.repairs.front().expect("the caller saw a repair");
        let (class, ecn) = self.tags.class_and_ecn_again(&settings.policy, first);
        let last = self.segments() - 1;
        while let Some(&segment) = self.repairs.front() {
            let alike = self.tags.class_and_ecn_again(&settings.policy, segment) == (class, ecn);
            if !alike || run.as_slice().len() == most {
                break;
            }
            self.repairs.pop_front();
            self.repair_queued.remove(segment);
            if self.acked.has(segment) {
                continue;
            }
            run.push(segment);
            if segment == last {
                break;
            }
        }
        TakenRun {
            class,
            ecn,
            flags: Flags::REPAIR,
        }
    }

    /// Marks a run as in flight; gives back its bytes.
    pub(crate) fn on_sent(
        &mut self,
        run: &SegmentRun,
        template: &Header,
        flights: &mut VecDeque<SegmentFlight>,
    ) -> u64 {
        self.said_all_sent = false;
        let (message, sent_at, entropy) = (self.id, template.sent_at, template.entropy);
        let mut bytes = 0;
        for &segment in run.as_slice() {
            self.sent_at[segment as usize] = sent_at;
            if self.in_flight.insert(segment) {
                bytes += self.packet_bytes(segment);
            }
            flights.push_back(SegmentFlight {
                message,
                segment,
                sent_at,
                entropy,
            });
        }
        bytes
    }

    fn packet_bytes(&self, segment: u32) -> u64 {
        u64::from(self.cut.length(segment)) + HEADER_BYTES as u64
    }

    /// The segment is no longer in flight; gives back the bytes that it took.
    pub(crate) fn land(&mut self, segment: u32) -> u64 {
        if self.in_flight.remove(segment) {
            self.packet_bytes(segment)
        } else {
            0
        }
    }

    /// Segments have arrived; gives back the bytes that they had in flight, and of how many that
    /// was not known.
    pub(crate) fn on_acked(&mut self, segments: Range<u32>) -> (u64, u32) {
        let end = segments.end.min(self.segments());
        let segments = segments.start.min(end)..end;
        let new = self.acked.insert_range(segments.clone());
        self.holes.remove_range(segments.clone());
        let last = self.segments() - 1;
        let with_last = segments.contains(&last) && self.in_flight.has(last);
        let landed = u64::from(self.in_flight.remove_range(segments));
        let short = self.packet_bytes(0) - self.packet_bytes(last);
        let bytes = landed * self.packet_bytes(0) - if with_last { short } else { 0 };
        (bytes, new)
    }

    /// As [`SendMessage::on_acked`], but segments that are protected may have been shown without cause.
    pub(crate) fn on_shown(&mut self, segments: Range<u32>) -> (u64, u32) {
        let (mut bytes, mut new) = (0, 0);
        for segment in segments.start..segments.end.min(self.segments()) {
            if !self.tags.is_protected(segment) {
                let (landed, one) = self.on_acked(segment..segment + 1);
                bytes += landed;
                new += one;
            }
        }
        (bytes, new)
    }

    /// Nothing of the message is in flight any more; gives back the bytes that were.
    pub(crate) fn land_all(&mut self) -> u64 {
        if self.in_flight.ones() == 0 {
            return 0;
        }
        let in_flight: Vec<u32> = self.in_flight.iter_ones().collect();
        in_flight
            .into_iter()
            .map(|segment| self.land(segment))
            .sum()
    }

    pub(crate) fn is_current(&self, flight: &SegmentFlight) -> bool {
        self.in_flight.has(flight.segment) && self.sent_at(flight.segment) == flight.sent_at
    }

    /// Whether the receiver may do without a segment.
    pub(crate) fn may_miss(&self, segment: u32) -> bool {
        !self.tolerance.is_none() && !self.is_chosen && !self.tags.is_protected(segment)
    }

    /// A segment was lost: repairs it, or leaves it a hole as long as the message tolerates it.
    /// Of too many holes those are repaired that are needed most.
    pub(crate) fn on_lost(&mut self, segment: u32) {
        if !self.may_miss(segment) {
            self.queue_repair(segment);
            return;
        }
        if self.holes.insert(segment) {
            let lot = TieBreaker::of(self.source, self.id);
            self.by_need.push((self.tags.need(lot, segment), segment));
        }
        let tolerated = self.cut.holes_allowed(self.tolerance);
        while self.holes.ones() > tolerated {
            let (_, most) = self.by_need.pop().expect("every hole was pushed");
            if self.holes.has(most) {
                self.queue_repair(most);
            }
        }
    }

    /// The receiver has chosen what it does without, and asks for all else.
    pub(crate) fn on_chosen(&mut self) {
        self.is_chosen = true;
    }

    /// Queues a segment to be sent again, unless it arrived or is queued.
    pub(crate) fn queue_repair(&mut self, segment: u32) {
        self.holes.remove(segment);
        if !self.acked.has(segment) && self.repair_queued.insert(segment) {
            self.repairs.push_back(segment);
        }
    }

    /// Takes a STOP; tells whether everything that it has to say was heard.
    pub(crate) fn on_stop(&mut self, report: &SegmentReport, encoded: &[u8]) -> bool {
        let segments = self.segments();
        let heard = self.missing.get_or_insert_with(|| Bitmap::new(segments));
        self.stop_heard = self.stop_heard.max(report.cumulative);
        if report.first <= self.stop_heard {
            for segment in report.missing(encoded, segments).iter_ones() {
                heard.insert(segment);
            }
            self.stop_heard = self
                .stop_heard
                .max(report.first.saturating_add(report.bits));
        }
        self.stop_heard >= segments
    }

    /// The header that the message's packets have in common.
    pub(crate) fn template(&self, now: Instant) -> Header {
        let segments = self.segments();
        Header {
            kind: PacketKind::Data,
            flags: Flags::NONE,
            class: Class(0),
            job: self.job,
            epoch: self.epoch,
            source: self.source,
            step: self.step,
            key: self.key,
            message: self.id,
            signature: self.signature,
            segment: 0,
            segments,
            offset: 0,
            message_bytes: self.cut.bytes(),
            length: 0,
            layer: Layer(0),
            magnitude: Magnitude(0),
            entropy: Entropy(0),
            contributors: self.contributors,
            sent_at: now.wire_micros().max(1),
            protected: self.tags.protected_segments(segments),
            checksum: 0,
        }
    }
}

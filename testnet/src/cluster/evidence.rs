//! The fate of every copy of every segment, and the holes that receivers name in STOP.
//!
//! A hole is legal if the network lost every copy that was sent, or delivers it later than the
//! job's gap allows. A copy that has reached its host is there, handed over or not, unless the
//! host dropped it and never told its driver. A protected segment is never a hole.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use gradwire_protocol::bitmap;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::units::{Instant, MessageKey, Share, Span};
use gradwire_protocol::wire::{Flags, Header, PacketKind, SegmentReport};

use super::paths::CarriedCopy;
use super::violation::ClusterCheck;

/// Messages that are remembered.
const MESSAGES_KEPT: usize = 16_384;

/// A host is to blame for a message that begins to arrive this long after it dropped packets.
const KNOWN_AFTER: Span = Span::from_millis(200);

/// A check that failed, before its time is known.
pub(crate) type Found = (ClusterCheck, String);

/// A message by its sender, its receiver and its key.
pub(crate) type MessageName = (u16, u16, MessageKey);

/// How much of a message its receiver may do without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoleTerms {
    pub(crate) tolerance: Share,
    pub(crate) patience: ReceiverPatience,
}

/// Whether a receiver may have lost patience with a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReceiverPatience {
    /// It accepts only segments that are lost.
    Endless,
    /// It may do without segments that are late, of whole messages too; this many messages at most
    /// are added up in one place.
    MayEnd { addends: u64 },
}

/// The known facts of all messages.
#[derive(Debug)]
pub(crate) struct Evidence {
    segment_bytes: u32,
    gap: Span,
    messages: BTreeMap<MessageName, SeenMessage>,
    order: VecDeque<MessageName>,
}

#[derive(Debug)]
struct SeenMessage {
    cut: Segmentation,
    contributors: u16,
    /// When its first segment was handed over.
    begun: Option<Instant>,
    segments: Vec<SeenSegment>,
    /// Which segments a STOP has named as holes.
    holes: Vec<bool>,
}

#[derive(Clone, Debug, Default)]
struct SeenSegment {
    is_protected: bool,
    sent: u32,
    /// Transmissions that the network lost.
    lost: u32,
    handed: Option<Instant>,
    /// When its receiver first told, by a BITMAP, that it does without.
    accepted: Option<Instant>,
    /// Copies that the network did not lose and that were not handed over.
    underway: Vec<SeenCopy>,
}

#[derive(Clone, Copy, Debug)]
struct SeenCopy {
    /// When it arrives at its host, or when its host's queue shows it.
    visible: Instant,
    late: Span,
    /// Its host dropped it.
    is_dropped: bool,
}

/// The holes of one message, as its receiver told them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ToldHoles {
    pub(crate) segments: u64,
    /// Their bytes, each as often as it has contributors.
    pub(crate) contribution_bytes: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
}

/// The bytes that may be missing of a step's messages to a rank, and those that are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct StepLoss {
    pub(crate) allowed: u64,
    pub(crate) missing: u64,
}

impl Evidence {
    pub(crate) fn new(segment_bytes: u32, gap: Span) -> Self {
        Self {
            segment_bytes,
            gap,
            messages: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// A packet of a message was sent.
    pub(crate) fn begun(&mut self, to: u16, header: &Header) {
        let name = (header.source.0, to, header.key);
        if !self.messages.contains_key(&name) {
            self.order.push_back(name);
            if self.order.len() > MESSAGES_KEPT {
                let oldest = self.order.pop_front().expect("longer than a constant");
                self.messages.remove(&oldest);
            }
        }
        let segment_bytes = self.segment_bytes;
        let new = || SeenMessage::of(header, segment_bytes);
        self.messages.entry(name).or_insert_with(new);
    }

    /// A DATA packet was sent; these copies will arrive.
    pub(crate) fn sent(&mut self, to: u16, header: &Header, copies: &[Option<CarriedCopy>; 2]) {
        self.begun(to, header);
        let Some(segment) = self.segment(to, header) else {
            return;
        };
        segment.sent += 1;
        segment.is_protected |= header.flags.has(Flags::PROTECTED);
        let copies = copies.iter().flatten();
        segment.lost += u32::from(copies.clone().next().is_none());
        segment.underway.extend(copies.map(|copy| SeenCopy {
            visible: copy.arrives,
            late: copy.late,
            is_dropped: false,
        }));
    }

    fn segment(&mut self, to: u16, header: &Header) -> Option<&mut SeenSegment> {
        let seen = self.messages.get_mut(&(header.source.0, to, header.key))?;
        seen.segments.get_mut(header.segment as usize)
    }

    /// The receiving host shows a copy later than it arrived: by how much, and how much of that
    /// the job's gap has to cover.
    pub(crate) fn held(
        &mut self,
        to: u16,
        header: &Header,
        arrived: Instant,
        (by, late): (Span, Span),
    ) {
        let copies = self
            .segment(to, header)
            .map(|segment| &mut segment.underway);
        let copy = copies.and_then(|copies| copies.iter_mut().find(|copy| copy.visible == arrived));
        if let Some(copy) = copy {
            copy.visible = copy.visible + by;
            copy.late = copy.late + late;
        }
    }

    /// The receiving host dropped a copy when it arrived.
    pub(crate) fn dropped(&mut self, to: u16, header: &Header, arrived: Instant) {
        let copies = self
            .segment(to, header)
            .map(|segment| &mut segment.underway);
        let copy = copies.and_then(|copies| copies.iter_mut().find(|copy| copy.visible == arrived));
        if let Some(copy) = copy {
            copy.is_dropped = true;
        }
    }

    /// A copy that would have come up then is gone, and the receiving host's driver is never told:
    /// as good as lost by the network.
    pub(crate) fn vanished(&mut self, to: u16, header: &Header, visible: Instant) {
        let is_data = header.kind == PacketKind::Data;
        let Some(segment) = self.segment(to, header).filter(|_| is_data) else {
            return;
        };
        let at = (segment.underway.iter()).position(|copy| copy.visible == visible);
        if let Some(at) = at {
            segment.underway.remove(at);
            segment.lost += 1;
        }
    }

    /// A copy was handed to the machine.
    pub(crate) fn handed(&mut self, to: u16, header: &Header, now: Instant) {
        if let Some(seen) = self.messages.get_mut(&(header.source.0, to, header.key)) {
            seen.begun.get_or_insert(now);
        }
        if let Some(segment) = self.segment(to, header) {
            segment.handed.get_or_insert(now);
        }
    }

    /// A receiver names the holes of a message in a STOP, or in one of several. It decided about
    /// them with what had arrived by `decided`, on these terms.
    pub(crate) fn stopped(
        &mut self,
        name: MessageName,
        report: (SegmentReport, &[u8]),
        decided: Instant,
        terms: HoleTerms,
    ) -> Result<(), Found> {
        let gap = self.gap;
        let Some(seen) = self.messages.get_mut(&name) else {
            return Ok(());
        };
        let spoken = seen.hear(report);
        let shown = |segment: usize| {
            let (from, to, key) = name;
            format!(
                "segment {segment} of message {:?} from {from} to {to}",
                key.parts()
            )
        };
        for segment in spoken {
            let evidence = &seen.segments[segment];
            let forbidden = match terms.patience {
                ReceiverPatience::Endless => evidence.forbids(decided, gap, seen.begun),
                // Given up before its first packet, whose arrival says so.
                ReceiverPatience::MayEnd { .. } if report.0.received == 0 => None,
                ReceiverPatience::MayEnd { .. } => evidence.was_there(decided),
            };
            if let Some(why) = forbidden {
                let detail = format!("{} is a hole, but {why}", shown(segment));
                return Err((ClusterCheck::Provenance, detail));
            }
        }
        if let ReceiverPatience::MayEnd { addends } = terms.patience {
            return self.sum_holds(name, terms.tolerance, addends);
        }
        let holes = seen.holes.iter().filter(|hole| **hole).count();
        let allowed = seen.cut.holes_allowed(terms.tolerance) as usize;
        if holes > allowed {
            let (from, to, key) = name;
            let detail = format!(
                "message {:?} from {from} to {to} misses {holes} of {} segments, {allowed} allowed",
                key.parts(),
                seen.segments.len()
            );
            return Err((ClusterCheck::Bounds, detail));
        }
        Ok(())
    }

    /// A sum of this many messages misses no more than they tolerate together, lost or late.
    fn sum_holds(&self, name: MessageName, tolerance: Share, addends: u64) -> Result<(), Found> {
        let (_, to, key) = name;
        let (mut missing, mut longest) = (0, 0);
        for (&(_, receiver, of), message) in &self.messages {
            if (receiver, of) != (to, key) {
                continue;
            }
            missing += message.told_holes().bytes;
            longest = longest.max(u64::from(message.cut.bytes()));
        }
        let allowed = tolerance.of(longest) * addends;
        if missing > allowed {
            let detail = format!(
                "the sum {:?} at rank {to} misses {missing} bytes, {allowed} allowed",
                key.parts()
            );
            return Err((ClusterCheck::Bounds, detail));
        }
        Ok(())
    }

    /// A receiver tells by a BITMAP which segments it needs no more, those before its window among
    /// them: those that are not there are accepted as holes.
    pub(crate) fn accepted(
        &mut self,
        name: MessageName,
        report: (SegmentReport, &[u8]),
        at: Instant,
    ) {
        let Some(seen) = self.messages.get_mut(&name) else {
            return;
        };
        let (shown, arrived) = seen.arrived(report);
        let before = 0..shown.start;
        for segment in before.chain(shown.filter(|&segment| arrived[segment])) {
            let segment = &mut seen.segments[segment];
            if segment.handed.is_none() {
                segment.accepted.get_or_insert(at);
            }
        }
    }

    /// The holes of the messages that `of` selects, as their receivers told them.
    pub(crate) fn holes(&self, of: impl Fn(&MessageName) -> bool) -> ToldHoles {
        let mut sum = ToldHoles::default();
        for (_, seen) in self.messages.iter().filter(|(name, _)| of(name)) {
            let told = seen.told_holes();
            sum.segments += told.segments;
            sum.bytes += told.bytes;
            sum.contribution_bytes += told.contribution_bytes;
        }
        sum
    }

    /// The bytes of all messages to a rank that `of` selects, and of their holes.
    pub(crate) fn told(&self, to: u16, of: impl Fn(MessageKey) -> Option<Share>) -> StepLoss {
        let mut sum = StepLoss::default();
        for (&(_, receiver, key), seen) in &self.messages {
            if let Some(share) = of(key).filter(|_| receiver == to) {
                sum.allowed += share.of(u64::from(seen.cut.bytes()));
                sum.missing += seen.told_holes().bytes;
            }
        }
        sum
    }
}

impl SeenMessage {
    fn of(header: &Header, segment_bytes: u32) -> Self {
        let cut = Segmentation::new(header.message_bytes, segment_bytes);
        let segments = cut.segments() as usize;
        Self {
            cut,
            contributors: header.contributors,
            begun: None,
            segments: vec![SeenSegment::default(); segments],
            holes: vec![false; segments],
        }
    }

    /// The segments that a report covers, and which of all it shows as arrived.
    fn arrived(&self, (report, encoded): (SegmentReport, &[u8])) -> (Range<usize>, Vec<bool>) {
        let mut arrived = vec![false; self.segments.len()];
        let end = (report.first + report.bits).min(self.cut.segments()) as usize;
        let first = (report.first as usize).min(end);
        bitmap::decode_runs(encoded, report.bits, |at, run| {
            let start = first + at as usize;
            arrived[start.min(end)..(start + run as usize).min(end)].fill(true);
        });
        (first..end, arrived)
    }

    /// Reads a STOP; gives the segments that it names as holes for the first time.
    fn hear(&mut self, report: (SegmentReport, &[u8])) -> Vec<usize> {
        let (shown, arrived) = self.arrived(report);
        let mut news = Vec::new();
        for segment in shown.filter(|&segment| !arrived[segment]) {
            if !std::mem::replace(&mut self.holes[segment], true) {
                news.push(segment);
            }
        }
        news
    }

    fn told_holes(&self) -> ToldHoles {
        let mut sum = ToldHoles::default();
        for segment in (0..self.holes.len()).filter(|&segment| self.holes[segment]) {
            let bytes = u64::from(self.cut.length(segment as u32));
            sum.segments += 1;
            sum.bytes += bytes;
            sum.contribution_bytes += bytes * u64::from(self.contributors);
        }
        sum
    }
}

impl SeenSegment {
    /// Why a receiver that decided then must not have done without the segment, however late
    /// others are.
    fn was_there(&self, decided: Instant) -> Option<String> {
        let handed = self.handed.filter(|&handed| handed < decided)?;
        Some(format!("it was handed over {} before", decided - handed))
    }

    /// Why a receiver that decided then must not have accepted the segment as a hole of a message
    /// that began to arrive at `begun`.
    fn forbids(&self, decided: Instant, gap: Span, begun: Option<Instant>) -> Option<String> {
        if self.is_protected {
            return Some("it is protected".to_owned());
        }
        if self.sent == 0 {
            return Some("it was never sent".to_owned());
        }
        if self.handed == Some(decided) {
            return None; // read together with the packet that completed the message
        }
        if let Some(why) = self.was_there(decided) {
            return Some(why);
        }
        // Clocks of hosts differ a little.
        let allowed = gap.beyond(gap.divided(50));
        // A repair that the host drops after it has told that it does without is late.
        let is_late = |copy: &SeenCopy| self.accepted.is_some_and(|told| told <= copy.visible);
        let is_blamed = |copy: &SeenCopy| {
            !copy.is_dropped
                || !is_late(copy) && begun.is_some_and(|begun| begun <= copy.visible + KNOWN_AFTER)
        };
        let here = |copy: &&SeenCopy| copy.visible < decided && is_blamed(copy);
        if let Some(copy) = self.underway.iter().find(here) {
            let how = if copy.is_dropped {
                "was dropped by"
            } else {
                "reached"
            };
            return Some(format!(
                "it {how} its host {} before",
                decided - copy.visible
            ));
        }
        // A repair may come while the receiver gives the first transmission up. A copy that the
        // host dropped, and is not to blame for, is as good as lost by the network.
        let is_lost = |copy: &SeenCopy| copy.is_dropped && copy.visible < decided;
        let excuses = |copy: &SeenCopy| copy.late > allowed || is_lost(copy);
        if self.lost > 0 || self.underway.iter().any(excuses) {
            return None;
        }
        let copy = self.underway.first()?;
        Some(format!(
            "it arrives {} later, only {} later than by the shortest way",
            copy.visible - decided,
            copy.late
        ))
    }
}

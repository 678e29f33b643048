//! One message on its way in: what arrived, when it is complete, what to tell its sender.

use std::borrow::Cow;

use crate::bitmap::{self, Bitmap};
use crate::budget::{BudgetVerdict, Ledger};
use crate::grants::GrantNeed;
use crate::message::MessageOutline;
use crate::priority::{CONTROL, RepairNeed, TieBreaker};
use crate::segment::Segmentation;
use crate::settings::EndpointSettings;
use crate::units::{Class, Instant, MessageId, MessageKey, Share, Signature, Span, Step};
use crate::wire::{Flags, Header, PacketKind, REPORT_BYTES, SegmentReport, is_later};

/// What a receiver has to say about a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReportDue {
    /// Nothing.
    Nothing,
    /// An ACK, at this time or before.
    AckBy(Instant),
    /// A report of this kind that covers the whole message, now. Its next window starts here.
    Whole(PacketKind, u32),
}

/// Where a message stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ReceiveStage {
    /// Not posted yet: bytes are taken up to the grant, and the message cannot end.
    Early,
    /// Posted, with the share that may be missing.
    Posted(Share),
    /// Complete; waiting for the sender to say CLOSE.
    Complete,
}

/// A packet that has arrived, as reports echo it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct EchoStamp {
    sent_at: u32,
    class: Class,
    arrived: Instant,
}

impl EchoStamp {
    /// The one that was sent first.
    pub(crate) fn older(self, other: Self) -> Self {
        if is_later(self.sent_at, other.sent_at) {
            other
        } else {
            self
        }
    }
}

/// A message that has not been closed.
#[derive(Debug)]
pub(crate) struct ReceiveMessage {
    pub(crate) id: MessageId,
    pub(crate) key: MessageKey,
    signature: Signature,
    pub(crate) step: Step,
    pub(crate) cut: Segmentation,
    pub(crate) state: ReceiveStage,
    pub(crate) due: ReportDue,
    pub(crate) received: Bitmap,
    /// Header of the first packet with stamp and class of the newest, for the reports' headers.
    newest: Header,
    newest_at: Instant,
    /// When its first packet arrived.
    pub(crate) begun: Instant,
    protected_missing: u32,
    all_sent: bool,
    /// When the gap after the last arrival is over, once all was sent; of a complete message, when
    /// STOP is said again.
    pub(crate) gap_ends: Option<Instant>,
    gaps: u32,
    ce: u32,
    ce_entropies: u64,
    unreported: u32,
    lowest_unreported: u32,
    /// The first packet of those.
    first_unreported: Option<EchoStamp>,
    /// Segments, in sending order, that its sender may send.
    granted: u32,
    /// Of these, how many are still on their way as far as is known.
    expected: u32,
    /// What its sender has found lost and does not repair unasked.
    lost: Option<Bitmap>,
    /// What is missing and is done without: reserved in the ledger, and never asked for.
    accepted: Option<Bitmap>,
}

impl ReceiveMessage {
    pub(crate) fn new(now: Instant, header: &Header, settings: &EndpointSettings) -> Self {
        let segment_bytes = settings.segment_bytes;
        let cut = Segmentation::new(header.message_bytes, segment_bytes);
        Self {
            id: header.message,
            key: header.key,
            signature: header.signature,
            step: header.step,
            cut,
            state: ReceiveStage::Early,
            due: ReportDue::Nothing,
            received: Bitmap::new(cut.segments()),
            newest: *header,
            newest_at: now,
            begun: now,
            protected_missing: header.protected.min(cut.segments()),
            all_sent: false,
            gap_ends: None,
            gaps: 0,
            ce: 0,
            ce_entropies: 0,
            unreported: 0,
            lowest_unreported: u32::MAX,
            first_unreported: None,
            granted: settings.unscheduled_segments().min(cut.segments()),
            expected: settings.unscheduled_segments().min(cut.segments()),
            lost: None,
            accepted: None,
        }
    }

    /// Segments that are on their way.
    pub(crate) fn expected(&self) -> u32 {
        self.expected
    }

    /// Lets the sender send up to `most` segments more; tells how many, and whether it needs still
    /// more.
    pub(crate) fn grant(&mut self, now: Instant, most: u32) -> (u32, GrantNeed) {
        let more = most.min(self.cut.segments() - self.granted);
        self.granted += more;
        self.expected += more;
        if more > 0 && !matches!(self.due, ReportDue::Whole(..)) {
            self.due = ReportDue::AckBy(now);
        }
        let wants = match self.granted < self.cut.segments() {
            true => GrantNeed::More,
            false => GrantNeed::Nothing,
        };
        (more, wants)
    }

    /// It is known by a PROBE: the segments that its sender has sent, if any, are lost, and what
    /// was not sent waits for a grant.
    pub(crate) fn announce(&mut self, sent: u32) {
        (self.granted, self.expected) = (self.granted.min(sent), 0);
    }

    /// Nothing more is on its way; tells how much had been thought to be.
    pub(crate) fn settle(&mut self) -> u32 {
        std::mem::take(&mut self.expected)
    }

    /// A new segment has arrived; tells how many less are on their way.
    pub(crate) fn settle_one(&mut self) -> u32 {
        let one = self.expected.min(1);
        self.expected -= one;
        one
    }

    /// The sender has found these segments lost and does not repair them; what it named before, it
    /// repairs or knows to have arrived. Tells how many less are on their way.
    pub(crate) fn on_lost(&mut self, told: Option<(SegmentReport, &[u8])>) -> u32 {
        let before = self.lost.take();
        let Some((report, encoded)) = told else {
            return 0;
        };
        let segments = self.cut.segments();
        let (received, mut news) = (&self.received, 0);
        let mut lost = Bitmap::new(segments);
        let is_new = |segment| before.as_ref().is_none_or(|before| !before.has(segment));
        bitmap::decode_runs(encoded, report.bits, |at, run| {
            let first = report.first.saturating_add(at).min(segments);
            for segment in first..first.saturating_add(run).min(segments) {
                let missing = !received.has(segment) && lost.insert(segment);
                news += u32::from(missing && is_new(segment));
            }
        });
        self.lost = Some(lost);
        let less = news.min(self.expected);
        self.expected -= less;
        less
    }

    /// Whether all that is missing is lost, as its sender has said: waiting brings nothing.
    pub(crate) fn is_settled(&self) -> bool {
        let may_lose = matches!(self.state, ReceiveStage::Posted(share) if !share.is_none());
        let Some(lost) = self.lost.as_ref().filter(|_| may_lose && self.all_sent) else {
            return false;
        };
        let missing = self.received.zeros();
        missing > 0
            && lost.ones() >= missing
            && self.received.iter_zeros().all(|segment| lost.has(segment))
    }

    /// What its sender says of it.
    pub(crate) fn outline(&self) -> MessageOutline {
        MessageOutline {
            bytes: self.cut.bytes(),
            signature: self.signature,
        }
    }

    /// Whether a packet can belong to this message.
    pub(crate) fn fits(&self, header: &Header) -> bool {
        header.message_bytes == self.cut.bytes()
            && header.segments == self.cut.segments()
            && header.key == self.key
    }

    /// Takes a segment; tells whether it is new.
    pub(crate) fn on_data(&mut self, now: Instant, header: &Header, ledger: &mut Ledger) -> bool {
        let new = self.received.insert(header.segment);
        if new {
            self.take_back(header.segment, ledger);
            let protected = header.flags.has(Flags::PROTECTED);
            self.protected_missing = self.protected_missing.saturating_sub(u32::from(protected));
        }
        self.note_newest(now, header);
        if self.unreported == 0 {
            self.first_unreported = Some(self.newest());
        }
        self.unreported += 1;
        self.lowest_unreported = self.lowest_unreported.min(header.segment);
        new
    }

    /// Keeps what reports echo; all of the header would be a copy per packet.
    fn note_newest(&mut self, now: Instant, header: &Header) {
        (self.newest.sent_at, self.newest.class) = (header.sent_at, header.class);
        self.newest_at = now;
    }

    fn newest(&self) -> EchoStamp {
        EchoStamp {
            sent_at: self.newest.sent_at,
            class: self.newest.class,
            arrived: self.newest_at,
        }
    }

    /// The first of the packets that no report has told yet.
    pub(crate) fn first_unreported(&self) -> Option<EchoStamp> {
        self.first_unreported
    }

    /// A packet of the message came with CE.
    pub(crate) fn on_mark(&mut self, header: &Header) {
        self.ce += 1;
        self.ce_entropies |= 1 << (header.entropy.0 & 63);
    }

    /// Takes a PROBE.
    pub(crate) fn on_probe(&mut self, now: Instant, header: &Header) {
        self.note_newest(now, header);
        self.all_sent |= header.flags.has(Flags::ALL_SENT);
    }

    /// Starts waiting for stragglers anew, as long as the message may end with holes.
    pub(crate) fn restart_gap(&mut self, now: Instant, gap: Span) {
        let may_lose = matches!(self.state, ReceiveStage::Posted(share) if !share.is_none());
        let waits = may_lose && self.all_sent && self.received.zeros() > 0;
        self.gap_ends = waits.then(|| now + gap * (1 << self.gaps.min(4)));
    }

    /// The gap is over and not all holes are accepted: the sender is asked to repair the others.
    pub(crate) fn ask_repair(&mut self, now: Instant, gap: Span) {
        self.gaps += 1;
        self.lost = None;
        self.due = ReportDue::Whole(PacketKind::Bitmap, 0);
        self.restart_gap(now, gap);
    }

    /// The gap is over now: nothing more is waited for.
    pub(crate) fn end_gap(&mut self, now: Instant) {
        self.gap_ends = Some(now);
    }

    /// Does without as many of the missing segments as the message tolerates and its step bears,
    /// those that are needed least: what its sender has found lost goes before what may be late or
    /// protected, which a receiver cannot tell. The sender repairs what is protected all the same.
    pub(crate) fn accept_holes(&mut self, ledger: &mut Ledger) {
        let ReceiveStage::Posted(tolerance) = self.state else {
            return;
        };
        let segments = self.cut.segments();
        let mut accepted = (self.accepted.take()).unwrap_or_else(|| Bitmap::new(segments));
        let unprotected = self.received.zeros().saturating_sub(self.protected_missing);
        let most = self.cut.holes_allowed(tolerance).min(unprotected);
        let room = most.saturating_sub(accepted.ones());
        let is_lost = |segment| self.lost.as_ref().is_some_and(|lost| lost.has(segment));
        let lot = TieBreaker::of(self.newest.source, self.id);
        let mut holes: Vec<(bool, RepairNeed, u32)> = (self.received.iter_zeros())
            .filter(|&segment| room > 0 && !accepted.has(segment))
            .map(|segment| {
                (
                    !is_lost(segment),
                    RepairNeed::unknown(lot, segment),
                    segment,
                )
            })
            .collect();
        holes.sort_unstable();
        for (.., segment) in holes.into_iter().take(room as usize) {
            let bytes = u64::from(self.cut.length(segment));
            if ledger.reserve(self.step, bytes) == BudgetVerdict::Refused {
                break;
            }
            accepted.insert(segment);
        }
        self.accepted = Some(accepted);
    }

    /// A segment that was accepted as a hole has arrived.
    fn take_back(&mut self, segment: u32, ledger: &mut Ledger) {
        let was_accepted = (self.accepted.as_mut()).is_some_and(|holes| holes.remove(segment));
        if was_accepted {
            ledger.release(self.step, u64::from(self.cut.length(segment)));
        }
    }

    /// Whether nothing is missing but what was accepted.
    pub(crate) fn needs_nothing(&self) -> bool {
        let accepted = self.accepted.as_ref().map_or(0, Bitmap::ones);
        let missing = self.received.zeros();
        missing == accepted && (missing == 0 || self.protected_missing == 0)
    }

    /// Takes the holes that were accepted, and books them as lost.
    pub(crate) fn take_holes(&mut self, ledger: &mut Ledger) -> Option<Bitmap> {
        let holes = self.accepted.take().filter(|holes| holes.ones() > 0)?;
        let bytes = |segment| u64::from(self.cut.length(segment));
        let missing_bytes = holes.iter_ones().map(bytes).sum();
        ledger.lose(self.step, holes.ones(), missing_bytes);
        Some(holes)
    }

    /// Nothing more is needed; or the sender asks again, and has not heard so.
    pub(crate) fn complete(&mut self, now: Instant, gap: Span) {
        self.state = ReceiveStage::Complete;
        self.gaps = 0;
        self.say_stop(now, gap);
    }

    /// Says STOP, and again after a gap in which no CLOSE came.
    pub(crate) fn say_stop(&mut self, now: Instant, gap: Span) {
        self.due = ReportDue::Whole(PacketKind::Stop, 0);
        self.gaps += 1;
        self.gap_ends = Some(now + gap * (1 << self.gaps.min(8)));
    }

    /// How often STOP was said on the receiver's own account.
    pub(crate) fn stops_said(&self) -> u32 {
        self.gaps
    }

    /// When an ACK is due, where the message waits for nothing else.
    pub(crate) fn ack_by(&self) -> Option<Instant> {
        match (self.due, self.gap_ends) {
            (ReportDue::AckBy(by), None) => Some(by),
            _ => None,
        }
    }

    /// Segments that arrived since the last report.
    pub(crate) fn unreported(&self) -> u32 {
        self.unreported
    }

    /// Whether something must be said now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        match self.due {
            ReportDue::Nothing => false,
            ReportDue::AckBy(by) => by <= now,
            ReportDue::Whole(..) => true,
        }
    }

    /// Writes the next report into `body` and gives its header; `None` when nothing is due.
    ///
    /// `room` is the most bytes that the body may have. Nothing that was sent after `untold` is
    /// echoed: it has arrived and is another report's to tell.
    pub(crate) fn poll_report(
        &mut self,
        now: Instant,
        untold: Option<EchoStamp>,
        room: usize,
        body: &mut Vec<u8>,
    ) -> Option<Header> {
        let (kind, first, whole) = match self.due {
            ReportDue::Nothing => return None,
            ReportDue::AckBy(_) => (
                PacketKind::Ack,
                self.lowest_unreported.min(self.cut.segments()),
                false,
            ),
            ReportDue::Whole(kind, first) => (kind, first, true),
        };
        let shown = self.shown(kind);
        let cumulative = shown.first_zero(0);
        let first = first.max(cumulative);
        let segments = self.cut.segments();
        body.clear();
        body.resize(REPORT_BYTES, 0);
        let bits = shown.encode(first, room - REPORT_BYTES, body);
        let newest = self.newest();
        let echo = untold.map_or(newest, |untold| newest.older(untold));
        let report = SegmentReport {
            echo: echo.sent_at,
            held: (now - echo.arrived).as_micros() as u32,
            ce: self.ce,
            received: self.received.ones(),
            granted: self.granted,
            ce_entropies: self.ce_entropies,
            cumulative,
            first,
            bits,
            echo_class: echo.class,
        };
        body[..REPORT_BYTES].copy_from_slice(&report.encoded());
        let end = first + bits;
        self.due = if whole && end < segments {
            ReportDue::Whole(kind, end)
        } else {
            ReportDue::Nothing
        };
        self.ce_entropies = 0;
        self.unreported = 0;
        self.lowest_unreported = u32::MAX;
        self.first_unreported = None;
        let length = body.len() as u16;
        let (class, flags) = (CONTROL, Flags::NONE);
        Some(Header {
            kind,
            flags,
            class,
            length,
            sent_at: now.wire_micros().max(1),
            ..self.newest
        })
    }

    /// What a report shows as arrived: a BITMAP, which asks for all else, shows what is done
    /// without, too.
    fn shown(&self, kind: PacketKind) -> Cow<'_, Bitmap> {
        match &self.accepted {
            Some(accepted) if kind == PacketKind::Bitmap => {
                let mut shown = self.received.clone();
                for segment in accepted.iter_ones() {
                    shown.insert(segment);
                }
                Cow::Owned(shown)
            }
            _ => Cow::Borrowed(&self.received),
        }
    }
}

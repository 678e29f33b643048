//! When a message has something to report, and the packet that the report echoes.

use serde::{Deserialize, Serialize};

use crate::settings::EndpointSettings;
use crate::units::{Class, Instant, Span};
use crate::wire::{Flags, Header, PacketKind, SegmentReport, is_later};

/// An acknowledgement waits at most this long for more segments to report, and one that tells of
/// marks for this part of a gap, if that is less: the window that the marks make small is empty
/// meanwhile.
const ACK_WAIT: Span = Span::from_micros(50);
const MARKED_WAITS_PER_GAP: u64 = 4;

/// Packets that arrive less than this apart carry stamps of the same turn of 2^32 microseconds.
const STAMPS_COMPARED: Span = Span::from_micros(1 << 30);

/// The next report of a message.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) enum ReportDue {
    /// None.
    None,
    /// An ACK, at this time or before.
    AckBy(Instant),
    /// A report of this kind that covers the whole message, now. Its next window starts here.
    Whole(PacketKind, u32),
}

impl ReportDue {
    /// When it is due; [`Instant::START`] means now.
    pub(super) fn time(self) -> Option<Instant> {
        match self {
            Self::None => None,
            Self::AckBy(by) => Some(by),
            Self::Whole(..) => Some(Instant::START),
        }
    }
}

/// A packet that has arrived, as reports echo it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct EchoStamp {
    sent_at: u32,
    class: Class,
    arrived: Instant,
}

impl EchoStamp {
    fn of(header: &Header, now: Instant) -> Self {
        Self {
            sent_at: header.sent_at,
            class: header.class,
            arrived: now,
        }
    }

    /// The one that was sent first. Stamps of packets that arrived long after each other have
    /// wrapped.
    pub(super) fn older(self, other: Self) -> Self {
        let later = match (self.arrived - other.arrived).max(other.arrived - self.arrived) {
            apart if apart < STAMPS_COMPARED => is_later(self.sent_at, other.sent_at),
            _ => self.arrived > other.arrived,
        };
        match later {
            true => other,
            false => self,
        }
    }
}

/// The content of the next report of one message.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct ReportState {
    pub(super) due: ReportDue,
    newest: EchoStamp,
    /// Packets with CE, so far.
    marks: u32,
    /// Bit e: a packet on entropy e had CE since the last report.
    marked_entropies: u64,
    /// Packets since the last report.
    unreported: u32,
    lowest_unreported: u32,
    /// The lowest segments that were new in the last report and in the one before. The next one
    /// covers them again: reports may be lost, and no other ones name segments after a hole.
    lowest_reported: [u32; 2],
    /// The first of those packets.
    first_unreported: Option<EchoStamp>,
}

impl ReportState {
    /// The state of a message whose first packet has arrived; that packet is acknowledged like any
    /// other.
    pub(super) fn new(header: &Header, now: Instant) -> Self {
        Self {
            due: ReportDue::AckBy(now + ACK_WAIT),
            newest: EchoStamp::of(header, now),
            marks: 0,
            marked_entropies: 0,
            unreported: 0,
            lowest_unreported: u32::MAX,
            lowest_reported: [u32::MAX; 2],
            first_unreported: None,
        }
    }

    /// Packets came with CE.
    pub(super) fn on_marks(&mut self, header: &Header, packets: u32) {
        self.marks += packets;
        self.marked_entropies |= 1 << (header.entropy.0 & 63);
    }

    /// DATA packets have arrived, the first of them with this header. Enough of them are
    /// acknowledged now, fewer a little later.
    pub(super) fn on_data(
        &mut self,
        now: Instant,
        header: &Header,
        packets: u32,
        settings: &EndpointSettings,
    ) {
        self.newest = EchoStamp::of(header, now);
        self.on_segments(now, header, packets, settings);
    }

    /// Segments are there, the first of them with this header.
    pub(super) fn on_segments(
        &mut self,
        now: Instant,
        header: &Header,
        packets: u32,
        settings: &EndpointSettings,
    ) {
        if self.unreported == 0 {
            self.first_unreported = Some(self.newest);
        }
        self.unreported += packets;
        self.lowest_unreported = self.lowest_unreported.min(header.segment);
        let is_asked = header.flags.has(Flags::IMMEDIATE_ACK);
        let by = match is_asked || settings.is_worth_an_ack(self.unreported) {
            true => now,
            false if self.marked_entropies != 0 => {
                now + settings.gap.divided(MARKED_WAITS_PER_GAP).min(ACK_WAIT)
            }
            false => now + ACK_WAIT,
        };
        match self.due {
            ReportDue::AckBy(earlier) if earlier <= by => {}
            ReportDue::None | ReportDue::AckBy(_) => self.due = ReportDue::AckBy(by),
            // The whole message is reported anyway.
            ReportDue::Whole(..) => {}
        }
    }

    /// A PROBE has arrived, which is echoed like DATA.
    pub(super) fn on_probe(&mut self, now: Instant, header: &Header) {
        self.newest = EchoStamp::of(header, now);
    }

    /// The first packet that no report has named yet.
    pub(super) fn first_unreported(&self) -> Option<EchoStamp> {
        self.first_unreported
    }

    /// An acknowledgement is due now, unless the whole message is reported anyway.
    pub(super) fn ack_now(&mut self, now: Instant) {
        if !matches!(self.due, ReportDue::Whole(..)) {
            self.due = ReportDue::AckBy(now);
        }
    }

    /// The message is complete: an acknowledgement that is due says so.
    pub(super) fn stop_in_place_of_ack(&mut self) {
        if matches!(
            self.due,
            ReportDue::AckBy(_) | ReportDue::Whole(PacketKind::Ack, _)
        ) {
            self.due = ReportDue::Whole(PacketKind::Stop, 0);
        }
    }

    /// A report of this kind was not sent after all. Its packets count as unreported until the next
    /// report, which covers the whole message.
    pub(super) fn again(&mut self, kind: PacketKind) {
        if !matches!(self.due, ReportDue::Whole(..)) || kind != PacketKind::Ack {
            self.due = ReportDue::Whole(kind, 0);
        }
        self.first_unreported = Some(self.newest);
    }

    /// Whether a report is due now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.time().is_some_and(|due| due <= now)
    }

    /// The kind of the next report, and the first segment that its bitmap has to cover.
    pub(super) fn next(&self) -> Option<(PacketKind, u32)> {
        match self.due {
            ReportDue::None => None,
            ReportDue::AckBy(_) => {
                let [last, before] = self.lowest_reported;
                let lowest = self.lowest_unreported.min(last).min(before);
                Some((PacketKind::Ack, lowest))
            }
            ReportDue::Whole(kind, first) => Some((kind, first)),
        }
    }

    /// A report with the echo and the marks. No packet that was sent after `untold` is echoed: it
    /// has arrived, and another message's report has yet to name it.
    pub(super) fn draft(&self, now: Instant, untold: Option<EchoStamp>) -> SegmentReport {
        let echo = untold.map_or(self.newest, |untold| self.newest.older(untold));
        SegmentReport {
            echo: echo.sent_at,
            held: u32::try_from((now - echo.arrived).as_micros()).unwrap_or(u32::MAX),
            ce: self.marks,
            ce_entropies: self.marked_entropies,
            echo_class: echo.class,
            ..SegmentReport::default()
        }
    }

    /// A report has named the segments before `end`, of `segments`.
    pub(super) fn on_reported(&mut self, end: u32, segments: u32) {
        self.due = match self.due {
            ReportDue::Whole(kind, _) if end < segments => ReportDue::Whole(kind, end),
            _ => ReportDue::None,
        };
        self.marked_entropies = 0;
        self.unreported = 0;
        self.lowest_reported = [self.lowest_unreported, self.lowest_reported[0]];
        self.lowest_unreported = u32::MAX;
        self.first_unreported = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_packets_an_hour_apart_the_earlier_one_is_older() {
        let stamp = |minutes: u64, start: u32| EchoStamp {
            sent_at: start.wrapping_add((minutes * 60_000_000) as u32),
            class: Class(1),
            arrived: Instant::START + Span::from_millis(minutes * 60_000),
        };
        for start in [0, 1 << 31, u32::MAX] {
            for minutes in [1, 17, 18, 36, 50, 72, 1_000] {
                let (first, second) = (stamp(0, start), stamp(minutes, start));
                assert_eq!(first.older(second), first, "{minutes} minutes");
                assert_eq!(second.older(first), first, "{minutes} minutes");
            }
        }
    }
}

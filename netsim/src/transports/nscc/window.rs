//! The window of NSCC, a machine without network: marks, round trips and NACKs in, bytes out.
//!
//! Each ACK falls in one of four cells:
//!
//! | | queues shorter than the target | longer |
//! |---|---|---|
//! | unmarked | grow in proportion to the distance from the target | grow a little |
//! | marked | another path, no change | shrink by the average delay, once a round trip |
//!
//! - Growth is collected and applied after [`ADJUST_PACKETS`] packets or a round trip.
//! - If a whole window finds empty queues, the window grows by a quarter of each ACK.
//! - A NACK takes its packet from the window. If after NACKs, or with a very long delay, less than
//!   an eighth of the largest window came through in a round trip, the window becomes what came
//!   through (Quick Adapt), and what was in flight then changes it no more.
//!
//! Constants are those of the Ultra Ethernet specification 1.0, section 3.6.13, in units of the
//! packet and scaled by the bandwidth-delay product to that of 100 Gb/s and 12 us.

use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{Instant, Span};

use crate::transports::settings::ReferenceSettings;

/// The bandwidth-delay product that the specification's constants are for: 12 us at 100 Gb/s.
const REFERENCE_BYTES: f64 = 150_000.0;
const REFERENCE_RTT: Span = Span::from_micros(12);
/// Largest window, and first one, in bandwidth-delay products.
const LARGEST: f64 = 1.5;
/// Target delay of queues that trim, in round trips.
const TARGET: f64 = 0.75;
/// Growth per window, in packets: in proportion, a little, and each round trip in any case.
const PROPORTIONAL: f64 = 4.0;
const FAIR: f64 = 5.0;
const ALWAYS: f64 = 0.15;
/// Growth per byte while queues are empty.
const FAST: f64 = 0.25;
/// A delay below this is an empty queue.
const EMPTY: Span = Span::from_micros(1);
/// How strongly the average delay shrinks the window, and the least that is left of it.
const SHRINKING: f64 = 0.8;
const LEAST_LEFT: f64 = 0.5;
/// Weight of a new delay in the average.
const NEW_DELAY: f64 = 0.0125;
/// Packets after which growth is applied.
const ADJUST_PACKETS: f64 = 8.0;
/// Quick Adapt happens if less than this share of the largest window came through, or with a delay
/// of this many targets.
const ADAPT_SHARE: f64 = 0.125;
const ADAPT_TARGETS: u64 = 4;

/// An ACK of a sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NsccAck {
    /// Bytes that it is news about.
    pub(crate) bytes: f64,
    /// The ECN bits of its packet.
    pub(crate) ecn: Ecn,
    /// Time from its packet to it.
    pub(crate) round_trip: Span,
    /// Bytes still in flight.
    pub(crate) in_flight: f64,
}

/// The terms that all windows of a fabric share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NsccTerms {
    /// Bytes of a full packet.
    packet: f64,
    bytes_per_pico: f64,
    round_trip: Span,
    target: Span,
    scale: f64,
}

impl NsccTerms {
    /// Those of a fabric.
    pub(crate) fn of(settings: &ReferenceSettings) -> Self {
        let round_trip = settings.base_rtt;
        let bytes_per_pico = settings.rate.as_bits_per_second() as f64 / 8e12;
        let target = round_trip.as_picos() as f64 * TARGET;
        Self {
            packet: settings.full_packet_bytes().get() as f64,
            bytes_per_pico,
            round_trip,
            target: Span::from_picos(target as u64),
            scale: round_trip.as_picos() as f64 * bytes_per_pico / REFERENCE_BYTES,
        }
    }

    fn largest(&self, round_trip: Span) -> f64 {
        LARGEST * round_trip.as_picos() as f64 * self.bytes_per_pico
    }
}

/// The window of a flow.
#[derive(Debug)]
pub(crate) struct NsccWindow {
    terms: NsccTerms,
    bytes: f64,
    largest: f64,
    /// Least round trip so far.
    round_trip: Span,
    /// Average delay by queues, in picoseconds.
    delay: f64,
    /// Growth to be applied, times the window.
    growth: f64,
    /// Bytes that have arrived since growth was applied, and when that was.
    arrived: f64,
    adjusted: Instant,
    shrunk: Instant,
    /// Bytes that have found empty queues, and whether a whole window has.
    empty: f64,
    is_empty: bool,
    adapting: Adapting,
}

/// The state of Quick Adapt.
#[derive(Debug, Default)]
struct Adapting {
    /// Bytes that came through since the round trip began, which ends then.
    achieved: f64,
    ends: Option<Instant>,
    after_nack: bool,
    /// Bytes that have come back of those to ignore.
    ignored: f64,
    to_ignore: f64,
}

impl NsccWindow {
    /// A flow that begins.
    pub(crate) fn new(now: Instant, terms: NsccTerms) -> Self {
        let largest = terms.largest(terms.round_trip);
        Self {
            terms,
            bytes: largest,
            largest,
            round_trip: terms.round_trip,
            delay: 0.0,
            growth: 0.0,
            arrived: 0.0,
            adjusted: now,
            shrunk: now,
            empty: 0.0,
            is_empty: false,
            adapting: Adapting::default(),
        }
    }

    /// Whether one more packet may be in flight.
    pub(crate) fn admits(&self, in_flight: f64) -> bool {
        in_flight + self.terms.packet <= self.bytes
    }

    /// Takes an ACK.
    pub(crate) fn on_ack(&mut self, now: Instant, ack: &NsccAck) {
        self.adapting.achieved += ack.bytes;
        self.adapting.ignored += ack.bytes;
        self.arrived += ack.bytes;
        self.note_least(ack.round_trip);
        let delay = beyond(ack.round_trip, self.round_trip);
        let is_long = delay >= self.terms.target;
        // A long delay without a mark is of a queue that has just emptied.
        let has_emptied = ack.ecn != Ecn::Ce && delay > self.terms.target;
        self.average(if has_emptied {
            self.round_trip.divided(4)
        } else {
            delay
        });
        if self.adapts(now, ack.in_flight, ack.ecn, delay) {
            return;
        }
        match (ack.ecn == Ecn::Ce, is_long) {
            (false, true) => self.growth += FAIR * self.terms.packet * self.terms.scale * ack.bytes,
            (false, false) => self.grow(ack.bytes, delay),
            (true, true) => self.shrink(now),
            (true, false) => {}
        }
        self.bound();
        let is_due = now.since(self.adjusted) > self.terms.round_trip;
        if is_due || self.arrived > ADJUST_PACKETS * self.terms.packet {
            self.bytes += self.growth / self.bytes;
            if is_due {
                self.bytes += ALWAYS * self.terms.packet * self.terms.scale;
                self.adjusted = now;
            }
            (self.growth, self.arrived) = (0.0, 0.0);
            self.bound();
        }
    }

    /// Takes the NACK of a trimmed packet.
    pub(crate) fn on_nack(&mut self, now: Instant, round_trip: Span, in_flight: f64) {
        self.adapting.ignored += self.terms.packet;
        self.adapting.after_nack = true;
        self.note_least(round_trip);
        // The queue that trimmed it held a round trip of packets.
        self.average(self.terms.round_trip);
        if !self.adapts(now, in_flight, Ecn::Ce, Span::ZERO) {
            self.lose(1);
        }
    }

    /// This many packets got no answer, or were trimmed.
    pub(crate) fn lose(&mut self, packets: u32) {
        self.bytes -= f64::from(packets) * self.terms.packet;
        self.bound();
    }

    fn bound(&mut self) {
        self.bytes = self.bytes.min(self.largest).max(self.terms.packet);
    }

    fn note_least(&mut self, round_trip: Span) {
        if round_trip < self.round_trip {
            self.round_trip = round_trip;
            self.largest = self.terms.largest(round_trip);
        }
    }

    fn average(&mut self, delay: Span) {
        self.delay += NEW_DELAY * (delay.as_picos() as f64 - self.delay);
    }

    fn grow(&mut self, bytes: f64, delay: Span) {
        self.empty = if delay < EMPTY {
            self.empty + bytes
        } else {
            0.0
        };
        self.is_empty = delay < EMPTY && (self.is_empty || self.empty > self.bytes);
        if self.is_empty {
            self.bytes += bytes * FAST * self.terms.scale;
            return;
        }
        let left = beyond(self.terms.target, delay).as_picos() as f64;
        let slope =
            PROPORTIONAL * self.terms.packet * self.terms.scale / REFERENCE_RTT.as_picos() as f64;
        self.growth += slope * bytes * left;
    }

    fn shrink(&mut self, now: Instant) {
        (self.empty, self.is_empty) = (0.0, false);
        let target = self.terms.target.as_picos() as f64;
        if self.delay > target && now.since(self.shrunk) > self.round_trip {
            let left = 1.0 - SHRINKING * (self.delay - target) / self.delay;
            self.bytes *= left.max(LEAST_LEFT);
            self.shrunk = now;
        }
    }

    /// Quick Adapt: whether it happened, or this answer is of before it.
    fn adapts(&mut self, now: Instant, in_flight: f64, ecn: Ecn, delay: Span) -> bool {
        let (adapting, target) = (&mut self.adapting, self.terms.target);
        let mut is_done = ecn == Ecn::Ce && adapting.ignored < adapting.to_ignore;
        if !is_done && adapting.ends.is_none_or(|ends| ends < now) {
            let is_bad = adapting.after_nack || delay > target * ADAPT_TARGETS;
            let is_little = adapting.achieved < self.largest * ADAPT_SHARE;
            if adapting.ends.is_some() && is_bad && is_little {
                self.bytes = adapting.achieved.max(self.terms.packet);
                (adapting.to_ignore, adapting.ignored) = (in_flight, 0.0);
                (adapting.after_nack, is_done) = (false, true);
            }
            adapting.achieved = 0.0;
            adapting.ends = Some(now + self.round_trip + target);
        }
        if is_done {
            (self.growth, self.arrived) = (0.0, 0.0);
        }
        is_done
    }
}

/// How much longer the first span is.
fn beyond(span: Span, other: Span) -> Span {
    Span::from_picos(span.as_picos().saturating_sub(other.as_picos()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transports::reference::star::settings;

    fn window() -> NsccWindow {
        NsccWindow::new(Instant::START, NsccTerms::of(&settings()))
    }

    fn ack(ecn: Ecn, delay: Span) -> NsccAck {
        NsccAck {
            bytes: 4150.0,
            ecn,
            round_trip: settings().base_rtt + delay,
            in_flight: 40_000.0,
        }
    }

    /// Sends this many packets' answers, 332 ns apart, from `now` on; returns when that ended.
    fn answers(window: &mut NsccWindow, now: Instant, count: u64, ack: &NsccAck) -> Instant {
        let at = |n| now + Span::from_nanos(332) * n;
        (0..count).for_each(|n| window.on_ack(at(n), ack));
        at(count)
    }

    #[test]
    fn a_window_begins_with_one_and_a_half_round_trips() {
        let (window, bytes) = (window(), 1.5 * 4_674_240.0 / 80.0);
        assert!((window.bytes - bytes).abs() < 1.0, "{}", window.bytes);
        assert!(window.admits(bytes - 4151.0) && !window.admits(bytes - 4149.0));
    }

    #[test]
    fn marks_alone_leave_the_window_and_with_delay_they_shrink_it() {
        let mut window = window();
        let largest = window.bytes;
        let short = ack(Ecn::Ce, Span::from_micros(2));
        let now = answers(&mut window, Instant::START, 100, &short);
        assert!(window.bytes >= largest - 1.0);
        let long = ack(Ecn::Ce, Span::from_micros(12));
        answers(&mut window, now, 100, &long);
        assert!(window.bytes < 0.8 * largest, "{}", window.bytes);
    }

    #[test]
    fn trimmed_packets_leave_what_comes_through() {
        let mut window = window();
        window.on_nack(Instant::START, settings().base_rtt, 60_000.0);
        let through = ack(Ecn::Ect, Span::ZERO);
        window.on_ack(Instant::START + Span::from_micros(1), &through);
        let later = Instant::START + Span::from_micros(20);
        window.on_nack(later, settings().base_rtt, 60_000.0);
        assert_eq!(window.bytes, 4150.0);
    }
}

//! The window of Swift, in packets or parts of one.
//!
//! Below the target delay it grows by a packet per round trip; above, it shrinks once per round
//! trip in proportion to the excess (algorithm 1). The target is longer for smaller windows, of
//! which many share a link (section 3.5). The paper gives no base target: it is one and a half
//! round trips of the idle fabric here. Other constants are those of csg-htsim.

use gradwire_protocol::units::{Instant, Span};

use crate::transports::reference::windowed::{AckNews, FlowWindow};
use crate::transports::settings::ReferenceSettings;

/// How strongly delay shrinks the window (beta).
const SHRINKING: f64 = 0.8;
/// The largest part of the window that one cut takes, for delay or for a loss.
const CUT_MAX: f64 = 0.5;
/// Base target, in round trips of the idle fabric.
const BASE: f64 = 1.5;
/// Range of the part of the target that depends on the window, in base targets.
const RANGE: f64 = 5.0;
/// Windows between which it does.
const SMALL: f64 = 0.1;
const LARGE: f64 = 100.0;
/// Bounds of the window.
const LEAST: f64 = 0.01;
const MOST: f64 = 1000.0;
/// Timeouts in a row after which it restarts.
const RESTARTS_AFTER: u32 = 5;

/// The window of a flow.
#[derive(Clone, Debug)]
pub struct SwiftWindow {
    size: f64,
    /// Base target in picoseconds.
    base: f64,
    round_trip: Span,
    shrunk: Option<Instant>,
    timeouts: u32,
}

impl SwiftWindow {
    /// A window of a bandwidth-delay product.
    pub(crate) fn new(settings: &ReferenceSettings) -> Self {
        Self {
            size: f64::from(settings.bandwidth_delay().max(1)),
            base: settings.base_rtt.as_picos() as f64 * BASE,
            round_trip: settings.base_rtt,
            shrunk: None,
            timeouts: 0,
        }
    }

    /// The target delay, in picoseconds.
    fn target(&self) -> f64 {
        let range = self.base * RANGE;
        let slope = range / (SMALL.sqrt().recip() - LARGE.sqrt().recip());
        let of_window = slope * (self.size.sqrt().recip() - LARGE.sqrt().recip());
        self.base + of_window.clamp(0.0, range)
    }

    fn shrink_by(&mut self, now: Instant, share: f64) {
        let is_due = |at: Instant| now.since(at) >= self.round_trip;
        if self.shrunk.is_none_or(is_due) {
            self.size *= 1.0 - share.min(CUT_MAX);
            self.shrunk = Some(now);
        }
    }
}

impl FlowWindow for SwiftWindow {
    fn admits(&self, in_flight: u32) -> bool {
        f64::from(in_flight) + 1.0 <= self.size.max(1.0)
    }

    fn on_ack(&mut self, news: &AckNews) {
        self.timeouts = 0;
        self.round_trip = news.round_trip;
        let (delay, target) = (news.round_trip.as_picos() as f64, self.target());
        if news.lost > 0 {
            self.shrink_by(news.now, CUT_MAX);
        } else if delay < target {
            self.size += self.size.max(1.0).recip();
        } else {
            self.shrink_by(news.now, SHRINKING * (delay - target) / delay);
        }
        self.size = self.size.clamp(LEAST, MOST);
    }

    fn on_timeout(&mut self, now: Instant, _next_number: u32) {
        self.timeouts += 1;
        match self.timeouts >= RESTARTS_AFTER {
            true => self.size = LEAST,
            false => self.shrink_by(now, CUT_MAX),
        }
    }

    fn gap(&self) -> Option<Span> {
        let gap = self.round_trip.as_picos() as f64 / self.size;
        (self.size < 1.0).then(|| Span::from_picos(gap as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transports::reference::star::settings;

    fn news(now: Instant, round_trip: Span, lost: u32) -> AckNews {
        AckNews {
            now,
            round_trip,
            number: 0,
            marked: false,
            lost,
            next_number: 1,
            in_flight: 1,
        }
    }

    #[test]
    fn a_round_trip_of_acks_below_the_target_adds_a_packet() {
        let mut window = SwiftWindow::new(&settings());
        let before = window.size;
        for _ in 0..before as u32 {
            window.on_ack(&news(Instant::START, settings().base_rtt, 0));
        }
        assert!((window.size - before - 1.0).abs() < 0.1, "{}", window.size);
    }

    #[test]
    fn delay_shrinks_the_window_once_per_round_trip() {
        let mut window = SwiftWindow::new(&settings());
        let late = settings().base_rtt * 10;
        let before = window.size;
        window.on_ack(&news(Instant::START, late, 0));
        assert_eq!(window.size, before * CUT_MAX);
        window.on_ack(&news(Instant::START + late, late, 0));
        assert_eq!(window.size, before * CUT_MAX * CUT_MAX);
        window.on_ack(&news(Instant::START + late, late, 1));
        assert_eq!(window.size, before * CUT_MAX * CUT_MAX);
    }

    #[test]
    fn a_window_below_a_packet_waits_between_packets() {
        let mut window = SwiftWindow::new(&settings());
        window.size = 0.25;
        assert_eq!(window.gap(), Some(settings().base_rtt * 4));
        assert!(window.admits(0) && !window.admits(1));
        let base = settings().base_rtt.as_picos() as f64 * BASE;
        let (least, most) = (base, base * (1.0 + RANGE));
        assert!(window.target() > least && window.target() < most);
        window.size = SMALL;
        assert!((window.target() / most - 1.0).abs() < 1e-9);
    }
}

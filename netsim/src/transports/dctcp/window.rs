//! The window of DCTCP: how many packets of a flow may be in flight.
//!
//! Slow start, then one packet more per round trip. A mark shrinks the window once per round trip
//! by half of alpha, the running share of marked packets (Alizadeh et al., section 3.1; constants
//! of RFC 8257); a loss halves it, a timeout restarts it, as in TCP (RFC 5681).

use gradwire_protocol::units::Instant;

use crate::transports::reference::scoreboard::REORDERING;
use crate::transports::reference::windowed::{AckNews, FlowWindow};

/// Weight of the newest round trip in alpha (g of the paper).
const GAIN: f64 = 1.0 / 16.0;

/// The window of a flow, in packets.
#[derive(Clone, Debug)]
pub struct DctcpWindow {
    size: f64,
    slow_start_below: f64,
    alpha: f64,
    answered: u32,
    marked: u32,
    /// The round trip that is being counted ends with this transmission.
    round_ends: u32,
    /// The window has already reacted to marks and losses of earlier transmissions.
    answered_until: u32,
}

impl DctcpWindow {
    /// A window that starts with this many packets.
    pub(crate) fn new(packets: u32) -> Self {
        Self {
            size: f64::from(packets.max(1)),
            slow_start_below: f64::INFINITY,
            alpha: 1.0,
            answered: 0,
            marked: 0,
            round_ends: 0,
            answered_until: 0,
        }
    }

    fn count(&mut self, news: &AckNews) {
        self.answered += 1;
        self.marked += u32::from(news.marked);
        if news.number >= self.round_ends {
            let share = f64::from(self.marked) / f64::from(self.answered);
            self.alpha += GAIN * (share - self.alpha);
            (self.answered, self.marked) = (0, 0);
            self.round_ends = news.next_number;
        }
    }

    fn shrink_to(&mut self, size: f64, next_number: u32) {
        self.size = size.max(1.0);
        self.slow_start_below = size.max(2.0);
        self.answered_until = next_number;
    }
}

impl FlowWindow for DctcpWindow {
    fn admits(&self, in_flight: u32) -> bool {
        f64::from(in_flight) + 1.0 <= self.size
    }

    fn on_ack(&mut self, news: &AckNews) {
        self.count(news);
        // The newest transmission that it shows to be lost has this number, or a lower one.
        let lost = news.number.saturating_sub(REORDERING);
        if news.lost > 0 && lost >= self.answered_until {
            self.shrink_to(self.size / 2.0, news.next_number);
        } else if news.marked && news.number >= self.answered_until {
            self.shrink_to(self.size * (1.0 - self.alpha / 2.0), news.next_number);
        } else if !news.marked && !self.admits(news.in_flight) {
            let slow_start = self.size < self.slow_start_below;
            self.size += if slow_start { 1.0 } else { 1.0 / self.size };
        }
    }

    fn on_timeout(&mut self, _now: Instant, next_number: u32) {
        self.shrink_to(self.size / 2.0, next_number);
        self.size = 1.0;
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::Span;

    use super::*;

    fn news(number: u32) -> AckNews {
        AckNews {
            now: Instant::START,
            round_trip: Span::ZERO,
            number,
            marked: false,
            lost: 0,
            next_number: number + 10,
            in_flight: 10,
        }
    }

    #[test]
    fn losses_of_one_window_halve_it_once() {
        let mut window = DctcpWindow::new(16);
        let lost = |number| AckNews {
            lost: 1,
            ..news(number)
        };
        for (number, size) in [(3, 8.0), (12, 8.0), (15, 8.0), (16, 4.0)] {
            window.on_ack(&lost(number));
            assert_eq!(window.size.floor(), size, "by transmission {number}");
        }
    }

    #[test]
    fn the_first_mark_halves_and_the_next_one_of_the_round_trip_does_nothing() {
        let mut window = DctcpWindow::new(10);
        window.on_ack(&AckNews {
            marked: true,
            ..news(0)
        });
        assert_eq!(window.size, 5.0);
        window.on_ack(&AckNews {
            marked: true,
            ..news(5)
        });
        assert_eq!(window.size, 5.0);
    }

    #[test]
    fn alpha_follows_the_share_of_marks() {
        let mut window = DctcpWindow::new(10);
        for number in 0..4000 {
            window.on_ack(&AckNews {
                marked: number % 4 == 0,
                ..news(number)
            });
        }
        assert!(
            (window.alpha - 0.25).abs() < 0.05,
            "alpha is {}",
            window.alpha
        );
    }

    #[test]
    fn a_window_that_is_not_full_does_not_grow() {
        let mut window = DctcpWindow::new(10);
        window.on_ack(&AckNews {
            in_flight: 8,
            ..news(0)
        });
        assert!(window.admits(9) && !window.admits(10));
        window.on_ack(&news(1));
        assert!(window.admits(10) && !window.admits(11));
    }

    #[test]
    fn a_timeout_starts_at_one_packet_and_slows_at_half_of_what_was() {
        let mut window = DctcpWindow::new(16);
        window.on_timeout(Instant::START, 20);
        assert!(window.admits(0) && !window.admits(1));
        for number in 20..27 {
            window.on_ack(&news(number));
        }
        assert_eq!(window.size, 8.0);
        window.on_ack(&news(27));
        assert_eq!(window.size, 8.125);
    }
}

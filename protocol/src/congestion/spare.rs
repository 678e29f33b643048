//! Capacity that other senders have left: a path whose queue has marked shows neither marks nor a
//! queue for a round trip.
//!
//! The window then grows by up to [`GROWTH`] of itself in the next round trip, where one packet a
//! round trip would take long to fill the link. The growth is at most that part of what this sender
//! had in the queue when it marked: on a long path with a short queue it is small. A cut ends it.

use serde::{Deserialize, Serialize};

use crate::rtt::Rtt;
use crate::units::Span;

/// The part of itself by which a window grows in a round trip.
const GROWTH: f64 = 1.0 / 3.0;
/// Each round trip with marks counts as this part of the smoothed delay.
const DELAY_PART: u64 = 4;
/// A queue has gone when it delays packets by at most this part of the delay beside marks.
const GONE_PART: u64 = 2;

/// What the marks of a path say about the length of its queue, and whether that has gone.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct SpareCapacity {
    /// The smoothed queueing delay of round trips with marks; 0 before the first.
    marked_delay: Span,
    /// The part by which the window grows in this round trip; 0 without spare capacity.
    part: f64,
    /// Whether the window was filled in this round trip.
    is_filled: bool,
}

impl SpareCapacity {
    /// A round trip is over that had so many marks and found so many segments lost.
    pub(super) fn end_round(&mut self, (marks, lost): (u32, u32), no_queue: Span, rtt: &Rtt) {
        let delay = rtt.smoothed().beyond(rtt.least());
        if marks > 0 {
            let older = self.marked_delay;
            self.marked_delay = match older {
                Span::ZERO => delay,
                _ => older.beyond(older.divided(DELAY_PART)) + delay.divided(DELAY_PART),
            };
        }
        let gone = no_queue.min(self.marked_delay.divided(GONE_PART));
        let is_filled = std::mem::take(&mut self.is_filled);
        let is_spare = is_filled && marks == 0 && lost == 0 && delay <= gone;
        let held = self.marked_delay.as_secs_f64() / rtt.smoothed().as_secs_f64();
        self.part = f64::from(is_spare) * held.min(1.0) * GROWTH;
    }

    /// By how many bytes a window that is filled grows at least when this many were acknowledged.
    pub(super) fn growth(&mut self, acked: u64) -> u64 {
        self.is_filled = true;
        (acked as f64 * self.part) as u64
    }

    /// The window was cut, or is filled again after a pause.
    pub(super) fn on_cut(&mut self) {
        (self.part, self.is_filled) = (0.0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{PACKET, at, news, round_trip, window};
    use super::super::{CongestionWindow, Feedback};
    use super::*;

    /// The window's growth in round trips with these shares of marks and these times in
    /// microseconds, of which 100 are the path without a queue.
    fn growth(rounds: &[(f64, u64)]) -> Vec<f64> {
        let mut window = window();
        let full = |window: &CongestionWindow, marked: f64| {
            let packets = (window.bytes().get() / PACKET) as u32;
            news(window, packets, (f64::from(packets) * marked) as u32, 0)
        };
        let grow = |(n, &(marked, micros)): (u64, &(f64, u64))| {
            let before = window.bytes().get() as f64;
            let path = round_trip(Span::from_micros(micros));
            window.on_feedback(at(n), full(&window, marked), &path);
            window.bytes().get() as f64 / before
        };
        (1..).zip(rounds).map(grow).collect()
    }

    fn are_near(found: &[f64], expected: &[f64]) -> bool {
        found.len() == expected.len()
            && found
                .iter()
                .zip(expected)
                .all(|(a, b)| (a - b).abs() < 0.02)
    }

    #[test]
    fn a_window_grows_by_a_third_of_itself_or_of_its_part_of_the_queue() {
        let third = growth(&[(1.0, 900), (0.0, 100), (0.0, 100), (0.0, 100)]);
        assert!(
            are_near(&third[1..], &[1.0, 4.0 / 3.0, 4.0 / 3.0]),
            "{third:?}"
        );
        let tenth = growth(&[(1.0, 130), (0.0, 100), (0.0, 100), (0.0, 100)]);
        assert!(are_near(&tenth[1..], &[1.0, 1.1, 1.1]), "{tenth:?}");
    }

    #[test]
    fn a_queue_or_marks_end_the_growth() {
        let queue = growth(&[(1.0, 180), (0.0, 160), (0.0, 160), (0.0, 160)]);
        assert!(
            are_near(&queue[1..], &[1.0, 1.0, 1.0]),
            "a queue: {queue:?}"
        );
        let marks = growth(&[(1.0, 900), (0.0, 100), (0.1, 100), (0.1, 100)]);
        assert!(marks[3] < 1.01, "marks: {marks:?}");
    }

    #[test]
    fn a_path_that_never_marked_has_none() {
        let mut window = window();
        let queue = round_trip(Span::from_micros(900));
        window.on_feedback(at(1), news(&window, 97, 0, 1), &queue);
        for n in 4..8 {
            let before = window.bytes().get();
            let packets = (before / PACKET) as u32;
            window.on_feedback(
                at(n),
                news(&window, packets, 0, 0),
                &round_trip(Span::from_micros(100)),
            );
            assert!(window.bytes().get() - before <= PACKET);
        }
    }

    #[test]
    fn round_trips_that_do_not_fill_the_window_show_none() {
        let (mut window, path) = (window(), round_trip(Span::from_micros(100)));
        let queue = round_trip(Span::from_micros(900));
        window.on_feedback(at(1), news(&window, 100, 100, 0), &queue);
        for n in 2..6 {
            window.on_feedback(at(n), Feedback::default(), &path);
        }
        let before = window.bytes().get();
        window.on_feedback(at(6), news(&window, 80, 0, 0), &path);
        assert!(window.bytes().get() - before <= PACKET);
    }
}

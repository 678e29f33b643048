//! What marks say: whether a queue stands, what it takes at once, and whether the path marks for no
//! reason (rules 2 and 7 of the congestion window).

use super::{CongestionWindow, Feedback};
use crate::rtt::Rtt;
use crate::units::Instant;

/// The least part of a packet that each mark takes from the window while all packets come marked.
const STANDING_CUT_MIN: f64 = 0.25;
/// With a smaller smoothed share, no queue stands yet.
const STANDING_SHARE: f64 = 0.15;
/// Round trips after which marks on all packets count as false.
const FALSE_MARK_ROUNDS: u32 = 64;

impl CongestionWindow {
    /// Whether the path marks packets for no reason.
    pub fn ignores_marks(&self) -> bool {
        self.falsely_marked >= FALSE_MARK_ROUNDS
    }

    pub(super) fn judge_marks(&mut self, marks: u32, round: &Feedback, rtt: &Rtt) {
        if round.segments == 0 {
            return;
        }
        let most = rtt.least() + self.no_queue(rtt);
        let reason = self.bytes > self.floor(2) || rtt.smoothed() > most;
        if marks < round.segments {
            self.falsely_marked = 0;
        } else if self.ignores_marks() || !reason {
            self.falsely_marked = self.falsely_marked.saturating_add(1);
        } else {
            self.falsely_marked = 0;
        }
    }

    /// Whether all packets of the round trip have been marked so far, and many before.
    pub(super) fn has_standing_queue(&self) -> bool {
        self.round.marks >= self.round.segments && self.mark_share >= STANDING_SHARE
    }

    /// Marks of a standing queue take their part.
    pub(super) fn yield_to(&mut self, now: Instant, feedback: &Feedback, rtt: &Rtt) {
        let packets = f64::from(feedback.marks.min(feedback.segments))
            * (self.mark_share / 2.0).max(STANDING_CUT_MIN);
        let share = packets * self.limits.packet.get() as f64 / self.bytes as f64;
        self.shrink(now, share, rtt);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{PACKET, at, news, steady, window};
    use super::*;

    #[test]
    fn marks_shrink_the_window_by_half_their_share() {
        let (mut window, rtt) = (window(), steady());
        let before = window.bytes().get();
        let feedback = news(&window, 100, 100, 0);
        window.on_feedback(at(1), feedback, &rtt);
        assert_eq!(window.bytes().get(), before / 2);
    }

    #[test]
    fn absurd_mark_counts_halve_the_window() {
        let (mut window, rtt) = (window(), steady());
        let absurd = Feedback {
            segments: 1,
            marks: u32::MAX,
            ..Feedback::default()
        };
        window.on_feedback(at(0), Feedback::default(), &rtt);
        let before = window.bytes().get();
        for _ in 0..3 {
            window.on_feedback(Instant::START, absurd, &rtt);
        }
        window.on_feedback(at(1), absurd, &rtt);
        assert_eq!(window.bytes().get(), before / 2);
    }

    #[test]
    fn while_all_packets_come_marked_each_takes_half_a_packet_at_once() {
        let (mut window, rtt) = (window(), steady());
        let marked = news(&window, 100, 100, 0);
        window.on_feedback(at(1), marked, &rtt);
        let before = window.bytes().get();
        for _ in 0..3 {
            let marked = news(&window, 8, 8, 0);
            window.on_feedback(at(1), marked, &rtt);
        }
        let taken = before - window.bytes().get();
        assert!(taken.abs_diff(12 * PACKET) < 6, "{taken} bytes");
        let before = window.bytes().get();
        let some_marked = news(&window, 8, 7, 0);
        window.on_feedback(at(1), some_marked, &rtt);
        assert!(
            window.bytes().get() >= before,
            "others wait for a round trip"
        );
    }

    #[test]
    fn a_path_that_marks_everything_is_found_out() {
        let (mut window, rtt) = (window(), steady());
        let marked = |window: &CongestionWindow| news(window, 10, 10, 0);
        for n in 0..40 {
            let feedback = marked(&window);
            window.on_feedback(at(n), feedback, &rtt);
        }
        assert!(!window.ignores_marks() && window.bytes().get() < 3 * PACKET);
        for n in 40..400 {
            let feedback = marked(&window);
            window.on_feedback(at(n), feedback, &rtt);
        }
        assert!(window.ignores_marks() && window.bytes().get() > 50 * PACKET);
        let unmarked = news(&window, 10, 0, 0);
        window.on_feedback(at(401), unmarked, &rtt);
        assert!(!window.ignores_marks(), "some packets come without");
    }
}

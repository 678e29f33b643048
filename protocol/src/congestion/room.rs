//! Room that other senders have left: the next round trip after one without marks and without a
//! queue, on a path whose queue has marked before.
//!
//! The window grows by [`GROWTH`] of itself then, where one packet in a round trip would take long
//! to fill the link. It grows by no more than that part of what the queue held when it marked, so
//! it cannot overfill the queue by much: on a long path with a short queue it grows slowly.

use crate::rtt::Rtt;
use crate::units::Span;

/// The part of itself by which a window grows in a round trip.
const GROWTH: f64 = 1.0 / 3.0;
/// Each round trip with marks counts as this part of the smoothed delay.
const DELAY_PART: u64 = 4;

/// What the marks of a path say about the length of its queue, and whether it is empty now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeftRoom {
    /// The smoothed queueing delay of round trips with marks; 0 before the first.
    marked_delay: Span,
    /// The part by which the window grows in this round trip; 0 without room.
    part: f64,
}

impl LeftRoom {
    /// A round trip with this many marks is over; `no_queue` is the longest delay that is no sign
    /// of a queue.
    pub(super) fn end_round(&mut self, marks: u32, no_queue: Span, rtt: &Rtt) {
        let delay = rtt.smoothed().beyond(rtt.least());
        if marks > 0 {
            let older = self.marked_delay;
            self.marked_delay = match older {
                Span::ZERO => delay,
                _ => older.beyond(older.divided(DELAY_PART)) + delay.divided(DELAY_PART),
            };
        }
        let has_room = marks == 0 && delay <= no_queue;
        let held = self.marked_delay.as_secs_f64() / rtt.smoothed().as_secs_f64();
        self.part = f64::from(has_room) * held.min(1.0) * GROWTH;
    }

    /// By how many bytes the window grows at least when this many were acknowledged.
    pub(super) fn growth(&self, acked: u64) -> u64 {
        (acked as f64 * self.part) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round trip of 100 us at first, and then this much more.
    fn delayed(micros: u64) -> Rtt {
        let mut rtt = Rtt::new(Span::from_millis(1));
        rtt.sample(Span::from_micros(100));
        (0..100).for_each(|_| rtt.sample(Span::from_micros(100 + micros)));
        rtt
    }

    /// Bytes of 1,000 by which the window grows after round trips with these marks and delays.
    fn grown(rounds: &[(u32, u64)]) -> u64 {
        let mut room = LeftRoom::default();
        for &(marks, micros) in rounds {
            room.end_round(marks, Span::from_micros(25), &delayed(micros));
        }
        room.growth(1_000)
    }

    #[test]
    fn a_window_grows_by_a_third_of_itself_or_of_the_queue_that_has_marked() {
        assert_eq!(grown(&[(9, 800), (0, 0)]), 333);
        assert!((98..=100).contains(&grown(&[(9, 30), (0, 0)])));
        assert_eq!(
            grown(&[(9, 800), (0, 0), (0, 10)]),
            333,
            "as long as there is room"
        );
    }

    #[test]
    fn without_room_it_does_not() {
        assert_eq!(grown(&[(9, 800)]), 0, "marks");
        assert_eq!(grown(&[(9, 800), (0, 200)]), 0, "a queue");
        assert_eq!(grown(&[(0, 0)]), 0, "a path that has never marked");
    }

    #[test]
    fn one_long_queue_counts_for_some_round_trips() {
        let mut rounds = vec![(9, 800)];
        rounds.extend([(9, 30); 20]);
        rounds.push((0, 0));
        assert!((100..110).contains(&grown(&rounds)), "{}", grown(&rounds));
    }
}

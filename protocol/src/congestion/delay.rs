//! What the round trip says about queues: whether there is one, and how much of the window it takes
//! (rules 3 and 4 of the congestion window).

use super::delay_trial::DelayTrial;
use super::{CongestionWindow, DELAY_IGNORED_ROUNDS, DELAY_PACKETS_MIN};
use crate::rtt::Rtt;
use crate::units::{Instant, Span};

/// The largest share that delay may take from the window in a round trip: Swift's max_mdf.
const DELAY_CUT_MAX: f64 = 0.4;
/// A round trip is clearly longer than the minimum if it exceeds it by this part of the delay
/// target.
const QUEUE_PART: u64 = 4;
/// The longest delay decays over this many round trips.
const DELAY_MOST_ROUNDS: u64 = 128;
/// On a long path the delay target is at least this part of the round trip.
const DELAY_ROUND_PART: u64 = 2;
/// Part of the delay target that other senders may add to the round trip while this window shrinks.
const OTHERS_PART: u64 = 2;
/// A round trip has reached the target if it exceeds it by no more than this part of it.
const NEAR_TARGET_PART: u64 = 8;
/// A round trip without a queue exceeds the minimum by at most a quarter plus this part of the
/// delay target.
const NO_QUEUE_PART: u64 = 16;

impl CongestionWindow {
    /// How much the round trip may exceed the minimum before that is a signal.
    pub(crate) fn delay_target(&self, rtt: &Rtt) -> Span {
        let part = rtt.least().divided(DELAY_ROUND_PART);
        self.limits.delay_target.max(part)
    }

    /// The longest delay that is no sign of a queue.
    pub(super) fn no_queue(&self, rtt: &Rtt) -> Span {
        rtt.least().divided(4) + self.delay_target(rtt).divided(NO_QUEUE_PART)
    }

    pub(super) fn look_at_delay(&mut self, now: Instant, rtt: &Rtt) {
        let delay = rtt.smoothed().beyond(rtt.least());
        let faded = self
            .delay_most
            .beyond(self.delay_most.divided(DELAY_MOST_ROUNDS));
        self.delay_most = faded.max(delay);
        self.judge_trial(rtt);
        if self.delay_ignored > 0 {
            self.delay_ignored -= 1;
            return;
        }
        let floor = self.floor(DELAY_PACKETS_MIN) as f64;
        let cut = self.delay_cut(rtt).min(1.0 - floor / self.bytes as f64);
        if cut <= 0.0 || now < self.answered_until {
            return;
        }
        let trial =
            (self.delay_trial).unwrap_or_else(|| DelayTrial::new(self.bytes, rtt.smoothed()));
        self.shrink(now, cut, rtt);
        self.delay_trial = Some(trial);
    }

    /// Ends a trial that has shown that others fill the queue, or that the window has grown back.
    fn judge_trial(&mut self, rtt: &Rtt) {
        let target = self.delay_target(rtt);
        let Some(trial) = &mut self.delay_trial else {
            return;
        };
        let before = trial.bytes;
        let of_others = trial.delay_of_others(self.bytes, rtt.smoothed());
        let is_reached = rtt.smoothed() <= rtt.least() + target + target.divided(NEAR_TARGET_PART);
        if self.bytes >= before {
            self.delay_trial = None;
        } else if is_reached && !trial.has_followed {
            self.delay_trial = Some(DelayTrial {
                has_followed: true,
                ..DelayTrial::new(self.bytes, rtt.smoothed())
            });
        } else if of_others > target.divided(OTHERS_PART) {
            self.bytes = before;
            self.delay_trial = None;
            self.delay_ignored = DELAY_IGNORED_ROUNDS;
        }
    }

    /// Whether a queue delays packets: clearly longer than without one, and by half of the longest
    /// recent delay.
    pub(super) fn has_queue(&self, rtt: &Rtt) -> bool {
        let longest = self.delay_most.divided(2).max(self.no_queue(rtt));
        let most = self.limits.delay_target.divided(QUEUE_PART);
        rtt.smoothed().beyond(rtt.least()) > longest.min(most)
    }

    /// Whether that queue may be full. On long paths, where hosts and bursts of the window itself
    /// make queues, too, it delays packets then by half of the longest recent delay, or by a
    /// quarter of the path.
    pub(super) fn is_queue_full(&self, rtt: &Rtt) -> bool {
        let longest = self
            .delay_most
            .divided(2)
            .min(rtt.least().divided(QUEUE_PART));
        self.has_queue(rtt) && rtt.smoothed().beyond(rtt.least()) > longest
    }

    /// The share that delay takes from the window, if the cuts of the last round trips shorten the
    /// round trip as much as the window.
    fn delay_cut(&self, rtt: &Rtt) -> f64 {
        let target = rtt.least() + self.delay_target(rtt);
        let kept = self.delay_trial.map_or(1.0, |trial| {
            (self.bytes as f64 / trial.rounds[0] as f64).min(1.0)
        });
        let expected = rtt.smoothed().as_secs_f64() * kept;
        (1.0 - target.as_secs_f64() / expected).min(DELAY_CUT_MAX)
    }
}

//! How long a packet and its acknowledgement take, and the waits that follow from it.
//!
//! Smoothed mean and deviation as in RFC 6298 section 2, but for samples below the mean: these pull
//! it half the way and do not add to the deviation, since a queue that has emptied is no sign that
//! an answer may come later. Every packet carries a time stamp that its acknowledgement
//! echoes, so a repair's sample is as good as any other.

use crate::units::{Instant, Span};

/// Networks and hosts do not react faster than this, so a shorter wait gains no time.
const PROBE_WAIT_MIN: Span = Span::from_micros(300);
/// Gaps of the job that a round trip is guessed to take before the first sample: 2 ms by default.
const GAPS_GUESSED: u64 = 2;
/// No packet overtakes another one of its class by this many of the job's gaps.
const GAPS_REORDERED: u64 = 4;
/// The least round trip is in doubt when delay has exceeded its target for this long, and for so
/// many round trips: a queue that stays as long, however small the window, belongs to the path.
const EXCESS_TIME: Span = Span::from_millis(1_000);
const EXCESS_ROUNDS: u64 = 16;

/// Round-trip time to one peer.
#[derive(Clone, Copy, Debug)]
pub struct Rtt {
    guess: Span,
    smoothed: Option<Span>,
    deviation: Span,
    least: Option<Span>,
    /// Since when the smoothed time exceeds the least one by more than the target.
    exceeds_since: Option<Instant>,
    latest: Option<Span>,
}

impl Rtt {
    /// The round trip to a peer that was not heard yet, in a job with this gap.
    pub fn new(gap: Span) -> Self {
        Self {
            guess: gap * GAPS_GUESSED,
            smoothed: None,
            deviation: (gap * GAPS_GUESSED).divided(2),
            least: None,
            exceeds_since: None,
            latest: None,
        }
    }

    /// Takes a sample.
    pub fn sample(&mut self, sample: Span) {
        self.latest = Some(sample);
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(sample);
            self.deviation = sample.divided(2);
            return;
        };
        let error = sample.beyond(smoothed);
        self.deviation = Span::from_picos((self.deviation.as_picos() * 3 + error.as_picos()) / 4);
        let old = if sample < smoothed { 1 } else { 7 };
        self.smoothed = Some(Span::from_picos(
            (smoothed.as_picos() * old + sample.as_picos()) / (old + 1),
        ));
    }

    /// The latest sample, when there was one since the last call.
    pub fn take_latest(&mut self) -> Option<Span> {
        self.latest.take()
    }

    /// Whether there was a sample.
    pub fn is_known(&self) -> bool {
        self.smoothed.is_some()
    }

    /// The smoothed round-trip time; a guess before the first sample.
    pub fn smoothed(&self) -> Span {
        self.smoothed.unwrap_or(self.guess)
    }

    /// The least sample so far: the path without queues. The smoothed time before any sample.
    pub fn least(&self) -> Span {
        self.least.unwrap_or(self.guess)
    }

    /// Whether the least round trip may be out of date: the smoothed one has exceeded it by more
    /// than `target` for long. Asked after each sample.
    pub fn doubts_least(&mut self, now: Instant, target: Span) -> bool {
        if self.smoothed() <= self.least() + target {
            self.exceeds_since = None;
            return false;
        }
        let since = *self.exceeds_since.get_or_insert(now);
        now - since > EXCESS_TIME.max(self.smoothed() * EXCESS_ROUNDS)
    }

    /// Takes a sample of a path without our own packets for the least round trip, although it is
    /// longer than an older one.
    pub fn renew_least(&mut self, sample: Span) {
        self.least = Some(sample);
        self.exceeds_since = None;
    }

    /// The time by which an answer should have come: smoothed plus four deviations.
    pub fn answer_wait(&self) -> Span {
        self.smoothed() + self.deviation * 4
    }

    /// How long a sender waits for an acknowledgement before it probes: until an answer should have
    /// come, but not less than half the job's gap where that is shorter than hosts take to react.
    ///
    /// Nor longer than some gaps beyond the least round trip: a low class may have waited for the
    /// higher ones for as long as these had something to send, and that is over at once. A PROBE
    /// too many costs little, since it rides behind its data.
    pub fn probe_wait(&self, gap: Span) -> Span {
        let unqueued = self.least.unwrap_or_default() + gap * GAPS_REORDERED;
        let least = gap.divided(2).min(PROBE_WAIT_MIN);
        self.answer_wait().min(unqueued).max(least)
    }

    /// A segment sent this much before one of its class that has arrived is lost, not late.
    /// Sprayed packets overtake each other by as much as queues differ, so this is a time, a round
    /// trip with its deviation, and not a count of packets; and no more than some gaps, since a gap
    /// is, as the job says, as much as packets overtake each other by.
    pub fn reordering(&self, gap: Span) -> Span {
        self.answer_wait().min(gap * GAPS_REORDERED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_path_waits_little_beyond_its_round_trip() {
        let mut rtt = Rtt::new(Span::from_millis(1));
        for _ in 0..50 {
            rtt.sample(Span::from_micros(100));
        }
        assert_eq!(rtt.smoothed(), Span::from_micros(100));
        assert!(rtt.answer_wait() < Span::from_micros(101));
    }

    #[test]
    fn a_varying_path_widens_the_wait() {
        let mut rtt = Rtt::new(Span::from_millis(1));
        for n in 0..50 {
            rtt.sample(Span::from_micros(100 + 900 * (n % 2)));
        }
        assert!(rtt.answer_wait() > Span::from_micros(1500));
        assert_eq!(rtt.least(), Span::from_micros(100));
    }
}

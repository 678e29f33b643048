//! How long a packet and its acknowledgement take, and the waits that follow from it.
//!
//! Smoothed mean and deviation as in RFC 6298 section 2, except for samples below the mean: these
//! pull it half the way and do not add to the deviation, since a queue that has emptied is no sign
//! that an answer may come later. Every packet carries a time stamp that its acknowledgement
//! echoes, so a repair's sample is as good as any other.

use serde::{Deserialize, Serialize};

use crate::units::{Instant, Span};

/// The longest that a host should take to react. A first answer is awaited no longer, either.
const REACTION_MAX: Span = Span::from_micros(300);
/// Initial guess of a round trip, in gaps of the job: 2 ms by default.
const GAPS_GUESSED: u64 = 2;
/// A wait for an answer doubles at most this often.
const RETRY_DOUBLINGS: u32 = 12;
/// No packet overtakes another one of its class by this many of the job's gaps.
const GAPS_REORDERED: u64 = 4;
/// But on a long path it may by the minimum round trip divided by this.
const ROUND_PART_REORDERED: u64 = 4;
/// The minimum round trip is in doubt when delay has exceeded its target for this long, and for
/// this many round trips, and has hardly changed: a longer path delays all packets alike, but a
/// queue that others fill becomes longer and shorter.
const EXCESS_TIME: Span = Span::from_millis(1_000);
const EXCESS_ROUNDS: u64 = 16;
/// It has hardly changed if it varies by no more than this part of the target.
const STEADY_PART: u64 = 4;
/// The minimum round trip is in doubt no sooner than this after it was renewed: a search costs
/// throughput, and beside others that keep a queue it finds no better one (the same time as BBR's,
/// ACM Queue 2016).
const RENEWAL_TIME: Span = Span::from_millis(10_000);

/// Round-trip time to one peer.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Rtt {
    guess: Span,
    smoothed: Option<Span>,
    deviation: Span,
    least: Option<Span>,
    excess: Option<DelayExcess>,
    /// When the minimum was last renewed.
    renewed: Option<Instant>,
    latest: Option<Span>,
    /// How long the first answer may take, by those of other peers.
    first: Option<Span>,
}

/// A time in which the smoothed round trip exceeds the minimum by more than the target, and hardly
/// changes.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct DelayExcess {
    since: Instant,
    shortest: Span,
    longest: Span,
}

impl Rtt {
    /// The round trip to a peer that has not answered yet, in a job with this gap.
    pub fn new(gap: Span) -> Self {
        Self {
            guess: gap * GAPS_GUESSED,
            smoothed: None,
            deviation: (gap * GAPS_GUESSED).divided(2),
            least: None,
            excess: None,
            renewed: None,
            latest: None,
            first: None,
        }
    }

    /// Packets are lost, and the first answer should not take longer than this: other peers took
    /// this long for theirs.
    pub(crate) fn expect_first(&mut self, wait: Span) {
        self.first = Some(wait);
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

    /// The latest sample, if there was one since the last call.
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

    /// The smallest sample so far: the path without queues. The smoothed time before any sample.
    pub fn least(&self) -> Span {
        self.least.unwrap_or(self.guess)
    }

    /// Whether the path without queues takes at least this long.
    pub(crate) fn is_long(&self, least: Span) -> bool {
        self.least() >= least
    }

    /// Whether the minimum round trip may be out of date: the smoothed one has exceeded it by more
    /// than `target` for long, and hardly changes. Asked after each sample.
    pub fn doubts_least(&mut self, now: Instant, target: Span) -> bool {
        let smoothed = self.smoothed();
        if smoothed <= self.least() + target {
            self.excess = None;
            return false;
        }
        let begun = DelayExcess {
            since: now,
            shortest: smoothed,
            longest: smoothed,
        };
        let excess = self.excess.get_or_insert(begun);
        excess.shortest = excess.shortest.min(smoothed);
        excess.longest = excess.longest.max(smoothed);
        if excess.longest.beyond(excess.shortest) > target.divided(STEADY_PART) {
            *excess = begun;
        }
        let is_long = now - excess.since > EXCESS_TIME.max(smoothed * EXCESS_ROUNDS);
        is_long && self.renewed.is_none_or(|at| now - at > RENEWAL_TIME)
    }

    /// Takes a sample of a path without our own packets as the minimum round trip, although it is
    /// longer than an older one.
    pub fn renew_least(&mut self, now: Instant, sample: Span) {
        self.renewed = Some(now);
        self.least = Some(sample);
        self.excess = None;
    }

    /// The time by which an answer should have arrived: smoothed plus four deviations.
    pub fn answer_wait(&self) -> Span {
        self.smoothed() + self.deviation * 4
    }

    /// How long a sender waits for an acknowledgement before it probes: until an answer should have
    /// arrived, but at least half the job's gap where that is shorter than hosts take to react.
    ///
    /// And at most some gaps beyond the minimum round trip: a low class may have waited for the
    /// higher ones for as long as these had packets to send, and that wait ends at once. A PROBE
    /// too many costs little, since it queues behind its data.
    pub fn probe_wait(&self, gap: Span) -> Span {
        let unqueued = self.least.unwrap_or_default() + gap * GAPS_REORDERED;
        self.answer_wait().min(unqueued).max(Self::reaction(gap))
    }

    /// How long a sender waits for an answer before it asks, if it has asked this often in vain: on
    /// lossy paths, before the first answer, and at the end of a message on paths that are not
    /// proven clean. The packets or the answer may be lost. Where a host takes longer to react, or
    /// the path is long, a few PROBEs too many are sent.
    pub fn retry_wait(&self, gap: Span, asked: u32) -> Span {
        let first = match self.is_known() {
            true => (self.answer_wait() + self.smoothed()).min(self.probe_wait(gap)),
            false => {
                let wait = gap.min(REACTION_MAX);
                self.first.map_or(wait, |first| first.min(wait))
            }
        };
        first * (1 << asked.min(RETRY_DOUBLINGS))
    }

    /// As long as a host may take to react: half the gap of the job where that is shorter.
    pub fn reaction(gap: Span) -> Span {
        gap.divided(2).min(REACTION_MAX)
    }

    /// A segment sent this much before one of its class that has arrived is lost, not late. Sprayed
    /// packets overtake each other by as much as queues differ, so this is a time, a round trip
    /// with its deviation, and not a count of packets. It is at most some gaps, since a gap is, by
    /// the job's definition, the time by which packets overtake each other, or on long paths a part
    /// of the minimum round trip, as in RACK (RFC 8985, section 6.2): hosts read the packets of a
    /// large window path by path.
    pub fn reordering(&self, gap: Span) -> Span {
        self.reordered_within(gap, self.least().divided(ROUND_PART_REORDERED))
    }

    /// The same where paths keep order. Since that shows losses sooner, time need not.
    pub fn reordering_in_order(&self, gap: Span) -> Span {
        self.reordered_within(gap, self.least())
    }

    fn reordered_within(&self, gap: Span, part: Span) -> Span {
        self.answer_wait().min((gap * GAPS_REORDERED).max(part))
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
    fn a_steady_excess_is_a_longer_path_and_a_varying_one_a_queue() {
        let target = Span::from_millis(1);
        for (swing, doubts) in [(100, true), (1_000, false)] {
            let mut rtt = Rtt::new(target);
            rtt.sample(Span::from_micros(100));
            let mut doubted = false;
            for n in 0..1_000 {
                let micros = 5_000 + swing * (n / 50 % 2);
                rtt.sample(Span::from_micros(micros));
                let now = Instant::START + Span::from_millis(5 * n);
                doubted |= rtt.doubts_least(now, target);
            }
            assert_eq!(doubted, doubts, "swings by {swing} us");
        }
    }

    #[test]
    fn a_least_round_trip_that_was_renewed_stays_for_ten_seconds() {
        let target = Span::from_millis(1);
        let mut rtt = Rtt::new(target);
        rtt.sample(Span::from_micros(100));
        let mut renewed = Vec::new();
        for n in 0..13_000 {
            // A queue of other senders: none of it is this sender's.
            rtt.sample(Span::from_micros(if n < 2_000 { 5_000 } else { 9_000 }));
            let now = Instant::START + Span::from_millis(n);
            if rtt.doubts_least(now, target) {
                rtt.renew_least(now, Span::from_micros(5_000));
                renewed.push(n);
            }
        }
        assert_eq!(renewed.len(), 2, "{renewed:?}");
        assert!(renewed[1] - renewed[0] > 10_000, "{renewed:?}");
    }

    #[test]
    fn a_first_answer_is_awaited_no_longer_than_others_took() {
        let gap = Span::from_millis(1);
        let mut rtt = Rtt::new(gap);
        assert_eq!(rtt.retry_wait(gap, 0), REACTION_MAX);
        for (others, wait) in [(5_000, 300), (50, 50)] {
            rtt.expect_first(Span::from_micros(others));
            assert_eq!(rtt.retry_wait(gap, 0), Span::from_micros(wait));
            assert_eq!(rtt.retry_wait(gap, 2), Span::from_micros(wait * 4));
        }
        rtt.sample(Span::from_micros(100));
        assert!(rtt.retry_wait(gap, 0) > Span::from_micros(100), "its own");
    }

    #[test]
    fn packets_overtake_each_other_by_more_on_a_long_path() {
        let gap = Span::from_millis(1);
        let late_by = |micros| {
            let mut rtt = Rtt::new(gap);
            rtt.sample(Span::from_micros(micros));
            (rtt.reordering(gap), rtt.reordering_in_order(gap))
        };
        let [short, quarter, whole] = [300, 10_000, 40_000].map(Span::from_micros);
        assert_eq!(late_by(100), (short, short), "the wait for an answer");
        assert_eq!(late_by(40_000), (quarter, whole));
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

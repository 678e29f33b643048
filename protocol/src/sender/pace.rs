//! How fast segments leave.

use serde::{Deserialize, Serialize};

use crate::machine::SegmentRun;
use crate::units::{Instant, MessageId, Span};

/// Both hosts work for a packet or a run.
pub(super) const HOSTS: u64 = 2;
/// A lone packet costs a busy host this many times as long as it takes to leave, at least: 18 us on
/// two cores that four ranks share, where it leaves in 3 to 5.
pub(super) const LONE_COST: u64 = 4;
/// After this many segments, older ones count half.
const MEMORY: u64 = 1 << 10;
/// No packet takes longer than this to leave; a longer gap means that something held up the next
/// one.
const LONE_MAX: Span = Span::from_micros(100);
/// The time that a lone packet takes grows by such a part, so that a host may become slower.
const LONE_GROWTH: u64 = 32;

/// How long the new segments of a message take to leave, whatever holds them up: the window, grants
/// or this host.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct SendPace {
    last: Option<PacedRun>,
    segments: u64,
    took: Span,
    lone: LonePace,
}

/// How long a packet takes to leave that is not part of a run: the least time until the next one
/// left, lately.
#[derive(Debug, Default, Deserialize, Serialize)]
struct LonePace {
    /// When the last packet left, if it was a lone one that another was to follow at once.
    last: Option<Instant>,
    least: Option<Span>,
}

impl LonePace {
    /// Something leaves.
    fn on_next(&mut self, now: Instant) {
        let took = self.last.take().map(|last| now - last);
        if let Some(took) = took.filter(|&took| took <= LONE_MAX) {
            let grown = |least: Span| least + least.divided(LONE_GROWTH) + Span::from_nanos(1);
            self.least = Some(self.least.map_or(took, |least| took.min(grown(least))));
        }
    }
}

/// The last run that has left.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct PacedRun {
    message: MessageId,
    at: Instant,
    segments: u64,
}

impl SendPace {
    /// A run of segments of a message leaves. The time since the run of the same message before it
    /// is what that run took, unless one of them has waited for a loss to be found, or longer than
    /// the smoothed round trip: for a grant.
    pub(super) fn on_run(
        &mut self,
        now: Instant,
        round_trip: Span,
        message: MessageId,
        run: &SegmentRun,
    ) {
        self.lone.on_next(now);
        if run.repairs() > 0 {
            self.last = None;
            return;
        }
        if let Some(last) = self.last.filter(|last| last.message == message) {
            let took = now - last.at;
            if took <= round_trip {
                self.segments += last.segments;
                self.took = self.took + took;
            }
        }
        if self.segments > MEMORY {
            (self.segments, self.took) = (self.segments / 2, self.took.divided(2));
        }
        self.last = Some(PacedRun {
            message,
            at: now,
            segments: run.len() as u64,
        });
    }

    /// A packet leaves that is not part of a run, and another will as soon as it has left.
    pub(super) fn on_lone(&mut self, now: Instant) {
        self.lone.on_next(now);
        self.lone.last = Some(now);
    }

    /// A packet leaves that takes longer, or that no other may follow at once.
    pub(super) fn on_next(&mut self, now: Instant) {
        self.lone.on_next(now);
    }

    /// How long such a packet takes to leave; no time as long as that is not known.
    pub(super) fn lone(&self) -> Span {
        self.lone.least.unwrap_or_default()
    }

    /// How much longer such a packet takes than one of a run: what hosts spend on it, since links
    /// take as long for both. No time as long as that is not known.
    pub(super) fn lone_extra(&self) -> Span {
        match self.segments {
            0 => Span::ZERO,
            segments => self.lone().beyond(self.took.divided(segments)),
        }
    }

    /// How many segments leave in this time; any number as long as that is not known.
    pub(super) fn segments_in(&self, time: Span) -> u64 {
        let took = self.took.as_picos();
        if took == 0 {
            return u64::MAX;
        }
        let segments = u128::from(self.segments) * u128::from(time.as_picos()) / u128::from(took);
        u64::try_from(segments).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Span = Span::from_micros(100);

    /// The pace after runs of 40 segments at these times, in microseconds.
    fn pace_of(runs: impl IntoIterator<Item = (u32, u64)>) -> SendPace {
        let mut run = SegmentRun::default();
        run.push_range(0..40);
        let mut pace = SendPace::default();
        for (message, micros) in runs {
            let at = Instant::START + Span::from_micros(micros);
            pace.on_run(at, ROUND_TRIP, MessageId(message), &run);
        }
        pace
    }

    #[test]
    fn idle_time_between_messages_does_not_count() {
        let runs = (0..300).map(|n| (n / 3, u64::from(n / 3 * 1_000 + n % 3 * 20)));
        assert_eq!(pace_of(runs).segments_in(Span::from_micros(10)), 20);
    }

    #[test]
    fn a_wait_for_a_grant_is_no_pace() {
        let runs = (0..200).map(|n| (n / 2, u64::from(n / 2 * 1_000 + n % 2 * 500)));
        let pace = pace_of(runs.chain([(200, 200_000), (200, 200_040)]));
        assert_eq!(pace.segments_in(Span::from_micros(10)), 10);
    }

    #[test]
    fn runs_at_one_time_have_no_pace() {
        for runs in [&[][..], &[(1, 5)], &[(1, 5), (1, 5)]] {
            let pace = pace_of(runs.iter().copied());
            assert_eq!(pace.segments_in(Span::from_micros(10)), u64::MAX);
        }
    }

    #[test]
    fn a_new_pace_replaces_the_old_one() {
        let (before, since) = ((0..100).map(|n| n * 40), (0..400).map(|n| 4_000 + n * 80));
        let now = pace_of(before.chain(since).map(|at| (1, at)));
        let now = now.segments_in(Span::from_micros(100));
        assert!((49..=51).contains(&now), "{now}");
    }

    #[test]
    fn a_lone_packet_takes_the_least_time_until_the_next_leaves() {
        let mut pace = SendPace::default();
        assert_eq!(pace.lone(), Span::ZERO);
        let at = |micros| Instant::START + Span::from_micros(micros);
        for micros in [0, 80, 83] {
            pace.on_lone(at(micros));
        }
        for micros in [86, 400] {
            pace.on_next(at(micros));
        }
        assert_eq!(pace.lone(), Span::from_micros(3));
        for turn in 5..200 {
            pace.on_lone(at(turn * 100));
            pace.on_next(at(turn * 100 + 6));
        }
        assert_eq!(pace.lone(), Span::from_micros(6), "the host is slower now");
    }

    #[test]
    fn a_lone_packet_takes_longer_than_one_of_a_run() {
        let lone = |pace: &mut SendPace, nanos| {
            pace.on_lone(Instant::START);
            pace.on_next(Instant::START + Span::from_nanos(nanos));
        };
        let mut pace = SendPace::default();
        lone(&mut pace, 4_000);
        assert_eq!(pace.lone_extra(), Span::ZERO, "no run has left");
        // 40 segments in 20 us.
        let mut pace = pace_of([(1, 0), (1, 20)]);
        lone(&mut pace, 4_000);
        assert_eq!(pace.lone_extra(), Span::from_nanos(3_500));
        lone(&mut pace, 400);
        assert_eq!(pace.lone_extra(), Span::ZERO, "the link sets the pace");
    }

    #[test]
    fn a_repair_ends_the_time_of_a_run() {
        let mut pace = pace_of([(1, 0), (1, 40)]);
        let mut run = SegmentRun::default();
        run.push_repair(7);
        let at = |micros| Instant::START + Span::from_micros(micros);
        pace.on_run(at(60), ROUND_TRIP, MessageId(1), &run);
        run.clear();
        run.push_range(80..90);
        pace.on_run(at(80), ROUND_TRIP, MessageId(1), &run);
        assert_eq!(pace.segments_in(Span::from_micros(10)), 10);
    }
}

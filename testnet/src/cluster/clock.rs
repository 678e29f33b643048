//! A host's clock: starts anywhere, runs at its own speed, jumps forward, and counts nanoseconds.

use rand::RngExt;

use gradwire_protocol::units::{Instant, Span};

use super::draw;
use super::faults::{ClusterFault, FaultSet};

/// Clocks of hosts differ by at most this many millionths.
const DRIFT_PPM_MAX: i64 = 300;
/// Clocks of machines that were suspended jump by more than the gaps of these jobs.
const JUMP_MIN: Span = Span::from_millis(12);
/// A machine that wakes up is suspended again no sooner: a receiver asks once what it has missed.
const JUMPS_APART: Span = Span::from_millis(20);
/// The time that is left to a clock that starts near its end: a driver ends the job a day before.
const LEFT_AT_END: Span = Span::from_millis(60 * 3_600_000);
/// 2^32 microseconds, after which the time stamps of packets start again.
const STAMPS: Span = Span::from_micros(1 << 32);

/// Converts between true time and the readings of one host.
#[derive(Clone, Debug)]
pub(crate) struct HostClock {
    start: u64,
    drift_ppm: i64,
    /// Nanoseconds by which it jumps forward, by true time in nanoseconds.
    jumps: Vec<(u64, u64)>,
}

fn nanos(at: Instant) -> u64 {
    (at - Instant::START).as_nanos()
}

impl HostClock {
    /// The clock of a rank's host.
    pub(crate) fn of(seed: u64, rank: u16, faults: FaultSet) -> Self {
        let mut rng = draw::stream(seed, "clock", u64::from(rank));
        let mut start = 0;
        if faults.has(ClusterFault::ClockStart) {
            start = rng.random_range(0..STAMPS.as_nanos());
        }
        if faults.has(ClusterFault::ClockEdge) {
            let edge = draw::pick(&mut rng, &[STAMPS.divided(2), STAMPS, STAMPS * 3]);
            let before =
                draw::span_between(&mut rng, Span::from_micros(1), Span::from_millis(2000));
            start = edge.beyond(before).as_nanos();
        }
        if faults.has(ClusterFault::ClockEnd) {
            let last = Instant::LAST - Instant::START;
            start = last.beyond(LEFT_AT_END).as_nanos() + start % LEFT_AT_END.divided(2).as_nanos();
        }
        let mut drift_ppm = 0;
        if faults.has(ClusterFault::Drift) {
            drift_ppm = rng.random_range(-DRIFT_PPM_MAX..=DRIFT_PPM_MAX);
        }
        let mut jumps = Vec::new();
        if faults.has(ClusterFault::Jump) {
            let mut at = 0;
            for number in 0..rng.random_range(1..4) {
                let (least, most) = (Span::from_micros(50), Span::from_millis(500));
                let after = draw::span_between(&mut rng, least, most);
                at += after.max(JUMPS_APART * number.min(1)).as_nanos();
                let by = draw::span_between(&mut rng, JUMP_MIN, Span::from_millis(3000));
                jumps.push((at, by.as_nanos()));
            }
        }
        Self {
            start,
            drift_ppm,
            jumps,
        }
    }

    /// The reading at a true time.
    pub(crate) fn reading(&self, at: Instant) -> Instant {
        let at = nanos(at);
        let drift = (i128::from(at) * i128::from(self.drift_ppm) / 1_000_000) as i64;
        let jumped: u64 = (self.jumps.iter())
            .filter(|&&(when, _)| when <= at)
            .map(|&(_, by)| by)
            .sum();
        let reading = self.start + at.saturating_add_signed(drift) + jumped;
        Instant::from_picos(reading.saturating_mul(1_000))
    }

    /// The first true time, not before `now`, at which the clock shows `reading` or more.
    pub(crate) fn when(&self, now: Instant, reading: Instant) -> Instant {
        let (mut low, mut high) = (nanos(now), nanos(now));
        let shows = |at: u64| self.reading(Instant::START + Span::from_nanos(at)) >= reading;
        if shows(low) {
            return now;
        }
        let mut step = (reading - self.reading(now)).as_nanos().max(1);
        while !shows(high) {
            low = high;
            high += step;
            step *= 2;
        }
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            match shows(middle) {
                true => high = middle,
                false => low = middle,
            }
        }
        Instant::START + Span::from_nanos(high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_comes_at_the_first_time_that_shows_it() {
        let faults = FaultSet::from_iter([
            ClusterFault::ClockEdge,
            ClusterFault::Drift,
            ClusterFault::Jump,
        ]);
        let at = |micros| Instant::START + Span::from_micros(micros);
        for rank in 0..50 {
            let clock = HostClock::of(7, rank, faults);
            let mut before = clock.reading(Instant::START);
            for micros in (0..3_000_000).step_by(70_001) {
                let reading = clock.reading(at(micros));
                assert!(reading >= before, "clocks do not go back");
                before = reading;
                let wanted = reading + Span::from_micros(12_345);
                let when = clock.when(at(micros), wanted);
                assert!(clock.reading(when) >= wanted);
                let earlier = Instant::START + Span::from_nanos(nanos(when) - 1);
                assert!(clock.reading(earlier) < wanted);
            }
        }
    }
}

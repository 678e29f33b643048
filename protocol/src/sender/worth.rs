//! Whether a message gains time by its tolerance.
//!
//! A segment that may stay missing saves a repair. In midstream no sender waits for a repair, which
//! is part of a short run; at the end of a message it takes a round trip. But a tolerant message
//! leaves in more runs than a lossless one: its protected segments lie in stretches between the
//! others (`priority/protection.rs`). Both hosts handle each run by itself, in the time of a lone
//! packet ([`super::pace`]). So on short paths between hosts that send runs a tolerance costs a
//! long message more than it saves, unless so many packets are lost that repairs need as many runs
//! ([`REPAIRS_OF_RUN`]); on long paths, and where packets cost hosts little, it pays.
//!
//! Until the time of a lone packet is known, a tolerance is used. The share of losses is that by
//! which parity is decided, before the first loss, too.

use super::pace::HOSTS;
use crate::priority::STRETCH_MAX;
use crate::units::Span;

/// The mean number of segments that one run repairs, where many are lost.
const REPAIRS_OF_RUN: f64 = 2.0;

/// A message, and the paths that it would take.
#[derive(Clone, Copy, Debug)]
pub(super) struct TolerancePrice {
    pub(super) segments: u32,
    /// As many leave in a round trip.
    pub(super) round: u64,
    /// How long that is without queues.
    pub(super) round_trip: Span,
    /// The share of packets that is lost.
    pub(super) lost: f64,
    /// The time that a lone packet takes to leave; none as long as it is not known.
    pub(super) lone: Span,
}

impl TolerancePrice {
    /// Whether the message is likely to end sooner with a tolerance than without.
    pub(super) fn pays(self) -> bool {
        let end = self.round.min(u64::from(self.segments));
        let saved = (end as f64 * self.lost).min(1.0) * self.round_trip.as_secs_f64();
        let runs = f64::from(self.segments) / STRETCH_MAX as f64;
        let runs_saved = f64::from(self.segments) * self.lost / REPAIRS_OF_RUN;
        saved >= (runs - runs_saved) * (self.lone * HOSTS).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAN: TolerancePrice = TolerancePrice {
        segments: 5_600, // 8 MB
        round: 60,
        round_trip: Span::from_micros(100),
        lost: 0.01,
        lone: Span::from_micros(2),
    };

    #[test]
    fn a_tolerance_pays_where_a_repair_at_the_end_takes_long() {
        assert!(!LAN.pays(), "1.4 ms for runs, at most 100 us saved");
        let terrible = TolerancePrice { lost: 0.13, ..LAN };
        assert!(terrible.pays());
        let far = TolerancePrice {
            round: 20_000,
            round_trip: Span::from_millis(40),
            ..LAN
        };
        assert!(far.pays());
        let clean = TolerancePrice { lost: 0.0, ..far };
        assert!(!clean.pays());
        let rare = TolerancePrice { lost: 1e-6, ..far };
        assert!(!rare.pays(), "the end is rarely lost");
    }

    #[test]
    fn a_tolerance_pays_where_runs_cost_little() {
        let switch = TolerancePrice {
            lone: Span::from_nanos(8),
            ..LAN
        };
        assert!(switch.pays());
        let short = TolerancePrice {
            segments: 100,
            ..LAN
        };
        assert!(short.pays(), "7 runs");
        let unknown = TolerancePrice {
            lone: Span::ZERO,
            lost: 0.0,
            ..LAN
        };
        assert!(unknown.pays(), "the cost is not known yet");
    }
}

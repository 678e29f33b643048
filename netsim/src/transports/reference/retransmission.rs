//! The retransmission timeout of TCP (RFC 6298): how long a sender waits for an ACK.

use gradwire_protocol::units::Span;

/// Minimum timeout of a TCP that data centres tune, far below the 1 s of RFC 6298 (Vasudevan et
/// al., SIGCOMM 2009). A longer one makes every loss that no later packet reveals (the end of a
/// flow) that much more expensive; a much shorter one mistakes the full queues of an incast for
/// losses.
pub(crate) const LEAST: Span = Span::from_micros(200);
/// The minimum of the paper on DCTCP (Alizadeh et al., SIGCOMM 2010), whose kernel had no finer
/// timer. Linux has 200 ms by default.
pub(crate) const LEAST_OF_PAPER: Span = Span::from_millis(10);
/// Most doublings of the timeout.
const DOUBLINGS: u32 = 6;

/// Running estimate of a flow's round trip.
#[derive(Clone, Debug)]
pub(crate) struct RoundTrip {
    least: Span,
    smoothed: u64,
    deviation: u64,
    timeouts: u32,
}

impl RoundTrip {
    /// An estimate without samples, which gives the minimum timeout.
    pub(crate) fn new(least: Span) -> Self {
        Self {
            least,
            smoothed: 0,
            deviation: 0,
            timeouts: 0,
        }
    }

    /// Notes a round trip.
    pub(crate) fn sample(&mut self, span: Span) {
        let sample = span.as_picos();
        self.timeouts = 0;
        if self.smoothed == 0 {
            (self.smoothed, self.deviation) = (sample, sample / 2);
            return;
        }
        let error = self.smoothed.abs_diff(sample);
        self.deviation = (3 * self.deviation + error) / 4;
        self.smoothed = (7 * self.smoothed + sample) / 8;
    }

    /// Notes that the timeout has passed: the next one is twice as long.
    pub(crate) fn timed_out(&mut self) {
        self.timeouts = (self.timeouts + 1).min(DOUBLINGS);
    }

    /// The timeout for the next ACK.
    pub(crate) fn timeout(&self) -> Span {
        let estimate = Span::from_picos(self.smoothed + 4 * self.deviation);
        estimate.max(self.least) * (1 << self.timeouts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_is_the_least_one_until_round_trips_are_long() {
        let mut round_trip = RoundTrip::new(LEAST);
        round_trip.sample(Span::from_micros(14));
        assert_eq!(round_trip.timeout(), LEAST);
        for _ in 0..100 {
            round_trip.sample(Span::from_micros(500));
        }
        let timeout = round_trip.timeout();
        assert!(timeout >= Span::from_micros(499) && timeout < Span::from_micros(520));
    }

    #[test]
    fn the_timeout_doubles_until_something_comes_back() {
        let mut round_trip = RoundTrip::new(LEAST);
        round_trip.timed_out();
        round_trip.timed_out();
        assert_eq!(round_trip.timeout(), LEAST * 4);
        round_trip.sample(Span::from_micros(14));
        assert_eq!(round_trip.timeout(), LEAST);
    }
}

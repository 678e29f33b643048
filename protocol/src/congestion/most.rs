//! The largest size of a window, which follows the path.
//!
//! A window protects the buffers of the receiver's host from a sender that no signal has reached
//! yet. What those hold fills a short path at any rate. On a long path most bytes in flight are on
//! their way, so a window of that size would be the limit there, not the path.

use crate::job::SendWindow;
use crate::rtt::Rtt;
use crate::units::{ByteCount, Span};

/// A short path has at most this round trip. A longer one may have in flight what the window of a
/// short one sends in its time: with 1 MiB, 8.4 Gb/s.
const SHORT_PATH: Span = Span::from_millis(1);

/// The maximum number of bytes in flight to one peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WindowMost {
    /// On a short path.
    pub short: ByteCount,
    /// On the longest one.
    pub long: ByteCount,
}

impl WindowMost {
    /// As a job says.
    pub(crate) fn new(window: SendWindow) -> Self {
        Self {
            short: window.short(),
            long: window.most(),
        }
    }

    /// The same on every path.
    pub fn fixed(bytes: ByteCount) -> Self {
        Self {
            short: bytes,
            long: bytes,
        }
    }

    /// On a path with this minimum round trip.
    pub(super) fn on(self, rtt: &Rtt) -> ByteCount {
        if !rtt.is_known() || self.short == self.long {
            return self.short;
        }
        let times = rtt.least().as_secs_f64() / SHORT_PATH.as_secs_f64();
        let bytes = ByteCount::new((self.short.get() as f64 * times) as u64);
        bytes.clamp(self.short, self.long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(window: SendWindow, millis: u64) -> ByteCount {
        let mut rtt = Rtt::new(Span::from_millis(1));
        rtt.sample(Span::from_millis(millis));
        WindowMost::new(window).on(&rtt)
    }

    #[test]
    fn an_automatic_window_follows_the_round_trip_within_its_bounds() {
        let follows = |millis| on(SendWindow::AUTO, millis);
        assert_eq!([0, 1].map(follows), [ByteCount::mib(1); 2]);
        assert_eq!(follows(40), ByteCount::mib(40));
        assert_eq!(follows(60_000), SendWindow::AUTO.most());
        let most = SendWindow::AUTO.within(ByteCount::mib(3));
        assert_eq!(on(most, 40), ByteCount::mib(3));
    }

    #[test]
    fn a_number_holds_on_every_path() {
        for millis in [0, 1, 40] {
            let bytes = ByteCount::kib(512);
            assert_eq!(on(SendWindow::Bytes(bytes), millis), bytes);
        }
    }

    #[test]
    fn a_path_whose_round_trip_is_not_known_counts_as_short() {
        let most = WindowMost::new(SendWindow::AUTO);
        assert_eq!(most.on(&Rtt::new(Span::from_millis(1_000))), most.short);
    }
}

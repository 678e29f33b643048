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

/// The largest size of this window on a path with this minimum round trip.
pub(super) fn most_on(window: SendWindow, rtt: &Rtt) -> ByteCount {
    let short = window.short();
    if !rtt.is_known() || short == window.most() {
        return short;
    }
    let times = rtt.least().as_secs_f64() / SHORT_PATH.as_secs_f64();
    let bytes = ByteCount::new((short.get() as f64 * times) as u64);
    bytes.clamp(short, window.most())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(window: SendWindow, millis: u64) -> ByteCount {
        let mut rtt = Rtt::new(Span::from_millis(1));
        rtt.sample(Span::from_millis(millis));
        most_on(window, &rtt)
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
        let unknown = Rtt::new(Span::from_millis(1_000));
        let most = most_on(SendWindow::AUTO, &unknown);
        assert_eq!(most, SendWindow::AUTO.short());
    }
}

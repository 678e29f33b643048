//! The search for the minimum round trip of a path that has become longer.
//!
//! Delay is measured from the minimum round trip. After a reroute to a longer path that minimum is
//! wrong, and would shrink the window forever. So once delay has exceeded its target for a while
//! ([`Rtt::doubts_least`](crate::rtt::Rtt::doubts_least)), the sender keeps no more than the
//! minimum window in flight until a packet that it has sent in this time is answered, and takes
//! that sample. This is ProbeRTT of BBR (Cardwell et al., ACM Queue 2016), but only when delay
//! shrinks the window, and for one round trip.

use serde::{Deserialize, Serialize};

use crate::units::{ByteCount, Instant, Stamp};

/// A search for the minimum round trip.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) enum LeastSearch {
    /// There is none.
    #[default]
    Off,
    /// More than the minimum window is in flight.
    Draining,
    /// Since then no more than the minimum window is.
    Light(Stamp),
}

impl LeastSearch {
    /// Begins a search, since the minimum round trip is in doubt.
    pub(super) fn begin(&mut self) {
        if *self == Self::Off {
            *self = Self::Draining;
        }
    }

    /// A packet with this stamp was answered, and `excess` bytes more than the minimum window are
    /// in flight. Returns whether its round trip is the minimum, which ends the search.
    pub(super) fn ends_with(&mut self, now: Instant, echo: Stamp, excess: ByteCount) -> bool {
        match *self {
            Self::Light(since) if echo >= since => {
                *self = Self::Off;
                return true;
            }
            Self::Draining if excess.get() == 0 => *self = Self::Light(now.stamp()),
            Self::Off | Self::Draining | Self::Light(_) => {}
        }
        false
    }
}

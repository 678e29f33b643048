//! The clocks of probes: a monotonic one for durations, and the wall clock to compare two hosts.

use std::time::{Instant, SystemTime};

/// The monotonic clock.
#[expect(
    clippy::disallowed_methods,
    reason = "probes measure time, in the crate that has a clock"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds since 1970, or 0 before.
#[expect(
    clippy::disallowed_methods,
    reason = "the clocks of two hosts can only be compared by what the wall clock says"
)]
pub(super) fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

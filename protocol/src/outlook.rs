//! When a side of a peer must be looked at again: the answer of sender and receiver alike.

use crate::units::Instant;

/// The next needs of a sender or receiver, apart from sending data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ControlOutlook {
    /// Whether it may have a control packet to send now.
    pub talks: bool,
    /// The earliest time at which anything else can be due.
    pub due: Option<Instant>,
}

impl ControlOutlook {
    /// The outlook of both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            talks: self.talks || other.talks,
            due: earlier(self.due, other.due),
        }
    }
}

/// The earlier of two times, if any.
#[inline]
pub(crate) fn earlier(first: Option<Instant>, second: Option<Instant>) -> Option<Instant> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.min(second)),
        (time, None) | (None, time) => time,
    }
}

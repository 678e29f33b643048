//! How long a message waits for segments that it could do without (rule 10 of [`super`]).

use crate::units::Instant;

/// The patience of a posted message.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum MessagePatience {
    /// It waits for every segment that is not lost.
    #[default]
    Endless,
    /// It waits so until then.
    Until(Instant),
    /// It waits no longer for segments that it could do without.
    Over,
    /// It has given up such segments.
    Used,
}

impl MessagePatience {
    /// Of a message that is posted with this request.
    pub(super) fn new(ends: Option<Instant>) -> Self {
        ends.map_or(Self::Endless, Self::Until)
    }

    /// When it ends, unless it has ended.
    pub(super) fn ends(self) -> Option<Instant> {
        match self {
            Self::Until(at) => Some(at),
            Self::Endless | Self::Over | Self::Used => None,
        }
    }

    /// Ends if it is time.
    pub(super) fn look(&mut self, now: Instant) {
        if self.ends().is_some_and(|at| at <= now) {
            *self = Self::Over;
        }
    }
}

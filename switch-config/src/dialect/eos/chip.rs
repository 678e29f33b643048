//! The two kinds of chips, and their words.

/// A kind of chips.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Chip {
    /// Jericho.
    Sand,
    /// Trident and Tomahawk.
    Trident,
}

impl Chip {
    /// The chips of a version.
    pub(super) fn of(version: &str) -> Self {
        match version {
            "sand" => Self::Sand,
            _ => Self::Trident,
        }
    }

    /// The word for a unicast queue.
    pub(super) fn queue(self) -> &'static str {
        match self {
            Self::Sand => "tx-queue",
            Self::Trident => "uc-tx-queue",
        }
    }
}

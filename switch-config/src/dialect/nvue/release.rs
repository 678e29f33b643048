//! The releases of Cumulus Linux, and the differences in their words.

/// A release of Cumulus Linux.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Release {
    /// 5.11.
    R11,
    /// 5.14.
    R14,
    /// 5.18.
    R18,
}

impl Release {
    /// The release of a version.
    pub(super) fn of(version: &str) -> Self {
        match version {
            "5.11" => Self::R11,
            "5.14" => Self::R14,
            _ => Self::R18,
        }
    }

    /// The key that switches adaptive routing and the RoCE presets: `enable` up to 5.14, `state`
    /// from 5.15.
    pub(super) fn switch(self) -> &'static str {
        match self {
            Self::R11 | Self::R14 => "enable",
            Self::R18 => "state",
        }
    }

    /// How that key, and the fields of hashes, are switched on.
    pub(super) fn on(self) -> &'static str {
        match self {
            Self::R11 | Self::R14 => "on",
            Self::R18 => "enabled",
        }
    }

    /// Whether thresholds can be relative to the free memory, so that the configuration must say
    /// that they are not.
    pub(super) fn has_relative_thresholds(self) -> bool {
        self >= Self::R18
    }
}

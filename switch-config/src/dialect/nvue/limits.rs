//! The abilities of the releases, and the differences in their words.

use crate::limits::{Alphas, Fact, NotEct, PlatformLimits, Thresholds, Trims, Unit};
use gradwire_fabric::policy::Balance;

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

    /// Its abilities.
    pub(super) fn limits(self) -> PlatformLimits {
        PlatformLimits {
            queues: Fact::new(
                8,
                "nvueschema 0.1.0: traffic-class and switch-priority 0..7",
            ),
            thresholds: Fact::new(
                Thresholds {
                    unit: Unit::Bytes(1),
                    least: 1,
                    most: u32::MAX as u64,
                    apart: 0,
                },
                "nvueschema 0.1.0: min-threshold and max-threshold in bytes, at least 1",
            ),
            not_ect: Fact::new(
                NotEct::DropsEarly,
                "Cumulus Linux, Quality of Service: RED drops where `red enable` is set, which is \
                 written; Linux mlxsw, commit 8040c96b4f, says it of the same chips",
            ),
            drop_precedence: Fact::new(false, "nvueschema 0.1.0: no such key"),
            marks_beside_precedence: Fact::new(false, "nvueschema 0.1.0: no such key"),
            alphas: Fact::new(
                Some(Alphas { least: -7, most: 6 }),
                "nvueschema 0.1.0: egress-lossy-buffer shared-alpha, alpha_1_128 to alpha_64",
            ),
            trims: match self {
                Self::R11 => Fact::new(None, "nvueschema 0.1.0: packet-trim from 5.14 on"),
                _ => Fact::new(
                    Some(Trims {
                        least: 256,
                        most: 1024,
                    }),
                    "nvueschema 0.1.0: system.forwarding.packet-trim.size, a multiple of 4",
                ),
            },
            balances: Fact::new(
                &[Balance::Ecmp, Balance::Adaptive],
                "nvueschema 0.1.0: system.forwarding.ecmp-hash, router.adaptive-routing",
            ),
            remarks: REMARKS,
        }
    }
}

const REMARKS: &[Fact<&'static str>] = &[
    Fact::new(
        "without `red enable` a queue only marks, and drops whatever comes when it is full",
        "Cumulus Linux, Quality of Service: RED is off by default",
    ),
    Fact::new(
        "the map of switch priorities to queues and the dynamic thresholds are the whole switch's \
         (profile default-global)",
        "Cumulus Linux, Quality of Service: NVUE only supports default-global",
    ),
    Fact::new(
        "adaptive routing moves packets that the chip counts as eligible, RoCE unless told \
         otherwise: see that gradwire's packets are, or keep to the hash",
        "Cumulus Linux, Equal Cost Multipath: adaptive routing",
    ),
];

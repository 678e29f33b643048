//! The abilities of the two kinds of chips, and their words.

use crate::limits::{Alphas, Fact, NotEct, PlatformLimits, Thresholds, Unit};
use gradwire_fabric::policy::Balance;

/// The schema that commands were checked against.
const SCHEMA: &str = "schema of pyavd 6.4.0, eos_cli_config_gen";

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

    /// Its abilities.
    pub(super) fn limits(self) -> PlatformLimits {
        PlatformLimits {
            queues: Fact::new(8, "schema of pyavd 6.4.0: qos.tx_queue.queues ids 0..7"),
            thresholds: Fact::new(
                Thresholds {
                    unit: Unit::Bytes(1),
                    least: 1,
                    most: 256_000_000,
                    apart: 0,
                },
                "schema of pyavd 6.4.0: units bytes, least 1; schema of AVD 4: most 256000000",
            ),
            not_ect: Fact::new(
                NotEct::Unknown,
                "`qos random-detect ecn allow non-ect` exists in pyavd 6.4.0; what happens without \
                 it was not found in any document that could be read",
            ),
            drop_precedence: Fact::new(
                true,
                "schema of pyavd 6.4.0: random_detect.drop.threshold.drop_precedence 0..2",
            ),
            marks_beside_precedence: Fact::new(
                false,
                "templates of pyavd 6.4.0 write `random-detect drop` only where a queue has no \
                 `random-detect ecn`",
            ),
            alphas: match self {
                Self::Sand => Fact::new(
                    None,
                    "schema of pyavd 6.4.0: thresholds of shared memory are under platform.trident \
                     only",
                ),
                Self::Trident => Fact::new(
                    Some(Alphas { least: -7, most: 3 }),
                    "schema of pyavd 6.4.0: platform.trident.mmu.queue_profiles, 1/128 to 8",
                ),
            },
            trims: Fact::new(None, "no key in the schema of pyavd 6.4.0"),
            balances: match self {
                Self::Sand => Fact::new(&[Balance::Ecmp], SCHEMA),
                Self::Trident => Fact::new(
                    &[Balance::Ecmp, Balance::Adaptive],
                    "schema of pyavd 6.4.0: ip_hardware.fib.load_balance_distribution.dynamic",
                ),
            },
            remarks: REMARKS,
        }
    }
}

const REMARKS: &[Fact<&'static str>] = &[
    Fact::new(
        "`random-detect drop` is written for drop precedence 2 alone: it drops packets whether \
         ECN-capable or not",
        "arista.com, description of WRED in the list of transfers of information",
    ),
    Fact::new(
        "that a given chip drops by the precedence of a DSCP is not proven here: watch the \
         counters on one port first",
        "no switch at hand",
    ),
    Fact::new(
        "maps of DSCPs and of traffic classes are the whole switch's: ports outside the plan that \
         trust DSCPs follow them, too",
        SCHEMA,
    ),
    Fact::new(
        "the hash of equal paths is not written: see on the switch that UDP source ports are in it",
        "no key in the schema of pyavd 6.4.0 beside load_balance.policies of sand chips",
    ),
];

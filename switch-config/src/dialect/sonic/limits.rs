//! The abilities of SONiC, with sources.

use crate::limits::{Alphas, Fact, NotEct, PlatformLimits, Thresholds, Trims, Unit};
use gradwire_fabric::policy::Balance;

/// Unicast queues of a port; the templates of all makers configure these.
pub(super) const QUEUES: u8 = 8;

/// The table of the one version.
pub(super) fn limits() -> PlatformLimits {
    PlatformLimits {
        queues: Fact::new(QUEUES, "files/build_templates/qos_config.j2: queues 0 to 7"),
        thresholds: Fact::new(
            Thresholds {
                unit: Unit::Bytes(1),
                least: 1,
                most: u32::MAX as u64,
                apart: 0,
            },
            "sonic-wred-profile.yang: bytes, max >= min; SAI saiwred.h has 32 bits of them",
        ),
        not_ect: Fact::new(
            NotEct::DropsEarly,
            "SAI saiwred.h and doc/qos/wred_ecn_marking_thresholds_HLD.md: one set of \
         thresholds; colours with ECN are marked instead of dropped if they are ECT",
        ),
        drop_precedence: Fact::new(
            false,
            "no table of CONFIG_DB maps a DSCP to a colour (yang-models)",
        ),
        marks_beside_precedence: Fact::new(false, "no table maps a DSCP to a colour"),
        alphas: Fact::new(
            Some(Alphas { least: -8, most: 7 }),
            "sonic-buffer-profile.yang: dynamic_th",
        ),
        trims: Fact::new(
            Some(Trims {
                least: 1,
                most: u32::MAX as u64,
            }),
            "sonic-trimming.yang: any size of 32 bits; what the ASIC takes is in STATE_DB, \
         SWITCH_CAPABILITY",
        ),
        balances: Fact::new(
            &[Balance::Ecmp],
            "sonic-hash.yang; choosing by packet (doc/ARS/Local_ARS_HLD.md rev. 1.4) is in no \
         model of this version",
        ),
        remarks: &REMARKS,
    }
}

/// Remarks for people.
const REMARKS: [Fact<&'static str>; 5] = [
    Fact::new(
        "releases before 2026 refuse new WRED profiles as a patch, and none takes a new pool: \
         there the whole configuration is reloaded, which interrupts traffic",
        "sonic-utilities, gcu_field_operation_validators.conf.json and pull request 4219",
    ),
    Fact::new(
        "JSON has no comments: what is ours is known by its name, GRADWIRE",
        "sonic-yang-models refuse unknown tables and fields",
    ),
    Fact::new(
        "traffic is trusted by port, not by switch: PORT_QOS_MAP|global is not touched",
        "sonic-port-qos-map.yang",
    ),
    Fact::new(
        "a switch keeps its own pools: `diff` writes one only where there is none, so load its \
         patch, and the whole configuration only into a switch that has nothing yet",
        "files/build_templates/buffers_config.j2 of each device",
    ),
    Fact::new(
        "which fields SWITCH_HASH takes is in STATE_DB, SWITCH_CAPABILITY|switch",
        "doc/hash/hash-design.md",
    ),
];

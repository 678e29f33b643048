//! The known abilities of NX-OS on Nexus 9000: from public configurations, since no grammar of it
//! can be had without a switch.

use crate::limits::{Fact, NotEct, PlatformLimits, Thresholds, Unit};
use gradwire_fabric::policy::Balance;

/// Configurations that people published.
const PUBLIC: &str = "public configurations of Nexus 9000 for RoCE; no grammar could be read";
/// Where not-ECT packets are spoken of.
const FORWARD: &str = "inferred, not read: public Nexus 9000 configurations have the global \
     command `congestion-control random-detect forward-nonecn`, and ACI a switch `forward \
     non-ECN`; so without them WRED drops what is not ECN-capable";

/// The table of the one version.
pub(super) fn limits() -> PlatformLimits {
    PlatformLimits {
        queues: Fact::new(
            8,
            "public configurations: c-out-8q-q-default, c-out-8q-q1 to -q7",
        ),
        thresholds: Fact::new(
            Thresholds {
                unit: Unit::Bytes(1000),
                least: 1,
                most: 100_000,
                apart: 0,
            },
            "public configurations: `random-detect minimum-threshold 300 kbytes \
             maximum-threshold 300 kbytes`; that a kbyte is 1,000 bytes, and the range, are \
             assumed",
        ),
        not_ect: Fact::new(NotEct::ProbablyDropsEarly, FORWARD),
        drop_precedence: Fact::new(false, "no drop precedence in what could be read"),
        marks_beside_precedence: Fact::new(false, "no drop precedence in what could be read"),
        alphas: Fact::new(None, "queue-limit dynamic was not read for Nexus 9000"),
        trims: Fact::new(None, "no packet trimming in what could be read"),
        balances: Fact::new(
            &[Balance::Ecmp],
            "a hash of addresses and ports is the default; dynamic load balancing was not read",
        ),
        remarks: &REMARKS,
    }
}

const REMARKS: [Fact<&str>; 5] = [
    Fact::new(
        "not verified by any validator: nothing offline checks NX-OS; our own lint checks names, \
         queues, order and thresholds only. Load it on one switch that carries nothing first",
        PUBLIC,
    ),
    Fact::new(
        "whether not-ECT packets are dropped early is inferred; see it before you rely on it: \
         droppable packets must be dropped while the queue is below its limit",
        FORWARD,
    ),
    Fact::new(
        "seven queues have `priority level` 1 to 7 and the default queue what they leave; how \
         many levels a model takes could not be read",
        PUBLIC,
    ),
    Fact::new(
        "bandwidth and priority exclude each other in a class: where one takes the place of the \
         other in a policy of ours, type the `no` line first if the switch asks for it",
        PUBLIC,
    ),
    Fact::new(
        "`show queuing interface` does not tell early drops from late ones: give counters in the \
         neutral JSON form",
        PUBLIC,
    ),
];

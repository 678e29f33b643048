//! The abilities of switches with Junos, with sources.

use crate::limits::{Fact, NotEct, PlatformLimits, Thresholds, Unit};
use gradwire_fabric::policy::Balance;

/// Juniper's page of scheduler priorities.
const PRIORITIES: &str = "juniper.net, priority (Schedulers), Traffic Management Guide QFX: low, \
     medium-low, medium-high, high and strict-high on QFX10000; strict-high and low on QFX5100";
/// Juniper's pages of ECN and drop profiles.
const GENERIC: &str = "juniper.net, Configuring CoS WRED Drop Profiles (QFX): on ECN queues drop \
     profiles only mark, not-ECT packets are dropped when the queue is full";
/// Juniper's example of ECN.
const QFX5100: &str = "juniper.net, Example: Configuring ECN: on QFX5100, EX4600, QFX3500 and \
     QFX3600 the drop profile also drops packets of ECN code 00";
/// The published schema.
const SCHEMA: &str = "Juniper/yang 2a696d62, 24.4R1, junos-qfx-conf-class-of-service";

/// How queues of a model are put in order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scheduling {
    /// All are strict-high, in one forwarding class set; the higher number goes first.
    StrictSet,
    /// Each has a priority of its own; the scheduler map is bound to the port.
    Levels,
}

/// The priorities that a scheduler can have where each queue has its own, first served first.
pub(super) const LEVELS: [&str; 5] = ["strict-high", "high", "medium-high", "medium-low", "low"];

/// How queues of a version are put in order.
pub(super) fn scheduling(version: &str) -> Scheduling {
    match version {
        "qfx5100" => Scheduling::StrictSet,
        _ => Scheduling::Levels,
    }
}

/// The table of a version.
pub(super) fn limits(version: &str) -> PlatformLimits {
    let common = PlatformLimits {
        queues: Fact::new(LEVELS.len() as u8, PRIORITIES),
        thresholds: Fact::new(
            Thresholds {
                unit: Unit::PercentOfPort,
                least: 1,
                most: 100,
                apart: 1,
            },
            "juniper.net, Configuring CoS WRED Drop Profiles: fill levels are percents of the \
             queue's memory, 0 to 100, and the first must be below the second",
        ),
        not_ect: Fact::new(NotEct::DropsWhenFull, GENERIC),
        drop_precedence: Fact::new(true, SCHEMA),
        marks_beside_precedence: Fact::new(false, GENERIC),
        alphas: Fact::new(
            None,
            "the schema has dynamic thresholds of shared buffers for ingress and egress pools, \
             not for queues",
        ),
        trims: Fact::new(None, "no packet trimming in the schema of 24.4R1 for QFX"),
        balances: Fact::new(
            &[Balance::Ecmp],
            "the hash of addresses and ports is Junos's default; spraying per packet was not read",
        ),
        remarks: &LEVELS_REMARKS,
    };
    match scheduling(version) {
        Scheduling::Levels => common,
        Scheduling::StrictSet => PlatformLimits {
            queues: Fact::new(
                8,
                "juniper.net, Defining CoS Queue Scheduling Priority (QFX): one forwarding class \
                 set can be strict-high, with all its queues; that a port has 8 unicast queues \
                 is general knowledge",
            ),
            not_ect: Fact::new(NotEct::DropsEarly, QFX5100),
            remarks: &STRICT_SET_REMARKS,
            ..common
        },
    }
}

const CHECKED: Fact<&str> = Fact::new(
    "the statements are checked by libyang against Juniper's own model; that model knows neither \
     priority names, nor what a name refers to, nor how long a code point is: our lint does",
    SCHEMA,
);

const FILL: Fact<&str> = Fact::new(
    "fill levels are percents of the memory of one queue: they are computed as if a queue could \
     take what a port may take; where queues have buffer-size of their own, tell less memory in \
     the fabric",
    "juniper.net, Configuring CoS WRED Drop Profiles",
);

const HOST: Fact<&str> = Fact::new(
    "the switch's own routing packets leave in the class network-control, which is served with \
     the highest queue",
    "juniper.net, Default Junos OS CoS Settings",
);

const GROUPS: Fact<&str> = Fact::new(
    "statements of apply-groups are not read: export with `display set | display inheritance \
     no-comments` where groups configure class-of-service",
    "Junos CLI",
);

const LOSSLESS: Fact<&str> = Fact::new(
    "a lossless class on a queue of ours (Junos has fcoe on queue 3 and no-loss on queue 4 by \
     default, others say `no-loss`) is not ours to change: where a model does not take both kinds \
     on one queue, `commit check` refuses, and that class must go elsewhere first",
    "Junos defaults for QFX; what each model refuses could not be read",
);

const IPV6: Fact<&str> = Fact::new(
    "only the classifier `dscp` is bound; where a model does not use it for IPv6, bind a \
     `dscp-ipv6` one with the same code points",
    SCHEMA,
);

const LEVELS_REMARKS: [Fact<&str>; 8] = [
    Fact::new(
        "8 queues, but only five priorities: more classes are refused, since queues of one \
         priority take turns; shorten priority.dscps to 5. That strict-high and high go before low \
         is written; that the medium ones stand between them is taken from their names",
        PRIORITIES,
    ),
    Fact::new(
        "no transmit-rate is written: Juniper recommends one for strict-high queues, which here \
         carry control packets only; how bandwidth above guarantees is shared below strict-high \
         could not be read, so look at it on one switch first",
        PRIORITIES,
    ),
    CHECKED,
    FILL,
    HOST,
    LOSSLESS,
    IPV6,
    GROUPS,
];

const STRICT_SET_REMARKS: [Fact<&str>; 8] = [
    Fact::new(
        "all our queues are strict-high in one forwarding class set; that the higher number goes \
         first among them is written for QFX5200 only: see that on one switch",
        "juniper.net, Defining CoS Queue Scheduling Priority (QFX)",
    ),
    Fact::new(
        "Juniper advises against ECN on strict-high queues, since such queues should get all the \
         bandwidth they want; here lower ones do not, and no other priority keeps an order",
        "juniper.net, Understanding CoS Explicit Congestion Notification",
    ),
    CHECKED,
    FILL,
    HOST,
    LOSSLESS,
    IPV6,
    GROUPS,
];

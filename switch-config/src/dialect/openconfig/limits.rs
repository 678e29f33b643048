//! The abilities of OpenConfig's models, with sources.

use crate::limits::{Alphas, Fact, NotEct, PlatformLimits, Thresholds, Unit};
use gradwire_fabric::policy::Balance;

/// The models' memory management.
const MEMORY: &str = "openconfig/public 94f58962, openconfig-qos-mem-mgmt.yang 2.2.0";
/// The models' classifiers, queues and schedulers.
const ELEMENTS: &str = "openconfig/public 94f58962, openconfig-qos-elements.yang";

/// The table of the one version.
pub(super) fn limits() -> PlatformLimits {
    PlatformLimits {
        queues: Fact::new(
            8,
            "the model sets no bound (queue-id is a byte): 8 is what commodity switches have",
        ),
        thresholds: Fact::new(
            Thresholds {
                unit: Unit::Bytes(1),
                least: 1,
                most: u64::MAX / 2,
                apart: 0,
            },
            MEMORY,
        ),
        not_ect: Fact::new(
            NotEct::DropsEarly,
            "openconfig-qos-mem-mgmt.yang: `drop` drops packets that are not ECN-capable where \
             `enable-ecn` marks others, one leaf each",
        ),
        drop_precedence: Fact::new(
            false,
            "the model's WRED profile is uniform, without colours",
        ),
        marks_beside_precedence: Fact::new(false, "the model has no drop precedence"),
        alphas: Fact::new(
            Some(Alphas {
                least: -16,
                most: 16,
            }),
            "openconfig-qos-mem-mgmt.yang: dynamic-limit-scaling-factor is an exponent of two",
        ),
        trims: Fact::new(
            None,
            "openconfig-qos.yang has trim-enable and a DSCP for trimmed packets, but neither a \
             size nor a queue",
        ),
        balances: Fact::new(
            &[Balance::Ecmp],
            "the QoS models do not say how paths are chosen; a hash is what switches do unless \
             told otherwise",
        ),
        remarks: &REMARKS,
    }
}

const REMARKS: [Fact<&str>; 6] = [
    Fact::new(
        "what is written is validated by libyang against the published models; whether a switch \
         supports every leaf is for its vendor to say: ask for its deviations first",
        MEMORY,
    ),
    Fact::new(
        "each queue has a scheduler of its own with priority STRICT: they are served by sequence, \
         the lowest first",
        ELEMENTS,
    ),
    Fact::new(
        "a DSCP that the job does not name is listed with the last queue, since the model says \
         nothing of packets that no term matches",
        ELEMENTS,
    ),
    Fact::new(
        "only IPv4 is classified: for IPv6 bind the same terms as a classifier of type IPV6",
        ELEMENTS,
    ),
    Fact::new(
        "PFC is not in these models: see with the vendor's own commands that it is off",
        "openconfig/public 94f58962, release/models/qos",
    ),
    Fact::new(
        "changes are gNMI Set requests as `gnmic set --request-file` takes them: deletes, then \
         replaces",
        "gnmic.openconfig.net, Set request file",
    ),
];

//! OpenConfig's YANG models, as they stand in `switch-config/schemas/yang/openconfig` with their
//! licence.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Validation;
use super::yanglint::{self, Models};

const FILES: [(&str, &str); 23] = yang_files!["openconfig";
    "iana-if-type",
    "ietf-interfaces",
    "openconfig-alarm-types",
    "openconfig-defined-sets",
    "openconfig-extensions",
    "openconfig-icmpv4-types",
    "openconfig-icmpv6-types",
    "openconfig-inet-types",
    "openconfig-interfaces",
    "openconfig-mpls-types",
    "openconfig-packet-match",
    "openconfig-packet-match-types",
    "openconfig-platform",
    "openconfig-platform-common",
    "openconfig-platform-types",
    "openconfig-qos",
    "openconfig-qos-elements",
    "openconfig-qos-interfaces",
    "openconfig-qos-mem-mgmt",
    "openconfig-qos-types",
    "openconfig-transport-types",
    "openconfig-types",
    "openconfig-yang-types",
];
const INTERFACES: &str = "openconfig-interfaces:interfaces";

/// What yanglint says of a tree by these models.
pub(super) fn validate(text: &str) -> Validation {
    let models = Models {
        name: "OpenConfig's models of 2026-08",
        files: &FILES,
        modules: &["iana-if-type", "openconfig-qos"],
    };
    match serde_json::from_str(text) {
        Ok(root) => yanglint::validate(&models, &with_interfaces(root).to_string()),
        Err(error) => Validation::Rejected {
            tool: "gradwire".to_owned(),
            messages: vec![error.to_string()],
        },
    }
}

/// The tree with an entry for every interface that it names, where it has none: a rendered one is
/// of queues alone.
fn with_interfaces(mut root: Value) -> Value {
    if root.get(INTERFACES).is_some() || !root.is_object() {
        return root;
    }
    let mut names = BTreeSet::new();
    collect(&root, &mut names);
    let entries = names.into_iter().map(|name| {
        json!({"name": name, "config": {"name": name, "type": "iana-if-type:ethernetCsmacd"}})
    });
    let entries: Vec<Value> = entries.collect();
    root[INTERFACES] = json!({"interface": entries});
    root
}

fn collect(value: &Value, names: &mut BTreeSet<String>) {
    let named = |key: &str| value.get(key).and_then(Value::as_str);
    let found = [named("interface"), named("interface-id")];
    names.extend(found.into_iter().flatten().map(str::to_owned));
    let objects = value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(_, inner)| inner);
    let lists = value.as_array().into_iter().flatten();
    for inner in objects.chain(lists) {
        collect(inner, names);
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::job::Job;
    use gradwire_protocol::units::{ByteCount, Rate, Span};
    use gradwire_switch_config::dialect;
    use gradwire_switch_config::plan::{Plan, Port, Site};
    use gradwire_switch_config::policy::{Buffer, QosPolicy};
    use gradwire_switch_config::target::Target;

    use super::*;

    fn rendered() -> String {
        let target = Target::read("openconfig").expect("it is known");
        let dialect = dialect::of(target.platform);
        let port = Port {
            name: dialect.port_name(0),
            rate: Rate::from_gbps(100),
        };
        let site = Site {
            origin: "a test".to_owned(),
            ports: vec![port],
            buffer: Buffer::PerPort(ByteCount::mib(8)),
        };
        let policy = QosPolicy::of_job(&Job::default(), Span::from_micros(14));
        let plan = Plan::new(target, &dialect.limits(target.version), &policy, site);
        dialect.render(&plan.expect("the defaults fit"))
    }

    #[test]
    fn a_rendered_tree_is_accepted_and_a_broken_one_refused_where_yanglint_is_installed() {
        let good = rendered();
        let judged = validate(&good);
        if let Validation::Missing { install } = &judged {
            eprintln!("left out: {install}");
            assert!(install.starts_with("yanglint: "), "{install}");
            return;
        }
        assert!(matches!(judged, Validation::Accepted { .. }), "{judged:?}");
        let bad = good.replace("\"enable-ecn\": true", "\"enable-ecn\": \"yes\"");
        let judged = validate(&bad);
        assert!(matches!(judged, Validation::Rejected { .. }), "{judged:?}");
    }
}

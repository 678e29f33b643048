//! The YANG models of OpenConfig and of Junos, as they stand in `switch-config/schemas/yang` with
//! their licences.

use gradwire_switch_config::dialect::{junos, openconfig};
use gradwire_switch_config::reading::ReadError;

use super::validation::Validation;
use super::yanglint::{self, Models};

const OPENCONFIG: [(&str, &str); 23] = yang_files!["openconfig";
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

const JUNOS: [(&str, &str); 3] = yang_files!["junos";
    "junos-common-types",
    "junos-qfx-conf-class-of-service",
    "junos-qfx-conf-root",
];

/// The verdict of yanglint on an export, by OpenConfig's models.
pub(super) fn openconfig(text: &str) -> Validation {
    let models = Models {
        name: "OpenConfig's models of 2026-07",
        files: &OPENCONFIG,
        modules: &openconfig::yang::MODULES,
    };
    ask(&models, openconfig::yang::document(text))
}

/// The verdict of yanglint on the class-of-service of an export, by Juniper's models.
pub(super) fn junos(text: &str) -> Validation {
    let models = Models {
        name: "Juniper's models of class-of-service, 24.4R1 for QFX",
        files: &JUNOS,
        modules: &junos::yang::MODULES,
    };
    ask(&models, junos::yang::document(text))
}

fn ask(models: &Models<'_>, document: Result<String, ReadError>) -> Validation {
    match document {
        Ok(document) => yanglint::validate(models, &document),
        Err(error) => Validation::Rejected {
            tool: "gradwire".to_owned(),
            messages: vec![error.to_string()],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One is accepted, the other refused for this reason; or yanglint is not installed.
    fn tells_apart(good: Validation, bad: Validation, reason: &str) {
        if let Validation::Missing { install } = &good {
            eprintln!("left out: {install}");
            assert!(install.starts_with("yanglint: "), "{install}");
            return;
        }
        assert!(matches!(good, Validation::Accepted { .. }), "{good:?}");
        let Validation::Rejected { messages, .. } = bad else {
            panic!("{bad:?}");
        };
        assert!(
            messages.iter().any(|message| message.contains(reason)),
            "{messages:?}"
        );
    }

    #[test]
    fn yanglint_refuses_forbidden_openconfig_queues() {
        let tree = |id: &str| {
            format!(
                r#"{{"openconfig-qos:qos": {{"queues": {{"queue": [
                    {{"name": "a", "config": {{"name": "a", "queue-id": {id}}}}}]}}}}}}"#
            )
        };
        tells_apart(openconfig(&tree("5")), openconfig(&tree("256")), "queue-id");
    }

    #[test]
    fn yanglint_refuses_forbidden_juniper_fill_levels() {
        let line = |percent: u8| {
            format!("set class-of-service drop-profiles a interpolate fill-level {percent}\n")
        };
        tells_apart(junos(&line(5)), junos(&line(105)), "fill-level");
    }
}

//! SONiC's YANG models, as they stand in `switch-config/schemas/yang/sonic` with their licence.

use gradwire_switch_config::dialect::sonic::yang;

use super::validation::Validation;
use super::yanglint::{self, Models};

const FILES: [(&str, &str); 23] = yang_files!["sonic";
    "sonic-buffer-pg",
    "sonic-buffer-pool",
    "sonic-buffer-profile",
    "sonic-buffer-queue",
    "sonic-device_metadata",
    "sonic-dot1p-tc-map",
    "sonic-dscp-tc-map",
    "sonic-extension",
    "sonic-hash",
    "sonic-macsec",
    "sonic-pfc-priority-priority-group-map",
    "sonic-pfc-priority-queue-map",
    "sonic-pfcwd",
    "sonic-port",
    "sonic-port-qos-map",
    "sonic-queue",
    "sonic-scheduler",
    "sonic-tc-dscp-map",
    "sonic-tc-priority-group-map",
    "sonic-tc-queue-map",
    "sonic-trimming",
    "sonic-types",
    "sonic-wred-profile",
];

/// The verdict of yanglint on a CONFIG_DB, by these models.
pub(super) fn validate(text: &str) -> Validation {
    let models = Models {
        name: "SONiC's models of 2026-08",
        files: &FILES,
        modules: &yang::MODULES,
    };
    match yang::document(text) {
        Ok(document) => yanglint::validate(&models, &document),
        Err(error) => Validation::Rejected {
            tool: "gradwire".to_owned(),
            messages: vec![error.to_string()],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yanglint_refuses_forbidden_sonic_values() {
        let config = |ecn: &str| format!(r#"{{"WRED_PROFILE": {{"A": {{"ecn": "{ecn}"}}}}}}"#);
        let (good, bad) = (validate(&config("ecn_all")), validate(&config("ecn_blue")));
        if let Validation::Missing { install } = &good {
            eprintln!("left out: {install}");
            assert!(install.starts_with("yanglint: "), "{install}");
            return;
        }
        assert!(matches!(good, Validation::Accepted { .. }), "{good:?}");
        let Validation::Rejected { messages, .. } = bad else {
            panic!("{bad:?}");
        };
        assert!(messages[0].contains("ecn_blue"), "{messages:?}");
    }
}

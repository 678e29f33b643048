//! What OpenConfig's own models say of the configurations that we write.

#[path = "../../tests/plans/mod.rs"]
mod plans;
#[path = "../../tests/properties/mod.rs"]
mod properties;

use std::cell::OnceCell;

use gradwire_schemas::Models;
use gradwire_switch_config::dialect;
use gradwire_switch_config::plan::Plan;
use gradwire_switch_config::target::Platform;
use properties::{hold, hold_over, plan_of, target};
use proptest::prelude::*;
use serde_json::{Value, json};

const EXPORT: &str = include_str!("../../tests/exports/openconfig.json");

thread_local! {
    static MODELS: OnceCell<Models> = const { OnceCell::new() };
}

/// What both programs say of a tree, on a switch that has the ports.
fn judge(plan: &Plan, text: &str) -> Result<(), String> {
    let mut root: Value = serde_json::from_str(text).expect("it is JSON");
    let ports = plan.site.ports.iter().map(|port| &port.name);
    let ports = ports.map(|name| {
        json!({"name": name, "config": {"name": name, "type": "iana-if-type:ethernetCsmacd"}})
    });
    if root.get("openconfig-interfaces:interfaces").is_none() {
        root["openconfig-interfaces:interfaces"] = json!({"interface": ports.collect::<Vec<_>>()});
    }
    MODELS.with(|models| {
        let load = || Models::load("openconfig", &["iana-if-type", "openconfig-qos"]);
        models.get_or_init(load).judge_alike(&root.to_string())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn what_is_written_for_any_plan_is_accepted(drawn in plans::drawn()) {
        let plan = drawn.plan(target("openconfig"));
        let text = dialect::of(Platform::OpenConfig).render(&plan);
        prop_assert_eq!(judge(&plan, &text), Ok(()));
        hold(&plan, &text);
    }
}

#[test]
fn an_export_is_accepted_before_a_change_and_after_it() {
    let plan = plan_of(target("openconfig"), 7);
    assert_eq!(judge(&plan, EXPORT), Ok(()));
    let dialect = dialect::of(Platform::OpenConfig);
    let change = dialect.change(&plan, EXPORT).expect("it can be read");
    let after = dialect
        .apply(EXPORT, &change.forward)
        .expect("the change fits");
    assert_eq!(judge(&plan, &after), Ok(()));
    hold_over(&plan_of(target("openconfig"), 3), &plan, EXPORT);
}

#[test]
fn broken_trees_are_refused_by_the_models() {
    let plan = plan_of(target("openconfig"), 7);
    let text = dialect::of(Platform::OpenConfig).render(&plan);
    for (from, to, reason) in [
        ("\"queue-id\": 5", "\"queue-id\": 256", "uint8"),
        ("\"queue-id\": 5", "\"queue-id\": \"abc\"", "queue-id"),
        (
            "\"enable-ecn\": true",
            "\"enable-ecn\": \"yes\"",
            "enable-ecn",
        ),
        ("\"drop\": true", "\"drops\": true", "drops"),
        ("\"dscp-set\": [", "\"dscp-set\": [64,", "64"),
        (
            "\"max-drop-probability-percent\": 100",
            "\"max-drop-probability-percent\": 101",
            "101",
        ),
        (
            "\"priority\": \"STRICT\"",
            "\"priority\": \"LOOSE\"",
            "LOOSE",
        ),
        (
            "\"target-group\": \"gradwire-class-2\"",
            "\"target-group\": \"x\"",
            "target-group",
        ),
        (
            "\"output-queue\": \"gradwire-class-2\"",
            "\"output-queue\": \"x\"",
            "output-queue",
        ),
        (
            "\"queue-management-profile\": \"gradwire-400G\"",
            "\"queue-management-profile\": \"x\"",
            "queue-management-profile",
        ),
        (
            "\"min-threshold\": \"175000\"",
            "\"min-threshold\": \"-1\"",
            "min-threshold",
        ),
        (
            "\"min-threshold\": \"175000\"",
            "\"min-threshold\": 175000",
            "min-threshold",
        ),
        (
            "\"input-type\": \"QUEUE\"",
            "\"input-type\": \"OUT_PROFILE\"",
            "queue",
        ),
    ] {
        assert!(text.contains(from), "`{from}` is not in\n{text}");
        let refused = judge(&plan, &text.replace(from, to));
        let refused = refused.expect_err(&format!("`{from}` as `{to}` is accepted"));
        assert!(refused.contains(reason), "`{from}` as `{to}`: {refused}");
    }
}

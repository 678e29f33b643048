//! OpenConfig's own models accept the configurations that we write.

#[path = "../../tests/plans/mod.rs"]
mod plans;
#[path = "../../tests/properties/mod.rs"]
mod properties;

use std::cell::OnceCell;

use gradwire_schemas::Models;
use gradwire_switch_config::dialect;
use gradwire_switch_config::dialect::openconfig::yang;
use gradwire_switch_config::target::Platform;
use properties::{hold, hold_over, plan_of, target};
use proptest::prelude::*;

const EXPORT: &str = include_str!("../../tests/exports/openconfig.json");

thread_local! {
    static MODELS: OnceCell<Models> = const { OnceCell::new() };
}

/// The answers of both programs to a tree, on a switch that has its ports.
fn judge(text: &str) -> Result<(), String> {
    let document = yang::document(text).expect("it is JSON");
    MODELS.with(|models| {
        let models = models.get_or_init(|| Models::load("openconfig", &yang::MODULES));
        models.judge_alike(&document)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn what_is_written_for_any_plan_is_accepted(drawn in plans::drawn()) {
        let plan = drawn.plan(target("openconfig"));
        let text = dialect::of(Platform::OpenConfig).render(&plan);
        prop_assert_eq!(judge(&text), Ok(()));
        hold(&plan, &text);
    }
}

#[test]
fn an_export_is_accepted_before_a_change_and_after_it() {
    let plan = plan_of(target("openconfig"), 7);
    assert_eq!(judge(EXPORT), Ok(()));
    let dialect = dialect::of(Platform::OpenConfig);
    let change = dialect.change(&plan, EXPORT).expect("it can be read");
    let after = dialect
        .apply(EXPORT, &change.forward)
        .expect("the change fits");
    assert_eq!(judge(&after), Ok(()));
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
        let refused = judge(&text.replace(from, to));
        let refused = refused.expect_err(&format!("`{from}` as `{to}` is accepted"));
        assert!(refused.contains(reason), "`{from}` as `{to}`: {refused}");
    }
}

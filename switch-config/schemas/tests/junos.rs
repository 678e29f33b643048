//! Juniper's own models accept the statements that we write.

#[path = "../../tests/plans/mod.rs"]
mod plans;
#[path = "../../tests/properties/mod.rs"]
mod properties;

use std::cell::OnceCell;

use gradwire_schemas::Models;
use gradwire_switch_config::dialect;
use gradwire_switch_config::dialect::junos::yang;
use gradwire_switch_config::target::Platform;
use properties::{findings, hold, hold_over, plan_of, target};
use proptest::prelude::*;

const EXPORT: &str = include_str!("../../tests/exports/junos.set");

thread_local! {
    static MODELS: OnceCell<Models> = const { OnceCell::new() };
}

/// The answers of both programs to `set` lines.
fn judge(text: &str) -> Result<(), String> {
    let document = yang::document(text).expect("these are `set` lines");
    MODELS.with(|models| {
        let models = models.get_or_init(|| Models::load("junos", &yang::MODULES));
        models.judge_alike(&document)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn what_is_written_for_any_plan_is_accepted(drawn in plans::drawn()) {
        for version in ["junos:qfx5100", "junos:qfx10000"] {
            let plan = drawn.plan(target(version));
            let text = dialect::of(Platform::Junos).render(&plan);
            prop_assert_eq!(judge(&text), Ok(()));
            hold(&plan, &text);
        }
    }
}

#[test]
fn an_export_is_accepted_before_a_change_and_after_it() {
    let plan = plan_of(target("junos:qfx5100"), 7);
    assert_eq!(judge(EXPORT), Ok(()));
    let dialect = dialect::of(Platform::Junos);
    let change = dialect.change(&plan, EXPORT).expect("it can be read");
    let after = dialect
        .apply(EXPORT, &change.forward)
        .expect("the change fits");
    assert_eq!(judge(&after), Ok(()));
    hold_over(&plan_of(target("junos:qfx5100"), 3), &plan, EXPORT);
}

#[test]
fn broken_statements_are_refused_by_the_models() {
    let plan = plan_of(target("junos:qfx5100"), 7);
    let text = dialect::of(Platform::Junos).render(&plan);
    let long = format!("priority {}", "x".repeat(65));
    let long_map = format!("scheduler-maps {}", "x".repeat(65));
    let long_profile = format!("drop-profile {}", "x".repeat(65));
    for (from, to, reason) in [
        ("queue-num 5", "queue-num abc", "queue-num"),
        (
            "interpolate fill-level 2",
            "interpolate fill-level 102",
            "fill-level",
        ),
        (
            "drop-probability 100",
            "drop-probability 101",
            "drop-probability",
        ),
        (
            "loss-priority low code-points",
            "loss-priority lowest code-points",
            "lowest",
        ),
        (
            "loss-priority low protocol any",
            "loss-priority low protocol udp",
            "udp",
        ),
        ("priority strict-high", &long, "priority"),
        ("unit 0 ", "unit x ", "unit"),
        ("scheduler-maps gradwire-400G", &long_map, "ength"),
        (
            "drop-probability 0\n",
            "drop-probability -1\n",
            "drop-probability",
        ),
        ("drop-profile gradwire-400G", &long_profile, "drop-profile"),
    ] {
        assert!(text.contains(from), "`{from}` is not in\n{text}");
        let refused = judge(&text.replace(from, to));
        let refused = refused.expect_err(&format!("`{from}` as `{to}` is accepted"));
        assert!(refused.contains(reason), "`{from}` as `{to}`: {refused}");
    }
}

#[test]
fn what_the_models_let_through_our_lint_finds() {
    let plan = plan_of(target("junos:qfx5100"), 7);
    let dialect = dialect::of(Platform::Junos);
    let text = dialect.render(&plan);
    for (from, to) in [
        ("priority strict-high", "priority strictly"),
        ("code-points 100010", "code-points 10001"),
        ("drop-profile gradwire-400G", "drop-profile gradwire-40G"),
        (
            "class gradwire-class-1 queue-num 5",
            "class gradwire-class-1 queue-num 42",
        ),
        ("interpolate fill-level 1\n", "interpolate fill-level 90\n"),
    ] {
        assert!(text.contains(from), "`{from}` is not in\n{text}");
        let broken = text.replace(from, to);
        assert_eq!(judge(&broken), Ok(()), "`{from}` as `{to}`");
        assert_ne!(
            findings(dialect, &plan, &broken),
            [""; 0],
            "`{from}` as `{to}`"
        );
    }
}

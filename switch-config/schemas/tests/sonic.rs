//! What SONiC's models say of the configurations that we write for it, and of broken ones.

#[path = "../../tests/broken/mod.rs"]
mod broken;
#[path = "../../tests/plans/mod.rs"]
mod plans;

use gradwire_schemas::Models;
use gradwire_switch_config::dialect;
use gradwire_switch_config::lint;
use gradwire_switch_config::sonic::yang;
use gradwire_switch_config::target::{Platform, Target};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::Value;

/// A switch that runs something else, as it exports it.
const RUNNING: &str = include_str!("../../tests/exports/sonic.json");

fn models() -> Models {
    Models::load("sonic", &yang::MODULES)
}

fn target() -> Target {
    Target::read("sonic").expect("it is known")
}

#[test]
fn every_broken_configuration_is_refused_by_who_can_and_named() {
    let (models, plan, sonic) = (
        models(),
        broken::plan(target()),
        dialect::of(Platform::Sonic),
    );
    let rendered = sonic.render(&plan);
    let document = |text: &str| yang::document(text).expect("it is JSON");
    assert_eq!(models.judge_alike(&document(&rendered)), Ok(()));
    let good: Value = serde_json::from_str(&rendered).expect("it is JSON");
    for broken in broken::all(broken::SONIC) {
        let text = broken.text(&good);
        let verdict = models.judge_alike(&document(&text));
        assert_eq!(
            verdict.is_err(),
            broken.by_models,
            "{}: {verdict:?}",
            broken.what
        );
        let reading = sonic.read(&plan, &text).expect("it is JSON");
        let findings = lint::findings(&plan, &reading);
        let named = findings.iter().any(|one| one.rule.name() == broken.rule);
        assert!(named, "{} is no {}: {findings:?}", broken.what, broken.rule);
    }
}

#[test]
fn the_models_accept_every_plan_alone_and_in_a_running_switch() {
    let (models, sonic) = (models(), dialect::of(Platform::Sonic));
    let judge = |text: &str| models.judge_alike(&yang::document(text).expect("it is JSON"));
    assert_eq!(judge(RUNNING), Ok(()));
    let mut runner = TestRunner::new(ProptestConfig {
        source_file: Some(file!()),
        ..ProptestConfig::with_cases(12)
    });
    let tried = runner.run(&plans::drawn(), |drawn| {
        let plan = drawn.plan(target());
        prop_assert_eq!(judge(&sonic.render(&plan)), Ok(()));
        let change = sonic.change(&plan, RUNNING).expect("it is CONFIG_DB");
        let after = sonic.apply(RUNNING, &change.forward).expect("made for it");
        prop_assert_eq!(judge(&after), Ok(()));
        Ok(())
    });
    tried.unwrap_or_else(|error| panic!("{error}"));
}

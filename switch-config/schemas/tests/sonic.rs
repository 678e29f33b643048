//! SONiC's models accept the configurations that we write for it, and refuse broken ones.

#[path = "../../tests/broken/mod.rs"]
mod broken;
#[path = "../../tests/plans/mod.rs"]
mod plans;

use gradwire_schemas::Models;
use gradwire_switch_config::dialect;
use gradwire_switch_config::dialect::sonic::yang;
use gradwire_switch_config::lint::{self, Rule};
use gradwire_switch_config::target::{Platform, SwitchTarget};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

/// A switch that runs something else, as it exports it.
const RUNNING: &str = include_str!("../../tests/exports/sonic.json");

fn models() -> Models {
    Models::load("sonic", &yang::MODULES)
}

fn target() -> SwitchTarget {
    SwitchTarget::read("sonic").expect("it is known")
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

/// Values that are right somewhere and wrong elsewhere.
const VALUES: [&str; 32] = [
    "",
    "0",
    "1",
    "7",
    "8",
    "9",
    "10",
    "15",
    "16",
    "63",
    "64",
    "100",
    "101",
    "255",
    "256",
    "-8",
    "-9",
    "08",
    "abc",
    "3,4",
    "3,",
    "1-2",
    "0-16",
    "true",
    "False",
    "STRICT",
    "ecn_green",
    "dynamic",
    "ingress",
    "from-tc",
    "GRADWIRE",
    "99999999999999999999",
];

/// The part of a leaf that is changed.
#[derive(Clone, Copy, Debug)]
enum Spot {
    Value,
    Name,
}

/// A configuration of which one leaf has another value, or another name.
fn mutated(good: &Value, at: Index, spot: Spot, text: &str) -> Value {
    let mut leaves = Vec::new();
    for (table, rows) in good.as_object().expect("tables") {
        for (key, row) in rows.as_object().expect("rows") {
            let fields = row.as_object().expect("fields");
            leaves.extend(fields.keys().map(|field| (table, key, field)));
        }
    }
    let (table, key, field) = *at.get(&leaves);
    let mut bad = good.clone();
    let row = bad[table][key].as_object_mut().expect("a row");
    let leaf = row.remove(field).expect("it is there");
    match spot {
        Spot::Name => row.insert(text.to_owned(), leaf),
        Spot::Value if leaf.is_array() => row.insert(field.clone(), json!([text])),
        Spot::Value => row.insert(field.clone(), Value::from(text)),
    };
    bad
}

#[test]
fn what_the_models_refuse_is_what_we_call_against_the_schema() {
    let (models, plan, sonic) = (
        models(),
        broken::plan(target()),
        dialect::of(Platform::Sonic),
    );
    let change = sonic.change(&plan, RUNNING).expect("it is CONFIG_DB");
    let after = sonic.apply(RUNNING, &change.forward).expect("made for it");
    let mut good: Value = serde_json::from_str(&after).expect("it is JSON");
    // Tables of others are not in the document.
    let others = [
        "DEVICE_METADATA",
        "PORT",
        "BGP_NEIGHBOR",
        "FEATURE",
        "VLAN",
        "VLAN_MEMBER",
    ];
    let more = ["LOOPBACK_INTERFACE", "PFC_WD", "CRM"];
    let tables = good.as_object_mut().expect("tables");
    tables.retain(|table, _| !others.contains(&table.as_str()) && !more.contains(&table.as_str()));
    let mut runner = TestRunner::new(ProptestConfig {
        source_file: Some(file!()),
        ..ProptestConfig::with_cases(96)
    });
    let spot = prop_oneof![4 => Just(Spot::Value), 1 => Just(Spot::Name)];
    let drawn = (any::<Index>(), spot, select(&VALUES[..]));
    let tried = runner.run(&drawn, |(at, spot, value)| {
        let text = mutated(&good, at, spot, value).to_string();
        let refusal = models.by_libyang(&yang::document(&text).expect("it is JSON"));
        let reading = sonic.read(&plan, &text).expect("it is JSON");
        let by_schema = [Rule::Schema, Rule::Dangling, Rule::ThresholdOrder];
        let mut ours = reading.findings.iter();
        let ours = ours.find(|one| by_schema.contains(&one.rule));
        prop_assert_eq!(refusal.is_err(), ours.is_some(), "{:?} {:?}", refusal, ours);
        Ok(())
    });
    tried.unwrap_or_else(|error| panic!("{error}"));
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

//! OpenConfig: a rendered plan reads back, changes no other leaf, can be undone; mistakes are
//! named.

mod damage;
mod mistakes;
mod plans;
mod properties;

use damage::{all_are_answered, damage};
use gradwire_fabric::policy::{QosPolicy, SwitchBuffer};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Span};
use gradwire_switch_config::dialect;
use gradwire_switch_config::lint::Rule;
use gradwire_switch_config::plan::Plan;
use gradwire_switch_config::target::Platform;
use mistakes::{Broken, all_are_found, broken};
use plans::drawn;
use properties::{hold, hold_over, plan_of, target};
use proptest::prelude::*;
use serde_json::{Value, json};

const EXPORT: &str = include_str!("exports/openconfig.json");

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_plan_reads_back_changes_only_itself_and_is_undone(drawn in drawn()) {
        let plan = drawn.plan(target("openconfig"));
        hold(&plan, EXPORT);
        hold(&plan, "{}\n");
    }

    #[test]
    fn any_damaged_text_is_answered_without_a_panic(damage in damage()) {
        let plan = plan_of(target("openconfig"), 7);
        all_are_answered(&plan, EXPORT, &damage);
    }

    #[test]
    fn a_plan_takes_the_place_of_another_and_gives_it_back(
        first in drawn(), second in drawn()
    ) {
        let target = target("openconfig");
        hold_over(&first.plan(target), &second.plan(target), EXPORT);
    }
}

#[test]
fn not_ect_is_dropped_where_ect_is_marked_and_queues_are_served_in_sequence() {
    let plan = plan_of(target("openconfig"), 3);
    let text = dialect::of(Platform::OpenConfig).render(&plan);
    let root: Value = serde_json::from_str(&text).expect("it is JSON");
    let qos = &root["openconfig-qos:qos"];
    let profiles = &qos["queue-management-profiles"]["queue-management-profile"];
    assert_eq!(
        profiles[0]["wred"]["uniform"]["config"],
        json!({
            "min-threshold": "175000",
            "max-threshold": "175000",
            "enable-ecn": true,
            "drop": true,
            "weight": 0,
            "max-drop-probability-percent": 100,
        })
    );
    let schedulers = &qos["scheduler-policies"]["scheduler-policy"][0]["schedulers"]["scheduler"];
    let queues = schedulers.as_array().expect("a list").iter().map(|row| {
        let input = &row["inputs"]["input"][0]["config"]["queue"];
        (row["sequence"].clone(), input.clone())
    });
    let wanted = ["reserved", "control", "class-1", "class-2"]
        .into_iter()
        .enumerate();
    let wanted: Vec<_> = wanted
        .map(|(sequence, name)| (json!(sequence), json!(format!("gradwire-{name}"))))
        .collect();
    assert_eq!(queues.collect::<Vec<_>>(), wanted);
    let terms = &qos["classifiers"]["classifier"][0]["terms"]["term"];
    let last = &terms[3]["conditions"]["ipv4"]["config"]["dscp-set"];
    assert_eq!(
        last.as_array().map(Vec::len),
        Some(64 - 3 - 1 - 2),
        "all others"
    );
}

#[test]
fn a_change_is_a_gnmi_request_and_one_that_does_not_fit_is_refused() {
    let plan = plan_of(target("openconfig"), 3);
    let dialect = dialect::of(Platform::OpenConfig);
    let change = dialect.change(&plan, EXPORT).expect("it can be read");
    let forward: Value = serde_json::from_str(&change.forward).expect("it is JSON");
    let paths = forward["replaces"].as_array().expect("a list").iter();
    let paths: Vec<&str> = paths.filter_map(|row| row["path"].as_str()).collect();
    let port = "/qos/interfaces/interface[interface-id=Ethernet0]";
    assert!(
        paths.contains(&format!("{port}/output/scheduler-policy").as_str()),
        "{paths:?}"
    );
    assert!(!change.forward.contains("storage") && !change.forward.contains("Ethernet48"));
    for (change, message) in [
        ("[]", "gNMI Set request in JSON, line 1: expected an object"),
        ("{\"deletes\": 1}", "`deletes` must be a list"),
        ("{\"deletes\": [\"qos\"]}", "`\"qos\"` is no path"),
        (
            "{\"replaces\": [{\"path\": \"/qos/queues/queue/x\", \"value\": 1}]}",
            "does not fit the configuration",
        ),
    ] {
        let error = dialect
            .apply(EXPORT, change)
            .expect_err("it does not fit")
            .to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn an_answer_of_gnmic_is_read_as_the_tree_in_it() {
    let plan = plan_of(target("openconfig"), 3);
    let dialect = dialect::of(Platform::OpenConfig);
    let tree: Value = serde_json::from_str(EXPORT).expect("it is JSON");
    let qos = &tree["openconfig-qos:qos"];
    let answer = json!([{"source": "leaf-3", "timestamp": 1, "updates": [
        {"Path": "qos", "values": {"qos": qos}},
    ]}]);
    let change = dialect.change(&plan, &answer.to_string());
    assert_eq!(change, dialect.change(&plan, EXPORT));
    let error = dialect
        .read(&plan, "[]")
        .expect_err("no tree in it")
        .to_string();
    assert!(error.contains("expected an object"), "{error}");
}

#[test]
fn a_text_of_another_form_is_one_clear_line() {
    let plan = plan_of(target("openconfig"), 3);
    let dialect = dialect::of(Platform::OpenConfig);
    let error = dialect
        .read(&plan, "{\n  \"a\": 1,\n")
        .expect_err("cut off");
    assert!(
        error
            .to_string()
            .starts_with("openconfig-qos in JSON, line "),
        "{error}"
    );
}

#[test]
fn broken_configurations_are_each_named() {
    let plan = plan_of(target("openconfig"), 7);
    all_are_found(&plan, MISTAKES);
}

#[test]
fn data_queues_without_the_dynamic_threshold_are_named() {
    let target = target("openconfig");
    let dialect = dialect::of(Platform::OpenConfig);
    let mut site = plan_of(target, 3).site;
    site.buffer = SwitchBuffer::Shared {
        bytes: ByteCount::mib(64),
        alpha: 0.5,
    };
    let mut policy = QosPolicy::of_job(&Job::default(), Span::from_micros(14));
    policy.queues.truncate(3);
    let plan = Plan::new(target, &dialect.limits(target.version), &policy, site);
    all_are_found(&plan.expect("a plan"), MEMORY);
}

#[test]
fn counters_of_the_state_tree_tell_early_drops_from_late_ones() {
    let plan = plan_of(target("openconfig"), 7);
    let dialect = dialect::of(Platform::OpenConfig);
    let state = json!({"openconfig-qos:interfaces": {"interface": [{
        "interface-id": "Ethernet0",
        "output": {"queues": {"queue": [{"name": "gradwire-class-1", "state": {
            "transmit-pkts": "1000", "dropped-pkts": "200",
            "ecn-marked-pkts": "40", "ecn-selected-pkts": "230",
        }}]}},
    }]}});
    let counts = dialect
        .counters(&plan, &state.to_string())
        .expect("state of a queue");
    assert_eq!(counts.len(), 1);
    assert_eq!((counts[0].queue, counts[0].sent), (5, 1000));
    assert_eq!(
        (counts[0].marked, counts[0].early, counts[0].full),
        (Some(40), Some(190), 10)
    );
    let error = dialect.counters(&plan, "{}").expect_err("no counters");
    assert!(
        error.to_string().contains("qos/interfaces/interface[]"),
        "{error}"
    );
}

/// Mistakes in the share of memory.
const MEMORY: &[Broken] = &[
    broken(
        "\"buffer-allocation-profile\": \"gradwire\"",
        "\"unit\": 1",
        Rule::Threshold,
        "Ethernet2, queue 1 (class-1): has no dynamic threshold; the plan has 2^-1",
    ),
    broken(
        "\"dynamic-limit-scaling-factor\": -1",
        "\"dynamic-limit-scaling-factor\": 1",
        Rule::Threshold,
        "Ethernet0, queue 0 (class-2): may take 2^1 of the free memory; the plan has 2^-1",
    ),
];

/// Mistakes, and the findings that must name them.
const MISTAKES: &[Broken] = &[
    broken(
        "\"queue-id\": 5",
        "\"queue-id\": 42",
        Rule::QueueRange,
        "gradwire-class-1",
    ),
    broken(
        "\"queue-id\": 5",
        "\"queue-id\": \"abc\"",
        Rule::Schema,
        "gradwire-class-1",
    ),
    broken(
        "\"queue-id\": 5",
        "\"queue\": 5",
        Rule::NoQueue,
        "gradwire-class-1",
    ),
    broken(
        "\"enable-ecn\": true",
        "\"enable-ecn\": false",
        Rule::EcnOff,
        "class-3",
    ),
    broken(
        "\"enable-ecn\": true",
        "\"enable-ecn\": \"yes\"",
        Rule::Schema,
        "enable-ecn",
    ),
    broken(
        "\"drop\": true",
        "\"drop\": false",
        Rule::EarlyDropOff,
        "class-3",
    ),
    broken(
        "\"max-drop-probability-percent\": 100",
        "\"max-drop-probability-percent\": 5",
        Rule::Probability,
        "Ethernet0",
    ),
    broken(
        "\"min-threshold\": \"175000\"",
        "\"min-threshold\": \"175001\"",
        Rule::ThresholdOrder,
        "Ethernet1",
    ),
    broken(
        "\"max-threshold\": \"700000\"",
        "\"max-threshold\": \"900000\"",
        Rule::Threshold,
        "Ethernet2",
    ),
    broken(
        "\"min-threshold\": \"175000\"",
        "\"min-threshold\": 175000",
        Rule::Schema,
        "64 bits",
    ),
    broken(
        "\"max-threshold\": \"175000\"",
        "\"max-threshold\": \"175000\", \"max-threshold-percent\": \"3\"",
        Rule::TwoThresholds,
        "gradwire-100G",
    ),
    broken(
        "\"queue-management-profile\": \"gradwire-400G\"",
        "\"queue-management-profile\": \"gradwire-40G\"",
        Rule::Dangling,
        "gradwire-40G",
    ),
    broken(
        "\"target-group\": \"gradwire-class-2\"",
        "\"target-group\": \"class-2\"",
        Rule::Dangling,
        "term class-2",
    ),
    broken(
        "\"target-group\": \"gradwire-class-2\"",
        "\"target-group\": \"gradwire-class-3\"",
        Rule::DscpQueue,
        "DSCP 26",
    ),
    broken(
        "\"output-queue\": \"gradwire-class-2\"",
        "\"output-queue\": \"gradwire-class-7\"",
        Rule::Dangling,
        "gradwire-class-7",
    ),
    broken(
        "\"priority\": \"STRICT\"",
        "\"priority\": \"LOOSE\"",
        Rule::Schema,
        "LOOSE",
    ),
    broken(
        "\"priority\": \"STRICT\",",
        "",
        Rule::ServiceOrder,
        "queue 6 (control)",
    ),
    broken(
        "\"sequence\": 2",
        "\"sequence\": 3",
        Rule::ServiceOrder,
        "queue 5 (class-1)",
    ),
    broken(
        "\"interface-id\": \"Ethernet2\"",
        "\"interface-id\": \"Ethernet3\"",
        Rule::PortUnsaid,
        "Ethernet2",
    ),
    broken(
        "\"dscp-set\": [",
        "\"dscp-set\": [64,",
        Rule::Schema,
        "`64`",
    ),
    broken(
        "\"dscp-set\": [",
        "\"dscp\": 1, \"dscp-set\": [",
        Rule::Schema,
        "both",
    ),
];

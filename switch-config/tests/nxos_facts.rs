//! NX-OS: a rendered plan reads back, changes no other line, can be undone; mistakes are named. No
//! validator of NX-OS is known, so these are all the facts there are.

mod damage;
mod mistakes;
mod plans;
mod properties;

use damage::{all_are_answered, damage};
use gradwire_switch_config::dialect;
use gradwire_switch_config::lint::Rule;
use gradwire_switch_config::target::Platform;
use mistakes::{Broken, all_are_found, broken};
use plans::drawn;
use properties::{findings, hold, hold_over, plan_of, target};
use proptest::prelude::*;

const EXPORT: &str = include_str!("exports/nxos.cfg");

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_plan_reads_back_changes_only_itself_and_is_undone(drawn in drawn()) {
        hold(&drawn.plan(target("nxos")), EXPORT);
    }

    #[test]
    fn any_damaged_text_is_answered_without_a_panic(damage in damage()) {
        let plan = plan_of(target("nxos"), 7);
        all_are_answered(&plan, EXPORT, &damage);
    }

    #[test]
    fn a_plan_takes_the_place_of_another_and_gives_it_back(
        first in drawn(), second in drawn()
    ) {
        let target = target("nxos");
        hold_over(&first.plan(target), &second.plan(target), EXPORT);
    }
}

#[test]
fn the_highest_queue_has_the_first_level_and_the_default_queue_what_is_left() {
    let plan = plan_of(target("nxos"), 3);
    let text = dialect::of(Platform::Nxos).render(&plan);
    for section in [
        "! not verified by any validator",
        "class-map type qos match-any gradwire-class-1\n  match dscp 34,36\n",
        "  class gradwire-class-1\n    set qos-group 1\n",
        "  class class-default\n    set qos-group 0\n",
        "policy-map type queuing gradwire-100G\n  class type queuing c-out-8q-q7\n    \
         priority level 1\n  class type queuing c-out-8q-q6\n    bandwidth remaining percent 0\n",
        "  class type queuing c-out-8q-q1\n    priority level 3\n    random-detect \
         minimum-threshold 175 kbytes maximum-threshold 175 kbytes drop-probability 100 weight 0 \
         ecn\n  class type queuing c-out-8q-q-default\n    bandwidth remaining percent 100\n",
        "interface Ethernet1/3\n  priority-flow-control mode off\n  service-policy type qos input \
         gradwire\n  service-policy type queuing output gradwire-400G\n",
    ] {
        assert!(text.contains(section), "{section}\nnot in\n{text}");
    }
}

#[test]
fn what_lets_packets_pass_that_are_not_ecn_capable_is_found() {
    let plan = plan_of(target("nxos"), 3);
    let dialect = dialect::of(Platform::Nxos);
    let text = dialect.render(&plan);
    let text = format!("congestion-control random-detect forward-nonecn\n{text}");
    let found = findings(dialect, &plan, &text);
    assert!(
        found
            .iter()
            .all(|finding| finding.starts_with("early-drop-off: ")),
        "{found:#?}"
    );
    assert!(
        found
            .iter()
            .any(|finding| finding.contains("Ethernet1/1, queue 1")),
        "{found:#?}"
    );
}

#[test]
fn pauses_of_the_whole_switch_are_found_where_a_port_does_not_have_pfc_off() {
    let plan = plan_of(target("nxos"), 3);
    let dialect = dialect::of(Platform::Nxos);
    let net = "policy-map type network-qos N\n  class type network-qos c-8q-nq3\n    \
               pause pfc-cos 3\nsystem qos\n  service-policy type network-qos N\n";
    let text = format!("{net}{}", dialect.render(&plan));
    assert_eq!(findings(dialect, &plan, &text), [""; 0]);
    let text = text.replace("  priority-flow-control mode off\n", "");
    let found = findings(dialect, &plan, &text);
    let named = "pause-on: Ethernet1/2: PFC is on for 3; it must be off";
    assert!(found.iter().any(|finding| finding == named), "{found:#?}");
}

#[test]
fn a_text_of_another_form_is_one_clear_line() {
    let plan = plan_of(target("nxos"), 3);
    let error = dialect::of(Platform::Nxos).read(&plan, "{\"a\": 1}\n");
    assert_eq!(
        error.expect_err("it is JSON").to_string(),
        "running-config of NX-OS, line 1: `{\"a\": 1}` is no command, and no line begins with \
         `interface` or `policy-map`; give the output of `show running-config`, not of `| json`"
    );
}

#[test]
fn broken_configurations_are_each_named() {
    let plan = plan_of(target("nxos"), 7);
    all_are_found(&plan, MISTAKES);
}

/// Mistakes, and the findings that must name them.
const MISTAKES: &[Broken] = &[
    broken("match dscp 34,36", "match dscp 34,66", Rule::Schema, "`66`"),
    broken(
        "match dscp 34,36",
        "match dscp 35,36",
        Rule::DscpQueue,
        "DSCP 34",
    ),
    broken(
        "  match dscp 34,36\n",
        "",
        Rule::DscpMapEmpty,
        "gradwire-class-1",
    ),
    broken(
        "set qos-group 5",
        "set qos-group 42",
        Rule::QueueRange,
        "qos-group 42",
    ),
    broken(
        "set qos-group 5",
        "set qos-group abc",
        Rule::Schema,
        "`abc`",
    ),
    broken(
        "    set qos-group 5\n",
        "",
        Rule::NoQueue,
        "gradwire-class-1",
    ),
    broken(
        "set qos-group 5",
        "set qos-group 4",
        Rule::DscpQueue,
        "DSCP 34",
    ),
    broken(
        "c-out-8q-q5",
        "c-out-8q-q9",
        Rule::QueueRange,
        "c-out-8q-q9",
    ),
    broken(
        "priority level 3",
        "priority level 4",
        Rule::ServiceOrder,
        "(class-1)",
    ),
    broken(
        "priority level 3",
        "priority level 30",
        Rule::Schema,
        "`30`",
    ),
    broken(
        "priority level 3",
        "bandwidth remaining percent 50",
        Rule::ServiceOrder,
        "(class-1)",
    ),
    broken(
        "priority level 3",
        "bandwidth percent 5\n    priority level 3",
        Rule::StrictWeight,
        "c-out-8q-q5",
    ),
    broken(
        " weight 0 ecn",
        " weight 0",
        Rule::EcnOff,
        "queue 5 (class-1)",
    ),
    broken(
        "drop-probability 100",
        "drop-probability 7",
        Rule::Probability,
        "Ethernet1/2",
    ),
    broken(
        "drop-probability 100",
        "drop-probability x",
        Rule::Schema,
        "0 to 100",
    ),
    broken(
        "minimum-threshold 175 kbytes",
        "minimum-threshold 176 kbytes",
        Rule::ThresholdOrder,
        "Ethernet1/1",
    ),
    broken(
        "threshold 700 kbytes",
        "threshold 700 cells",
        Rule::Threshold,
        "in kbytes",
    ),
    broken(
        "maximum-threshold 700",
        "maximum-threshold 701",
        Rule::Threshold,
        "Ethernet1/3",
    ),
    broken(
        "priority level 2\n",
        "priority level 2\n    random-detect minimum-threshold 1 kbytes \
                 maximum-threshold 2 kbytes drop-probability 100 weight 0 ecn\n",
        Rule::ControlMarked,
        "queue 6 (control)",
    ),
    broken(
        "output gradwire-400G",
        "output gradwire-40G",
        Rule::Dangling,
        "gradwire-40G",
    ),
    broken(
        "qos input gradwire\n",
        "qos input none\n",
        Rule::Dangling,
        "none",
    ),
    broken(
        "class-map type qos match-any gradwire-class-2",
        "class-map type qos match-any gradwire-class-9",
        Rule::Dangling,
        "gradwire-class-2",
    ),
    broken(
        "interface Ethernet1/2",
        "interface Ethernet1/9",
        Rule::PortUnsaid,
        "1/2",
    ),
];

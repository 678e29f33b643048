//! Junos: a rendered plan reads back, changes no other line, can be undone; mistakes are named.

mod damage;
mod mistakes;
mod plans;
mod properties;

use damage::{all_are_answered, damage};
use gradwire_fabric::policy::QosPolicy;
use gradwire_switch_config::dialect;
use gradwire_switch_config::lint::Rule;
use gradwire_switch_config::plan::{Plan, PlanError};
use gradwire_switch_config::target::{Platform, SwitchTarget};
use mistakes::{Broken, all_are_found, broken};
use plans::drawn;
use properties::{hold, hold_over, plan_of, target};
use proptest::prelude::*;

const EXPORT: &str = include_str!("exports/junos.set");

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_plan_reads_back_changes_only_itself_and_is_undone(drawn in drawn()) {
        for version in ["qfx5100", "qfx10000"] {
            hold(&drawn.plan(target(&format!("junos:{version}"))), EXPORT);
        }
    }

    #[test]
    fn any_damaged_text_is_answered_without_a_panic(damage in damage()) {
        let plan = plan_of(target("junos"), 7);
        all_are_answered(&plan, EXPORT, &damage);
    }

    #[test]
    fn a_plan_takes_the_place_of_another_and_gives_it_back(
        first in drawn(), second in drawn()
    ) {
        for version in ["qfx5100", "qfx10000"] {
            let target = target(&format!("junos:{version}"));
            hold_over(&first.plan(target), &second.plan(target), EXPORT);
        }
    }
}

#[test]
fn qfx5100_has_all_queues_in_one_strict_set_and_marks_where_it_drops() {
    let plan = plan_of(target("junos:qfx5100"), 3);
    let text = dialect::of(Platform::Junos).render(&plan);
    for line in [
        "set class-of-service classifiers dscp gradwire forwarding-class gradwire-class-1 \
         loss-priority low code-points 100010",
        "set class-of-service drop-profiles gradwire-100G interpolate fill-level 1",
        "set class-of-service forwarding-classes class gradwire-reserved queue-num 7",
        "set class-of-service forwarding-class-sets gradwire class gradwire-class-1",
        "set class-of-service interfaces et-0/0/0 forwarding-class-set gradwire \
         output-traffic-control-profile gradwire-100G",
        "set class-of-service interfaces et-0/0/2 unit 0 classifiers dscp gradwire",
        "set class-of-service scheduler-maps gradwire-100G forwarding-class gradwire-class-1 \
         scheduler gradwire-class-1-100G",
        "set class-of-service scheduler-maps gradwire-400G forwarding-class network-control \
         scheduler gradwire-reserved",
        "set class-of-service schedulers gradwire-class-1-100G explicit-congestion-notification",
        "set class-of-service schedulers gradwire-control priority strict-high",
    ] {
        assert!(
            text.lines().any(|one| one == line),
            "{line}\nnot in\n{text}"
        );
    }
}

#[test]
fn qfx10000_drops_by_loss_priority_without_ecn_and_gives_each_queue_a_priority() {
    let plan = plan_of(target("junos:qfx10000"), 4);
    let text = dialect::of(Platform::Junos).render(&plan);
    assert!(!text.contains("explicit-congestion-notification"));
    for line in [
        "set class-of-service classifiers dscp gradwire forwarding-class gradwire-class-1 \
         loss-priority high code-points 100100",
        "set class-of-service interfaces et-0/0/0 scheduler-map gradwire-100G",
        "set class-of-service schedulers gradwire-reserved priority strict-high",
        "set class-of-service schedulers gradwire-control priority high",
        "set class-of-service schedulers gradwire-class-1-100G priority medium-high",
        "set class-of-service schedulers gradwire-class-1-100G drop-profile-map loss-priority \
         high protocol any drop-profile gradwire-100G",
        "set class-of-service schedulers gradwire-class-3-400G priority low",
    ] {
        assert!(
            text.lines().any(|one| one == line),
            "{line}\nnot in\n{text}"
        );
    }
}

#[test]
fn more_classes_than_strict_priorities_are_refused() {
    let target = target("junos:qfx10000");
    let plan = plan_of(target, 5);
    let limits = dialect::of(Platform::Junos).limits(target.version);
    let job = gradwire_protocol::job::Job::default();
    let policy = QosPolicy::of_job(&job, gradwire_protocol::units::Span::from_micros(14));
    let refused = Plan::new(target, &limits, &policy, plan.site);
    let classes = matches!(
        refused,
        Err(PlanError::Classes {
            given: 7,
            most: 5,
            ..
        })
    );
    assert!(classes, "{refused:?}");
}

#[test]
fn a_text_of_another_form_is_one_clear_line() {
    let plan = plan_of(SwitchTarget::read("junos").expect("known"), 3);
    let error = dialect::of(Platform::Junos).read(&plan, "# ok\nclass-of-service {\n}\n");
    assert_eq!(
        error.expect_err("curly braces").to_string(),
        "Junos configuration in `set` lines, line 2: `class-of-service {` is no `set` line; \
         export with `show configuration | display set`"
    );
}

#[test]
fn broken_configurations_of_qfx5100_are_each_named() {
    let plan = plan_of(target("junos:qfx5100"), 7);
    all_are_found(&plan, STRICT_SET);
}

#[test]
fn broken_configurations_of_qfx10000_are_each_named() {
    let plan = plan_of(target("junos:qfx10000"), 4);
    all_are_found(&plan, LEVELS);
}

#[test]
fn counters_of_show_interfaces_queue_are_read() {
    let text = "Physical interface: et-0/0/0, up\n\
                Queue: 5, Forwarding classes: gradwire-class-1\n  Queued:\n    \
                Packets : 1200 3 pps\n  Transmitted:\n    Packets : 1000 3 pps\n    \
                Bytes : 9 0 bps\n    Tail-dropped packets : 4 0 pps\n    \
                RED-dropped packets : 196 0 pps\n    ECN-CE packets : 40 0 pps\n";
    let plan = plan_of(target("junos:qfx5100"), 7);
    let counts = dialect::of(Platform::Junos).counters(&plan, text);
    let counts = counts.expect("counters of one queue");
    let [count] = counts.as_slice() else {
        panic!("{counts:?}");
    };
    assert_eq!((count.port.as_str(), count.queue), ("et-0/0/0", 5));
    assert_eq!((count.sent, count.full), (1000, 4));
    assert_eq!((count.early, count.marked), (Some(196), Some(40)));
    let error = dialect::of(Platform::Junos).counters(&plan, "nothing");
    assert!(
        error
            .expect_err("no counters")
            .to_string()
            .contains("show interfaces queue")
    );
}

/// Mistakes on QFX5100.
const STRICT_SET: &[Broken] = &[
    broken(
        "code-points 100010",
        "code-points 10001",
        Rule::Schema,
        "10001",
    ),
    broken(
        "code-points 100010",
        "code-points 100011",
        Rule::DscpQueue,
        "DSCP 34",
    ),
    broken(
        "schedulers gradwire-class-2-100G priority strict-high",
        "schedulers gradwire-class-2-100G priority strictly",
        Rule::Schema,
        "strictly",
    ),
    broken(
        "schedulers gradwire-class-2-100G priority strict-high",
        "schedulers gradwire-class-2-100G priority low",
        Rule::ServiceOrder,
        "queue 4 (class-2)",
    ),
    broken(
        "schedulers gradwire-class-2-100G priority strict-high",
        "schedulers gradwire-class-2-100G priority medium-high",
        Rule::Schema,
        "strict-high and low",
    ),
    broken(
        "set class-of-service schedulers gradwire-class-2-100G explicit",
        "deactivate class-of-service schedulers gradwire-class-2-100G explicit",
        Rule::EcnOff,
        "et-0/0/0, queue 4 (class-2)",
    ),
    broken(
        "class gradwire-class-1 queue-num 5",
        "class gradwire-class-1 queue-num 4",
        Rule::DscpQueue,
        "DSCP 34",
    ),
    broken(
        "class gradwire-class-1 queue-num 5",
        "class gradwire-class-1 queue-num 42",
        Rule::QueueRange,
        "gradwire-class-1",
    ),
    broken(
        "class gradwire-class-1 queue-num 5",
        "class gradwire-class-1 queue-num abc",
        Rule::Schema,
        "`abc`",
    ),
    broken(
        "interpolate fill-level 1\n",
        "interpolate fill-level 90\n",
        Rule::ThresholdOrder,
        "et-0/0/0",
    ),
    broken(
        "gradwire-400G interpolate drop-probability 100",
        "gradwire-400G interpolate drop-probability 20",
        Rule::Probability,
        "et-0/0/2",
    ),
    broken(
        "drop-profile gradwire-400G",
        "drop-profile gradwire-40G",
        Rule::Dangling,
        "gradwire-40G",
    ),
    broken(
        "scheduler gradwire-class-3-100G",
        "scheduler gradwire-class-3-10G",
        Rule::Dangling,
        "gradwire-class-3-10G",
    ),
    broken(
        "output-traffic-control-profile gradwire-400G",
        "output-traffic-control-profile none",
        Rule::Dangling,
        "traffic-control-profiles none",
    ),
    broken(
        "set class-of-service forwarding-class-sets gradwire class gradwire-class-1\n",
        "",
        Rule::NoQueue,
        "gradwire-class-1",
    ),
    broken(
        "set class-of-service interfaces et-0/0/1 unit 0",
        "set class-of-service congestion-notification-profile x input ieee-802.1 \
                 code-point 011 pfc\n\
                 set class-of-service interfaces et-0/0/1 congestion-notification-profile x\n\
                 set class-of-service interfaces et-0/0/1 unit 0",
        Rule::PauseOn,
        "et-0/0/1",
    ),
    broken(
        "schedulers gradwire-control priority strict-high",
        "schedulers gradwire-control transmit-rate percent 5\n\
                 set class-of-service schedulers gradwire-control priority strict-high",
        Rule::StrictWeight,
        "gradwire-control",
    ),
    broken(
        "schedulers gradwire-control priority strict-high",
        "schedulers gradwire-control drop-profile-map loss-priority low protocol any \
                 drop-profile gradwire-100G\n\
                 set class-of-service schedulers gradwire-control priority strict-high",
        Rule::ControlMarked,
        "queue 6 (control)",
    ),
    broken(
        "interfaces et-0/0/2 ",
        "interfaces et-0/0/3 ",
        Rule::PortUnsaid,
        "et-0/0/2",
    ),
];

/// Mistakes on QFX10000.
const LEVELS: &[Broken] = &[
    broken(
        "schedulers gradwire-class-1-100G priority medium-high",
        "schedulers gradwire-class-1-100G priority low",
        Rule::ServiceOrder,
        "queue 2 (class-1)",
    ),
    broken(
        "loss-priority high code-points 100100",
        "loss-priority low code-points 100100",
        Rule::DropPrecedence,
        "DSCP 36",
    ),
    broken(
        "loss-priority high protocol any",
        "loss-priority any protocol any",
        Rule::DropPrecedence,
        "gradwire-class-1-100G",
    ),
    broken(
        "set class-of-service schedulers gradwire-class-1-100G priority",
        "set class-of-service schedulers gradwire-class-1-100G \
                 explicit-congestion-notification\n\
                 set class-of-service schedulers gradwire-class-1-100G priority",
        Rule::EarlyDropOff,
        "queue 2 (class-1)",
    ),
    broken(
        "dscp gradwire forwarding-class gradwire-class-1",
        "dscp gradwire forwarding-class gradwire-class-9",
        Rule::Dangling,
        "gradwire-class-9",
    ),
    broken(
        "scheduler-map gradwire-400G",
        "scheduler-map gradwire-40G",
        Rule::Dangling,
        "gradwire-40G",
    ),
    broken(
        "gradwire-100G interpolate fill-level 2",
        "gradwire-100G interpolate fill-level 102",
        Rule::Schema,
        "102",
    ),
    broken(
        "gradwire-100G interpolate drop-probability 0\n",
        "gradwire-100G interpolate fill-level 9\n",
        Rule::Schema,
        "as many of each",
    ),
];

//! Arista EOS: a rendered plan reads back, changes only its own lines, and can be undone.

mod plans;
mod properties;

use gradwire_fabric::policy::{Balance, QosPolicy, SwitchBuffer};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Dscp, Rate, Span};
use gradwire_switch_config::counters::QueueCount;
use gradwire_switch_config::dialect::{self, Dialect};
use gradwire_switch_config::plan::{Plan, PlanError, Selection, Site, SwitchPort};
use plans::drawn;
use properties::{findings, hold, hold_over, plan_of, target};
use proptest::prelude::*;

/// A switch that carries storage by RoCE, with PFC, on some of the plan's ports and on others.
const EXPORT: &str = include_str!("exports/eos.cfg");
const CHIPS: [&str; 2] = ["eos:sand", "eos:trident"];

fn eos() -> &'static dyn Dialect {
    dialect::of(target("eos").platform)
}

/// Two classes of gradients on two ports.
fn small(chip: &str) -> Plan {
    planned(chip, Seconds::Yes, Balance::Ecmp).expect("a plan")
}

/// Whether droppable packets have DSCPs of their own.
#[derive(Clone, Copy, PartialEq)]
enum Seconds {
    Yes,
    No,
}

fn policy(seconds: Seconds) -> QosPolicy {
    let mut policy = QosPolicy::of_job(&Job::default(), Span::from_micros(16));
    policy.queues.truncate(3);
    for (queue, dscp) in policy.queues.iter_mut().skip(1).zip([38, 30]) {
        queue.droppable = (seconds == Seconds::Yes).then_some(Dscp(dscp));
    }
    policy
}

fn planned(chip: &str, seconds: Seconds, balance: Balance) -> Result<Plan, PlanError> {
    planned_on(chip, ["Ethernet1", "Ethernet2"], seconds, balance)
}

fn planned_on(
    chip: &str,
    [slow, fast]: [&str; 2],
    seconds: Seconds,
    balance: Balance,
) -> Result<Plan, PlanError> {
    let target = target(chip);
    let mut policy = policy(seconds);
    policy.balance = balance;
    let port = |(name, gbps): (&str, u64)| SwitchPort {
        name: name.to_owned(),
        rate: Rate::from_gbps(gbps),
    };
    let site = Site {
        origin: "job.toml and fabric.toml".to_owned(),
        ports: [(slow, 100), (fast, 400)].map(port).into(),
        buffer: SwitchBuffer::Shared {
            bytes: ByteCount::mib(64),
            alpha: 0.25,
        },
    };
    Plan::new(target, &eos().limits(target.version), &policy, site)
}

#[test]
fn a_small_plan_is_these_lines() {
    let text = eos().render(&small("eos:trident"));
    let expected = "\
! gradwire eos:trident from job.toml and fabric.toml
!
platform trident mmu queue profile gradwire
   egress unicast queue 0 threshold 1/4
   egress unicast queue 1 threshold 1/4
   egress unicast queue 2 threshold 1/4
   egress unicast queue 7 threshold 1/4
!
qos profile gradwire-100G
   qos trust dscp
   no priority-flow-control
   !
   uc-tx-queue 0
      priority strict
      random-detect drop drop-precedence 2 minimum-threshold 200000 bytes maximum-threshold \
      200000 bytes drop-probability 100 weight 0
";
    let head: String = text
        .lines()
        .take(15)
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(head, expected);
    let tail = "\
interface Ethernet2
   service-profile gradwire-400G
   no priority-flow-control
!
qos map dscp 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 31 \
32 33 35 36 37 39 41 42 43 44 45 47 49 50 51 52 53 54 55 57 58 59 60 61 62 63 to traffic-class 0
qos map dscp 30 to traffic-class 0 drop-precedence 2
qos map dscp 34 to traffic-class 1
qos map dscp 38 to traffic-class 1 drop-precedence 2
qos map dscp 40 to traffic-class 2
qos map dscp 46 48 56 to traffic-class 7
qos map traffic-class 0 to uc-tx-queue 0
qos map traffic-class 1 to uc-tx-queue 1
qos map traffic-class 2 to uc-tx-queue 2
qos map traffic-class 7 to uc-tx-queue 7
!
platform trident mmu queue profile gradwire apply
!
";
    assert!(text.ends_with(tail), "{text}");
}

#[test]
fn a_job_without_second_dscps_is_refused_with_the_line_to_write() {
    let error = planned("eos:sand", Seconds::No, Balance::Ecmp).expect_err("not-ECT is not known");
    let message = error.to_string();
    assert!(message.contains("droppable_dscps = [38, 30]"), "{message}");
    let plan = small("eos:sand");
    assert_eq!(plan.selection, Selection::Precedence);
}

#[test]
fn dynamic_load_balancing_is_of_trident_chips() {
    let plan = planned("eos:trident", Seconds::Yes, Balance::Adaptive).expect("it has it");
    let line = "\nip hardware fib load-balance distribution dynamic\n";
    assert!(eos().render(&plan).contains(line));
    let error = planned("eos:sand", Seconds::Yes, Balance::Adaptive).expect_err("it has not");
    assert!(error.to_string().contains("it can by ecmp"), "{error}");
}

#[test]
fn packets_that_are_not_ect_are_never_allowed_through() {
    for chip in CHIPS {
        assert!(!eos().render(&small(chip)).contains("non-ect"));
    }
}

/// Changes of a rendered file, and their findings.
const BROKEN: [(&str, &str, &str); 29] = [
    (
        "minimum-threshold 200000",
        "minimum-threshold 900000",
        "threshold-order: ",
    ),
    (
        "maximum-threshold 200000",
        "maximum-threshold 300000",
        "threshold: ",
    ),
    (
        "drop-probability 100",
        "drop-probability 20",
        "probability: ",
    ),
    ("drop-probability 100", "drop-probability 0", "schema: "),
    ("weight 0", "weight 9", "threshold: "),
    ("weight 0", "weight 16", "schema: "),
    (
        "uc-tx-queue 7\n      priority",
        "uc-tx-queue 42\n      priority",
        "queue-range: ",
    ),
    ("to uc-tx-queue 2", "to uc-tx-queue 9", "queue-range: "),
    (
        "uc-tx-queue 2\n      priority strict",
        "uc-tx-queue 2\n      no priority",
        "service-order: ",
    ),
    (
        "priority strict",
        "priority strict\n      bandwidth percent 5",
        "strict-weight: ",
    ),
    (
        "service-profile gradwire-100G",
        "service-profile gradwire-1G",
        "dangling-name: ",
    ),
    ("qos map dscp 34", "qos map dscp 64", "schema: "),
    (
        "qos map dscp 40 to traffic-class 2",
        "qos map dscp 40 to traffic-class 1",
        "dscp-queue: Ethernet1, DSCP 40",
    ),
    (
        "drop-precedence 2\nqos map dscp 34",
        "drop-precedence 1\nqos map dscp 34",
        "drop-precedence: Ethernet1, DSCP 30",
    ),
    (
        "   no priority-flow-control",
        "   priority-flow-control on",
        "pause-on: ",
    ),
    ("qos trust dscp", "qos trust cos", "dscp-queue: "),
    (
        "qos map traffic-class 1 to uc-tx-queue 1\n",
        "",
        "no-queue: ",
    ),
    ("drop drop-precedence 2", "drop", "drop-precedence: "),
    (
        "drop drop-precedence 2",
        "drop drop-precedence 0",
        "drop-precedence: ",
    ),
    (
        "      random-detect drop drop",
        "      ! drop",
        "early-drop-off: ",
    ),
    (
        "      random-detect drop",
        "      random-detect ecn minimum-threshold 9 bytes maximum-threshold 9 bytes\n      \
         random-detect drop",
        "schema: ",
    ),
    ("queue 2 threshold 1/4", "queue 2 threshold 3", "schema: "),
    (
        "queue 1 threshold 1/4",
        "queue 1 threshold 1/2",
        "threshold: Ethernet1, queue 1 (class-1): may take 2^-1 ",
    ),
    (
        "   egress unicast queue 1 threshold 1/4\n",
        "",
        "threshold: Ethernet1, queue 1 (class-1): has no dynamic threshold",
    ),
    (
        "\nplatform trident mmu queue profile gradwire apply",
        "",
        "threshold: Ethernet2, queue 0 (class-2): has no dynamic threshold",
    ),
    (
        "queue 2 threshold 1/4",
        "queue 12 threshold 1/4",
        "queue-range: ",
    ),
    (
        "profile gradwire apply",
        "profile other apply",
        "dangling-name: ",
    ),
    (
        "interface Ethernet2",
        "interface Ethernet7",
        "port-unsaid: Ethernet2",
    ),
    (
        "qos map traffic",
        "qos random-detect ecn allow non-ect\nqos map traffic",
        "early-drop-off: ",
    ),
];

#[test]
fn what_a_schema_lets_through_is_found() {
    let plan = small("eos:trident");
    let good = eos().render(&plan);
    for (from, to, expected) in BROKEN {
        let text = good.replace(from, to);
        assert_ne!(text, good, "{from}");
        let found = findings(eos(), &plan, &text);
        let names = found.iter().any(|finding| finding.starts_with(expected));
        assert!(names, "{from} -> {to}: {found:#?}");
    }
}

#[test]
fn what_stands_at_a_port_goes_before_its_profile() {
    let plan = small("eos:trident");
    let text = eos().render(&plan).replace(
        "   service-profile gradwire-400G\n",
        "   service-profile gradwire-400G\n   no qos trust\n   !\n   uc-tx-queue 1\n      \
         no priority\n",
    );
    let found = findings(eos(), &plan, &text);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("dscp-queue: interface Ethernet2: does not trust DSCPs"));
    assert!(found[1].starts_with("service-order: Ethernet2, queue 1 (class-1): is served in turn"));
}

#[test]
fn a_text_that_is_no_running_configuration_is_refused_with_its_line() {
    let plan = small("eos:sand");
    let message = |text| {
        let error = eos().read(&plan, text).expect_err("no lines of EOS");
        error.to_string()
    };
    assert_eq!(
        message("\n{\"cmds\": {}}\n"),
        "running-config of EOS, line 2: `{\"cmds\": {}}` is no command, and no line begins with \
         `interface` or `qos`; give the output of `show running-config`, not of `| json`"
    );
    assert!(message("").contains("it is empty"));
}

#[test]
fn a_change_touches_only_what_is_the_plans() {
    let plan = small("eos:trident");
    let change = eos().change(&plan, EXPORT).expect("lines of EOS");
    for foreign in ["storage\n", "Ethernet5", "description", "bgp", "hostname"] {
        assert!(
            !change.forward.contains(foreign),
            "{foreign}: {}",
            change.forward
        );
    }
    let port = "interface Ethernet2\n   service-profile gradwire-400G\n   \
                no priority-flow-control\n   default qos trust\n   \
                default priority-flow-control priority 3 no-drop\n   default uc-tx-queue 5\n";
    assert!(change.forward.contains(port), "{}", change.forward);
    let back = "interface Ethernet1\n   service-profile storage\n";
    assert!(change.inverse.contains(back), "{}", change.inverse);
    let dscps = "qos map dscp 0 1 2 3 4 5 6 7 to traffic-class 1\n";
    assert!(change.inverse.contains(dscps), "{}", change.inverse);
    let memory = "platform trident mmu queue profile storage apply\n";
    assert!(change.inverse.contains(memory), "{}", change.inverse);
}

#[test]
fn counters_of_three_shows_and_of_the_neutral_form_are_read() {
    let plan = small("eos:trident");
    let marks = r#"{"intfQueueCounters": {"Ethernet1": {"queueCounters": {"1": "12", "7": "-"}}}}"#;
    let trident = r#"{"egressQueueCounters": {"interfaces": {"Ethernet1": {"ucastQueues": {
        "trafficClasses": {"TC1": {"dropPrecedences": {
            "DP0": {"enqueuedPackets": 90, "droppedPackets": 3},
            "DP2": {"enqueuedPackets": 10, "droppedPackets": 7}}}}}}}}}"#;
    let read = |text: &str| eos().counters(&plan, text).expect("counters");
    let counts = read(&format!("{marks}\n{trident}"));
    let count = QueueCount {
        port: "Ethernet1".to_owned(),
        queue: 1,
        sent: 100,
        marked: Some(12),
        early: Some(7),
        full: 3,
    };
    assert_eq!(counts, [count]);
    let sand = r#"{"interfaces": {"Ethernet2": {"trafficClasses": {"TC0": {
        "egressQueueCounters": {"countersSum": {"enqueuedPackets": 5, "droppedPackets": 1}},
        "ingressVoqCounters": {"countersSum": {"enqueuedPackets": 9, "droppedPackets": 4}}}}}}}"#;
    let counts = read(sand);
    assert_eq!(
        (counts[0].sent, counts[0].early, counts[0].full),
        (5, None, 5)
    );
    let neutral = r#"[{"port": "Ethernet1", "queue": 0, "sent": 1, "full": 0}]"#;
    assert_eq!(read(neutral)[0].sent, 1);
    for (text, expected) in [
        ("{}", "no queues"),
        ("", "no queues"),
        ("counters", "line 1"),
    ] {
        let error = eos().counters(&plan, text).expect_err("no counters");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_switch_with_an_older_plan_takes_the_new_one_and_goes_back() {
    for chip in CHIPS {
        let mut policy = policy(Seconds::Yes);
        policy.rtt = Span::from_micros(3);
        policy.queues.truncate(2);
        let target = target(chip);
        let site = small(chip).site;
        let limits = eos().limits(target.version);
        let older = Plan::new(target, &limits, &policy, site).expect("a plan");
        let running = eos().render(&older);
        hold(&small(chip), &running);
    }
}

#[test]
fn a_port_that_the_export_lacks_is_made_and_set_to_its_default_again() {
    let ports = ["Ethernet4", "Ethernet10"];
    let plan = planned_on("eos:trident", ports, Seconds::Yes, Balance::Adaptive);
    let plan = plan.expect("a plan");
    hold(&plan, EXPORT);
    let change = eos().change(&plan, EXPORT).expect("lines of EOS");
    assert!(
        change.inverse.contains("default interface Ethernet10\n"),
        "{}",
        change.inverse
    );
}

#[test]
fn new_sections_stand_before_the_end() {
    let change = eos()
        .change(&small("eos:trident"), EXPORT)
        .expect("lines of EOS");
    let after = eos().apply(EXPORT, &change.forward).expect("commands");
    assert!(after.ends_with("\nend\n"), "{after}");
}

#[test]
fn carriage_returns_are_read_as_line_ends() {
    let running = EXPORT.replace('\n', "\r\n");
    hold(&small("eos:trident"), &running);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_plan_reads_back_changes_only_itself_and_is_undone(
        drawn in drawn(),
        chip in prop::sample::select(&CHIPS[..]),
    ) {
        hold(&drawn.plan(target(chip)), EXPORT);
    }

    #[test]
    fn a_plan_takes_the_place_of_another_and_gives_it_back(
        first in drawn(),
        second in drawn(),
        chip in prop::sample::select(&CHIPS[..]),
    ) {
        let target = target(chip);
        hold_over(&first.plan(target), &second.plan(target), EXPORT);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(interface E|qos |   |\n|[a-z!{} 0-9]){0,60}") {
        let plan = plan_of(target("eos:sand"), 7);
        let is_read = eos().read(&plan, &text).is_ok();
        prop_assert_eq!(is_read, eos().change(&plan, &text).is_ok());
    }
}

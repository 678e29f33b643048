//! NVIDIA Cumulus Linux: a rendered plan reads back, changes only its own leaves, and can be
//! undone.

mod plans;
mod properties;

use gradwire_fabric::policy::{Balance, QosPolicy, SwitchBuffer};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Rate, Span};
use gradwire_switch_config::counters::QueueCount;
use gradwire_switch_config::dialect::{self, Dialect};
use gradwire_switch_config::plan::{Plan, PlanError, Selection, Site, SwitchPort};
use plans::drawn;
use properties::{findings, hold, hold_over, plan_of, target};
use proptest::prelude::*;

/// A switch that carries storage by RoCE, with PFC, on some of the plan's ports and on others; some
/// stand in ranges.
const EXPORT: &str = include_str!("exports/nvue.yaml");
const RELEASES: [&str; 3] = ["nvue:5.11", "nvue:5.14", "nvue:5.18"];

fn nvue() -> &'static dyn Dialect {
    dialect::of(target("nvue").platform)
}

fn policy() -> QosPolicy {
    let mut policy = QosPolicy::of_job(&Job::default(), Span::from_micros(16));
    policy.queues.truncate(3);
    policy
}

fn planned(release: &str, policy: &QosPolicy) -> Result<Plan, PlanError> {
    planned_on(release, ["swp1", "swp3"], policy)
}

fn planned_on(
    release: &str,
    [slow, fast]: [&str; 2],
    policy: &QosPolicy,
) -> Result<Plan, PlanError> {
    let target = target(release);
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
    Plan::new(target, &nvue().limits(target.version), policy, site)
}

/// Two classes of gradients on two ports.
fn small(release: &str) -> Plan {
    planned(release, &policy()).expect("a plan")
}

#[test]
fn a_small_plan_is_these_lines() {
    let plan = small("nvue:5.14");
    assert_eq!(plan.selection, Selection::Ecn);
    let text = nvue().render(&plan);
    let head = "\
# gradwire nvue:5.14 from job.toml and fabric.toml
- header:
    nvue-api-version: nvue_v1
    rev-id: 1.0
    version: Cumulus Linux 5.14.0
- set:
    interface:
      swp1:
        qos:
          congestion-control:
            profile: gradwire-100G
          egress-scheduler:
            profile: gradwire
          mapping:
            profile: gradwire
        type: swp
      swp3:
";
    assert!(text.starts_with(head), "{text}");
    let thresholds = "
      congestion-control:
        gradwire-100G:
          traffic-class:
            '0':
              ecn: enable
              max-threshold: 200000
              min-threshold: 200000
              probability: 100
              red: enable
            '1':
";
    assert!(text.contains(thresholds), "{text}");
    let tail = "
            '63':
              switch-priority: 0
          port-default-sp: 0
          trust: l3
    system:
      forwarding:
        ecmp-hash:
          source-port: 'on'
        lag-hash:
          source-port: 'on'
";
    assert!(text.ends_with(tail), "{text}");
}

#[test]
fn releases_differ_in_words_and_in_what_they_can() {
    let mut policy = policy();
    policy.balance = Balance::Adaptive;
    let text = |release: &str, policy: &QosPolicy| {
        let plan = planned(release, policy).expect("a plan");
        nvue().render(&plan)
    };
    assert!(text("nvue:5.14", &policy).contains("adaptive-routing:\n        enable: 'on'\n"));
    let newest = text("nvue:5.18", &policy);
    assert!(
        newest.contains("adaptive-routing:\n        state: enabled\n"),
        "{newest}"
    );
    assert!(newest.contains("mode: absolute\n"));
    policy.trims_to = Some(ByteCount::new(301));
    let newest = text("nvue:5.18", &policy);
    let trims = "      packet-trim:\n          remark:\n            dscp: 40\n          \
                 size: 300\n          state: enabled\n          switch-priority: 2\n";
    assert!(newest.contains(trims), "{newest}");
    let error = planned("nvue:5.11", &policy).expect_err("it does not trim");
    assert!(
        error.to_string().contains("packet-trim from 5.14 on"),
        "{error}"
    );
}

/// Changes of a rendered file, and their findings.
const BROKEN: [(&str, &str, &str); 29] = [
    (
        "min-threshold: 200000",
        "min-threshold: 900000",
        "threshold-order: ",
    ),
    (
        "max-threshold: 200000",
        "max-threshold: 300000",
        "threshold: ",
    ),
    ("min-threshold: 200000", "min-threshold: 0", "schema: "),
    ("min-threshold: 200000", "min-threshold: many", "schema: "),
    ("probability: 100", "probability: 20", "probability: "),
    ("probability: 100", "probability: 101", "schema: "),
    ("red: enable", "red: disable", "early-drop-off: "),
    ("ecn: enable", "ecn: disable", "ecn-off: "),
    ("ecn: enable", "ecn: maybe", "schema: "),
    (
        "'1':\n              ecn",
        "'9':\n              ecn",
        "queue-range: ",
    ),
    ("mode: strict", "mode: dwrr", "service-order: "),
    ("mode: strict", "mode: wrr", "schema: "),
    (
        "mode: strict",
        "bw-percent: 5\n              mode: strict",
        "strict-weight: ",
    ),
    (
        "profile: gradwire-100G",
        "profile: gradwire-1G",
        "dangling-name: ",
    ),
    ("'63':", "'64':", "schema: "),
    (
        "'34':\n              switch-priority: 1",
        "'34':\n              switch-priority: 2",
        "dscp-queue: ",
    ),
    (
        "'34':\n              switch-priority: 1",
        "'34':\n              switch-priority: 8",
        "schema: ",
    ),
    ("trust: l3", "trust: l2", "dscp-queue: "),
    ("traffic-class: 2", "traffic-class: 11", "queue-range: "),
    ("      swp3:", "      swp9:", "port-unsaid: swp3"),
    (
        "shared-alpha: alpha_1_4",
        "shared-alpha: alpha_3",
        "schema: ",
    ),
    (
        "shared-alpha: alpha_1_4",
        "shared-alpha: alpha_1_2",
        "threshold: ",
    ),
    (
        "shared-alpha: alpha_1_4",
        "shared-alpha: alpha_1_4\n                shared-bytes: 9",
        "two-thresholds: ",
    ),
    (
        "shared-alpha: alpha_1_4",
        "shared-bytes: 9",
        "threshold: swp1, queue 1 (class-1): has no",
    ),
    (
        "shared-alpha: alpha_1_4",
        "shared-alpha: alpha_0",
        "threshold: swp1, queue 1 (class-1): has no",
    ),
    (
        "shared-alpha: alpha_1_4",
        "shared-alpha: alpha_infinity",
        "threshold: swp1, queue 1 (class-1): has no",
    ),
    (
        "    qos:\n      adv",
        "    qos:\n      roce:\n        mode: lossless\n        enable: 'on'\n      adv",
        "pause-on: ",
    ),
    (
        "    qos:\n      adv",
        "    qos:\n      pfc:\n        default-global:\n          switch-priority:\n            \
         '3': {}\n      adv",
        "pause-on: ",
    ),
    (
        "            '2':\n              mode: strict\n",
        "",
        "service-order: ",
    ),
];

#[test]
fn what_a_schema_lets_through_is_found() {
    let plan = small("nvue:5.14");
    let good = nvue().render(&plan);
    for (from, to, expected) in BROKEN {
        let text = good.replace(from, to);
        assert_ne!(text, good, "{from}: {good}");
        let found = findings(nvue(), &plan, &text);
        let names = found.iter().any(|finding| finding.starts_with(expected));
        assert!(names, "{from} -> {to}: {found:#?}");
    }
}

#[test]
fn trims_that_go_nowhere_are_found() {
    let mut policy = policy();
    policy.trims_to = Some(ByteCount::new(256));
    let plan = planned("nvue:5.18", &policy).expect("a plan");
    let good = nvue().render(&plan);
    for (from, to) in [
        ("size: 256", "size: 512"),
        ("state: enabled", "state: disabled"),
        ("switch-priority: 2\n    ", "switch-priority: 0\n    "),
        ("egress-eligibility", "egress-nothing"),
    ] {
        let broken = match from.starts_with("switch") {
            true => good.replacen(
                "state: enabled\n          switch-priority: 2",
                "state: enabled\n          switch-priority: 0",
                1,
            ),
            false => good.replace(from, to),
        };
        assert_ne!(broken, good, "{from}: {good}");
        let found = findings(nvue(), &plan, &broken);
        assert!(
            found.iter().any(|one| one.starts_with("trim-target: ")),
            "{from}: {found:#?}"
        );
    }
}

#[test]
fn a_text_that_is_no_configuration_is_refused_with_its_line() {
    let plan = small("nvue:5.18");
    let message = |text| {
        let error = nvue()
            .read(&plan, text)
            .expect_err("no configuration of NVUE");
        error.to_string()
    };
    let start = "NVUE configuration in YAML, line ";
    for (text, expected) in [
        ("- set:\n    qos: [\n", "not YAML"),
        ("interface:\n  swp1: {}\n", "expected a list"),
        ("- header: {}\n", "nothing is set"),
        ("- put: {}\n", "no operation"),
        ("", "it is empty"),
        (
            "- set:\n    a: 1\n    a: 2\n",
            "line 3: a key stands here twice",
        ),
        ("- set: &x\n    a: *x\n", "aliases"),
    ] {
        let message = message(text);
        assert!(
            message.starts_with(start) && message.contains(expected),
            "{text}: {message}"
        );
    }
}

#[test]
fn flow_style_and_json_are_configurations_too() {
    let plan = small("nvue:5.18");
    let json = r#"[{"set": {"interface": {"swp1": {}, "swp3": {}}}}]"#;
    assert!(nvue().read(&plan, json).is_ok());
    hold(&plan, json);
    hold(&plan, "- set:\n    qos: {roce: {mode: lossy}}\n");
}

#[test]
fn a_value_where_the_plan_needs_a_map_is_refused() {
    let plan = small("nvue:5.18");
    let error = nvue().change(&plan, "- set:\n    qos: 5\n");
    let error = error.expect_err("no place for the plan").to_string();
    assert!(error.contains("`qos: 5`: expected a map here"), "{error}");
}

#[test]
fn a_later_set_item_overrides_an_earlier_one() {
    let running = "- set:\n    system:\n      hostname: old\n      reboot: {}\n- set:\n    \
                   system:\n      hostname: 'new'\n      reboot: never\n";
    let applied = nvue().apply(running, "").expect("two items");
    assert_eq!(
        applied,
        "- set:\n    system:\n      hostname: 'new'\n      reboot: never\n"
    );
    let overridden = "- set:\n    interface: {swp1: {type: swp, qos: {mapping: {profile: old}}}}\n\
                      - set:\n    interface: {swp1: {qos: {mapping: {profile: storage}}}}\n";
    hold(&small("nvue:5.18"), overridden);
}

#[test]
fn settings_in_any_style_come_back_as_they_were() {
    for value in [
        "[{a: 1, 'on': [x, {}]}]",
        "\n      - a, b\n      - '5'\n      - c]",
        "'{}'",
        "['[]', '{}', {}, []]",
        "one\n\n        two",
        "\"a\\tb\\x07\"",
        "\n      -\n      - ~",
        "{'a,b': \"it's\", \"c\\nd\": \"e\\nf\"}",
    ] {
        let running = format!("- set:\n    foreign:\n      key: {value}\n");
        hold(&small("nvue:5.18"), &running);
    }
}

#[test]
fn a_change_touches_only_what_is_the_plans() {
    let plan = small("nvue:5.14");
    let change = nvue()
        .change(&plan, EXPORT)
        .expect("a configuration of NVUE");
    for foreign in ["swp2", "swp5", "mtu", "bgp", "hostname", "storage"] {
        assert!(
            !change.forward.contains(foreign),
            "{foreign}: {}",
            change.forward
        );
    }
    let back = "      swp1:\n        qos:\n          mapping:\n            \
                profile: storage\n          pfc:\n            profile: storage\n";
    assert!(change.inverse.contains(back), "{}", change.inverse);
    let gone =
        "- unset:\n    interface:\n      swp1:\n        qos:\n          congestion-control:\n";
    assert!(change.inverse.starts_with(gone), "{}", change.inverse);
    let there = nvue().apply(EXPORT, &change.forward).expect("a patch");
    assert!(
        there.contains("pfc:\n            profile: gradwire-off\n"),
        "{there}"
    );
}

#[test]
fn a_switch_with_an_older_plan_takes_the_new_one_and_goes_back() {
    for release in RELEASES {
        let mut older = policy();
        older.rtt = Span::from_micros(3);
        older.queues.truncate(2);
        let older = planned(release, &older).expect("a plan");
        let newer = small(release);
        hold(&newer, &nvue().render(&older));
        hold(&older, &nvue().render(&newer));
    }
}

#[test]
fn counters_of_a_port_and_of_several_are_read() {
    let plan = small("nvue:5.18");
    let port = r#"{"egress-queue-stats": {"1": {"ecn-marked-frames": 12, "tx-frames": 100,
        "tx-uc-buffer-discards": "4 KB", "wred-discards": 7}, "2": {"tx-frames": "5",
        "tx-uc-buffer-discards": "0 Bytes", "wred-discards": 0}}, "pfc-stats": {}}"#;
    let read = |text: &str| nvue().counters(&plan, text).expect("counters");
    let counts = read(&format!("{{\"swp1\": {port}}}"));
    let first = QueueCount {
        port: "swp1".to_owned(),
        queue: 1,
        sent: 100,
        marked: Some(12),
        early: Some(7),
        full: 1,
    };
    let second = QueueCount {
        port: "swp1".to_owned(),
        queue: 2,
        sent: 5,
        marked: None,
        early: Some(0),
        full: 0,
    };
    assert_eq!(counts, [first, second]);
    let neutral = r#"[{"port": "swp1", "queue": 0, "sent": 1, "full": 0}]"#;
    assert_eq!(read(neutral)[0].sent, 1);
    for (text, expected) in [
        (port, "names no port"),
        ("{}", "no `egress"),
        ("x", "line 1"),
    ] {
        let error = nvue().counters(&plan, text).expect_err("no counters");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn ports_that_the_export_lacks_or_has_in_ranges_come_back_as_they_were() {
    for ports in [["swp7", "swp10"], ["swp4", "swp5"], ["swp2", "swp1s0"]] {
        let mut policy = policy();
        policy.balance = Balance::Adaptive;
        policy.trims_to = Some(ByteCount::new(256));
        let plan = planned_on("nvue:5.18", ports, &policy).expect("a plan");
        hold(&plan, EXPORT);
    }
}

#[test]
fn carriage_returns_are_read_as_line_ends() {
    let running = EXPORT.replace('\n', "\r\n");
    hold(&small("nvue:5.14"), &running);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_plan_reads_back_changes_only_itself_and_is_undone(
        drawn in drawn(),
        release in prop::sample::select(&RELEASES[..]),
    ) {
        hold(&drawn.plan(target(release)), EXPORT);
    }

    #[test]
    fn a_plan_takes_the_place_of_another_and_gives_it_back(
        first in drawn(),
        second in drawn(),
        release in prop::sample::select(&RELEASES[..]),
    ) {
        let target = target(release);
        hold_over(&first.plan(target), &second.plan(target), EXPORT);
    }

    #[test]
    fn any_text_is_read_or_refused(
        text in "(- set:\n|    interface:\n|      swp1:\n|    qos: |[a-z'{}: 0-9\\-\n]){0,40}",
    ) {
        let plan = plan_of(target("nvue:5.18"), 7);
        if let Ok(change) = nvue().change(&plan, &text) {
            prop_assert!(nvue().read(&plan, &text).is_ok());
            prop_assert!(nvue().apply(&text, &change.forward).is_ok());
        }
    }
}

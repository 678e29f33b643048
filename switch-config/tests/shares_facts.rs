//! A share of the link for others, on every platform: written, read back, told, and missed.

use gradwire_fabric::policy::{QosPolicy, SwitchBuffer};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Rate, Span};
use gradwire_switch_config::dialect;
use gradwire_switch_config::effect;
use gradwire_switch_config::lint::{self, Rule};
use gradwire_switch_config::plan::{Plan, Site, SwitchPort};
use gradwire_switch_config::target::SwitchTarget;

/// The plan of a job with two classes of gradients for one port of 100G.
fn plan(target: &str, untagged: &str) -> Plan {
    let mut job = Job::default();
    for (key, value) in [
        ("priority.dscps", "[40, 34, 26, 0]"),
        ("priority.droppable_dscps", "[36, 28, 1]"),
        ("priority.untagged", untagged),
    ] {
        job.set(key, value).expect("allowed");
    }
    let policy = QosPolicy::of_job(&job, Span::from_micros(14));
    let target = SwitchTarget::read(target).expect("a target");
    let dialect = dialect::of(target.platform);
    let site = Site {
        origin: "a test".to_owned(),
        ports: vec![SwitchPort {
            name: dialect.port_name(0),
            rate: Rate::from_gbps(100),
        }],
        buffer: SwitchBuffer::PerPort(ByteCount::mib(16)),
    };
    Plan::new(target, &dialect.limits(target.version), &policy, site).expect("a plan")
}

fn findings(plan: &Plan, text: &str) -> Vec<(Rule, String)> {
    let reading = dialect::of(plan.target.platform).read(plan, text);
    let found = lint::findings(plan, &reading.expect("it has the platform's form"));
    let found = found.into_iter();
    found.map(|one| (one.rule, one.to_string())).collect()
}

/// What each platform writes for a share of 30 %: of others, and of gradients beside them.
const WRITTEN: [(&str, &[&str]); 12] = [
    (
        "sonic",
        &[
            "\"GRADWIRE_WEIGHT_30\": {\n            \"type\": \"DWRR\"",
            "\"weight\": \"30\"",
            "\"GRADWIRE_WEIGHT_70\"",
            "\"34\": \"1\"",
            "\"26\": \"1\"",
            "\"wred_profile\": \"GRADWIRE_100G_OTHERS\"",
            "\"wred_green_enable\": \"false\"",
        ],
    ),
    (
        "nvue:5.11",
        &["bw-percent: 30", "bw-percent: 70", "red: disable"],
    ),
    (
        "nvue:5.18",
        &["bw-percent: 30", "mode: dwrr", "red: disable"],
    ),
    (
        "eos:sand",
        &["      no priority\n      bandwidth percent 30\n"],
    ),
    (
        "eos:trident",
        &["   uc-tx-queue 0\n      no priority\n      bandwidth percent 30\n"],
    ),
    (
        "junos:qfx5100",
        &[
            "forwarding-class-sets gradwire-weighted class gradwire-others",
            "schedulers gradwire-gradients-100G transmit-rate percent 70",
            "schedulers gradwire-others transmit-rate percent 30",
            "schedulers gradwire-others priority low",
            "traffic-control-profiles gradwire-weighted-100G guaranteed-rate percent 100",
            "forwarding-class-set gradwire-weighted output-traffic-control-profile \
             gradwire-weighted-100G",
        ],
    ),
    (
        "junos:qfx10000",
        &[
            "schedulers gradwire-others transmit-rate percent 30",
            "schedulers gradwire-class-2-100G priority medium-low",
        ],
    ),
    (
        "nxos",
        &["c-out-8q-q-default\n    bandwidth remaining percent 30\n"],
    ),
    ("openconfig", &["\"weight\": \"30\"", "\"drop\": false"]),
    (
        "linux:lab",
        &[
            "classid 1:18 htb prio 7 quantum 1514 rate 30000000000bit ceil 100000000000bit",
            "classid 1:17 htb prio 6 quantum 1514 rate 8000bit",
            "ecn nodrop",
        ],
    ),
    (
        "linux:bpf",
        &["classid 1:18 htb prio 7 quantum 1514 rate 30000000000bit"],
    ),
    (
        "linux:host",
        &["classid 1:15 htb prio 4 quantum 1514 rate 35000000000bit"],
    ),
];

#[test]
fn every_platform_writes_and_reads_the_share() {
    for (target, lines) in WRITTEN {
        let plan = plan(target, "30%");
        let text = dialect::of(plan.target.platform).render(&plan);
        for line in lines {
            assert!(text.contains(line), "{target}: {line}\nnot in\n{text}");
        }
        assert_eq!(findings(&plan, &text), [], "{target}:\n{text}");
    }
}

#[test]
fn a_change_from_strict_queues_is_undone() {
    for (target, _) in WRITTEN {
        let (strict, shared) = (plan(target, "below"), plan(target, "30%"));
        let dialect = dialect::of(strict.target.platform);
        let before = match target.starts_with("linux") {
            // Its exports are not its scripts.
            true => continue,
            false => dialect.render(&strict),
        };
        let found = findings(&shared, &before);
        assert!(
            found.iter().any(|(rule, _)| *rule == Rule::ServiceOrder),
            "{target}"
        );
        let change = dialect.change(&shared, &before).expect("it can be read");
        let after = dialect.apply(&before, &change.forward).expect("it fits");
        assert_eq!(findings(&shared, &after), [], "{target}");
        let read = |text: &str| dialect.read(&shared, text).expect("it can be read");
        let port = shared.site.ports[0].name.as_str();
        let effects = effect::effects([port], &read(&before), &read(&after));
        let of_others = effects[0].settings.iter();
        let mut of_others = of_others.filter(|one| one.setting == "queue 0");
        let last = of_others.next().expect("the last queue changes");
        assert!(
            last.after.starts_with("in turn with others, weight 30"),
            "{target}: {last:?}"
        );
        let undone = dialect.apply(&after, &change.inverse).expect("it fits");
        assert_eq!(findings(&strict, &undone), [], "{target}");
    }
}

/// What is changed in what a platform writes, and the name of that mistake.
const BROKEN: [(&str, &str, &str, Rule); 13] = [
    (
        "sonic",
        "\"weight\": \"30\"",
        "\"weight\": \"3\"",
        Rule::ServiceOrder,
    ),
    (
        "sonic",
        "\"wred_green_enable\": \"false\"",
        "\"wred_green_enable\": \"true\"",
        Rule::OthersDropped,
    ),
    (
        "nvue",
        "bw-percent: 30",
        "bw-percent: 3",
        Rule::ServiceOrder,
    ),
    ("nvue", "red: disable", "red: enable", Rule::OthersDropped),
    (
        "eos",
        "bandwidth percent 30",
        "bandwidth percent 3",
        Rule::ServiceOrder,
    ),
    (
        "eos",
        "no priority\n      bandwidth percent 30",
        "priority strict",
        Rule::ServiceOrder,
    ),
    (
        "junos:qfx5100",
        "gradwire-others transmit-rate percent 30",
        "gradwire-others transmit-rate percent 3",
        Rule::ServiceOrder,
    ),
    (
        "junos:qfx10000",
        "transmit-rate percent 30",
        "transmit-rate percent 3",
        Rule::ServiceOrder,
    ),
    (
        "nxos",
        "bandwidth remaining percent 30",
        "bandwidth remaining percent 3",
        Rule::ServiceOrder,
    ),
    (
        "openconfig",
        "\"weight\": \"30\"",
        "\"weight\": \"3\"",
        Rule::ServiceOrder,
    ),
    (
        "openconfig",
        "\"drop\": false",
        "\"drop\": true",
        Rule::OthersDropped,
    ),
    (
        "linux:lab",
        "rate 30000000000bit",
        "rate 3000000000bit",
        Rule::ServiceOrder,
    ),
    ("linux:lab", "ecn nodrop", "ecn", Rule::OthersDropped),
];

#[test]
fn a_wrong_weight_or_early_drop_is_found() {
    for (target, right, wrong, rule) in BROKEN {
        let plan = plan(target, "30%");
        let text = dialect::of(plan.target.platform).render(&plan);
        let broken = text.replace(right, wrong);
        assert_ne!(broken, text, "{target}: {right}");
        let found = findings(&plan, &broken);
        assert!(
            found.iter().any(|(one, _)| *one == rule),
            "{target}: {found:?}"
        );
    }
}

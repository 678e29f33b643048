//! Linux: scripts of tc follow the plan; exports of a kernel are read, changed and restored. Tests
//! of the command show how kernels take them.

mod mistakes;
mod plans;
mod properties;

use gradwire_switch_config::counters::QueueCount;
use gradwire_switch_config::dialect::{self, Dialect};
use gradwire_switch_config::lint::Rule;
use gradwire_switch_config::plan::Plan;
use gradwire_switch_config::target::Platform;
use proptest::prelude::*;

use mistakes::{Broken, all_are_found, broken};
use plans::drawn;
use properties::{findings, hold, hold_over, plan_of, target};

/// Ports as kernels make them, one with a foreign HTB, and one that no plan has.
const RUNNING: &str = include_str!("exports/linux.txt");
const FORMS: [&str; 4] = ["linux:switch", "linux:lab", "linux:bpf", "linux:host"];

fn linux() -> &'static dyn Dialect {
    dialect::of(Platform::Linux)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn plans_read_back_and_are_undone(drawn in drawn()) {
        for form in FORMS {
            hold(&drawn.plan(target(form)), RUNNING);
        }
    }

    #[test]
    fn plans_replace_each_other_and_are_undone(
        first in drawn(),
        second in drawn(),
        forms in (0_usize..4, 0_usize..4),
    ) {
        // No export contains a program, so it could not be restored: another test.
        let forms = [forms.0, forms.1].map(|form| if form == 2 { 1 } else { form });
        let [first, second] = [(first, forms[0]), (second, forms[1])]
            .map(|(drawn, form)| drawn.plan(target(FORMS[form])));
        hold_over(&first, &second, RUNNING);
    }

    #[test]
    fn any_text_is_read_or_refused(
        text in "(port x\n|tc qdisc add dev x |root handle 1: |class htb |[a-z0-9:{}\\[]|\n){0,40}",
    ) {
        for form in FORMS {
            let plan = plan_of(target(form), 7);
            let _ = linux().read(&plan, &text);
            let _ = linux().change(&plan, &text);
            let _ = linux().apply(RUNNING, &text);
            let _ = linux().counters(&plan, &text);
        }
    }
}

#[test]
fn ports_that_cannot_be_restored_are_refused() {
    let mut plan = plan_of(target("linux:switch"), 7);
    plan.site.ports[1].name = "mgmt0".to_owned();
    let refused = linux()
        .change(&plan, RUNNING)
        .expect_err("cake is not ours");
    assert_eq!(
        refused.to_string(),
        "export of tc: port mgmt0 has cake 8001: at its root, which could not be put back \
         afterwards: take it away yourself (tc qdisc del dev mgmt0 root), or leave the port out of \
         --ports"
    );
    plan.site.ports[1].name = "swp9".to_owned();
    let refused = linux().change(&plan, RUNNING).expect_err("no such port");
    assert_eq!(
        refused.to_string(),
        "export of tc: port swp9 is not in the export"
    );
}

#[test]
fn running_programs_cannot_be_restored() {
    let [first, second] = [3, 7].map(|classes| plan_of(target("linux:bpf"), classes));
    let change = linux().change(&first, RUNNING).expect("default ports");
    let between = linux().apply(RUNNING, &change.forward).expect("it fits");
    let refused = linux()
        .change(&second, &between)
        .expect_err("not restorable");
    assert!(
        refused.to_string().contains("swp0 has htb 1: at its root"),
        "{refused}"
    );
}

#[test]
fn foreign_texts_are_refused_with_their_line() {
    let plan = plan_of(target("linux"), 7);
    let refusal = |text: &str| {
        let refused = linux().read(&plan, text).expect_err("no export");
        refused.to_string()
    };
    let command = "`gradwire switch verify` tells the command that exports";
    assert_eq!(
        refusal("{\"PORT\": {}}"),
        format!("export of tc, line 1: should be `port NAME`; {command}")
    );
    assert_eq!(
        refusal(""),
        format!("export of tc: it says nothing of any port; {command}")
    );
    assert_eq!(
        refusal("port swp0\ninterface Ethernet1\n"),
        "export of tc, line 2: tc does not write `interface Ethernet1`"
    );
    assert_eq!(
        refusal("port swp0\n[]\nport swp0\n[]\n"),
        "export of tc, line 4: port swp0 is there twice"
    );
    let cut = refusal("port swp0\n[{\"kind\":\"htb\",\n");
    assert!(
        cut.starts_with("export of tc, line 2: is no list of JSON objects: "),
        "{cut}"
    );
}

const BANDS: &str = "prio bands 8 priomap 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7";

/// Mistakes in a script with `prio` and `red`.
const SWITCH: [Broken; 17] = [
    broken(
        "dsfield 0x88 0xfc flowid 1:3",
        "dsfield 0x88 0xfc flowid 1:5",
        Rule::DscpQueue,
        "DSCP 34",
    ),
    broken(
        "ip6 priority 0x88 0xfc flowid 1:3",
        "ip6 priority 0x88 0xfc flowid 1:4",
        Rule::DscpQueue,
        "IPv6",
    ),
    broken(
        "dsfield 0xc0 0xfc flowid 1:1",
        "dsfield 0xc0 0xfc flowid 1:8",
        Rule::DscpQueue,
        "DSCP 48",
    ),
    broken(
        "dsfield 0x68 0xfc flowid 1:4",
        "dsfield 0x68 0xfc flowid 1:c",
        Rule::QueueRange,
        "1:c",
    ),
    broken(
        "dsfield 0x68 0xfc flowid 1:4",
        "dsfield 0x68 0xfc flowid 3:4",
        Rule::Dangling,
        "3:",
    ),
    broken(
        "dsfield 0x68 0xfc",
        "dsfield 0x168 0xfc",
        Rule::Schema,
        "0x168",
    ),
    broken(
        "parent 1:3 handle 13: red",
        "parent 1:12 handle 13: red",
        Rule::QueueRange,
        "1:12",
    ),
    broken(
        BANDS,
        "prio bands 3 priomap 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2",
        Rule::NoQueue,
        "class 1:8",
    ),
    broken(
        BANDS,
        "prio bands 8 priomap 7 7 7",
        Rule::Schema,
        "16 bands",
    ),
    broken(
        BANDS,
        "prio bands 17 priomap 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7",
        Rule::Schema,
        "2 to 16",
    ),
    broken(" ecn\n", "\n", Rule::EcnOff, "does not mark"),
    broken(
        " ecn\n",
        " ecn nodrop\n",
        Rule::EarlyDropOff,
        "does not drop",
    ),
    broken(" ecn\n", " ecn harddrop\n", Rule::EcnOff, "does not mark"),
    broken(
        "min 175000 max 175001",
        "min 175000 max 17500",
        Rule::ThresholdOrder,
        "swap them",
    ),
    broken(
        "min 175000 max 175001",
        "min 30000 max 90000",
        Rule::Threshold,
        "175000",
    ),
    broken(
        "burst 175000",
        "burst 900000",
        Rule::Threshold,
        "lags behind",
    ),
    broken("bfifo limit", "red limit", Rule::Schema, "red needs"),
];

/// Mistakes in a script with HTB and a program.
const BPF: [Broken; 9] = [
    broken(
        "classid 1:13 htb prio 2",
        "classid 1:13 htb prio 7",
        Rule::ServiceOrder,
        "queue 5",
    ),
    broken(
        "classid 1:13 htb prio 2 quantum 1514 rate 8000bit",
        "classid 1:13 htb prio 2 rate 4000000000bit",
        Rule::ServiceOrder,
        "in turn",
    ),
    broken(
        "parent 1:1 classid 1:14 htb",
        "parent 1:2 classid 1:14 htb",
        Rule::Dangling,
        "1:2",
    ),
    broken("htb prio 7", "htb prio 9", Rule::Schema, "0 to 7"),
    broken(
        "bpf direct-action object-file",
        "bpf object-file",
        Rule::EarlyDropOff,
        "direct-action",
    ),
    broken(
        "protocol all pref 5",
        "protocol all pref 50",
        Rule::EarlyDropOff,
        "every packet",
    ),
    broken(
        "protocol all pref 5",
        "protocol ip pref 5",
        Rule::EarlyDropOff,
        "every packet",
    ),
    broken(
        "f0VMRgIBAQ",
        "f0VMRgIBAA",
        Rule::Schema,
        "is not that program",
    ),
    broken(
        "base64 -d >\"$objects\"/gradwire-",
        "base64 -d >\"$objects\"/other-",
        Rule::Dangling,
        "is not in the script",
    ),
];

#[test]
fn mistakes_in_scripts_are_found() {
    all_are_found(&plan_of(target("linux:switch"), 7), &SWITCH);
    all_are_found(&plan_of(target("linux:bpf"), 7), &BPF);
}

#[test]
fn mistakes_in_exports_are_found() {
    let plan = plan_of(target("linux:switch"), 7);
    let change = linux().change(&plan, RUNNING).expect("default ports");
    let export = linux().apply(RUNNING, &change.forward).expect("it fits");
    let table = [
        ("\"ecn\":true", "\"ecn\":false", Rule::EcnOff),
        ("\"min\":175000", "\"min\":1750", Rule::Threshold),
        ("\"ewma\":1", "\"ewma\":9", Rule::Threshold),
        (
            "\"max\":175001",
            "\"adaptive\":true,\"max\":175001",
            Rule::Probability,
        ),
        (
            "\"max\":175001",
            "\"limit\":1000,\"max\":175001",
            Rule::PoolSize,
        ),
        ("\"bands\":8", "\"bands\":4", Rule::NoQueue),
        ("\"kind\":\"prio\"", "\"kind\":\"multiq\"", Rule::NoQueue),
        (
            "\"kind\":\"bfifo\"",
            "\"kind\":\"red\"",
            Rule::ControlMarked,
        ),
        ("\"flowid\":\"1:3\"", "\"flowid\":\"1:7\"", Rule::DscpQueue),
        (
            "\"value\":\"880000\"",
            "\"value\":\"8c0000\"",
            Rule::DscpQueue,
        ),
        ("\"kind\":\"red\"", "\"kind\":\"sfq\"", Rule::EarlyDropOff),
        ("port swp1", "port other", Rule::PortUnsaid),
    ];
    for (from, to, rule) in table {
        assert!(export.contains(from), "{from} is not in\n{export}");
        let found = findings(linux(), &plan, &export.replace(from, to));
        let start = format!("{}: ", rule.name());
        assert!(
            found.iter().any(|text| text.starts_with(&start)),
            "{from}, {to}: {found:#?}"
        );
    }
}

#[test]
fn filters_without_parent_stand_below_htb() {
    let plan = plan_of(target("linux:lab"), 7);
    let change = linux().change(&plan, RUNNING).expect("default ports");
    let export = linux().apply(RUNNING, &change.forward).expect("it fits");
    let export = export.replace("\"parent\":\"2:\",\"pref\"", "\"pref\"");
    assert_eq!(findings(linux(), &plan, &export), [""; 0]);
}

#[test]
fn port_names_are_quoted() {
    let mut plan = plan_of(target("linux:bpf"), 3);
    plan.site.ports.truncate(1);
    plan.site.ports[0].name = "a'b;c".to_owned();
    plan.site.origin = "one\nreboot".to_owned();
    let text = linux().render(&plan);
    assert!(text.contains("dev 'a'\\''b;c' root"), "{text}");
    assert!(
        !text.lines().any(|line| line.starts_with("reboot")),
        "{text}"
    );
    assert_eq!(findings(linux(), &plan, &text), [""; 0]);
}

#[test]
fn sending_hosts_neither_mark_nor_drop_early() {
    let plan = plan_of(target("linux:host"), 7);
    let text = linux().render(&plan);
    assert!(
        !text.contains(" red ") && !text.contains("hash_policy"),
        "{text}"
    );
    assert!(plan.profiles.is_empty() && !plan.queues.is_empty());
}

#[test]
fn red_is_a_step_with_valid_bandwidth() {
    let text = linux().render(&plan_of(target("linux"), 7));
    // 100G and 400G x 14 us; 34.4 Gb/s is the most that 32 bits of bytes per second hold.
    for gbps in [100, 400] {
        let depth = gbps * 1750;
        let line = format!(
            "red limit 16777216 min {depth} max {} probability 1 avpkt 1 burst {depth} bandwidth \
             34359738360bit ecn",
            depth + 1
        );
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

/// Counters of queue 5, and of the control queue, of a switch with `prio` and `red`.
const STATISTICS: &str = include_str!("exports/linux-counters.txt");

fn queue_of(plan: &Plan, text: &str, queue: u8) -> Option<QueueCount> {
    let counts = linux().counters(plan, text).expect("an export");
    counts.into_iter().find(|count| count.queue == queue)
}

#[test]
fn counters_of_red_and_program_are_read() {
    let count = |queue, sent, marked, early, full| QueueCount {
        port: "swp0".to_owned(),
        queue,
        sent,
        marked,
        early,
        full,
    };
    let plan = plan_of(target("linux:switch"), 7);
    let wanted = Some(count(5, 60, Some(5), Some(4), 3));
    assert_eq!(queue_of(&plan, STATISTICS, 5), wanted);
    assert_eq!(
        queue_of(&plan, STATISTICS, 6),
        Some(count(6, 30, None, None, 0))
    );
    // As `tc -s -j qdisc show` tells of all ports in one list.
    let list = STATISTICS.replace("port swp0\n", "");
    let list = list.replace("\"kind\"", "\"dev\":\"swp0\",\"kind\"");
    assert_eq!(queue_of(&plan, &list, 5), wanted);

    let plan = plan_of(target("linux:bpf"), 7);
    let numbers: Vec<String> = (0..33).map(|number| number.to_string()).collect();
    let text = format!(
        "port swp0\n[{{\"kind\":\"bfifo\",\"handle\":\"13:\",\"parent\":\"1:13\",\"options\":{{}},\
         \"packets\":60,\"drops\":3}}]\n# WARNING!! The output is for debugging\n0: [{},]\n",
        numbers.join(",")
    );
    // Time, 8 depths, 8 of packets let pass, then marks of the third queue at 17 + 2.
    let wanted = Some(count(5, 60, Some(19), Some(27), 3));
    assert_eq!(queue_of(&plan, &text, 5), wanted);
}

#[test]
fn counters_of_the_neutral_form_are_read() {
    let plan = plan_of(target("linux:switch"), 7);
    let neutral = r#"[{"port": "swp1", "queue": 0, "sent": 1, "full": 0}]"#;
    let counts = linux().counters(&plan, neutral);
    assert_eq!(counts.expect("the neutral form")[0].sent, 1);
}

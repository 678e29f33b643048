//! `gradwire switch`: its output and its refusals, and that a change can be taken back.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::processes::{errors, file, objects, run};

const FABRIC: &str = "leaf-spine:2x2x2@100G,buffer=2MiB";

/// The export of a SONiC switch with five ports of 100G that run something else.
const EXPORT: &str = include_str!("../../../switch-config/tests/exports/sonic.json");

fn switch(command: &str, options: &[&str]) -> Output {
    run(&[&["switch", command], options].concat())
}

fn printed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", errors(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(output: &Output, words: &[&str]) {
    let said = errors(output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "one line: {said}");
    for word in words {
        assert!(said.contains(word), "{word} is in: {said}");
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn what_cannot_be_configured_is_refused_in_one_line() {
    let render = |platform, job, fabric| switch("render", &["--platform", platform, job, fabric]);
    let job = |name: &str, line: &str| file(name, &format!("[priority]\n{line}\n"));
    let nine = job("nine.toml", "dscps = [40, 34, 26, 18, 10, 8, 0, 2, 4]");
    refused(
        &render("sonic", path(&nine), FABRIC),
        &["priority.dscps", "2 to 8 numbers"],
    );
    let twice = job("twice.toml", "dscps = [40, 34, 34]");
    refused(
        &render("sonic", path(&twice), FABRIC),
        &["DSCP 34 is used twice, by class 1 and class 2"],
    );
    let voice = job("voice.toml", "dscps = [40, 46]");
    refused(
        &render("sonic", path(&voice), FABRIC),
        &["DSCP 46 of class 1 is reserved", "--reserve"],
    );
    let shallow = "leaf-spine:2x2x2@100G,buffer=32KiB";
    refused(
        &render("sonic", "default", shallow),
        &["above the buffer of a port, 32768 bytes", "--rtt"],
    );
    refused(
        &render("ios", "default", FABRIC),
        &["unknown platform `ios`", "sonic, nvue, eos"],
    );
    refused(
        &render("nvue:4.4", "default", FABRIC),
        &["unknown version `4.4` of nvue", "5.11, 5.14, 5.18"],
    );
    refused(
        &render("sonic", "default", "leaf-spine:2x2x2@100G,balance=random"),
        &["cannot spread packets by `random`"],
    );
}

#[test]
fn foreign_configuration_files_are_refused_in_one_line() {
    let broken = file("broken.json", "{\"PORT\": {\n  \"Ethernet0\": }\n}");
    for command in ["check", "diff", "undo"] {
        let options = ["--platform", "sonic", "default", FABRIC, path(&broken)];
        refused(&switch(command, &options), &["broken.json: ", "line 2"]);
    }
    let options = [
        "--platform",
        "sonic",
        "default",
        FABRIC,
        "--counters",
        path(&broken),
    ];
    refused(&switch("verify", &options), &["broken.json: ", "line 2"]);
}

#[test]
fn unknown_switches_and_ports_are_answered_with_known() {
    let with = |option: &str, value: &str| {
        let options = ["--platform", "sonic", "default", FABRIC, option, value];
        switch("render", &options)
    };
    refused(
        &with("--switch", "leaf 9"),
        &["--switch leaf 9", "leaf 0, leaf 1, spine 0"],
    );
    refused(
        &with("--ports", "Ethernet0-63"),
        &["names 64 ports", "leaf 0 has 4 links"],
    );
}

/// A command about one or more ports of an export.
fn about(command: &str, fabric: &str, export: &Path, ports: &str) -> Output {
    let plan = ["--platform", "sonic", "default", fabric, path(export)];
    switch(command, &[&plan[..], &["--ports", ports]].concat())
}

#[test]
fn diff_refuses_absent_ports_and_ports_of_other_speeds() {
    let export = file("ports.json", EXPORT);
    for command in ["diff", "undo"] {
        refused(
            &about(command, FABRIC, &export, "Ethernet99"),
            &[
                "ports.json: Ethernet99: the export has no such port",
                "Ethernet0, Ethernet4",
            ],
        );
        let slow = "leaf-spine:2x2x2@25G,buffer=2MiB";
        refused(
            &about(command, slow, &export, "Ethernet0"),
            &["Ethernet0: runs at 100G in the export, and at 25G in the fabric"],
        );
    }
}

#[test]
fn diff_tells_each_setting_before_and_after() {
    let export = file("before.json", EXPORT);
    let output = about("diff", FABRIC, &export, "Ethernet0,Ethernet4");
    let (change, said) = (printed(&output), errors(&output));
    assert!(!change.contains("SWITCH_HASH"), "{change}");
    for words in [
        "Ethernet0, Ethernet4, before and after:",
        "PFC         on for 3-4  ->  off",
        "warning: DSCP 8 is SSH's for copies, 18 is",
        "warning: settings by which the whole switch chooses paths are left out",
    ] {
        assert!(said.contains(words), "{words} is in:\n{said}");
    }
    let options = [
        "--platform",
        "sonic",
        "default",
        FABRIC,
        path(&export),
        "--json",
    ];
    let object = objects(&switch(
        "diff",
        &[&options[..], &["--ports", "Ethernet0"]].concat(),
    ));
    let effect = &object[0]["effects"][0];
    assert_eq!(effect["ports"], serde_json::json!(["Ethernet0"]));
    assert_eq!(effect["asked"], true);
}

#[test]
fn diff_tells_of_watchdogs_and_of_the_hash() {
    let export = file("watched.json", EXPORT);
    let options = ["--platform", "sonic", "default", FABRIC, path(&export)];
    let output = switch("diff", &options);
    let (change, said) = (printed(&output), errors(&output));
    assert!(change.contains("\"/PFC_WD\""), "{change}");
    assert!(change.contains("SWITCH_HASH"), "{change}");
    for words in [
        "it also mends:",
        "PFC_WD|Ethernet0: the PFC watchdog watches this port",
        "SWITCH_HASH|GLOBAL: `ecmp_hash` has no L4_SRC_PORT",
    ] {
        assert!(said.contains(words), "{words} is in:\n{said}");
    }
}

#[test]
fn looks_at_a_map_name_droppable_dscps_too() {
    let job = "[priority]\ndscps = [40, 34, 26]\ndroppable_dscps = [38, 30]\n";
    let job = file("pairs.toml", job);
    let looks = printed(&switch(
        "verify",
        &["--platform", "sonic", path(&job), FABRIC],
    ));
    assert!(looks.contains("34, 38 -> 1 (class-1)"), "{looks}");
}

#[test]
fn findings_of_ports_not_asked_for_do_not_hide_those_asked_for() {
    let parsed = |text: &str| -> Value { serde_json::from_str(text).expect("it is JSON") };
    let render = ["--platform", "sonic", "default", FABRIC];
    let mut broken = parsed(&printed(&switch("render", &render)));
    broken["QUEUE"]["Ethernet4|3"]["scheduler"] = Value::from("nowhere");
    broken["PORT"] = parsed(EXPORT)["PORT"].take();
    let export = file("others.json", &broken.to_string());
    let output = about("check", FABRIC, &export, "Ethernet0");
    assert_eq!(printed(&output), "");
    let others = "of ports that were not asked for: 1 more";
    assert!(errors(&output).contains(others), "{}", errors(&output));
    let output = about("check", FABRIC, &export, "Ethernet4");
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.starts_with("dangling-name: QUEUE|Ethernet4|3"),
        "{said}"
    );
}

#[test]
fn rendered_configurations_pass_check_and_diff() {
    let job = file(
        "both.toml",
        "[priority]\ndscps = [40, 34, 26, 18]\ndroppable_dscps = [38, 30, 22]\n",
    );
    let targets = objects_of(&switch("platforms", &["--json"]));
    assert!(targets.len() >= 12, "{targets:?}");
    for target in targets {
        let target = target["target"].as_str().expect("a name");
        let options = ["--platform", target, path(&job), FABRIC];
        let config = printed(&switch("render", &options));
        assert_eq!(config, printed(&switch("render", &options)), "{target}");
        let name = format!("rendered-{}", target.replace([':', '/'], "-"));
        let config = file(&name, &config);
        let options = [&options[..], &[path(&config)]].concat();
        assert_eq!(printed(&switch("check", &options)), "", "{target}");
        assert_eq!(printed(&switch("diff", &options)), "", "{target}");
    }
}

fn objects_of(output: &Output) -> Vec<Value> {
    match objects(output).remove(0) {
        Value::Array(list) => list,
        other => panic!("{other} is a list"),
    }
}

#[test]
fn a_folder_gets_one_file_a_switch() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("switch-configs");
    // Whatever an earlier run of this test left.
    let _ = std::fs::remove_dir_all(&folder);
    let options = [
        "--platform",
        "sonic",
        "default",
        FABRIC,
        "--out",
        path(&folder),
    ];
    let files = printed(&switch("render", &options));
    assert_eq!(files.lines().count(), 4);
    for line in files.lines() {
        assert!(Path::new(line).is_file(), "{line}");
    }
    assert!(files.contains("leaf-0.json") && files.contains("spine-1.json"));
}

#[test]
fn counters_are_judged_by_queue() {
    let count = |queue: u8, marked: u64, early: u64| {
        format!(
            "{{\"port\": \"Ethernet0\", \"queue\": {queue}, \"sent\": 1000, \"marked\": {marked}, \
             \"early\": {early}, \"full\": 0}}"
        )
    };
    let counters = |name: &str, control: u64| {
        let rows = (0..8).map(|queue| match queue {
            6 | 7 => count(queue, control, 0),
            _ => count(queue, 20, 10),
        });
        file(name, &format!("[{}]", rows.collect::<Vec<_>>().join(",\n")))
    };
    let judged = |counters: &Path| {
        let options = [
            "--platform",
            "sonic",
            "default",
            FABRIC,
            "--ports",
            "Ethernet0",
        ];
        switch(
            "verify",
            &[&options[..], &["--counters", path(counters)]].concat(),
        )
    };
    let right = judged(&counters("right.json", 0));
    let text = printed(&right);
    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("right"))
            .count(),
        8,
        "{text}"
    );
    let wrong = judged(&counters("wrong.json", 3));
    assert_eq!(wrong.status.code(), Some(1), "{}", errors(&wrong));
    let text = String::from_utf8_lossy(&wrong.stdout).into_owned();
    assert!(
        text.contains("wrong   Ethernet0, queue 6 (control): 1000 sent, 3 marked"),
        "{text}"
    );
}

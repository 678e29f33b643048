//! `gradwire switch probe`: tags through loopback and through a simulated switch.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::processes::{errors, file, gradwire, objects, run};

/// A switch with a narrow port to its second host.
const FABRIC: &str = "\
buffer = \"1MiB\"

[[switch]]
name = \"S\"

[[link]]
ends = [\"host 0\", \"S\"]
rate = \"1G\"

[[link]]
ends = [\"host 1\", \"S\"]
rate = \"100M\"
";

fn streams(report: &Value) -> &[Value] {
    report["streams"].as_array().expect("a list of streams")
}

#[test]
fn every_tag_arrives_unchanged_over_loopback() {
    let serving = [
        "switch",
        "probe",
        "--serve",
        "--bind",
        "127.0.0.1",
        "--port",
        "0",
        "--json",
    ];
    let mut server = gradwire(&serving)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut line = String::new();
    let output = server.stdout.take().expect("it is piped");
    BufReader::new(output)
        .read_line(&mut line)
        .expect("a line of text");
    let serving: Value = serde_json::from_str(&line).expect("a JSON object");
    let peer = serving["serving"].as_str().expect("an address");
    let rates = ["--rate", "1M", "--length", "300ms", "--json"];
    let probed = run(&[&["switch", "probe", "--peer", peer][..], &rates].concat());
    server.kill().expect("it runs");
    server.wait().expect("it can be waited for");
    assert_eq!(probed.status.code(), Some(0), "{}", errors(&probed));
    let report = &objects(&probed)[0];
    // Control, and protected and droppable packets of the default job's six classes.
    assert_eq!(streams(report).len(), 13);
    for stream in streams(report) {
        assert_eq!(stream["sent"], stream["received"], "{stream}");
        assert_eq!(
            (&stream["rewritten"], &stream["bleached"]),
            (&0.into(), &0.into())
        );
    }
}

#[test]
fn the_simulated_probe_repeats_and_shows_marks_and_drops() {
    let fabric = file("narrow.toml", FABRIC);
    let fabric = fabric.to_str().expect("a path of text");
    let job = file("three.toml", "priority.dscps = [40, 34, 26]\n");
    let job = job.to_str().expect("a path of text");
    let probe = |rtt: &str| {
        let line = ["switch", "probe", job, "--simulate", fabric, "--rtt", rtt];
        run(&[
            &line[..],
            &["--rate", "5M,20M,100M", "--length", "1s", "--json"],
        ]
        .concat())
    };
    let output = probe("2ms");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(output.stdout, probe("2ms").stdout);
    let report = &objects(&output)[0];
    let [control, .., protected, droppable] = streams(report) else {
        panic!("five streams: {report}");
    };
    assert_eq!(control["sent"], control["received"]);
    assert_eq!(protected["sent"], protected["received"]);
    assert!(protected["marked"].as_u64() > Some(1_000), "{protected}");
    assert!(droppable["received"].as_u64() < Some(5_000), "{droppable}");
    // Without a threshold below the buffer, protected packets are lost as well.
    let blunt = probe("900ms");
    assert_eq!(blunt.status.code(), Some(1), "{}", errors(&blunt));
}

#[test]
fn what_cannot_be_probed_is_refused_in_one_line() {
    let cases = [
        (
            &["--rate", "1M,2M"][..],
            2,
            "control first: give one rate, or 7",
        ),
        (&["--rate", "0"], 2, "--rate 0 for control"),
        (
            &["--payload", "5000"],
            2,
            "at most 4096 bytes; --payload is 5000",
        ),
    ];
    for (more, code, message) in cases {
        let line = ["switch", "probe", "--simulate", "single:2@10G"];
        let output = run(&[&line[..], more].concat());
        assert_eq!(output.status.code(), Some(code), "{more:?}");
        let errors = errors(&output);
        assert!(errors.contains(message), "{errors}");
        assert_eq!(errors.trim().lines().count(), 1, "{errors}");
    }
    let silent = run(&["switch", "probe", "--peer", "127.0.0.1:9"]);
    assert_eq!(silent.status.code(), Some(5));
    assert!(
        errors(&silent).contains("127.0.0.1:9"),
        "{}",
        errors(&silent)
    );
}

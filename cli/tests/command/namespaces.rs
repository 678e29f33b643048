//! `gradwire perf --netns`: ranks in network namespaces of their own, which never outlive a run.
//! Where namespaces cannot be made these tests say so and pass.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;

use crate::processes::{children, errors, gradwire, kill, objects, run, within_ten_seconds};

/// The network namespaces of processes, by their number.
fn namespaces(processes: &[u32]) -> BTreeSet<PathBuf> {
    let path = |process: &u32| format!("/proc/{process}/ns/net");
    let found = processes.iter().map(path).map(std::fs::read_link);
    found.filter_map(Result::ok).collect()
}

/// Whether this user can make namespaces; if not, prints why the test is skipped.
fn can_be_made() -> bool {
    let output = run(&["perf", "barrier", "--netns", "--iterations", "1"]);
    if output.status.code() == Some(5) {
        println!("skipped: {}", errors(&output));
        return false;
    }
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    true
}

#[test]
fn collectives_are_exact_between_namespaces() {
    if !can_be_made() {
        return;
    }
    for ranks in ["2", "3"] {
        let line = ["all-reduce", "-n", ranks, "-b", "1M", "-e", "1M"];
        let more = ["--netns", "--link-mtu", "1280", "--drop", "1%", "--json"];
        let output = run(&[&["perf"], &line[..], &more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        let objects = objects(&output);
        assert_eq!(
            (&objects[0]["wire"], &objects[0]["wrong"]),
            (&"udp".into(), &0.into())
        );
        let network = objects[1]["summary"]["network"].as_str();
        assert!(network.is_some_and(|text| text.starts_with("network namespaces")));
    }
}

#[test]
fn collectives_by_af_xdp_are_exact() {
    if !can_be_made() {
        return;
    }
    for (ranks, security) in [("2", "aead"), ("3", "none")] {
        let line = [
            "all-reduce",
            "-n",
            ranks,
            "-b",
            "300K",
            "-e",
            "300K",
            "--json",
        ];
        let more = [
            "--netns",
            "--wire",
            "xdp",
            "--security",
            security,
            "--drop",
            "1%",
        ];
        let output = run(&[&["perf"], &line[..], &more].concat());
        let is_missing = ["this kernel has no AF_XDP", "this user may not use AF_XDP"];
        if is_missing.iter().any(|said| errors(&output).contains(said)) {
            return println!("skipped: {}", errors(&output));
        }
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        let objects = objects(&output);
        assert_eq!(
            (&objects[0]["wire"], &objects[0]["wrong"]),
            (&"xdp".into(), &0.into())
        );
    }
}

#[test]
fn killed_launchers_leave_no_namespace() {
    if !can_be_made() {
        return;
    }
    let options = ["-n", "3", "-b", "1M", "-e", "1M", "--iterations", "100000"];
    let launcher = gradwire(&[&["perf", "all-reduce", "--netns"], &options[..]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut launcher = launcher.expect("the command starts");
    let process = launcher.id();
    let ranks = || children(process);
    assert!(within_ten_seconds(|| namespaces(&ranks()).len() == 3));
    let ranks = ranks();
    assert!(namespaces(&ranks).is_disjoint(&namespaces(&[process])));
    kill(process);
    launcher.wait().expect("it can be waited for");
    // A namespace without a name, a file or a process does not exist.
    assert!(within_ten_seconds(|| namespaces(&ranks).is_empty()));
}

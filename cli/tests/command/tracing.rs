//! `gradwire trace show` on traces of ranks, and on files of other kinds.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use gradwire_runtime::trace::TraceDump;
use gradwire_runtime::trace::dump::{GroupMembers, OperationNeeds, TraceEntry, TraceState};
use serde_json::Value;

use crate::processes::{Rank, errors, folder, gradwire, objects, run};

fn entry(sequence: u32, kind: &str, bytes: u64, state: TraceState) -> TraceEntry {
    let start = u64::from(sequence) * 1_000;
    TraceEntry {
        number: sequence.into(),
        group: 0,
        sequence,
        kind: kind.to_owned(),
        root: (kind == "broadcast").then_some(0),
        peer: None,
        tag: None,
        dtype: "f32".to_owned(),
        reduction: (kind == "all_reduce").then(|| "sum".to_owned()),
        bytes,
        state,
        submitted_unix_s: 1e9 + start as f64 / 1e6,
        submitted_us: start,
        started_us: Some(start + 1),
        ended_us: state.has_ended().then_some(start + 500),
        error: None,
        needs: None,
    }
}

fn dump(rank: u16, operations: Vec<TraceEntry>) -> TraceDump {
    TraceDump {
        gradwire_trace: 2,
        job: "shown".to_owned(),
        job_id: 0xabcd,
        rank,
        world_size: 3,
        host: "here".to_owned(),
        process: 100 + u32::from(rank),
        wire: "udp".to_owned(),
        reason: Some("rank 1 was lost (its connection broke)".to_owned()),
        at_unix_s: 1e9 + 20.0,
        at_us: 20_000_000,
        entries: 1000,
        operations_total: operations.len() as u64,
        lost: Vec::new(),
        aborted: None,
        incomplete: None,
        groups: vec![GroupMembers {
            id: 0,
            ranks: vec![0, 1, 2],
        }],
        operations,
        sending: 0,
        messages: Vec::new(),
    }
}

fn keep(folder: &Path, dump: &TraceDump) -> String {
    let path = folder.join(format!("gradwire-shown-0000abcd-rank{}.json", dump.rank));
    std::fs::write(&path, dump.to_json()).expect("the test's folder is writable");
    path.to_str().expect("a plain path").to_owned()
}

/// A folder with the trace of one idle rank.
pub(crate) fn written(name: &str) -> String {
    let folder = folder(name);
    keep(&folder, &dump(0, Vec::new()));
    folder.to_str().expect("a plain path").to_owned()
}

fn text_of(places: &[&str]) -> String {
    let output = run(&[&["trace", "show"], places].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn ranks_that_are_behind_or_silent_are_told() {
    let folder = folder("behind");
    let done = |sequence| entry(sequence, "all_reduce", 4 << 20, TraceState::Completed);
    let mut waiting = entry(2, "all_reduce", 4 << 20, TraceState::Started);
    waiting.needs = Some(OperationNeeds {
        ranks: vec![1, 2],
        received_bytes: 1 << 20,
        expected_bytes: 4 << 20,
    });
    keep(&folder, &dump(0, vec![done(0), done(1), waiting]));
    keep(&folder, &dump(2, vec![done(0), done(1)]));
    let place = folder.to_str().expect("a plain path");
    let text = text_of(&[place]);
    for said in [
        "# job shown, run 0000abcd: 2 of 3 ranks",
        "# no trace of rank 1: killed",
        "2 all_reduce sum f32, 4.0 MiB",
        "1.0 MiB of 4.0 MiB",
        "1-2",
        "=> rank 2 has not entered 2, others have",
        "=> rank 1 has left no trace and others wait: look there first",
        "20.0 s",
    ] {
        assert!(text.contains(said), "{said} is missing in\n{text}");
    }
    let output = run(&["trace", "show", place, "--json", "--longest", "1"]);
    let report = objects(&output).pop().expect("one object");
    assert_eq!(report["absent"], serde_json::json!([1]));
    assert_eq!(report["groups"][0]["behind"], serde_json::json!([2]));
    assert_eq!(report["longest"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["longest"][0]["took_us"], 19_998_000);
}

#[test]
fn operations_that_differ_stand_side_by_side() {
    let folder = folder("mismatch");
    let same = |sequence| entry(sequence, "all_reduce", 1024, TraceState::Completed);
    let other = entry(1, "broadcast", 1024, TraceState::Started);
    let stuck = entry(1, "all_reduce", 1024, TraceState::Started);
    let files = [
        keep(&folder, &dump(0, vec![same(0), stuck.clone()])),
        keep(&folder, &dump(1, vec![same(0), other])),
        keep(&folder, &dump(2, vec![same(0), stuck])),
    ];
    let text = text_of(&files.each_ref().map(String::as_str));
    for said in [
        "=> the ranks do not agree on operation 1:",
        "rank 0: all_reduce sum f32, 1.0 KiB",
        "rank 1: broadcast from rank 0 f32, 1.0 KiB",
        "\n0, 2 ",
    ] {
        assert!(text.contains(said), "{said:?} is missing in\n{text}");
    }
}

#[test]
fn messages_that_nobody_takes_are_told_with_their_tag() {
    let folder = folder("messages");
    let message = |kind: &str, peer, tag| TraceEntry {
        peer,
        tag: Some(tag),
        ..entry(0, kind, 1024, TraceState::Started)
    };
    let taken = message("receive", None, 5);
    let missed = message("send", Some(1), 7);
    let files = [
        keep(&folder, &dump(0, vec![message("send", Some(1), 5), missed])),
        keep(&folder, &dump(1, vec![taken])),
    ];
    let text = text_of(&files.each_ref().map(String::as_str));
    let line = |start: &str| {
        let found = text.lines().find(|line| line.contains(start));
        found.unwrap_or_else(|| panic!("{start:?} is missing in\n{text}"))
    };
    assert!(line("send to rank 1, tag 5, f32").ends_with("has it open, too"));
    assert!(line("send to rank 1, tag 7, f32").ends_with("has none open"));
    assert!(line("receive, tag 5, f32").ends_with("any rank"));
}

#[test]
fn what_is_no_trace_is_refused_by_name() {
    let folder = folder("foreign");
    let whole = dump(0, Vec::new());
    let good = keep(&folder, &whole);
    let written = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("the test's folder is writable");
        path.to_str().expect("a plain path").to_owned()
    };
    let json = whole.to_json();
    let half = written("half.json", &json[..json.len() / 2]);
    let foreign = written("foreign.json", "{\"entries\": []}");
    let other = TraceDump {
        job_id: 0xbeef,
        rank: 1,
        ..whole.clone()
    };
    let other = written("other.json", &other.to_json());
    let copy = written("copy.json", &json);
    let cases = [
        (
            vec![half.as_str()],
            "half.json: it is not a complete JSON object",
        ),
        (
            vec![&foreign],
            "foreign.json: it is not a trace of gradwire",
        ),
        (vec!["/nowhere.json"], "cannot read /nowhere.json"),
        (
            vec![&good, &other],
            "it is of run 0000beef of job shown, but",
        ),
        (vec![&good, &copy], "it is of rank 0, like"),
        (
            vec![env!("CARGO_MANIFEST_DIR")],
            "the folder has no file gradwire-*.json",
        ),
        (vec![], "<FILE>..."),
    ];
    for (places, said) in cases {
        let output = run(&[&["trace", "show"], &places[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{places:?}");
        assert!(errors(&output).contains(said), "{}", errors(&output));
    }
}

#[test]
fn ranks_that_lose_a_peer_name_their_trace() {
    let folder = folder("killed");
    let endless = ["--token", "secret", "--iterations", "1000000"];
    let mut leader = gradwire(&["rank", "--rank", "0", "--world", "2"])
        .args(["--rendezvous", "127.0.0.1:0"])
        .args(endless)
        .env("GRADWIRE_TRACE", &folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut first = String::new();
    let mut said = BufReader::new(leader.stdout.take().expect("it was asked for"));
    said.read_line(&mut first).expect("it can be read");
    let opened: Value = serde_json::from_str(&first).expect("a JSON object");
    let rendezvous = opened["rendezvous"].as_str().expect("rank 0 listens");
    let mut victim = Rank::start(1, rendezvous, &endless);
    said.read_line(&mut first)
        .expect("it says when all have joined");
    std::thread::sleep(Duration::from_millis(300));
    victim.process.kill().expect("it runs");
    let output = leader.wait_with_output().expect("it can be waited for");
    let errors = errors(&output);
    assert_eq!(output.status.code(), Some(4), "{errors}");
    let named = errors.split("(trace of this rank: ").nth(1);
    let path = named.and_then(|rest| rest.split(')').next());
    let path = path.unwrap_or_else(|| panic!("no file is named: {errors}"));
    let output = run(&["trace", "show", path, "--json"]);
    let report: Value = objects(&output).pop().expect("one object");
    assert_eq!(report["absent"], serde_json::json!([1]));
    let reason = report["ranks"][0]["reason"].as_str();
    assert!(reason.is_some_and(|reason| reason.contains("rank 1 was lost")));
    assert!(text_of(&[path]).contains("=> rank 1 has left no trace and others wait"));
}

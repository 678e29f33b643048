//! `gradwire trace align`, `replay` and `search` on the events of a simulated run, and on broken
//! ones.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::processes::{errors, objects, run};

/// A folder with the events of a small run.
fn recorded(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    let place = folder.to_str().expect("a plain path");
    let step = "step:alexnet:ps=1,scale=500,steps=2";
    let output = run(&["sim", "run", "single:3@10G", step, "--trace", place]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    folder
}

fn ask(command: &str, folder: &Path, more: &[&str]) -> Result<Value, String> {
    let place = folder.to_str().expect("a plain path");
    let output = run(&[&["trace", command, place, "--json"], more].concat());
    match output.status.code() {
        Some(0) => Ok(objects(&output).pop().expect("one object")),
        _ => Err(errors(&output)),
    }
}

fn change(folder: &Path, rank: u32, change: impl FnOnce(String) -> String) {
    let path = folder.join(format!("events-rank{rank}.json"));
    let text = std::fs::read_to_string(&path).expect("it was written");
    std::fs::write(&path, change(text)).expect("the test's folder is writable");
}

#[test]
fn a_recorded_run_is_aligned_replayed_and_searched() {
    let folder = recorded("events");
    let clocks = ask("align", &folder, &[]).expect("the clocks are one");
    assert_eq!(clocks["hosts"].as_array().map(Vec::len), Some(3));
    let page = folder.join("page.html");
    let out = [
        "--out",
        page.to_str().expect("a plain path"),
        "--whatif",
        "bandwidth=x2",
    ];
    let told = ask("replay", &folder, &out).expect("it has steps");
    let [recorded, replayed] = ["measured_us", "replayed_us"].map(|key| told[key].as_f64());
    let ratio = replayed.zip(recorded).map(|(one, other)| one / other);
    assert!(
        ratio.is_some_and(|ratio| (0.8..1.25).contains(&ratio)),
        "{told}"
    );
    assert!(
        told["whatif"]["times_as_fast"].as_f64() > Some(1.2),
        "{told}"
    );
    let html = std::fs::read_to_string(page).expect("it was drawn");
    assert!(html.contains("critical path") && html.contains("rank 2<"));
    let found = ask("search", &folder, &[]).expect("it has steps");
    assert!(found["trials"].as_u64() >= Some(10), "{found}");
    assert_eq!(found["measured_us"], told["measured_us"]);
}

#[test]
fn broken_events_are_refused_with_one_error_each() {
    let truncated = recorded("events-truncated");
    change(&truncated, 1, |text| text[..text.len() / 2].to_owned());
    let newer = recorded("events-newer");
    change(&newer, 1, |text| {
        text.replace("{\"events\":1,", "{\"events\":9,")
    });
    let missing = recorded("events-missing");
    std::fs::remove_file(missing.join("events-rank2.json")).expect("it was written");
    let set = recorded("events-set");
    change(&set, 1, |text| {
        let mut trace: Value = serde_json::from_str(&text).expect("it was written");
        let events = trace["traceEvents"].as_array_mut().expect("a list");
        let half = events.len() / 2;
        for event in &mut events[half..] {
            event["ts"] = (event["ts"].as_f64().expect("a time") + 5e3).into();
        }
        trace.to_string()
    });
    for (folder, said) in [
        (
            &truncated,
            "events-rank1.json: it is not a complete JSON object",
        ),
        (&newer, "events-rank1.json: its events have version 9"),
        (&missing, "no events of rank 2: the run has 3 ranks"),
        (&set, "the clocks of host0 and host1 contradict each other"),
    ] {
        let error = ask("replay", folder, &[]).expect_err("it is broken");
        assert!(error.contains(said), "{said} is missing in {error}");
    }
    let sound = recorded("events-sound");
    let error = ask("replay", &sound, &["--whatif", "bandwith=2G"]).expect_err("a slip");
    assert!(
        error.contains("`bandwith=2G`: known are bandwidth=25G"),
        "{error}"
    );
}

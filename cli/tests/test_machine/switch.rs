//! A real Linux with the rendered switch configuration, compared with the simulator: two hosts and
//! a switch in namespaces, and the counters of hosts and switch.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::guest::{self, SWITCH, number, object, text};

/// The runs of the probe in the guest: the queue in the middle cannot carry all that is sent, the
/// last one cannot, the middle one can almost.
const PROBES: [&str; 3] = ["middle", "last", "edge"];

fn written() -> Option<&'static Path> {
    guest::written(SWITCH)
}

/// The fate of the packets of one kind.
#[derive(Debug)]
struct Kind {
    class: String,
    ecn: String,
    sent: u64,
    lost: u64,
    marked: u64,
    median_us: f64,
    p99_us: f64,
}

fn kinds(report: &Value) -> Vec<Kind> {
    let streams = report["streams"].as_array().expect("a list of streams");
    let word = |stream: &Value, key: &str| stream[key].as_str().expect("a word").to_owned();
    let kind = |stream: &Value| Kind {
        class: word(stream, "class"),
        ecn: word(stream, "ecn"),
        sent: number(stream, "sent"),
        lost: number(stream, "sent") - number(stream, "received"),
        marked: number(stream, "marked"),
        median_us: stream["delay_p50_us"].as_f64().expect("something came"),
        p99_us: stream["delay_p99_us"].as_f64().expect("something came"),
    };
    streams.iter().map(kind).collect()
}

/// The counters of one queue of the switch during a run.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Queue {
    pub(crate) sent: u64,
    pub(crate) marked: u64,
    pub(crate) early: u64,
    pub(crate) full: u64,
}

/// Control and the classes, in the order of the job: of each the counts after a run less those
/// before.
pub(crate) fn queues(out: &Path, run: &str) -> Vec<Queue> {
    let [before, after] =
        ["before", "after"].map(|when| leaves(out, &format!("{run}-{when}.json")));
    let counts = before.iter().zip(&after).map(|(before, after)| {
        let count = |key: &str| {
            let of = |leaf: &Value| leaf[key].as_u64().unwrap_or(0);
            of(after) - of(before)
        };
        let (early, marked) = (count("early"), count("marked"));
        Queue {
            sent: count("packets"),
            marked,
            early,
            full: count("drops") - early,
        }
    });
    counts.collect()
}

/// The queues of the switch's port, first to be served first; without that of reserved DSCPs.
fn leaves(out: &Path, name: &str) -> Vec<Value> {
    let all = object(out, name);
    let band = |leaf: &Value| -> Option<u64> {
        let parent = leaf["parent"].as_str()?.strip_prefix("2:")?;
        u64::from_str_radix(parent, 16).ok()
    };
    let all = all.as_array().expect("a list of queueing disciplines");
    let mut leaves: Vec<&Value> = all.iter().filter(|leaf| band(leaf).is_some()).collect();
    leaves.sort_by_key(|leaf| band(leaf));
    leaves.into_iter().skip(1).cloned().collect()
}

#[test]
fn highest_class_neither_loses_nor_waits() {
    let Some(out) = written() else { return };
    for run in PROBES {
        let kinds = kinds(&object(out, &format!("{run}.json")));
        let control = &kinds[0];
        assert_eq!((control.lost, control.marked), (0, 0), "{run}");
        // At 10 Mb/s a packet takes 834 us. Control waits for the one on the wire, for its own
        // kind now and then, and for the 4 KB that HTB sends at once; lower queues hold 20 ms.
        assert!(control.median_us < 1_000.0, "{run}: {control:?}");
        assert!(control.p99_us < 5_000.0, "{run}: {control:?}");
        let deepest = kinds.iter().map(|kind| kind.median_us).fold(0.0, f64::max);
        assert!(deepest > 15_000.0, "{run}: no queue was deep: {kinds:?}");
    }
}

#[test]
fn one_queue_marks_protected_and_drops_droppable() {
    let Some(out) = written() else { return };
    for run in PROBES {
        let report = object(out, &format!("{run}.json"));
        for kind in kinds(&report) {
            match kind.ecn.as_str() {
                "ECT" => assert_eq!(kind.lost, 0, "{run}: {kind:?}"),
                _ => assert_eq!(kind.marked, 0, "{run}: {kind:?}"),
            }
        }
        let congested = |kind: &&Kind| kind.marked + kind.lost > 0;
        let kinds = kinds(&report);
        let acted: Vec<&Kind> = kinds.iter().filter(congested).collect();
        assert!(acted.len() >= 2, "{run}: {kinds:?}");
        for pair in acted.chunks(2) {
            assert_eq!(
                pair[0].class, pair[1].class,
                "{run}: marks and drops go together"
            );
        }
        let verdicts = report["judgements"].as_array().expect("a list");
        let wrong = verdicts.iter().find(|one| one["verdict"] == "wrong");
        assert_eq!(wrong, None, "{run}");
    }
}

#[test]
fn hosts_and_switch_count_the_same_marks_and_drops() {
    let Some(out) = written() else { return };
    for run in PROBES {
        let kinds = kinds(&object(out, &format!("{run}.json")));
        let queues = queues(out, run);
        let (control, classes) = queues.split_first().expect("a queue for control");
        assert_eq!((control.marked, control.early, control.full), (0, 0, 0));
        // Besides its packets, the probe's questions ride in the control class.
        assert!(control.sent >= kinds[0].sent);
        for (queue, pair) in classes.iter().zip(kinds[1..].chunks(2)) {
            let [protected, droppable] = pair else {
                panic!("two kinds of a class: {pair:?}");
            };
            let expected = Queue {
                sent: protected.sent + droppable.sent - droppable.lost,
                marked: protected.marked,
                early: droppable.lost,
                full: 0,
            };
            assert_eq!(*queue, expected, "{run}: {}", protected.class);
        }
    }
}

#[test]
fn verify_accepts_the_counters_of_the_switch() {
    let Some(out) = written() else { return };
    for run in PROBES {
        let judgements = object(out, &format!("{run}-verify.json"));
        let judgements = judgements.as_array().expect("a list");
        for (number, queue) in (0..4).rev().zip(queues(out, run)) {
            let place = format!("sb, queue {number} ");
            let of_it = |one: &&Value| {
                one["place"]
                    .as_str()
                    .is_some_and(|it| it.starts_with(&place))
            };
            let judgement = judgements
                .iter()
                .find(of_it)
                .expect("every queue is judged");
            let Queue {
                sent,
                marked,
                early,
                full,
            } = queue;
            let told = judgement["text"].as_str().expect("a text");
            let counts =
                format!("{sent} sent, {marked} marked, {early} dropped early, {full} without room");
            assert!(told.starts_with(&counts), "{run}: {told}, not {counts}");
            assert_ne!(judgement["verdict"], "wrong", "{run}: {told}");
        }
    }
}

/// The same packets at the same times in the simulator: rates, seed and length are the guest's.
fn simulated(report: &Value) -> Value {
    let streams = report["streams"].as_array().expect("a list of streams");
    let mut rates: Vec<(&str, f64)> = Vec::new();
    for stream in streams {
        let class = stream["class"].as_str().expect("a class");
        let mbps = number(stream, "rate_bps") as f64 / 1e6;
        match rates.last_mut() {
            Some((last, total)) if *last == class => *total += mbps,
            _ => rates.push((class, mbps)),
        }
    }
    let rates: Vec<String> = rates.iter().map(|(_, mbps)| format!("{mbps}M")).collect();
    let folder = guest::scripts().join(SWITCH);
    let output = Command::new(env!("CARGO_BIN_EXE_gradwire"))
        .args(["switch", "probe", "--json", "--rtt", "20ms", "--simulate"])
        .args([folder.join("fabric.toml"), folder.join("job.toml")])
        .args(["--rate", &rates.join(",")])
        .args(["--seed", &number(report, "seed").to_string()])
        .args(["--length", &format!("{}us", number(report, "length_us"))])
        .args(["--payload", &number(report, "payload_bytes").to_string()])
        .output()
        .expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn simulated_drops_and_marks_match_the_kernel() {
    let Some(out) = written() else { return };
    let mut table = String::from(
        "| run | class | packets | sent | dropped, kernel | simulator | marked, kernel | simulator \
         | median wait, kernel | simulator |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for run in PROBES {
        let report = object(out, &format!("{run}.json"));
        for (kernel, simulator) in kinds(&report).iter().zip(kinds(&simulated(&report))) {
            assert_eq!(kernel.sent, simulator.sent, "{run}: the same packets");
            let share = |count: u64| 100.0 * count as f64 / kernel.sent as f64;
            table += &format!(
                "| {run} | {} | {} | {} | {:.1} % | {:.1} % | {:.1} % | {:.1} % | {:.1} ms | \
                 {:.1} ms |\n",
                kernel.class,
                kernel.ecn,
                kernel.sent,
                share(kernel.lost),
                share(simulator.lost),
                share(kernel.marked),
                share(simulator.marked),
                kernel.median_us / 1e3,
                simulator.median_us / 1e3,
            );
            for (real, simulated) in [
                (kernel.lost, simulator.lost),
                (kernel.marked, simulator.marked),
            ] {
                let apart = real.abs_diff(simulated);
                assert!(10 * apart <= real, "{run}: {kernel:?}, not {simulator:?}");
            }
        }
    }
    println!("\n{table}");
    std::fs::write(out.join("table.md"), table).expect("the test's folder is writable");
}

/// How the ranks of a job ended, and the switch's counters meanwhile.
fn job(out: &Path, name: &str) -> ([Value; 2], Vec<Queue>) {
    let ends = [0, 1].map(|rank| {
        let text = text(out, &format!("{name}-rank{rank}.json"));
        let last = text.lines().last().expect("a rank says how it ended");
        serde_json::from_str::<Value>(last).expect("a JSON object a line")
    });
    for end in &ends {
        assert_eq!(number(end, "wrong"), 0, "{ends:?}");
        assert_eq!(number(end, "all_reduces"), 4, "{ends:?}");
    }
    let queues = queues(out, name);
    let full: u64 = queues.iter().map(|queue| queue.full).sum();
    let control = &queues[0];
    assert!(control.sent > 0);
    assert_eq!(
        (control.marked, control.early, full),
        (0, 0, 0),
        "{queues:?}"
    );
    // Its layers are unknown, so all gradients are of the first class. The control plane, which is
    // QUIC without a DSCP, shares the last one.
    assert_eq!(queues[2].sent, 0, "{queues:?}");
    (ends, queues)
}

/// Rank 1's accepted losses, and the most that it may accept: rank 0's packets pass the narrow
/// port, and half of them are reduce-scatters, of which `tolerance` may be missing. All-gathers are
/// lossless.
fn lost_and_tolerated(ends: &[Value; 2], tolerance: f64) -> (u64, u64) {
    assert_eq!(number(&ends[0], "lost_segments"), 0, "{ends:?}");
    let contributed = number(&ends[0], "sent_segments") / 2;
    let tolerated = (contributed as f64 * tolerance) as u64;
    (number(&ends[1], "lost_segments"), tolerated)
}

#[test]
fn tolerant_jobs_accept_early_drops() {
    let Some(out) = written() else { return };
    let (ends, queues) = job(out, "tolerant");
    assert!(queues[1].early > 0 && queues[1].marked > 0, "{queues:?}");
    let (lost, tolerated) = lost_and_tolerated(&ends, 0.6);
    assert!(0 < lost && lost <= tolerated, "{ends:?}");
}

#[test]
fn a_job_that_tolerates_less_has_the_rest_repaired() {
    let Some(out) = written() else { return };
    let (ends, queues) = job(out, "lossy");
    assert!(queues[1].early > 0 && queues[1].marked > 0, "{queues:?}");
    // A message keeps some of its holes for its end, and may not need them there.
    let (lost, tolerated) = lost_and_tolerated(&ends, 0.05);
    assert!(0 < lost && lost <= tolerated, "{ends:?}");
    assert!(number(&ends[0], "repaired_segments") > 0, "{ends:?}");
}

#[test]
fn a_lossless_job_is_marked_and_loses_nothing() {
    let Some(out) = written() else { return };
    let (ends, queues) = job(out, "exact");
    assert!(queues[1].marked > 0, "{queues:?}");
    assert_eq!(queues[1].early, 0, "{queues:?}");
    for end in &ends {
        assert_eq!(number(end, "lost_segments"), 0, "{ends:?}");
    }
}

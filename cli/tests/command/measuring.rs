//! `gradwire perf` on real sockets. Results are compared with exact sums inside the run, so exit
//! code 0 says that all were right.

use crate::processes::{errors, file, objects, run};
use serde_json::Value;

/// The objects that a measurement prints, and the last one of them.
fn measured(arguments: &str) -> (Vec<Value>, Value) {
    let words: Vec<&str> = arguments.split(' ').collect();
    let output = run(&[&["perf"], &words[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let mut rows = objects(&output);
    let last = rows.pop().expect("there is a last object");
    assert!(last["summary"].is_object(), "{last}");
    (rows, last)
}

fn rows(arguments: &str) -> Vec<Value> {
    measured(&format!("all-reduce {arguments}")).0
}

fn number(row: &Value, key: &str) -> f64 {
    row[key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key} is a number in {row}"))
}

fn sum(rows: &[Value], key: &str) -> f64 {
    rows.iter().map(|row| number(row, key)).sum()
}

#[test]
fn loss_free_paths_lose_no_byte_under_tolerance() {
    let rows = rows("-n 2 -b 4K -e 1M -f 16 --iterations 5 --tolerance 10%");
    assert_eq!(rows.len(), 3);
    assert_eq!(sum(&rows, "lost_segments"), 0.0);
    assert_eq!(sum(&rows, "wrong"), 0.0);
    for row in &rows {
        assert!(
            number(row, "time_us") > 0.0 && number(row, "sent_segments") > 0.0,
            "{row}"
        );
        let ratio = number(row, "busbw_gb_per_s") / number(row, "algbw_gb_per_s").max(1e-9);
        assert!(
            (0.9..=1.1).contains(&ratio),
            "two ranks: both bandwidths are equal, {row}"
        );
    }
}

#[test]
fn local_ranks_meet_at_named_addresses() {
    let line = "all-reduce -n 2 -b 64K -e 64K --iterations 2 --wire udp --bind";
    let (rows, last) = measured(&format!("{line} 127.0.0.2,127.0.0.3"));
    assert_eq!((rows.len(), sum(&rows, "wrong")), (1, 0.0));
    assert_eq!(last["summary"]["network"], "addresses of this machine");
    let few = ["perf", "barrier", "-n", "2", "--bind", "127.0.0.2"];
    let output = run(&few);
    assert_eq!(output.status.code(), Some(2));
    let told = errors(&output);
    assert!(
        told.contains("--bind names 1 addresses for 2 ranks"),
        "{told}"
    );
}

#[test]
fn dropped_packets_are_repaired_when_nothing_may_be_lost() {
    let rows = rows("-n 2 -b 4K -e 1M -f 16 --iterations 5 --drop 1% --seed 3");
    assert_eq!(sum(&rows, "lost_segments"), 0.0);
    assert_eq!(sum(&rows, "wrong"), 0.0);
    assert!(sum(&rows, "faults_dropped") > 0.0 && sum(&rows, "repaired_segments") > 0.0);
}

#[test]
fn no_message_loses_more_than_its_tolerance() {
    let rows = rows("-n 2 -b 1M -e 4M -f 4 --iterations 5 --drop 20% --tolerance 10% --seed 5");
    assert!(sum(&rows, "lost_segments") > 0.0);
    for row in &rows {
        assert!(number(row, "max_lost_share") <= 0.1, "{row}");
        assert_eq!(row["lost_segments"], row["ledger_lost_segments"]);
        assert_eq!(number(row, "wrong"), 0.0);
    }
}

#[test]
fn more_than_two_ranks_agree_on_the_result() {
    let rows = rows("-n 3 -b 256K -e 256K --iterations 3 --drop 5% --tolerance 10%");
    assert_eq!(number(&rows[0], "ranks"), 3.0);
    assert_eq!(number(&rows[0], "wrong"), 0.0);
}

#[test]
fn every_collective_is_exact_on_every_rank() {
    let bus_factors = [
        ("reduce-scatter", 0.666),
        ("all-gather", 0.666),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("all-to-all", 0.666),
        ("send-recv", 1.0),
    ];
    for (collective, factor) in bus_factors {
        let line = format!("{collective} -n 3 -b 64K -e 1M -f 16 --iterations 3");
        let (rows, last) = measured(&line);
        assert_eq!((rows.len(), sum(&rows, "wrong")), (2, 0.0), "{rows:?}");
        assert_eq!(last["summary"]["collective"], collective);
        for row in &rows {
            assert_eq!(row["collective"], collective);
            let ratio = number(row, "busbw_gb_per_s") / number(row, "algbw_gb_per_s");
            assert!((ratio - factor).abs() < 0.1 * factor, "{row}");
        }
    }
}

#[test]
fn a_barrier_has_a_time_and_no_size() {
    let (rows, _) = measured("barrier -n 3 --iterations 20");
    assert_eq!((rows.len(), number(&rows[0], "size_bytes")), (1, 0.0));
    assert!(number(&rows[0], "time_us") > 0.0);
}

#[test]
fn collectives_other_than_all_reduce_survive_loss_too() {
    for collective in ["reduce-scatter", "reduce", "all-gather", "send-recv"] {
        let line = format!("{collective} -n 3 -b 1M -e 1M --iterations 3 --drop 5%");
        let (rows, _) = measured(&format!("{line} --tolerance 10% --seed 11"));
        assert_eq!(number(&rows[0], "wrong"), 0.0, "{rows:?}");
        assert!(number(&rows[0], "faults_dropped") > 0.0, "{rows:?}");
        assert!(number(&rows[0], "max_lost_share") <= 0.1, "{rows:?}");
    }
}

#[test]
fn error_feedback_brings_missing_values_a_step_later() {
    let job = file(
        "feedback.toml",
        "holes = \"error-feedback\"\n[loss]\nmin_message = 0\n",
    );
    let job = job.to_str().expect("a plain path");
    for collective in ["all-reduce", "reduce-scatter"] {
        let line = format!("{collective} -n 3 -b 256K -e 1M -f 4 --iterations 5 --drop 8%");
        let feedback = "--tolerance 10% --seed 7";
        let (rows, _) = measured(&format!("{line} {feedback} --job {job}"));
        assert!(sum(&rows, "lost_segments") > 0.0, "{rows:?}");
        assert_eq!(sum(&rows, "wrong"), 0.0, "{rows:?}");
    }
}

#[test]
fn rows_say_who_did_them_and_over_what() {
    let said = [
        ("udp", "aead", "aegis"),
        ("shm", "aead", "none"),
        ("udp", "none", "none"),
    ];
    let measurements = said.map(|(wire, asked, had)| {
        let line = format!("all-reduce -e 4K --iterations 4 --rounds 2 --wire {wire}");
        let (rows, last) = measured(&format!("{line} --security {asked}"));
        for (key, value) in [("backend", "gradwire"), ("wire", wire), ("security", had)] {
            assert_eq!(rows[0][key], value);
        }
        (rows, last)
    });
    let (rows, last) = &measurements[0];
    let rounds = rows[0]["round_times_us"].as_array().map(Vec::len);
    assert_eq!(rounds, Some(2));
    assert_eq!(last["ratios"], serde_json::json!({}));
}

#[test]
fn goodput_is_a_share_of_the_lossless_one() {
    let job = file("goodput.toml", "[loss]\nmin_message = 0\n");
    let line = "loss --bytes 256K,512K,256K --drops 1%,5%,1% --rounds 2 --iterations 41 --job";
    let (rows, last) = measured(&format!("{line} {}", job.to_str().expect("a plain path")));
    let told = rows
        .iter()
        .map(|row| ["dropped", "size_bytes", "tolerance"].map(|name| number(row, name)));
    let cells = [0.01, 0.05].into_iter().flat_map(|dropped| {
        let sizes = [262_144.0, 524_288.0].into_iter();
        sizes.flat_map(move |size| [[dropped, size, 0.0], [dropped, size, 0.1]])
    });
    assert!(told.eq(cells), "{rows:?}");
    for row in &rows {
        assert_eq!(number(row, "iterations"), 42.0, "as many in each round");
        assert!(number(row, "p99_us") > 0.0, "{row}");
        assert!(number(row, "loss_free_p99_us") > 0.0, "{row}");
        assert!(number(row, "faults_dropped") > 0.0, "{row}");
        let share = number(row, "loss_free_time_us") / number(row, "time_us");
        assert!((share - number(row, "goodput_share")).abs() < 0.01, "{row}");
        let may_lose = number(row, "tolerance") > 0.0;
        assert_eq!(number(row, "lost_segments") > 0.0, may_lose, "{row}");
    }
    let last = &last["goodput_shares"]["262144"]["5%"]["gradwire, 10%"];
    assert!(number(last, "min") <= number(last, "max"), "{last}");
}

#[test]
fn tuning_writes_its_table_and_keeps_the_rest() {
    let path = file("tuned.toml", "# mine\nname = \"tuned\"  # kept\n");
    let out = path.to_str().expect("a plain path");
    let line = format!("--tune -n 2 -b 4K -e 64K -f 16 --rounds 3 --out {out}");
    let (rows, last) = measured(&line);
    let taken: Vec<&Value> = rows.iter().map(|row| &row["taken"]).collect();
    assert_eq!(taken.len(), 2);
    let text = std::fs::read_to_string(&path).expect("the file is there");
    assert!(
        text.starts_with("# mine\nname = \"tuned\"  # kept\n"),
        "{text}"
    );
    let entries = last["summary"]["table"].as_array().expect("a list");
    assert!(
        entries
            .iter()
            .all(|entry| text.contains(&format!("    {entry},\n"))),
        "{text}"
    );
    let largest = entries.last().and_then(Value::as_str).expect("an entry");
    assert!(largest.starts_with("2 64KiB "), "{largest}");
    let checked = run(&["job", "check", out]);
    assert_eq!(checked.status.code(), Some(0), "{}", errors(&checked));
}

#[test]
fn all_layers_of_buckets_are_complete_in_some_order() {
    let (rows, last) = measured("buckets --buckets 8 --total 8M --rounds 1");
    let mut places: Vec<u64> = rows
        .iter()
        .map(|row| row["complete_as"].as_u64().expect("a place"))
        .collect();
    places.sort_unstable();
    assert_eq!(places, (0..8).collect::<Vec<u64>>());
    let (inverted, tau) = (
        &last["with_layers"],
        number(&last["with_layers"], "kendall_tau"),
    );
    let expected = 1.0 - 2.0 * number(inverted, "inversions") / 28.0;
    assert!((tau - expected).abs() < 0.001, "{last}");
}

#[test]
fn a_soak_tells_the_memory_of_every_rank() {
    let (rows, last) = measured("soak --bytes 64K --count 40 --growth 64M");
    assert_eq!(rows.len(), 21);
    for row in &rows {
        let resident = row["resident_bytes"].as_array().expect("a list");
        assert!(resident.len() == 2 && resident.iter().all(|bytes| bytes.as_u64() > Some(1 << 20)));
    }
    assert_eq!(number(&last["summary"], "all_reduces"), 40.0);
}

#[test]
fn the_table_has_a_line_for_each_size() {
    let output = run(&[
        "perf",
        "all-reduce",
        "-b",
        "4K",
        "-e",
        "8K",
        "--iterations",
        "2",
    ]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let sizes: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(sizes, ["4096", "8192"], "{text}");
    assert!(
        text.contains("busbw") && text.contains("repaired"),
        "{text}"
    );
}

#[test]
fn large_sizes_keep_every_promise_too() {
    if !slow_tests_are_wanted() {
        return;
    }
    let free = rows("-n 2 -b 4K -e 64M -f 4 --iterations 5 --tolerance 10%");
    assert_eq!(sum(&free, "lost_segments"), 0.0);
    let exact = rows("-n 2 -b 4K -e 64M -f 4 --iterations 5 --drop 1%");
    assert_eq!((sum(&exact, "lost_segments"), exact.len()), (0.0, 8));
    // Where values are missing, checking a result takes longer than the all-reduce.
    for row in rows("-n 2 -b 4K -e 16M -f 4 --iterations 5 --drop 20% --tolerance 10%") {
        assert!(number(&row, "max_lost_share") <= 0.1, "{row}");
    }
}

#[expect(clippy::disallowed_methods, reason = "tests have an edge of their own")]
fn slow_tests_are_wanted() -> bool {
    std::env::var_os("GRADWIRE_SLOW").is_some()
}

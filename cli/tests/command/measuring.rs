//! `gradwire perf` on real sockets: what its rows promise. Results are compared with exact sums
//! inside the run, so exit code 0 says that all were right.

use crate::processes::{errors, objects, run};
use serde_json::Value;

fn rows(arguments: &str) -> Vec<Value> {
    let words: Vec<&str> = "perf all-reduce --json"
        .split(' ')
        .chain(arguments.split(' '))
        .collect();
    let output = run(&words);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    objects(&output)
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
fn nothing_is_lost_on_a_loss_free_path_whatever_the_tolerance() {
    let rows = rows("-n 2 -b 4K -e 1M -f 16 --iterations 5 --tolerance 10%");
    assert_eq!(rows.len(), 3);
    assert_eq!(sum(&rows, "lost_segments"), 0.0);
    assert_eq!(sum(&rows, "wrong"), 0.0);
    for row in &rows {
        assert!(
            number(row, "time_us") > 0.0 && number(row, "sent_segments") > 0.0,
            "{row}"
        );
        let ratio = number(row, "busbw_gbps") / number(row, "algbw_gbps").max(1e-9);
        assert!(
            (0.9..=1.1).contains(&ratio),
            "two ranks: both bandwidths are equal, {row}"
        );
    }
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
    let free = rows("-n 2 -b 4K -e 64M --tolerance 10%");
    assert_eq!(sum(&free, "lost_segments"), 0.0);
    let exact = rows("-n 2 -b 4K -e 64M --drop 1%");
    assert_eq!((sum(&exact, "lost_segments"), exact.len()), (0.0, 15));
    for row in rows("-n 2 -b 4K -e 64M --drop 20% --tolerance 10%") {
        assert!(number(&row, "max_lost_share") <= 0.1, "{row}");
    }
}

#[expect(clippy::disallowed_methods, reason = "tests have an edge of their own")]
fn slow_tests_are_wanted() -> bool {
    std::env::var_os("GRADWIRE_SLOW").is_some()
}

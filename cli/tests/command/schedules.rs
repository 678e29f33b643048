//! `gradwire tune schedule`: its search, its output, its files, its refusals.

use serde_json::Value;

use crate::processes::{errors, file, objects, run};

/// Four layers of which the first, which is needed first, is as large as all others.
const TABLE: &str = "layer,parameters,forward_ns,backward_ns\nembed,300000,50000,100000\n\
                     a,100000,50000,100000\nb,100000,50000,100000\nc,100000,50000,100000\n";

/// A workload of this table, in a file of its own.
pub(crate) fn workload(name: &str, how: &str) -> String {
    let path = file(&format!("{name}.csv"), TABLE);
    format!("step:{}:{how}", path.display())
}

fn tune(workload: &str, options: &str) -> std::process::Output {
    let words = ["tune", "schedule", "single:3@10G", workload];
    let options = options.split_whitespace();
    run(&words.into_iter().chain(options).collect::<Vec<_>>())
}

fn report(workload: &str, options: &str) -> Value {
    let output = tune(workload, &format!("{options} --json"));
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    objects(&output).remove(0)
}

fn rows(report: &Value, key: &str) -> Vec<(u64, u64, f64)> {
    let number = |row: &Value, key: &str| row[key].as_u64().expect("a size");
    let rows = report[key].as_array().expect("a list").iter();
    rows.map(|row| {
        let time = row["iteration_us"].as_f64().expect("a time");
        (number(row, "chunk"), number(row, "credit"), time)
    })
    .collect()
}

#[test]
fn grid_searches_are_compared_with_the_grid() {
    let workload = workload("grid", "tensors,steps=1");
    let options = "--grid --chunk 64KiB..128KiB --credit 64KiB..256KiB --trials 4";
    let report = report(&workload, options);
    let (grid, trials) = (rows(&report, "grid"), rows(&report, "trials"));
    assert_eq!((grid.len(), trials.len()), (6, 4));
    assert!(trials.iter().all(|trial| grid.contains(trial)));
    let least = |rows: &[(u64, u64, f64)]| rows.iter().map(|row| row.2).fold(f64::MAX, f64::min);
    let excess = least(&trials) / least(&grid) - 1.0;
    assert_eq!(report["best"]["iteration_us"], least(&trials));
    assert_eq!(report["grid_best"]["iteration_us"], least(&grid));
    assert_eq!(report["excess"], excess);
    let times: Vec<u64> = grid.iter().map(|row| row.2.to_bits()).collect();
    assert!(times.iter().any(|time| *time != times[0]), "{grid:?}");
}

#[test]
fn searches_without_grid_write_the_best_point() {
    let workload = workload("write", "ps=1,steps=1,scale=2");
    let options = "--chunk 64KiB..256KiB --credit 128KiB..512KiB --trials 6";
    let tried = rows(&report(&workload, options), "trials");
    let on_grid = report(&workload, &format!("{options} --grid"));
    assert_eq!(tried, rows(&on_grid, "trials"));
    let job = file(
        "schedule.toml",
        "# kept\n[collectives]\nchunk = \"1MiB\" # was\n",
    );
    let output = tune(&workload, &format!("{options} --write {}", job.display()));
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let written = std::fs::read_to_string(&job).expect("it is there");
    assert!(written.starts_with("# kept\n[collectives]\nchunk = \""));
    assert!(written.contains(" # was\ncredit = \""), "{written}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in written.lines().skip(2) {
        let (key, _) = line.split_once(" #").unwrap_or((line, ""));
        assert!(text.contains(key), "{key} is in {text}");
    }
}

#[test]
fn what_cannot_be_tuned_is_refused_with_one_line() {
    let scaled = workload("scaled", "ddp,scale=4");
    for (workload, options, said) in [
        ("permutation:1MB", "", "it has no training steps"),
        (
            &scaled,
            "--transport dctcp",
            "only gradwire has chunk and credit",
        ),
        (
            &scaled,
            "--chunk 64KiB..128KiB",
            "allowed is from 256KiB on",
        ),
        (&scaled, "--chunk 64KiB..100KiB", "TO twice FROM"),
        (
            &scaled,
            "--write /nowhere/at/all.csv --job /none.toml",
            "/none.toml",
        ),
    ] {
        let output = tune(workload, options);
        let error = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said), "{said} is in {error}");
        assert!(output.stdout.is_empty());
    }
}

//! Sweeps: a plan is run to its end, however often that is interrupted, and always gives the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::SystemTime;

use serde_json::Value;

use crate::processes::{errors, folder, gradwire, kill, objects, runs, within_ten_seconds};

const PLAN: &str = r#"
[base]
fabric = "leaf-spine:2x4x2@25G"
[ranges]
workload = ["permutation:256KB", "incast:7x64KB"]
tolerance = ["0%", "10%"]
seed = "1..=4"
[[cases]]
transport = "gradwire"
[[cases]]
transport = "dctcp"
"#;
const CELLS: usize = 32;

/// One cell that takes minutes.
const LONG: &str = "[base]\nfabric = \"fat-tree:k=8@100G\"\nworkload = \"permutation:256MB\"\n";

/// A folder of one test, with a plan in it and room for results.
struct Bench {
    folder: PathBuf,
}

impl Bench {
    fn new(name: &str, plan: &str) -> Self {
        let folder = folder(&format!("sweep-{name}"));
        let bench = Self { folder };
        bench.write_plan(plan);
        bench
    }

    fn write_plan(&self, plan: &str) {
        std::fs::write(self.path("plan.toml"), plan).expect("the test's folder is writable");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn command(&self, out: &str, options: &[&str]) -> Command {
        let mut command = gradwire(&["sim", "sweep"]);
        command.arg(self.path("plan.toml"));
        command.arg("--out").arg(self.path(out)).args(options);
        command
    }

    fn sweep(&self, out: &str, options: &[&str]) -> Output {
        self.command(out, options)
            .output()
            .expect("the command starts")
    }

    /// Starts a sweep that SIGINT ends, even where the shell that runs the tests makes its
    /// background processes ignore it.
    fn start(&self, out: &str, options: &[&str]) -> Sweep {
        let sweep = self.command(out, options);
        let mut command = Command::new("env");
        command.arg("--default-signal=INT").arg(sweep.get_program());
        command.args(sweep.get_args());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Sweep(command.spawn().expect("the command starts"))
    }

    fn text(&self, name: &str) -> String {
        let path = self.path(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn rows(&self, name: &str) -> Vec<Value> {
        let lines = self.text(name);
        let rows = lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        rows.collect()
    }
}

/// A sweep under way. It is ended when the test ends.
struct Sweep(Child);

impl Sweep {
    /// Sends a signal to it, and waits for its end: its exit code, if it has one.
    fn end_by(&mut self, signal: &str) -> Option<i32> {
        let sent = Command::new("kill")
            .args([signal, &self.0.id().to_string()])
            .status();
        assert!(sent.expect("kill starts").success(), "it was running still");
        self.0.wait().expect("it can be waited for").code()
    }

    /// The processes that run its cells; any of its threads may have started them.
    fn cells_under_way(&self) -> Vec<u32> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0.id()));
        let threads = threads.into_iter().flatten().flatten();
        let lists = threads
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        let words = lists.collect::<Vec<_>>().join(" ");
        words
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect()
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The files of cells with the time at which each was written.
fn cells(out: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let Ok(folder) = out.join("cells").read_dir() else {
        return BTreeMap::new();
    };
    let files = folder.map(|entry| entry.expect("the folder can be read"));
    files
        .filter(|file| {
            file.path()
                .extension()
                .is_some_and(|ending| ending == "json")
        })
        .map(|file| {
            let written = file.metadata().and_then(|data| data.modified());
            (file.path(), written.expect("a file has a time"))
        })
        .collect()
}

fn assert_done(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", errors(output));
}

#[test]
fn killed_sweeps_continue_without_repeating_cells() {
    let bench = Bench::new("killed", PLAN);
    assert_done(&bench.sweep("whole", &[]));
    let whole = bench.rows("whole/results.jsonl").len();
    for signal in ["-KILL", "-TERM", "-INT"] {
        let out = bench.path(signal);
        // However late it is killed, minutes of cells remain.
        bench.write_plan(&format!(
            "{PLAN}[[cases]]\nbackground = \"permutation:256MB\"\n"
        ));
        let mut sweep = bench.start(signal, &["--parallel", "1"]);
        assert!(within_ten_seconds(|| cells(&out).len() >= 3));
        assert_eq!(sweep.end_by(signal), None);
        let before = cells(&out);
        assert!(
            (3..=whole).contains(&before.len()),
            "{} cells",
            before.len()
        );
        assert!(!out.join("results.jsonl").exists());
        for path in before.keys() {
            let text = std::fs::read_to_string(path).expect("it can be read");
            serde_json::from_str::<Value>(&text).expect("a cell is whole, or not there");
        }
        bench.write_plan(PLAN);
        assert_done(&bench.sweep(signal, &[]));
        let after = cells(&out);
        assert_eq!(after.len(), whole);
        let again: Vec<_> = before
            .iter()
            .filter(|(path, time)| after[*path] != **time)
            .collect();
        assert!(again.is_empty(), "were run again: {again:?}");
        let results = bench.text(&format!("{signal}/results.jsonl"));
        assert_eq!(results, bench.text("whole/results.jsonl"));
    }
}

#[test]
fn killed_sweeps_leave_no_running_cell() {
    let bench = Bench::new("orphans", LONG);
    let mut sweep = bench.start("out", &[]);
    assert!(within_ten_seconds(|| !sweep.cells_under_way().is_empty()));
    let started = sweep.cells_under_way();
    assert_eq!(sweep.end_by("-KILL"), None);
    assert!(within_ten_seconds(|| !started.iter().copied().any(runs)));
}

#[test]
fn plans_give_equal_bytes_on_any_cores() {
    let bench = Bench::new("bytes", PLAN);
    for (out, parallel) in [("one", "1"), ("three", "3")] {
        assert_done(&bench.sweep(out, &["--parallel", parallel]));
    }
    assert_eq!(
        bench.text("one/results.jsonl"),
        bench.text("three/results.jsonl")
    );
    let rows = bench.rows("one/results.jsonl");
    assert_eq!(rows.len(), CELLS);
    let costs = bench.rows("one/costs.jsonl");
    for (row, cost) in rows.iter().zip(&costs) {
        assert_eq!(row["id"], cost["id"]);
        assert!(cost["cost"]["wall_s"].is_f64() && row["cost"].is_null());
        assert_eq!(row["result"]["finished"], row["result"]["flows"]);
    }
}

#[test]
fn wrong_plans_are_refused_with_their_line() {
    for (from, to, expected) in [
        (
            "seed = ",
            "sede = ",
            "line 7: unknown key `sede`; known keys are `fabric`, `workload`, ",
        ),
        (
            "[ranges]",
            "[rnages]",
            "line 4: unknown table `rnages`; known are [base], ",
        ),
        (
            "\"10%\"",
            "\"110%\"",
            "line 6: tolerance = \"110%\": allowed are 0 to 1",
        ),
        (
            "\"1..=4\"",
            "\"1..4\"",
            "line 7: the range of seed: allowed are a list of values",
        ),
        ("\"dctcp\"", "\"dtcp\"", "line 11: "),
        ("leaf-spine", "fat-tree:k=3@25G", "line 3: "),
        (
            "[ranges]",
            "[ranges]\nset.\"transport.gpa\" = [\"1ms\"]",
            "line 5: ",
        ),
        ("= \"gradwire\"", "= = \"gradwire\"", "line 9: "),
        (
            "fabric = \"leaf-spine:2x4x2@25G\"",
            "",
            "missing field `fabric`: write it in [base]",
        ),
        (
            "\"dctcp\"",
            "\"gradwire\"",
            "two cells are the same, transport=gradwire workload=",
        ),
        (
            "\"1..=4\"",
            "\"1..=900000\"",
            "the plan has 7200000 cells: allowed are at most 1000000",
        ),
    ] {
        let bench = Bench::new("wrong", &PLAN.replacen(from, to, 1));
        let output = bench.sweep("out", &[]);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.contains(&format!("plan.toml: {expected}")),
            "{expected} is in {said}"
        );
        assert!(!bench.path("out").exists(), "{said}");
    }
}

#[test]
fn cells_of_a_plan_that_has_grown_are_kept() {
    let bench = Bench::new("grown", PLAN);
    assert_done(&bench.sweep("out", &[]));
    let before = cells(&bench.path("out"));
    bench.write_plan(&PLAN.replacen("1..=4", "2..=5", 1));
    let listed = objects(&bench.sweep("out", &["--list", "--json"]));
    let finished = listed
        .iter()
        .filter(|cell| cell["finished"] == true)
        .count();
    assert_eq!((listed.len(), finished), (CELLS, CELLS / 4 * 3));
    assert_done(&bench.sweep("out", &[]));
    let after = cells(&bench.path("out"));
    assert_eq!(after.len(), CELLS + CELLS / 4);
    assert!(before.iter().all(|(path, time)| after[path] == *time));
    let seeds = bench.rows("out/results.jsonl");
    assert!(seeds.iter().all(|row| row["scenario"]["seed"] != 1));
}

#[test]
fn files_of_a_plan_are_part_of_cells() {
    let plan = "[base]\nfabric = \"fabric.toml\"\nworkload = \"permutation:64KB\"\n";
    let bench = Bench::new("file", plan);
    let id = |rate: &str| {
        let fabric = format!("shape = \"single:4@{rate}\"\n");
        std::fs::write(bench.path("fabric.toml"), fabric).expect("the folder is writable");
        objects(&bench.sweep("out", &["--list", "--json"]))[0]["id"].clone()
    };
    let slow = id("25G");
    assert_ne!(slow, id("100G"));
    assert_eq!(slow, id("25G"));
    assert_done(&bench.sweep("out", &[]));
}

#[test]
fn job_array_tasks_make_up_the_sweep() {
    let bench = Bench::new("array", PLAN);
    let script = bench.sweep("array", &["--slurm=3"]).stdout;
    std::fs::write(bench.path("job.sh"), &script).expect("the folder is writable");
    let program = Path::new(env!("CARGO_BIN_EXE_gradwire"));
    let folder = program.parent().expect("a program is in a folder");
    for task in 0..3 {
        let ended = Command::new("/bin/sh")
            .arg(bench.path("job.sh"))
            .env("SLURM_ARRAY_TASK_ID", task.to_string())
            .env("PATH", folder)
            .output();
        assert_done(&ended.expect("sh starts"));
        let gathered = bench.sweep("array", &["--gather"]);
        assert_eq!(gathered.status.code(), Some(if task < 2 { 1 } else { 0 }));
        assert!(task == 2 || errors(&gathered).contains("has not run"));
        assert_eq!(bench.path("array/results.jsonl").exists(), task == 2);
    }
    assert_done(&bench.sweep("whole", &[]));
    assert_eq!(
        bench.text("array/results.jsonl"),
        bench.text("whole/results.jsonl")
    );
}

#[test]
fn single_cells_equal_those_of_the_sweep() {
    let bench = Bench::new("cell", PLAN);
    assert_done(&bench.sweep("out", &[]));
    let row = bench.rows("out/results.jsonl").remove(7);
    let id = row["id"].as_str().expect("an id is text");
    let plan = bench.path("plan.toml");
    let mut command = gradwire(&["sim", "sweep", "--cell", id]);
    let output = command.arg(plan).output().expect("the command starts");
    let record = objects(&output).remove(0);
    assert_eq!(
        (&record["id"], &record["result"]),
        (&row["id"], &row["result"])
    );
    let unknown = bench.sweep("out", &["--cell", "abc"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(errors(&unknown).contains("--cell abc: no such cell"));
}

#[test]
fn failed_cells_are_named_the_others_run() {
    let plan = PLAN.replacen("[ranges]", "[ranges]\nlimit = [\"1us\", \"10s\"]", 1);
    let bench = Bench::new("failing", &plan);
    let output = bench.sweep("out", &["--format", "parquet"]);
    assert_eq!(output.status.code(), Some(1));
    let said = errors(&output);
    assert!(
        said.contains("32 of 64 cells: ") && said.contains("; and 28 more"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    for row in bench.rows("out/results.jsonl") {
        let stopped = row["scenario"]["limit"] == "1us";
        assert_eq!(row["error"].is_string(), stopped, "{row}");
        assert_eq!(row["result"]["timed_out"] == true, stopped, "{row}");
    }
    let parquet = std::fs::read(bench.path("out/results.parquet")).expect("it is there");
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
}

#[test]
fn killed_processes_fail_their_cell_and_are_retried() {
    let bench = Bench::new("crash", LONG);
    let mut sweep = bench.start("out", &[]);
    assert!(within_ten_seconds(|| !sweep.cells_under_way().is_empty()));
    sweep.cells_under_way().into_iter().for_each(kill);
    assert_eq!(sweep.0.wait().expect("it ends").code(), Some(1));
    let row = bench.rows("out/results.jsonl").remove(0);
    assert_eq!(row["error"], "its process was ended by signal 9");
    let listed = objects(&bench.sweep("out", &["--list", "--json"]));
    assert_eq!(listed[0]["finished"], false);
}

#[test]
fn the_examples_run_to_their_end() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/sweeps");
    for (name, expected) in [
        ("tolerance-on-gray-link", 18),
        ("transports-under-incast", 24),
    ] {
        let bench = Bench::new(name, "");
        let mut command = gradwire(&["sim", "sweep"]);
        command.arg(examples.join(format!("{name}.toml")));
        let output = command.arg("--out").arg(bench.path("out")).output();
        assert_done(&output.expect("the command starts"));
        assert_eq!(bench.rows("out/results.jsonl").len(), expected);
    }
}

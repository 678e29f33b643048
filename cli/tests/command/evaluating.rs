//! Evaluations: from one command to a report, however often that is interrupted.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::processes::{errors, folder, gradwire, runs, within_ten_seconds};

/// The quick plans of a table, with cells that take a moment; without their cases.
const PLAN: &str = r#"
[base]
fabric = "single:4@25G"
[ranges]
workload = ["step:resnet50:ps=2,scale=1024,steps=1", "step:vgg16:ps=2,scale=2048,steps=1"]
[[cases]]
"#;
/// Their files, and the case of each.
const CASES: [(&str, &str); 3] = [
    ("servers-off-quick.toml", "name = \"off\"\n"),
    (
        "servers-on-quick.toml",
        "name = \"on, 1 MiB\"\nset.\"collectives.chunk\" = \"64KiB\"\n",
    ),
    (
        "servers-on-small-quick.toml",
        "name = \"on, a credit\"\nset.\"collectives.credit\" = \"64KiB\"\n",
    ),
];
const CELLS: usize = 6;

/// A folder of one test with plans of its own.
fn bench(name: &str) -> PathBuf {
    let folder = folder(&format!("eval-{name}"));
    std::fs::create_dir(folder.join("plans")).expect("the test's folder is writable");
    for (name, case) in CASES {
        let plan = folder.join("plans").join(name);
        std::fs::write(plan, PLAN.to_owned() + case).expect("the test's folder is writable");
    }
    folder
}

fn evaluation(bench: &Path, out: &str) -> Command {
    let mut command = gradwire(&["eval", "dlcp", "--quick", "--only", "scheduling"]);
    command.arg("--plans").arg(bench.join("plans"));
    command
        .arg("--out")
        .arg(bench.join(out))
        .args(["--parallel", "1"]);
    command
}

fn cells(out: &Path) -> usize {
    let files = std::fs::read_dir(out.join("cells")).into_iter().flatten();
    let names = files.flatten().map(|file| file.path());
    names
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .count()
}

/// The report without its cost, and with the folder's name taken out.
fn report(out: &Path) -> (Value, String, String) {
    let read = |name: &str| {
        let text = std::fs::read_to_string(out.join(name)).expect("the report was written");
        text.replace(&out.display().to_string(), "OUT")
    };
    let mut json: Value = serde_json::from_str(&read("report.json")).expect("it is JSON");
    json["cost"] = Value::Null;
    let before = |text: String, end: &str| {
        let (before, _) = text.split_once(end).expect("the report tells its cost");
        before.to_owned()
    };
    let markdown = before(read("report.md"), "## Cost");
    (json, markdown, before(read("report.html"), "<footer>"))
}

#[test]
fn killed_evaluations_continue_to_the_same_report() {
    let bench = bench("killed");
    let whole = evaluation(&bench, "whole").output().expect("it starts");
    assert!(whole.status.success(), "{}", errors(&whole));
    assert_eq!(cells(&bench.join("whole")), CELLS);

    let mut killed = evaluation(&bench, "killed");
    killed.stdout(Stdio::null()).stderr(Stdio::null());
    let mut killed = killed.spawn().expect("it starts");
    assert!(within_ten_seconds(|| cells(&bench.join("killed")) > 0));
    killed.kill().expect("it is ours");
    killed.wait().expect("it can be waited for");
    let before = cells(&bench.join("killed"));

    let again = evaluation(&bench, "killed").output().expect("it starts");
    assert!(again.status.success(), "{}", errors(&again));
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(
        said.contains(&format!("{before} of them in earlier runs")),
        "{said}"
    );
    let (json, markdown, page) = report(&bench.join("killed"));
    let whole = report(&bench.join("whole"));
    assert_eq!((&json, &markdown, &page), (&whole.0, &whole.1, &whole.2));
    let section = &json["sections"][0];
    assert_eq!(
        (&section["name"], &section["source"]),
        (&"scheduling".into(), &"simulated".into())
    );
    assert_eq!(
        section["grids"][0]["rows"].as_array().map(Vec::len),
        Some(2)
    );
    assert!(markdown.contains("(simulated)") && page.contains("<svg "));
}

#[test]
fn unknown_tables_are_answered_with_known_ones() {
    let output = gradwire(&["eval", "dlcp", "--only", "speed"]).output();
    let output = output.expect("the command starts");
    assert_eq!(output.status.code(), Some(2));
    let said = errors(&output);
    assert!(
        said.contains("scheduling") && said.contains("training"),
        "{said}"
    );
}

#[test]
fn wrong_plans_are_named_before_any_run() {
    let bench = bench("wrong");
    let plan = PLAN.replace("[base]", "[bsae]");
    std::fs::write(bench.join("plans/servers-on-quick.toml"), plan)
        .expect("the test's folder is writable");
    let output = evaluation(&bench, "out").output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    let said = errors(&output);
    assert!(said.contains("servers-on-quick.toml: line 2"), "{said}");
    assert!(!bench.join("out").exists());
}

#[test]
fn reports_name_impossible_trainings_and_their_remedy() {
    let bench = bench("untrained");
    let mut command = gradwire(&[
        "eval",
        "dlcp",
        "--only",
        "training",
        "--python",
        "/nowhere/python",
    ]);
    let output = command.arg("--out").arg(bench.join("out")).output();
    let output = output.expect("the command starts");
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    let report = std::fs::read_to_string(bench.join("out/report.md")).expect("it was written");
    assert!(
        report.contains("/nowhere/python") && report.contains("pip install"),
        "{report}"
    );
}

#[test]
fn the_map_lists_each_cell_with_command_or_reason() {
    let output = gradwire(&["eval", "taxonomy", "--list", "--json"]).output();
    let output = output.expect("the command starts");
    assert!(output.status.success(), "{}", errors(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let cells: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("it is JSON"))
        .collect();
    assert_eq!(cells.len(), 90);
    for cell in cells {
        let is_legal = cell["illegal"].is_null();
        assert_eq!(cell["command"].is_string(), is_legal, "{cell}");
    }
}

#[test]
fn a_map_without_a_folder_is_not_begun() {
    let bench = bench("map");
    let taken = bench.join("plans").join(CASES[0].0);
    let mut command = gradwire(&["eval", "taxonomy", "--quick", "--out"]);
    let output = command.arg(&taken).output().expect("it starts");
    assert!(!output.status.success());
    let said = errors(&output);
    assert!(said.contains("cannot make"), "{said}");
}

/// Prints the output of `python -m gradwire.study --json`, and leaves its files.
const STUDY: &str = r##"#!/bin/sh
while [ "$1" != "--out" ]; do shift; done
[ "$3 $4" = "--core --minutes" ] || exit 3
mkdir -p "$2"
echo "study: 3 of 4 cells are to be run, within $5 minutes" >&2
cd "$2"
printf '### mnist\n\n| lost | 10 %% |\n|---|---:|\n| all | 0.900 +- 0.010 (2.5) |\n' > findings.md
printf '%s' '{"groups": [{"task": "mnist", "part": "all", "transform": "none", "holes": "zero",
"drop": 0.1, "final": {"1": 0.875}, "steps": {"1": 120}, "accepted": {"1": 0.1}}],
"expected": [], "left": 3}' | tr '\n' ' '
"##;

/// An evaluation whose training is a script.
fn trained_by(bench: &Path, script: &str) -> Command {
    use std::os::unix::fs::PermissionsExt;

    let python = bench.join("python");
    std::fs::write(&python, script).expect("the test's folder is writable");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&python, executable).expect("it is ours");
    let mut command = gradwire(&["eval", "dlcp", "--only", "training", "--python"]);
    command.arg(&python).arg("--out").arg(bench.join("out"));
    command
}

#[test]
fn studies_are_shown_with_progress_and_own_words() {
    let bench = bench("trained");
    let output = trained_by(&bench, STUDY).output().expect("it starts");
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let progress = "study: 3 of 4 cells are to be run, within 15 minutes";
    assert!(said.contains(progress), "{said}");
    assert!(said.contains("3 trainings, which were not begun"), "{said}");
    let (json, markdown, page) = report(&bench.join("out"));
    let row = &json["sections"][0]["grids"][0]["rows"][0];
    assert_eq!(row[3], 0.875, "{row}");
    assert!(
        markdown.contains("| all | 0.900 +- 0.010 (2.5) |"),
        "{markdown}"
    );
    assert!(page.contains("<h3>mnist</h3>"), "{page}");
    assert!(page.contains(">0.900 +- 0.010 (2.5)</td>"), "{page}");
}

#[test]
fn failed_studies_have_no_result() {
    let bench = bench("failed");
    let script = "#!/bin/sh\necho '{\"groups\": []}'\nexit 3\n";
    let output = trained_by(&bench, script).output().expect("it starts");
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("exit status: 3"), "{said}");
}

#[test]
fn a_study_ends_with_an_evaluation_that_is_killed() {
    let bench = bench("orphaned");
    let told = bench.join("process");
    let script = format!("#!/bin/sh\necho $$ > {}\nexec sleep 60\n", told.display());
    let mut evaluation = trained_by(&bench, &script);
    evaluation.stdout(Stdio::null()).stderr(Stdio::null());
    let mut evaluation = evaluation.spawn().expect("it starts");
    let number = || std::fs::read_to_string(&told).ok()?.trim().parse().ok();
    assert!(within_ten_seconds(|| number().is_some()));
    evaluation.kill().expect("it is ours");
    evaluation.wait().expect("it can be waited for");
    let study: u32 = number().expect("it was told");
    assert!(within_ten_seconds(|| !runs(study)), "it was left behind");
}

//! `gradwire tune loss` with scripts that only pretend to train: they read the job that
//! `GRADWIRE_JOB` names, write the counts of a rank, and print a metric that falls once the
//! tolerance is above the one they bear.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::processes::{errors, folder, gradwire, objects};

/// Bears 5 %; every seed has a level of its own; all-reduces that tolerate losses take 0.8 of the
/// time. Other scripts replace single lines.
const SCRIPT: &str = r#"
tolerance=$(sed -n 's/^tolerance = //p' "$GRADWIRE_JOB")
told=$tolerance
allowed=$tolerance
may_lose=1000000
bears=0.05
faster=0.8
echo "$tolerance $GRADWIRE_TRIAL_SEED" >> runs
awk -v t="$tolerance" -v told="$told" -v allowed="$allowed" -v bears="$bears" \
    -v owed="$may_lose" -v faster="$faster" -v seed="$GRADWIRE_TRIAL_SEED" \
    -v folder="$GRADWIRE_TRACE" 'BEGIN {
  if (allowed == 0) owed = 0
  printf "{\"tolerance\": %s, \"loss\": {\"owed_bytes\": %d, \"allowed_bytes\": %d, " \
    "\"lost_bytes\": %d, \"lost_segments\": 1}, \"operations\": [{\"failed\": 0, " \
    "\"collective\": \"all_reduce\", \"times\": {\"count\": 11, \"sum_us\": %d, " \
    "\"p50_us\": 1, \"p90_us\": 1, \"p99_us\": 1, \"max_us\": 5000, \"buckets\": []}}]}\n", \
    told, owed, owed * allowed, owed * t * 0.9, \
    5000 + 10000 * (t > 0 ? faster : 1) > (folder "/counts-synthetic-rank0.json")
  metric = 0.9 + 0.01 * (seed % 3) - (t > bears ? 0.05 + t / 10 : 0)
  printf "step 1\n{\"accuracy\": %.4f, \"loss\": 1}\nbye\n", metric
}'
"#;

/// An empty folder of one test, with a script in it.
fn place(name: &str, script: &str) -> PathBuf {
    let folder = folder(&format!("tune-{name}"));
    std::fs::write(folder.join("train.sh"), script).expect("it is writable");
    folder
}

fn start(folder: &Path, options: &str) -> Child {
    let words = ["tune", "loss", "--json"].into_iter();
    let words: Vec<&str> = words.chain(options.split_whitespace()).collect();
    let mut command = gradwire(&words);
    command
        .args(["--", "sh", "train.sh", "seed-{seed}"])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("the command starts")
}

fn tune(folder: &Path, options: &str) -> Output {
    let child = start(folder, options);
    child.wait_with_output().expect("the command ends")
}

/// The last object that a search prints.
fn summary(output: &Output) -> Value {
    let mut objects = objects(output);
    let last = objects
        .pop()
        .unwrap_or_else(|| panic!("nothing was printed: {}", errors(output)));
    last["summary"].clone()
}

fn runs(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("runs")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn journal(folder: &Path) -> Vec<String> {
    let path = folder.join("gradwire-tune/journal.jsonl");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(50));
    }
    panic!("not within 30 s: {what}");
}

#[test]
fn known_thresholds_are_found_and_written() {
    let folder = place("found", SCRIPT);
    let job = "# mine\nname = \"a\" # kept\n\n[faults]\ndelay = \"0s\"\n";
    std::fs::write(folder.join("job.toml"), job).expect("it is writable");
    let output = tune(&folder, "");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let summary = summary(&output);
    assert_eq!(summary["found"]["groups"], serde_json::json!([0.05]));
    assert_eq!(summary["complete"], true);
    let trials = summary["trials"].as_u64().expect("a count") as usize;
    let timed = 6;
    assert!(
        trials <= 24 && trials + timed == runs(&folder).len(),
        "{summary}"
    );
    let text = std::fs::read_to_string(folder.join("job.toml")).expect("it is there");
    assert!(
        text.starts_with("# mine\nname = \"a\" # kept\n# tune loss: "),
        "{text}"
    );
    assert!(
        text.contains("\ntolerance = \"5%\"\n\n[faults]\n"),
        "{text}"
    );
    // The script reports that it lost nine tenths of the allowed share.
    let told = "# tune loss: 5% accepted: accuracy worse by 0.00000, at most 0.00000 in 3 trials, \
                4.5% really lost\n";
    assert!(text.contains(told), "{text}");
    let gained = "# tune loss: with 1% of all packets lost, an all-reduce with 5% is 1.25 times as \
                  fast as lossless (1.25 to 1.25 in 3 pairs)\n";
    assert!(text.contains(gained), "{text}");
    let page = std::fs::read_to_string(folder.join("gradwire-tune/report.html")).expect("a page");
    assert!(page.contains("<h1>Found tolerance: 5% ("), "{page}");
    let discs = page.matches("<circle").count();
    assert!(discs >= 2 * trials, "{discs} discs");
}

#[test]
fn a_tolerance_that_gains_no_time_is_not_written() {
    let folder = place("no-gain", &SCRIPT.replace("faster=0.8", "faster=1.02"));
    let output = tune(&folder, "--path-loss 0.5%");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let summary = summary(&output);
    assert_eq!(summary["found"]["groups"], serde_json::json!([0.05]));
    assert_eq!(summary["recommended"]["groups"], serde_json::json!([0.0]));
    let text = std::fs::read_to_string(folder.join("job.toml")).expect("it is there");
    assert!(text.contains("\ntolerance = \"0%\"\n"), "{text}");
    let told = "with 0.5% of all packets lost, an all-reduce with 5% is 0.98 times as fast as \
                lossless (0.98 to 0.98 in 3 pairs); no time is gained, so 0% is recommended\n";
    assert!(text.contains(told), "{text}");
    let page = std::fs::read_to_string(folder.join("gradwire-tune/report.html")).expect("a page");
    assert!(page.contains("no time is gained"), "{page}");
}

#[test]
fn without_path_loss_no_time_is_measured() {
    let folder = place("untimed", &SCRIPT.replace("faster=0.8", "faster=1.02"));
    let output = tune(&folder, "--path-loss 0%");
    let summary = summary(&output);
    assert_eq!(summary["trials"], runs(&folder).len());
    assert_eq!(summary["time_gained"], Value::Null);
    let text = std::fs::read_to_string(folder.join("job.toml")).expect("it is there");
    assert!(text.contains("\ntolerance = \"5%\"\n"), "{text}");
}

#[test]
fn groups_are_searched_and_written_beside_the_strictest_tolerance() {
    // All layers bear 2 %, those at the front 10 %.
    let front = "front=$(sed -n 's/^layer_tolerances = .\\([0-9.]*\\).*/\\1/p' \"$GRADWIRE_JOB\")";
    let bears = "awk \"BEGIN { exit !(${front:-0} > 0.1) }\" && bears=0";
    let script = SCRIPT.replace("bears=0.05", &format!("{front}\nbears=0.02\n{bears}"));
    let folder = place("groups", &script);
    let output = tune(&folder, "--groups 2 --trials 60");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let found = &summary(&output)["found"]["groups"];
    assert_eq!(*found, serde_json::json!([0.1, 0.02]));
    let text = std::fs::read_to_string(folder.join("job.toml")).expect("it is there");
    let expected = "\ntolerance = \"2%\"\n\n[loss]\nlayer_tolerances = [\"10%\", \"2%\"]\n";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn repeated_searches_run_no_trial() {
    let folder = place("again", SCRIPT);
    let first = summary(&tune(&folder, ""));
    let (ran, text) = (runs(&folder), std::fs::read(folder.join("job.toml")));
    let second = summary(&tune(&folder, ""));
    assert_eq!(first, second);
    assert_eq!(runs(&folder), ran);
    let again = std::fs::read(folder.join("job.toml")).expect("it is there");
    assert_eq!(again, text.expect("it was there"));
    // Another script would have other results.
    std::fs::write(folder.join("other.sh"), SCRIPT).expect("it is writable");
    let mut other = gradwire(&["tune", "loss", "--", "sh", "other.sh"]);
    let refused = other.current_dir(&folder).output().expect("it starts");
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        errors(&refused).contains("it belongs to a search with another command"),
        "{}",
        errors(&refused)
    );
}

#[test]
fn killed_searches_continue_without_repeating_trials() {
    let whole = place("whole", SCRIPT);
    let expected = summary(&tune(&whole, ""));
    let folder = place(
        "killed",
        &SCRIPT.replace("awk -v t=", "sleep 0.1; awk -v t="),
    );
    for lines in [3, 8] {
        let mut search = start(&folder, "");
        wait_until("so many trials are done", || {
            journal(&folder).len() >= lines
        });
        search.kill().expect("it runs");
        search.wait().expect("it has ended");
    }
    let output = tune(&folder, "");
    assert_eq!(summary(&output), expected, "{}", errors(&output));
    let done = journal(&folder);
    assert_eq!(done.len(), journal(&whole).len());
    let trials = done[1..].iter().map(|line| {
        let trial: Value = serde_json::from_str(line).expect("a JSON object");
        format!(
            "{} {} {}",
            trial["setting"], trial["seed"], trial["purpose"]
        )
    });
    let different: BTreeSet<String> = trials.collect();
    assert_eq!(different.len() + 1, done.len(), "a trial was repeated");
    // Only the two that were being run may have been begun twice.
    assert!(runs(&folder).len() <= runs(&whole).len() + 2);
}

#[test]
fn killed_searches_leave_no_script() {
    let folder = place("orphan", "echo $$ > pid; sleep 300 & wait");
    let mut search = start(&folder, "");
    let pid = || std::fs::read_to_string(folder.join("pid")).unwrap_or_default();
    wait_until("the script runs", || pid().ends_with('\n'));
    search.kill().expect("it runs");
    search.wait().expect("it has ended");
    let process = PathBuf::from("/proc").join(pid().trim());
    wait_until("the script is gone", || !process.exists());
}

#[test]
fn too_high_tolerances_are_rejected_borne_ones_accepted() {
    let folder = place("check", SCRIPT);
    let rejected = tune(&folder, "--check 60%");
    assert_eq!(rejected.status.code(), Some(1), "{}", errors(&rejected));
    let said = errors(&rejected);
    assert!(
        said.starts_with("error: check failed: 60% rejected: accuracy worse by 0.11"),
        "{said}"
    );
    let accepted = tune(&folder, "--check 2%");
    assert_eq!(accepted.status.code(), Some(0), "{}", errors(&accepted));
    assert_eq!(summary(&accepted)["settings"][0]["verdict"], "accepted");
    assert!(!folder.join("job.toml").exists(), "a check writes no job");
    // The lossless trials are of both.
    assert_eq!(
        runs(&folder)
            .iter()
            .filter(|run| run.starts_with("0.0 "))
            .count(),
        3
    );
}

#[test]
fn failed_scripts_end_the_search_with_their_error() {
    let folder = place(
        "failing",
        "echo some; echo 'ValueError: no data' >&2; exit 3",
    );
    let output = tune(&folder, "");
    assert_eq!(output.status.code(), Some(4));
    let said = errors(&output);
    assert!(
        said.contains("the script: ended with exit code 3 (seed 1)"),
        "{said}"
    );
    assert!(
        said.contains("stderr.txt:\n  ValueError: no data"),
        "{said}"
    );
}

#[test]
fn scripts_that_cannot_be_tuned_are_told_why() {
    let cases = [
        ("echo loss 3", "printed no line with the metric accuracy"),
        ("echo accuracy 0.9", "uses no rank of gradwire"),
        ("echo accuracy nan; exit 0", "uses no rank of gradwire"),
    ];
    let changed = [
        (
            "told=$tolerance",
            "told=0",
            "does not run the job that GRADWIRE_JOB names",
        ),
        (
            "allowed=$tolerance",
            "allowed=0.5",
            "sets a tolerance of its own",
        ),
        ("may_lose=1000000", "may_lose=0", "can lose nothing"),
    ];
    let changed = changed.map(|(from, to, why)| (SCRIPT.replace(from, to), why));
    let cases = cases.map(|(script, why)| (script.to_owned(), why));
    for (number, (script, why)) in cases.into_iter().chain(changed).enumerate() {
        let folder = place(&format!("wrong-{number}"), &script);
        let output = tune(&folder, "");
        assert_eq!(
            output.status.code(),
            Some(2),
            "{script}: {}",
            errors(&output)
        );
        assert!(
            errors(&output).contains(why),
            "{script}: {}",
            errors(&output)
        );
    }
}

#[test]
fn unregistered_models_are_noted_in_the_first_trial() {
    let times = r#"\"count\": 1, \"sum_us\": 1, \"p50_us\": 1, \"p90_us\": 1, \"p99_us\": 1"#;
    let times = format!(r#"\"times\": {{{times}, \"max_us\": 1, \"buckets\": []}}"#);
    let operations = r#"\"operations\": [{\"failed\""#;
    let messages = format!(r#"\"messages\": [{{\"class\": 1, {times}}}], {operations}"#);
    let script = SCRIPT.replace(operations, &messages);
    let script = script.replace("may_lose=1000000", "may_lose=0");
    let folder = place("unregistered", &script);
    let output = tune(&folder, "");
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    let first = &journal(&folder)[1];
    assert!(first.contains("is the model registered"), "{first}");
}

#[test]
fn slow_lossy_trials_count_as_worst() {
    let slow = SCRIPT.replace("bears=0.05", "[ $tolerance = 0.0 ] || sleep 60");
    let folder = place("slow", &slow);
    let output = tune(&folder, "--check 10% --timeout 2s");
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert!(
        errors(&output).contains("10% rejected: accuracy no number"),
        "{}",
        errors(&output)
    );
    let always = place("always-slow", "sleep 60");
    let output = tune(&always, "--timeout 300ms");
    assert_eq!(output.status.code(), Some(4), "{}", errors(&output));
    assert!(
        errors(&output).contains("without any loss"),
        "{}",
        errors(&output)
    );
}

#[test]
fn trials_that_run_out_are_told() {
    let folder = place("few", SCRIPT);
    let output = tune(&folder, "--trials 4");
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert!(
        errors(&output).contains("4 trials ended before"),
        "{}",
        errors(&output)
    );
    let output = tune(&folder, "--trials 8");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(summary(&output)["complete"], false);
    let output = tune(&folder, "--seeds 5 --max-seeds 4");
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
}

/// Bears the codecs that it names; each seed has a level of its own.
const SCRIPT_OF_CODECS: &str = r#"
codec=$(sed -n 's/^codec = "\(.*\)"/\1/p' "$GRADWIRE_JOB")
echo "$codec $GRADWIRE_TRIAL_SEED" >> runs
cost=0.2
case "none BORNE" in *"$codec"*) cost=0 ;; esac
printf '{"tolerance": 0, "loss": {"owed_bytes": 0, "allowed_bytes": 0, "lost_bytes": 0, ' > counts
printf '"lost_segments": 0}, "operations": []}\n' >> counts
cp counts "$GRADWIRE_TRACE/counts-synthetic-rank0.json"
awk -v seed="$GRADWIRE_TRIAL_SEED" -v cost=$cost \
    'BEGIN { print "accuracy=" 0.9 + 0.01 * seed - cost }'
"#;

fn tune_codec(folder: &Path) -> (Vec<Value>, String) {
    let mut command = gradwire(&["tune", "codec", "--json", "--metric", "accuracy"]);
    command.args(["--write", "job.toml", "--", "sh", "train.sh"]);
    let output = command.current_dir(folder).output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let verdicts = objects(&output).remove(0);
    let verdicts = verdicts.as_array().expect("a verdict of each codec");
    let written = std::fs::read_to_string(folder.join("job.toml")).expect("it is there");
    (verdicts.clone(), written)
}

#[test]
fn the_shortest_codec_that_is_borne_is_written() {
    let borne = SCRIPT_OF_CODECS.replace("BORNE", "onebit blockfloat");
    let folder = place("codec", &borne);
    let (verdicts, written) = tune_codec(&folder);
    let accepted = verdicts
        .iter()
        .map(|verdict| (verdict["codec"].as_str(), verdict["is_accepted"].as_bool()));
    let expected = [("topk", false), ("terngrad", false), ("onebit", true)];
    let expected = expected.map(|(codec, accepted)| (Some(codec), Some(accepted)));
    assert_eq!(accepted.collect::<Vec<_>>(), expected);
    assert_eq!(written, "[collectives]\ncodec = \"onebit\"\n");
    // Three seeds without a codec and with the one that is borne, one of each other.
    assert_eq!(runs(&folder).len(), 3 + 1 + 1 + 3);
}

#[test]
fn a_metric_that_bears_no_codec_gets_none() {
    let folder = place("no-codec", &SCRIPT_OF_CODECS.replace("BORNE", ""));
    let (verdicts, written) = tune_codec(&folder);
    assert_eq!(verdicts.len(), 5);
    assert_eq!(written, "[collectives]\ncodec = \"none\"\n");
}

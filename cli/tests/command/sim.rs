//! `gradwire sim run`, `compare` and `report`: their output, their files, their refusals.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::processes::{errors, file, folder, gradwire, objects, run};

/// All transports.
pub(crate) const TRANSPORTS: [&str; 23] = [
    "gradwire",
    "dctcp",
    "dctcp-10ms",
    "dctcp-classes",
    "pias",
    "swift",
    "pfabric",
    "ndp",
    "eqds",
    "nscc",
    "rccc",
    "roce",
    "roce-pfc",
    "irn",
    "irn-dcqcn",
    "irn-pfc",
    "irn-pfc-dcqcn",
    "irn-go-back-n",
    "irn-no-window",
    "switchml",
    "atp",
    "atp-servers",
    "netreduce",
];
const SMALL: [&str; 2] = ["fat-tree:k=4@100G", "permutation:100KB"];

fn sim(command: &str, options: &str) -> Output {
    let words = ["sim", command]
        .into_iter()
        .chain(options.split_whitespace());
    run(&words.collect::<Vec<_>>())
}

fn summary(options: &str) -> Value {
    let output = sim("run", &format!("{options} --json"));
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let mut printed = objects(&output);
    assert_eq!(printed.len(), 1, "one object on one line");
    printed.remove(0)
}

fn small(options: &str) -> String {
    format!("{} {options}", SMALL.join(" "))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is a number"))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asserts that a command was refused with one line that has all of `words`.
fn refused(output: &Output, words: &[&str]) {
    let said = errors(output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("error: "), "{said}");
    for word in words {
        assert!(said.contains(word), "{word} is in {said}");
    }
    assert!(output.stdout.is_empty(), "nothing was printed");
}

#[test]
fn json_has_every_field_that_is_documented() {
    let summary = summary(&small("--tolerance 10% --seed 3"));
    for key in [
        "fabric",
        "workload",
        "transport",
        "job",
        "seed",
        "simulated",
        "threads",
        "hosts",
        "flows",
        "finished",
        "fct_us",
        "fct_acked_us",
        "slowdown",
        "goodput_gbps",
        "tasks",
        "makespan_us",
        "drops",
        "marks",
        "retransmissions",
        "duplicates",
        "lost_within_tolerance",
        "lost_bytes",
        "queue_peak_bytes",
        "links_lost",
        "data_packet_hops",
        "packet_hops",
        "events",
        "cpu_s",
        "wall_s",
        "peak_rss_bytes",
        "timed_out",
        "digest",
    ] {
        assert!(summary.get(key).is_some(), "{key} is in {summary}");
    }
    assert_eq!(
        (&summary["hosts"], &summary["finished"]),
        (&16.into(), &16.into())
    );
    assert_eq!(
        (&summary["simulated"], &summary["seed"]),
        (&true.into(), &3.into())
    );
    assert_eq!(summary["job"]["tolerance"], "\"10%\"");
    for key in ["mean", "p50", "p99", "p999", "max", "min"] {
        assert!(
            number(&summary["fct_us"][key]) > 8.0,
            "100 KB take 8 us at 100 Gb/s"
        );
        assert!(
            number(&summary["slowdown"][key]) >= 1.0,
            "nothing is faster than alone"
        );
        let acknowledged = number(&summary["fct_acked_us"][key]);
        assert!(acknowledged > number(&summary["fct_us"][key]));
    }
    assert!(
        summary["queue_peak_bytes"]["edge->host"].is_u64(),
        "{summary}"
    );
    assert!(number(&summary["data_packet_hops"]) >= 16.0 * 24.0 * 2.0);
    assert!(number(&summary["packet_hops"]) > number(&summary["data_packet_hops"]));
}

#[test]
fn equal_seeds_have_equal_digests_and_others_have_not() {
    let digest = |options: &str| summary(&small(options))["digest"].clone();
    for transport in TRANSPORTS {
        let options = format!("--transport {transport} --seed");
        let first = digest(&format!("{options} 5"));
        assert_eq!(
            first,
            digest(&format!("{options} 5")),
            "{transport}, seed 5"
        );
        assert_ne!(
            first,
            digest(&format!("{options} 6")),
            "{transport}, seeds 5 and 6"
        );
    }
}

#[test]
fn tables_say_simulated_and_list_losses() {
    let output = sim("run", &small("--transport roce"));
    let text = text(&output);
    assert_eq!(output.status.code(), Some(0));
    let first = "# simulated: permutation:100KB on fat-tree:k=4@100G, roce, seed 1\n";
    assert!(text.starts_with(first), "{text}");
    for word in [
        "  FCT us ",
        "  slowdown ",
        "  goodput ",
        " p99.9 ",
        "packets at ports",
        "  class 1 ",
        "  sent again ",
        "  lost in tolerance ",
        "  edge->agg ",
        " queue peak ",
        "user CPU",
        "digest ",
    ] {
        assert!(text.contains(word), "{word} is in\n{text}");
    }
}

#[test]
fn tasks_are_in_table_and_json() {
    let step = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/sim/step.txt");
    let options = format!("single:4@100G {}", step.display());
    let text = text(&sim("run", &options));
    assert!(
        text.contains("\ntasks ") && text.contains(" makespan "),
        "{text}"
    );
    let summary = summary(&options);
    assert_eq!(summary["tasks"]["tasks"], summary["tasks"]["finished"]);
    assert!(
        !summary["tasks"]["by_name"]
            .as_array()
            .expect("a list")
            .is_empty()
    );
    // The layers compute for 0.6 ms, and no step is faster than that.
    let (makespan, tasks) = (number(&summary["makespan_us"]), &summary["tasks"]);
    assert!(makespan > 600.0, "{summary}");
    let exposed = number(&tasks["exposed_us"]);
    assert!(
        (number(&tasks["compute_us"]) + exposed - makespan).abs() < 0.01,
        "{tasks}"
    );
}

#[test]
fn each_of_several_workloads_has_its_completion_times() {
    let words = [
        "sim",
        "run",
        "single:8@100G",
        "permutation:10KB + incast:3x100KB",
    ];
    let more = [
        "--background",
        "permutation:1KB",
        "--background-transport",
        "nscc",
        "--json",
    ];
    let output = run(&[&words[..], &more[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let summary = objects(&output).remove(0);
    let groups = summary["groups"].as_array().expect("a list");
    let flows: Vec<f64> = groups.iter().map(|group| number(&group["flows"])).collect();
    assert_eq!(flows, [8.0, 3.0]);
    assert!(number(&groups[1]["fct_us"]["max"]) > number(&groups[0]["fct_us"]["max"]));
    assert_eq!(number(&summary["background_flows"]), 8.0);
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let matrix = file("bad.cm", "Nodes 4\nConnections 1\n0->1 start 0 sise 1000\n");
    let matrix = format!("single:4@25G {}", matrix.display());
    let fabric = file("bad.toml", "shape = \"single:4@25G\"\nlatensy = \"1us\"\n");
    let fabric = format!("{} permutation:1KB", fabric.display());
    for (options, words) in [
        (
            "fat-tre:k=4@100G permutation:1KB",
            &["fat-tre", "fat-tree"][..],
        ),
        ("fat-tree:k=5@100G permutation:1KB", &["k=5", "even"]),
        ("fat-tree:k=4@100X permutation:1KB", &["100X"]),
        (
            "single:4@25G permutatoin:1KB",
            &["permutatoin", "permutation"],
        ),
        ("single:4@25G permutation:1QB", &["permutation:1QB"]),
        ("single:4@25G incast:9x1KB", &["incast:9x1KB"]),
        (
            "single:30000@100G all-to-all:1KB",
            &["899970000 flows", "180.0 GB or more"],
        ),
        (
            "single:4@25G permutation:1KB --background permutation:1KB --background-transport atp",
            &["atp runs alone"],
        ),
        (
            "leaf-spine:2x2x2@25G,core-gray=5@1% permutation:1KB",
            &["core-gray=5", "1 to 4 links"],
        ),
        (&matrix, &["bad.cm: line 3", "sise", "size"]),
        (&fabric, &["bad.toml: line 2", "latensy", "latency"]),
        (
            "nowhere.toml permutation:1KB",
            &["cannot read nowhere.toml", "one line, such as leaf-spine:"],
        ),
        ("single:4@25G flows.csv", &["unknown ending `.csv`", ".cm"]),
        (
            "single:4@25G permutation:1KB --transport tcp",
            &["tcp", "known are gradwire, dctcp"],
        ),
        (
            "single:4@25G permutation:1KB --balance fair",
            &["fair", "ecmp, random and adaptive"],
        ),
        (
            "single:4@25G permutation:1KB --trim maybe",
            &["maybe", "on and off"],
        ),
        (
            "single:4@25G permutation:1KB --set a.b=1",
            &["unknown key `a`"],
        ),
    ] {
        refused(&sim("run", options), words);
    }
}

#[test]
fn runs_stopped_at_their_limit_exit_with_1() {
    let output = sim("run", &small("--limit 11us"));
    assert_eq!(output.status.code(), Some(1));
    let said = errors(&output);
    assert!(
        said.contains("of 16 flows have not ended") && said.contains("--limit"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(text(&output).contains("only ") && text(&output).contains(" of 16 flows ended"));
}

#[test]
fn backgrounds_load_the_fabric_outside_percentiles() {
    let alone = summary(&small(""));
    let beside = summary(&small("--background permutation:4MB"));
    assert_eq!(beside["flows"], 16);
    assert_eq!(beside["background_flows"], 16);
    assert!(number(&beside["fct_us"]["mean"]) > number(&alone["fct_us"]["mean"]));
    let least = 4e6 * 8.0 / 100e9 * 1e6;
    assert!(
        number(&beside["fct_us"]["max"]) < least,
        "the large flows are not in it"
    );
}

#[test]
fn keys_that_are_set_are_in_the_job() {
    let summary = summary(&small(
        "--set transport.window=128KiB --set transport.entropies=16",
    ));
    assert_eq!(summary["job"]["transport.window"], "\"128KiB\"");
    assert_eq!(summary["job"]["transport.entropies"], "16");
}

#[test]
fn compare_prints_ratios_with_their_intervals() {
    let options = small("--transports dctcp,ndp --seeds 4");
    let output = sim("compare", &options);
    let table = text(&output);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(
        table.starts_with("# simulated: permutation:100KB on "),
        "{table}"
    );
    let ndp = table.lines().find(|line| line.starts_with("ndp "));
    let ndp = ndp.expect("a line for each transport");
    assert_eq!(
        (ndp.matches('[').count(), ndp.matches(", ").count()),
        (3, 3),
        "{table}"
    );
    assert!(
        table.contains("x dctcp") && table.contains("# least FCT p99 us: "),
        "{table}"
    );

    let comparison = objects(&sim("compare", &format!("{options} --json"))).remove(0);
    assert_eq!(comparison["seeds"], serde_json::json!([1, 2, 3, 4]));
    let rows = comparison["transports"].as_array().expect("a list");
    assert_eq!((rows.len(), &rows[1]["transport"]), (2, &"ndp".into()));
    for metric in rows[1]["metrics"]
        .as_array()
        .expect("a list")
        .iter()
        .take(3)
    {
        let ratio = &metric["ratio"];
        let (low, mean, high) = (&ratio["low"], &ratio["mean"], &ratio["high"]);
        assert!(
            number(low) <= number(mean) && number(mean) <= number(high),
            "{metric}"
        );
    }
}

#[test]
fn comparisons_are_equal_at_any_parallelism() {
    let options = small("--transports gradwire,dctcp --seeds 3 --parallel");
    let metrics = |parallel: u8| {
        let printed = objects(&sim("compare", &format!("{options} {parallel} --json"))).remove(0);
        let rows = printed["transports"].as_array().expect("a list").clone();
        rows.into_iter()
            .map(|row| row["metrics"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(metrics(1), metrics(3));
}

#[test]
fn compare_refuses_before_anything_runs() {
    for (options, words) in [
        ("--transports dctcp,tcp", &["tcp", "known are"][..]),
        ("--transports ndp,ndp", &["ndp is named twice"]),
    ] {
        refused(&sim("compare", &small(options)), words);
    }
}

#[test]
fn reports_are_one_file() {
    let folder = folder("sim-report");
    let path = folder.join("report.html");
    let options = small(&format!(
        "--transports gradwire,ndp --out {}",
        path.display()
    ));
    let output = sim("report", &options);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let page = std::fs::read_to_string(&path).expect("the report is there");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for word in [
        ">simulated<",
        ">gradwire<",
        ">ndp<",
        "Flow completion times",
        "Queues over time",
        "Links of the fabric",
        "Losses by class",
        "gradwire sim report fat-tree:k=4@100G",
    ] {
        assert!(page.contains(word), "{word} is in the page");
    }
    assert_eq!(page.matches("<svg ").count(), 2 + 2 + 2);
    for foreign in ["http:", "https:", "src=", "@import"] {
        assert!(!page.contains(foreign), "{foreign} is not in the page");
    }
    let files = std::fs::read_dir(&folder).expect("it is a folder").count();
    assert_eq!(files, 1, "nothing else was written");
}

#[test]
fn a_report_that_fails_leaves_what_was_there() {
    let folder = folder("sim-failed-report");
    let path = folder.join("report.html");
    std::fs::write(&path, "the last one").expect("the folder is writable");
    let options = small(&format!(
        "--transports gradwire,tcp --out {}",
        path.display()
    ));
    refused(&sim("report", &options), &["tcp", "known are"]);
    assert_eq!(std::fs::read(&path).expect("it is there"), b"the last one");
    assert_eq!(
        std::fs::read_dir(&folder).expect("it is a folder").count(),
        1
    );
    let nowhere = sim("report", &small("--out /nowhere/report.html"));
    assert_eq!(nowhere.status.code(), Some(5));
    assert!(errors(&nowhere).starts_with("error: cannot write /nowhere/report.html: "));
}

#[test]
fn each_flow_is_a_row_of_csv() {
    let folder = folder("sim-flows");
    let path = folder.join("flows.csv");
    let background = "--background poisson:hadoop@0.3:50us";
    let options = small(&format!("{background} --json --flows {}", path.display()));
    let summary = objects(&sim("run", &options)).remove(0);
    let written = std::fs::read_to_string(&path).expect("it is written");
    let rows: Vec<Vec<&str>> = written
        .lines()
        .map(|row| row.split(',').collect())
        .collect();
    assert_eq!(
        rows[0][..6],
        ["flow", "from", "to", "bytes", "start_us", "fct_us"]
    );
    assert_eq!(
        rows.len(),
        17,
        "16 flows, none of the background: {written}"
    );
    assert!(rows[1..].iter().all(|row| row[3] == "100000"), "{written}");
    let times = rows[1..].iter().map(|row| row[5].parse().expect("a time"));
    let longest: f64 = times.fold(0.0, f64::max);
    assert_eq!(longest, number(&summary["fct_us"]["max"]));
    let steps = format!("{} step:vgg16:ddp,steps=1,scale=16", SMALL[0]);
    let steps = format!("{steps} --flows {}", folder.join("steps.csv").display());
    refused(
        &sim("run", &steps),
        &["--flows", "tasks and messages instead of flows"],
    );
}

#[test]
fn every_command_of_the_examples_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = folder("sim-examples");
    let script = root.join("examples/sim/commands.sh");
    let script = std::fs::read_to_string(script).expect("the commands are there");
    let commands = script
        .lines()
        .filter_map(|line| line.strip_prefix("gradwire "));
    let mut count = 0;
    for command in commands {
        let words = command
            .split_whitespace()
            .map(|word| match word.starts_with("examples/") {
                true => root.join(word).display().to_string(),
                false => word.to_owned(),
            });
        let words: Vec<String> = words.collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = gradwire(&words).current_dir(&folder).output();
        let output = output.expect("the command starts");
        assert_eq!(
            output.status.code(),
            Some(0),
            "{command}: {}",
            errors(&output)
        );
        assert!(!output.stdout.is_empty(), "{command}");
        count += 1;
    }
    assert!(count >= 10, "{count} commands");
    assert!(folder.join("report.html").exists());
}

#[test]
fn help_of_every_command_has_examples() {
    for command in ["run", "compare", "report"] {
        let text = text(&sim(command, "--help"));
        assert!(text.contains("Examples:\n  gradwire sim "), "{text}");
        assert!(
            text.contains("--tolerance") && text.contains("--seed"),
            "{text}"
        );
    }
    assert!(!text(&sim("compare", "--help")).contains("--transport <"));
}

#[test]
fn random_faults_of_a_seed_keep_every_promise() {
    let output = sim(
        "fuzz",
        "--seed 3 --count 2 --faults loss+drift --ranks 2 --json",
    );
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(report["seeds"], 2);
    assert_eq!(report["findings"].as_array().map(Vec::len), Some(0));
    assert!(report["packets"].as_u64() > Some(0));
    let traced = text(&sim("fuzz", "--seed 3 --count 1 --faults none --trace"));
    assert!(traced.contains(" Data group "), "{traced}");
    let refused = sim("fuzz", "--faults fire");
    assert_eq!(refused.status.code(), Some(2));
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("no fault is called \"fire\""), "{words}");
}

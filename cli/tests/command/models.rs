//! `gradwire model`, and training steps of its models: output and refusals.

use crate::processes::{errors, file, objects, run};
use crate::sim::TRANSPORTS;

fn printed(words: &[&str]) -> String {
    let output = run(words);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_listed_model_can_be_shown() {
    let list = objects(&run(&["model", "list", "--json"])).remove(0);
    let list = list.as_array().expect("it is an array").clone();
    assert_eq!(list.len(), 10);
    for model in list {
        let name = model["name"].as_str().expect("a model has a name");
        let shown = objects(&run(&["model", "show", name, "--json"])).remove(0);
        for key in [
            "parameters",
            "bytes",
            "tensors",
            "forward_us",
            "backward_us",
        ] {
            assert_eq!(shown[key], model[key], "{name}: {key}");
        }
        let gradients = shown["gradients"].as_array().expect("it has gradients");
        assert_eq!(model["tensors"], gradients.len(), "{name}");
    }
    let text = printed(&["model", "list"]);
    assert!(text.contains("\nvgg16          138,357,544"), "{text}");
}

#[test]
fn user_tables_are_shown_like_known_models() {
    let table = "layer,parameters,forward_ns,backward_ns\nfirst,1000,5000,10000\nlast,10,1,2000\n";
    let path = file("mine.csv", table);
    let text = printed(&["model", "show", path.to_str().expect("a plain path")]);
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip(4)
        .map(|row| row.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["last", "10", "40", "B", "2.0", "0.002", "0.0"]);
    assert_eq!(
        rows[1],
        ["first", "1,000", "4.0", "kB", "10.0", "0.012", "5.0"]
    );
    assert_eq!(rows[2][0], "total");
}

#[test]
fn files_of_other_tools_are_models() {
    let layers = "DATA\n2\nfront -1 500 NONE 0 40 NONE 0 7 ALLREDUCE 4096 0\n\
                  back -1 600 NONE 0 30 NONE 0 9 ALLREDUCE 4000 0\n";
    let trace = r#"{"workload_graph": [
        {"Id": 0, "Name": "linear", "NodeType": 4, "runtime": 3},
        {"Id": 1, "Name": "backward", "NodeType": 4, "runtime": 7},
        {"Id": 2, "Name": "sum", "NodeType": 7, "comm_type": 0, "comm_size": 8096}]}"#;
    for (path, remark) in [
        (file("list.txt", layers), "bytes of weight gradients / 4"),
        (file("trace.json", trace), "it names no layers"),
    ] {
        let path = path.to_str().expect("a plain path");
        let model = objects(&run(&["model", "show", path, "--json"])).remove(0);
        assert_eq!(model["parameters"], 2_024, "{model}");
        assert!(printed(&["model", "show", path]).contains(remark));
        let line = format!("step:{path}:ps=1,steps=1");
        let summary = objects(&run(&["sim", "run", "single:4@100G", &line, "--json"])).remove(0);
        assert_eq!(summary["training"][0]["workers"], 3, "{summary}");
    }
}

#[test]
fn wrong_models_are_refused_with_line_or_suggestion() {
    let path = file(
        "wrong.csv",
        "layer,parameters,forward_ns,backward_ns\na,many,1,1\n",
    );
    let path = path.to_str().expect("a plain path");
    let layers = file(
        "wrong.txt",
        "DATA\n1\na -1 5 NONE 0 4 NONE 0 7 ALLREDUCE 4k 0\n",
    );
    let layers = layers.to_str().expect("a plain path");
    let trace = file("wrong.json", "{\"workload_graph\": [\n");
    let trace = trace.to_str().expect("a plain path");
    let allowed = "line 2: parameters `many`: allowed are whole numbers from 0 to 10^12";
    for (given, said) in [
        (path, format!("error: {path}: {allowed}")),
        ("resnet5", "(did you mean `resnet50`?)".to_owned()),
        ("missing.csv", "cannot read missing.csv: ".to_owned()),
        ("missing.et", "cannot read missing.et: ".to_owned()),
        (layers, format!("error: {layers}: line 3: bytes `4k`: ")),
        (trace, format!("error: {trace}: rank 0: EOF while parsing")),
    ] {
        let output = run(&["model", "show", given]);
        let error = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains(&said), "{error}");
    }
}

#[test]
fn impossible_recordings_are_refused_with_the_remedy() {
    let script = file("train.py", "print('no training')\n");
    let script = script.to_str().expect("a plain path");
    for (words, code, said) in [
        (
            &["missing.py"][..],
            2,
            "`missing.py` is not a file; give a Python script",
        ),
        (
            &["torchrun", "train.py"],
            2,
            "torchrun --nproc-per-node 2 -m gradwire.record",
        ),
        (&["--steps", "2", script], 2, "3..=10000"),
        (
            &["--out", "mine.txt", script],
            2,
            "the name must end in .csv",
        ),
        (
            &["--python", "/no/python", script],
            5,
            "cannot start /no/python",
        ),
        (
            &["--python", "/bin/false", script],
            5,
            "needs a Python with gradwire and PyTorch",
        ),
        (&[], 2, "<SCRIPT>..."),
    ] {
        let output = run(&[&["model", "record"], words].concat());
        let error = errors(&output);
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(said), "{error}");
    }
}

/// The recorder itself is tested in Python; this one prints any report that a recorder may print.
#[test]
fn recorder_reports_are_the_outcome() {
    let script = file("trained.py", "");
    let script = script.to_str().expect("a plain path");
    let table = "layer,parameters,forward_ns,backward_ns,tensor\na,8,1000,2000,weight\n";
    let out = file("told.csv", table);
    let out = out.to_str().expect("a plain path");
    let record = |told: &str, words: &[&str]| {
        let python = file(
            "python",
            &format!("#!/bin/sh\necho noise >&2\necho '{told}'\n"),
        );
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&python, mode).expect("it is ours");
        let python = python.to_str().expect("a plain path").to_owned();
        let options = ["model", "record", "--python", &python, "--out", out];
        run(&[&options[..], words, &[script]].concat())
    };
    let done = r#"{"out": "told.csv", "rows": 1, "steps": 20, "iteration_us": 3.5}"#;
    let text = String::from_utf8_lossy(&record(done, &[]).stdout).into_owned();
    assert!(text.contains("8 parameters in 1 layers, forward 0.001 ms, backward 0.002 ms"));
    assert!(
        text.contains("gradwire sim run single:8@25G step:"),
        "{text}"
    );
    let object = objects(&record(done, &["--json"])).remove(0);
    assert_eq!(
        (&object["parameters"], &object["steps"]),
        (&8.into(), &20.into())
    );
    let failed = record(
        r#"{"error": "train.py: it ended after 1 of 20 steps"}"#,
        &[],
    );
    assert_eq!(failed.status.code(), Some(1));
    assert!(errors(&failed).contains("error: check failed: train.py: it ended after 1 of 20"));
}

#[test]
fn steps_of_a_users_table_are_simulated_and_told() {
    let table = "layer,parameters,forward_ns,backward_ns\nfirst,1000,5000,10000\nlast,10,1,2000\n";
    let path = file("trained.csv", table);
    let path = path.to_str().expect("a plain path");
    let line = format!("step:{path}:tensors,steps=2");
    let words = ["sim", "run", "single:4@100G", &line];
    let summary = objects(&run(&[&words[..], &["--json"]].concat())).remove(0);
    let training = &summary["training"][0];
    assert_eq!(training["steps"], 2, "{training}");
    assert_eq!(training["workers"], 4, "{training}");
    assert_eq!(training["compute_us"], 17.001, "{training}");
    let iterations = training["iterations_us"].as_array();
    assert_eq!(iterations.map(Vec::len), Some(2), "{training}");
    let number = |key: &str| training[key].as_f64().expect("a step has ended");
    let (mean, exposed) = (number("iteration_us"), number("exposed_us"));
    assert!((mean - exposed - 17.001).abs() < 1e-6, "{training}");
    assert!(exposed > 1.0, "the front layer's round trip: {training}");
    assert_eq!(training["losses"][1]["layer"], "last");
    let text = printed(&words);
    let mut rows = text
        .lines()
        .map(|row| row.split_whitespace().collect::<Vec<_>>());
    assert!(rows.any(|row| row == ["computing", "17.0"]), "{text}");
    assert!(
        text.contains("communication that computing does not hide"),
        "{text}"
    );
}

#[test]
fn steps_that_cannot_be_are_refused_with_one_line() {
    let path = file(
        "nothing.csv",
        "layer,parameters,forward_ns,backward_ns\na,0,1,1\n",
    );
    let path = path.to_str().expect("a plain path");
    for (line, said) in [
        (
            format!("step:{path}:ddp"),
            format!("{path}: no layer has parameters"),
        ),
        (
            "step:vgg61:ddp".to_owned(),
            "(did you mean `vgg16`?)".to_owned(),
        ),
        (
            "step:vgg16:ps=4".to_owned(),
            "needs 5 hosts or more; there are 4".to_owned(),
        ),
        (
            "step:vgg16:ddp,steps=no".to_owned(),
            "steps=`no`: allowed are".to_owned(),
        ),
    ] {
        let output = run(&["sim", "run", "single:4@100G", &line]);
        let error = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains(&said), "{error}");
    }
}

#[test]
fn parallel_jobs_are_measured_each_background_cut_off() {
    let table = "layer,parameters,forward_ns,backward_ns\nfirst,1000,5000,10000\nlast,10,1,2000\n";
    let path = file("jobs.csv", table);
    let path = path.to_str().expect("a plain path");
    let jobs = [
        format!("step:{path}:ddp,steps=2@hosts=0-3"),
        format!("step:{path}:ps=1,steps=3@hosts=3-7"),
    ];
    let line = jobs.join(" + ");
    let words = ["sim", "run", "single:8@100G", &line, "--json"];
    let background = "poisson:websearch@0.1:1s + incast:2x20KB,every=100us,for=1s";
    let beside = ["--background", background, "--transport"];
    for transport in TRANSPORTS {
        let words = [&words[..], &beside[..], &[transport]].concat();
        let summary = objects(&run(&words)).remove(0);
        let training = [&summary["training"][0], &summary["training"][1]];
        for (training, (job, steps)) in training.into_iter().zip(jobs.iter().zip([2, 3])) {
            assert_eq!(training["job"], job.as_str(), "{transport}");
            let ended = training["iterations_us"].as_array().map(Vec::len);
            assert_eq!(ended, Some(steps), "{transport}: {training}");
            let mean = training["fct_us"]["mean"].as_f64();
            assert!(
                mean.is_some_and(|mean| mean > 1.0),
                "{transport}: {training}"
            );
        }
        let flows = |key: &str| summary[key].as_u64().expect("it is a count");
        assert!(flows("background_finished") < flows("background_flows"));
        assert!(flows("background_finished") > 0, "{transport}");
    }
}

#[test]
fn a_plan_splits_the_large_matrices_of_vgg16() {
    let words = [
        "model",
        "plan",
        "vgg16",
        "--devices",
        "8",
        "--memory",
        "4GB",
    ];
    let text = printed(&words);
    let way = "classifier.0 to classifier.6 (3): tensor parallel";
    assert!(text.contains(way), "{text}");
    let page = file("plan.html", "");
    let page = page.to_str().expect("a plain path");
    let options = ["--out", page, "--json"];
    let report = objects(&run(&[&words[..], &options].concat())).remove(0);
    let costs = |key: &str| {
        let rows = report["frontier"].as_array().expect("it has plans").iter();
        rows.map(|row| row[key].as_f64().expect("a number"))
            .collect::<Vec<_>>()
    };
    let (times, memory) = (costs("time_us"), costs("memory"));
    assert!(times.windows(2).all(|pair| pair[0] > pair[1]), "{times:?}");
    assert!(
        memory.windows(2).all(|pair| pair[0] < pair[1]),
        "{memory:?}"
    );
    let written = std::fs::read_to_string(page).expect("it is written");
    assert!(written.contains("Plans of vgg16 on 8 devices") && written.contains("<svg"));
}

#[test]
fn packets_take_as_long_as_planned() {
    let table = "layer,parameters,forward_ns,backward_ns\nfirst,400000,300000,600000\n\
                 middle,2000000,500000,900000\nlast,100,100000,200000\n";
    let path = file("planned.csv", table);
    let path = path.to_str().expect("a plain path");
    let words = ["--devices", "4", "--memory", "1G", "--json"];
    let report = objects(&run(&[&["model", "plan", path], &words[..]].concat())).remove(0);
    let rows = report["frontier"].as_array().expect("it has plans");
    assert!(rows.len() >= 2, "{report}");
    for row in rows {
        let plan = row["plan"].as_str().expect("a plan has a name");
        let line = format!("step:{path}:plan={plan},steps=2,overlap=off");
        let ran = objects(&run(&["sim", "run", "single:4@100G", &line, "--json"])).remove(0);
        let [simulated, planned] = [&ran["training"][0]["iteration_us"], &row["time_us"]];
        let ratio = simulated.as_f64().expect("it ended") / planned.as_f64().expect("it is a time");
        assert!((ratio - 1.0).abs() < 0.1, "{plan}: {ratio}");
    }
}

#[test]
fn impossible_plans_say_what_to_change() {
    let table = "layer,parameters,forward_ns,backward_ns\nonly,4000000,1000,2000\n";
    let path = file("large.csv", table);
    let path = path.to_str().expect("a plain path");
    for (words, code, said) in [
        (["vgg61", "2", "4G"], 2, "(did you mean `vgg16`?)"),
        (["vgg16", "0", "4G"], 2, "0 is not in 2..=64"),
        (["vgg16", "2", "plenty"], 2, "allowed are 16G, 512M"),
        (["missing.csv", "2", "4G"], 2, "cannot read missing.csv"),
        (
            [path, "2", "8M"],
            1,
            "the smallest plan takes 64.00 MB (1d)",
        ),
    ] {
        let [model, devices, memory] = words;
        let output = run(&[
            "model",
            "plan",
            model,
            "--devices",
            devices,
            "--memory",
            memory,
        ]);
        let error = errors(&output);
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(said), "{error}");
    }
}

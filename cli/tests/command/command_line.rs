//! The command line: accepted forms, and the messages for refused ones.

use crate::processes::{errors, file, gradwire, objects, run};

#[test]
fn help_names_every_command_and_exit_code() {
    let output = run(&["--help"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0));
    for command in ["job", "perf", "rank", "doctor"] {
        assert!(
            text.contains(&format!("\n  {command} ")),
            "{command} is in\n{text}"
        );
    }
    for code in 0..=5 {
        assert!(
            text.contains(&format!("\n  {code}  ")),
            "{code} is in\n{text}"
        );
    }
    assert!(
        !text.contains("perf-rank"),
        "what is internal is not in\n{text}"
    );
}

#[test]
fn help_of_perf_has_examples_and_explains_the_columns() {
    let output = run(&["perf", "all-reduce", "--help"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for word in [
        "Examples:",
        "--against gloo",
        "algbw",
        "busbw",
        "gigabytes (10^9 bytes) per second",
        "--tolerance",
    ] {
        assert!(text.contains(word), "{word} is in\n{text}");
    }
}

#[test]
fn job_check_prints_the_resolved_job() {
    let job = file(
        "given.toml",
        "name = \"mnist\"\ntolerance = 0.1\n[transport]\ngap = \"2ms\"\n",
    );
    let path = job.to_str().expect("a plain path");
    let output = run(&["job", "check", path]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("tolerance = \"10%\"\n"));
    assert!(text.contains("gap = \"2ms\"\n"));
    assert!(text.contains("window = \"auto\"  # default\n"));
    let printed = file("printed.toml", &text);
    let json = |path: &str| objects(&run(&["job", "check", path, "--json"]));
    assert_eq!(json(path), json(printed.to_str().expect("a plain path")));
    assert_eq!(json(path)[0]["name"], "\"mnist\"");
}

#[test]
fn a_job_without_security_is_checked_with_a_warning() {
    let open = file("open.toml", "security = \"none\"\n");
    let output = run(&["job", "check", open.to_str().expect("a plain path")]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("security = \"none\"\n"));
    let warning = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(warning.contains("can read, forge and replay"), "{warning}");
    let sealed = file("sealed.toml", "");
    let output = run(&["job", "check", sealed.to_str().expect("a plain path")]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("security = \"aead\"  # default\n"), "{text}");
    assert!(output.stderr.is_empty());
}

#[test]
fn job_keys_are_listed_with_their_ranges() {
    let text = String::from_utf8_lossy(&run(&["job", "keys"]).stdout).into_owned();
    assert!(
        text.contains("\ntransport.window = \"auto\"\n    Maximum bytes in flight"),
        "{text}"
    );
    assert!(
        text.contains("allowed: \"auto\", \"64KiB\" to \"1GiB\", or a number of bytes"),
        "{text}"
    );
}

#[test]
fn a_wrong_job_is_refused_in_one_line() {
    for (name, text, expected) in [
        (
            "range.toml",
            "tolerance = 1.5",
            "tolerance = 1.5: allowed are 0 to 1, or \"0%\" to \"100%\"",
        ),
        (
            "key.toml",
            "[transport]\nwindw = \"1MiB\"",
            "unknown key `windw` in [transport] (did you mean `window`?); known keys are wire, ",
        ),
        ("syntax.toml", "name = \"a\"\ntolerance =", "line 2: "),
        (
            "unit.toml",
            "[transport]\ngap = \"2\"",
            "transport.gap = \"2\": allowed are \"10us\"",
        ),
    ] {
        let path = file(name, text);
        let output = run(&["job", "check", path.to_str().expect("a plain path")]);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(name) && said.contains(expected), "{said}");
    }
}

#[test]
fn a_missing_job_file_is_named() {
    let output = run(&["job", "check", "/nowhere/job.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).starts_with("error: cannot read /nowhere/job.toml: "));
}

#[test]
fn one_rank_is_too_few() {
    let output = run(&["perf", "all-reduce", "-n", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        errors(&output),
        "error: -n 1: a collective needs at least 2 ranks\n"
    );
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for (arguments, expected) in [
        (
            &["-b", "1M", "-e", "4K"][..],
            "-b 1MiB is larger than -e 4KiB",
        ),
        (
            &["-b", "4X"],
            "allowed are bytes, or a number with K, M or G",
        ),
        (&["--drop", "120%"], "allowed are 0 to 1, or 0% to 100%"),
        (&["--mtu", "100"], "100 is not in 576..=65535"),
        (
            &["--job", "/nowhere/job.toml"],
            "cannot read /nowhere/job.toml",
        ),
        (&["--wire", "tcp"], "transport.wire = \"tcp\": allowed are"),
        (&["--algorithm", "tree"], "collectives.algorithm = \"tree\""),
        (
            &["--against", "gloo", "--idle", "busy"],
            "allowed here are \"adaptive\" and \"block\"",
        ),
    ] {
        let output = run(&[&["perf", "all-reduce"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(errors(&output).contains(expected), "{}", errors(&output));
    }
}

#[test]
fn impossible_rival_comparisons_are_refused_with_alternatives() {
    for (arguments, expected) in [
        (
            &["broadcast", "--against", "openmpi"][..],
            "--against openmpi measures all-reduce, not broadcast",
        ),
        (
            &["loss", "--against", "gloo"],
            "--against gloo needs --netns",
        ),
        (
            &["loss", "--drop", "1%"],
            "--drop 1%: this command takes --drops",
        ),
        (
            &["loss", "--against", "openmpi"],
            "shared memory loses nothing",
        ),
    ] {
        let output = run(&[&["perf"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(errors(&output).contains(expected), "{}", errors(&output));
    }
}

#[test]
fn a_missing_open_mpi_is_named_with_its_packages() {
    let output = gradwire(&["perf", "all-reduce", "--against", "openmpi"])
        .env("PATH", "/nowhere")
        .output();
    let output = output.expect("the command starts");
    assert_eq!(output.status.code(), Some(5));
    assert!(errors(&output).contains("openmpi-bin and libopenmpi-dev"));
}

#[test]
fn a_python_without_pytorch_is_named() {
    let options = ["--against", "gloo", "--python", "/nowhere/python"];
    let output = run(&[&["perf", "all-reduce"], &options[..]].concat());
    assert_eq!(output.status.code(), Some(5));
    assert!(errors(&output).contains("needs a Python with PyTorch, and /nowhere/python has none"));
}

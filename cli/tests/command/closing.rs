//! Output without a reader, as behind `| head`: every command ends quietly, and with it all
//! processes that it has started.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Output, Stdio};

use crate::processes::{children, errors, file, gradwire, run, runs, within_ten_seconds};
use crate::{schedules, tracing};

/// The code that shells report for a program ended by SIGPIPE.
const UNREAD: Option<i32> = Some(141);
/// A simulated workload that takes no time.
const SMALL: &str = "single:2@10G permutation:1KB";
/// All commands but `top`, which needs a job, `model record` and `tune loss`, which need scripts,
/// and `switch apply` and `probe`, which need rights.
const COMMANDS: [&str; 25] = [
    "--help",
    "--version",
    "job check JOB",
    "job keys",
    "perf all-reduce -n 2 -b 4K -e 4K",
    "perf all-reduce -n 2 -b 4K -e 4K --json",
    "rank --rank 0 --world 2 --rendezvous 127.0.0.1:0 --token secret",
    "doctor",
    "doctor --json",
    "trace show TRACE",
    "trace show TRACE --json",
    "sim run SMALL",
    "sim run SMALL --json",
    "sim compare SMALL",
    "model list",
    "model show vgg16 --json",
    "model plan vgg16 --devices 2 --memory 4GB --json",
    "eval dlcp --list",
    "eval taxonomy --list",
    "generate reference",
    "generate schema job",
    "switch render --platform sonic default leaf-spine:2x2x2@100G",
    "switch platforms",
    "switch verify --platform sonic default leaf-spine:2x2x2@100G",
    "tune schedule single:3@10G WORKLOAD --trials 2",
];

fn words(command: &str) -> Vec<String> {
    let command = command.replace("SMALL", SMALL);
    let path = |word: &str| match word {
        "JOB" => {
            let job = file("unread.toml", "name = \"unread\"\n");
            job.display().to_string()
        }
        "TRACE" => tracing::written("unread-trace"),
        "WORKLOAD" => schedules::workload("unread", "tensors,steps=1"),
        word => word.to_owned(),
    };
    command.split_whitespace().map(path).collect()
}

/// Runs a command whose standard output was closed before it began.
fn unread(command: &str) -> Output {
    let (reader, writer) = std::io::pipe().expect("there are pipes");
    drop(reader);
    let words = words(command);
    let output = gradwire(&words.iter().map(String::as_str).collect::<Vec<_>>())
        .stdout(writer)
        .output();
    output.expect("the command starts")
}

#[test]
fn commands_end_quietly_when_their_reader_goes() {
    for command in COMMANDS {
        let output = unread(command);
        let said = errors(&output);
        assert!(!said.contains("panicked"), "{command}: {said}");
        assert!(!said.contains("error"), "{command}: {said}");
        // Help is printed by the library that reads the command line, which ignores it.
        let expected = if command.starts_with("--") {
            Some(0)
        } else {
            UNREAD
        };
        assert_eq!(output.status.code(), expected, "{command}: {said}");
    }
}

#[test]
fn every_command_that_is_listed_is_tried() {
    let help = run(&["--help"]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed: Vec<&str> = listed
        .map_while(|line| line.strip_prefix("  "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| !["aggregate", "top", "help"].contains(name))
        .collect();
    assert!(listed.len() > 8, "{listed:?}");
    for name in listed {
        let tried = |command: &&str| command.split_whitespace().next() == Some(name);
        assert!(COMMANDS.iter().any(tried), "{name}");
    }
}

#[test]
fn unread_standard_error_is_no_panic() {
    let (reader, writer) = std::io::pipe().expect("there are pipes");
    drop(reader);
    let words = words("eval dlcp --list");
    let status = gradwire(&words.iter().map(String::as_str).collect::<Vec<_>>())
        .stdout(Stdio::null())
        .stderr(writer)
        .status();
    assert_eq!(status.expect("the command starts").code(), UNREAD);
}

#[test]
fn ranks_end_with_a_launcher_that_nobody_reads() {
    let sizes = ["-b", "4K", "-e", "1G", "-f", "2", "--json"];
    let mut launcher = gradwire(&[&["perf", "all-reduce", "-n", "2"], &sizes[..]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let ranks = {
        let output = launcher.stdout.take().expect("it was asked for");
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        assert!(read.is_ok_and(|bytes| bytes > 0), "it prints a line");
        children(launcher.id())
    };
    assert_eq!(ranks.len(), 2);
    let output = launcher.wait_with_output().expect("the command ends");
    assert_eq!(output.status.code(), UNREAD, "{}", errors(&output));
    assert_eq!(errors(&output), "");
    let ended = within_ten_seconds(|| !ranks.iter().any(|rank| runs(*rank)));
    assert!(ended, "a rank was left behind");
}

#[test]
fn a_full_disk_is_told_and_is_no_success() {
    let full = PathBuf::from("/dev/full");
    let Ok(full) = OpenOptions::new().write(true).open(full) else {
        eprintln!("left out: this system has no /dev/full");
        return;
    };
    let output = gradwire(&["job", "keys"]).stdout(full).output();
    let output = output.expect("the command starts");
    assert_eq!(output.status.code(), Some(5));
    let said = errors(&output);
    assert!(
        said.starts_with("error: cannot write standard output: "),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

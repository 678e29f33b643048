//! The commands that documents show: each runs here, or a row below says where else.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::processes::{errors, folder, gradwire};

/// Beginnings of commands that other tests run, or that take longer than a test may, with the test
/// or the reason.
const ELSEWHERE: [(&str, &str); 21] = [
    ("doctor", "tests/command/doctor"),
    ("eval", "tests/command/evaluating.rs"),
    (
        "model record",
        "python/tests/binding_facts.py; it needs PyTorch",
    ),
    (
        "model show",
        "tests/command/models.rs; its files come from other programs",
    ),
    ("perf", "tests/command/measuring.rs"),
    ("rank", "tests/command/failing.rs"),
    ("sim compare fat-tree:k=6", "40 s"),
    ("sim compare single:6@100G all-reduce:100MB", "5 s"),
    ("sim fuzz", "tests/command/sim.rs"),
    (
        "sim report single:5@10G step:recorded.csv",
        "tests/command/models.rs",
    ),
    (
        "sim run single:4@25G step:recorded.csv",
        "tests/command/models.rs",
    ),
    (
        "sim run single:6@100G",
        "tests/command/models.rs; its files come from other programs",
    ),
    ("sim run single:64@100G step:gpt2", "minutes"),
    ("sim run single:8@10G step:resnet50", "3 s"),
    ("sim sweep", "tests/command/sweep.rs"),
    ("switch probe", "tests/command/probing.rs"),
    ("top", "tests/command/watching.rs"),
    ("trace", "tests/command/tracing.rs and events.rs"),
    ("tune", "tests/command/tuning.rs and schedules.rs"),
    ("switch apply", "tests/command/applying.rs"),
    (
        "switch verify --platform sonic job.toml fabric.toml --counters",
        "tests/command/switch.rs",
    ),
];

/// Files that documents name.
const FILES: [(&str, &str); 4] = [
    ("job.toml", "tolerance = \"5%\"\n"),
    (
        "fabric.toml",
        "shape = \"leaf-spine:2x2x2@100G\"\nbuffer = \"2MiB\"\n",
    ),
    (
        "flows.cm",
        "Nodes 4\nConnections 1\n0->3 id 1 start 0 size 2000000\n",
    ),
    (
        "config_db.json",
        include_str!("../../../switch-config/tests/exports/sonic.json"),
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The commands of gradwire in the fenced blocks of a page, without redirections.
fn shown(text: &str) -> Vec<String> {
    let mut is_code = false;
    let lines = text.lines().map(str::trim);
    let code = lines.filter(|line| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        is_code && !is_fence
    });
    let commands = code.filter_map(|line| {
        let line = line.strip_prefix("$ ").unwrap_or(line);
        let command = line.strip_prefix("gradwire ")?;
        // A redirection, or an explanation.
        let command = command.split(" > ").next()?.split("   ").next()?;
        Some(command.to_owned())
    });
    commands.collect()
}

/// The words of a command, as a shell takes them that knows double quotes only.
fn words(command: &str) -> Vec<String> {
    let parts = command.split('"').enumerate();
    let words = parts.flat_map(|(number, part)| match number % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

fn is_elsewhere(command: &str) -> bool {
    ELSEWHERE.iter().any(|(beginning, _)| {
        let rest = command.strip_prefix(beginning);
        rest.is_some_and(|rest| rest.is_empty() || !rest.starts_with(char::is_alphabetic))
    })
}

#[test]
fn commands_that_documents_show_run() {
    let folder = folder("documents");
    std::os::unix::fs::symlink(root().join("examples"), folder.join("examples"))
        .expect("the folder is empty");
    for (name, text) in FILES {
        std::fs::write(folder.join(name), text).expect("the test's folder is writable");
    }
    let pages = std::fs::read_dir(root().join("docs")).expect("the documents are there");
    let pages = pages.map(|page| page.expect("it can be listed").path());
    let pages = pages.filter(|page| page.extension().is_some_and(|ending| ending == "md"));
    let texts = pages
        .chain([root().join("README.md")])
        .map(|page| std::fs::read_to_string(page).expect("a page is text"));
    let commands: BTreeSet<String> = texts.flat_map(|text| shown(&text)).collect();
    let here = commands.iter().filter(|command| !is_elsewhere(command));
    let mut count = 0;
    for command in here {
        let words = words(command);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = gradwire(&words)
            .current_dir(&folder)
            .env("HOME", &folder)
            .output();
        let output = output.expect("the command starts");
        // A check of a switch that runs something else finds faults, as the page says.
        let allowed = i32::from(command.starts_with("switch check"));
        assert_eq!(
            output.status.code(),
            Some(allowed),
            "{command}: {}",
            errors(&output)
        );
        count += 1;
    }
    assert!(count >= 20, "{count} commands of {commands:?}");
}

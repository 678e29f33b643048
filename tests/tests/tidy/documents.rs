//! Rules over the documents: every file, command and variable that they name exists, and their
//! tables agree with the code.

use std::collections::BTreeSet;

use gradwire_cli::exit::EXIT_CODES;
use gradwire_fabric::topology::Fabric;
use gradwire_protocol::job::{Job, describe};
use gradwire_switch_config::lint::Rule;
use gradwire_tests::tree::{File, files, paths, read, report, root};

const FIRST_COMMAND_LINE_MAX: usize = 20;
const ARCHITECTURE_LINES_MAX: usize = 200;

/// Every page for people: those of the root, of `docs` and the diary of `benches`.
pub(crate) fn documents() -> Vec<File> {
    let pages = files(&["md"]).into_iter();
    pages
        .filter(|page| {
            let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            ["", "docs", "benches"].contains(&folder)
        })
        .collect()
}

/// The texts between backticks on a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn the_first_command_of_the_readme_is_on_the_first_screen() {
    let readme = read("README.md");
    let fence = readme.numbered().find(|(_, line)| line.starts_with("```"));
    let (line, _) = fence.expect("README.md shows a command in a fenced block");
    if line >= FIRST_COMMAND_LINE_MAX {
        let what =
            format!("the first command comes after line {FIRST_COMMAND_LINE_MAX}: move it up");
        report(&[readme.finding(line + 1, what)]);
    }
}

#[test]
fn the_architecture_is_read_in_one_sitting() {
    let file = read("ARCHITECTURE.md");
    let lines = file.text.lines().count();
    let what =
        format!("{lines} lines, at most {ARCHITECTURE_LINES_MAX}: leave details to the code");
    assert!(
        lines <= ARCHITECTURE_LINES_MAX,
        "{}",
        file.finding(lines, what)
    );
}

#[test]
fn every_file_that_a_document_names_exists() {
    let tree: BTreeSet<String> = paths().into_iter().collect();
    let sources = [".rs", ".md", ".py", ".pyi", ".h", ".cpp", ".hpp"];
    let mut found = Vec::new();
    for document in documents() {
        let folder = document
            .path
            .rsplit_once('/')
            .map_or("", |(folder, _)| folder);
        for (number, line) in document.numbered() {
            let named = quoted(line)
                .filter(|name| name.contains('/') && sources.iter().any(|end| name.ends_with(end)));
            let missing = named.filter(|name| {
                let beside = format!("{folder}/{name}");
                !name.starts_with("out/") && !tree.contains(*name) && !tree.contains(&beside)
            });
            found.extend(missing.map(|name| {
                document.finding(number, format!("`{name}` does not exist: name what does"))
            }));
        }
    }
    report(&found);
}

#[test]
fn every_make_target_that_a_document_names_exists() {
    let makefile = read("Makefile").text;
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter(|line| !line.starts_with(['\t', ' ']))
        .filter_map(|line| line.split_once(':').map(|(targets, _)| targets))
        .flat_map(str::split_whitespace)
        .collect();
    let mut found = Vec::new();
    for document in documents() {
        for (number, line) in document.numbered() {
            let quoted = quoted(line).filter_map(|code| code.strip_prefix("make "));
            let typed = line.strip_prefix("$ make ").into_iter();
            let words = quoted
                .chain(typed)
                .filter_map(|rest| rest.split_whitespace().next());
            let missing = words.filter(|target| !targets.contains(target));
            found.extend(missing.map(|target| {
                document.finding(number, format!("the Makefile has no target `{target}`"))
            }));
        }
    }
    report(&found);
}

/// The table that follows `heading`, with the number of its first line.
fn table<'a>(file: &'a File, heading: &str) -> (usize, Vec<&'a str>) {
    let after = file.numbered().skip_while(|(_, line)| *line != heading);
    let mut rows = after
        .skip_while(|(_, line)| !line.starts_with('|'))
        .peekable();
    let first = rows.peek().map_or(1, |(number, _)| *number);
    (
        first,
        rows.map(|(_, line)| line)
            .take_while(|line| line.starts_with('|'))
            .collect(),
    )
}

/// The fenced blocks of a language, each with the number of its first line.
fn blocks(file: &File, language: &str) -> Vec<(usize, String)> {
    let opening = format!("```{language}");
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut is_inside = false;
    for (number, line) in file.numbered() {
        match line.trim() {
            fence if fence == opening => {
                blocks.push((number, String::new()));
                is_inside = true;
            }
            "```" => is_inside = false,
            _ if is_inside => {
                let (_, text) = blocks.last_mut().expect("a block has begun");
                text.push_str(line);
                text.push('\n');
            }
            _ => {}
        }
    }
    blocks
}

#[test]
fn every_job_and_fabric_of_a_document_is_read() {
    let mut found = Vec::new();
    for document in documents() {
        for (number, text) in blocks(&document, "toml") {
            let mistake = match text.contains("shape = ") {
                true => Fabric::from_toml(&text)
                    .err()
                    .map(|error| error.to_string()),
                false => Job::from_toml(&text).err().map(|error| error.to_string()),
            };
            found.extend(mistake.map(|what| document.finding(number, what)));
        }
    }
    report(&found);
}

#[test]
fn the_table_of_job_keys_is_the_default_job() {
    let defaults = Job::default().flat();
    let rows = describe().map(|(key, purpose, allowed)| {
        let default = &defaults[key];
        format!("| `{key}` | `{default}` | {purpose} | {allowed} |")
    });
    let opening = [
        "| key | default | meaning | allowed values |",
        "|---|---|---|---|",
    ];
    let wanted: Vec<String> = opening.into_iter().map(str::to_owned).chain(rows).collect();
    let page = read("docs/job.md");
    let (line, found) = table(&page, "### `job.toml`");
    let said = format!(
        "docs/job.md:{line}: the table must be\n{}",
        wanted.join("\n")
    );
    assert!(found.iter().eq(wanted.iter()), "{said}");
}

#[test]
fn every_rule_about_switches_is_explained_to_operators() {
    let page = read("docs/switches.md");
    let (_, rows) = table(&page, "## Findings of `check`");
    let explained: Vec<&str> = rows.iter().flat_map(|row| quoted(row).take(1)).collect();
    assert_eq!(explained, Rule::NAMES);
}

#[test]
fn the_table_of_exit_codes_is_that_of_the_command() {
    let rows = EXIT_CODES
        .lines()
        .skip(1)
        .filter_map(|line| line.trim().split_once("  "));
    let opening = ["| code | meaning |", "|---|---|"]
        .into_iter()
        .map(str::to_owned);
    let wanted: Vec<String> = opening
        .chain(rows.map(|(code, meaning)| format!("| {code} | {meaning} |")))
        .collect();
    let page = read("docs/command.md");
    let (line, found) = table(&page, "## Exit codes of `gradwire`");
    let said = format!(
        "docs/command.md:{line}: the table must be\n{}",
        wanted.join("\n")
    );
    assert!(found.iter().eq(wanted.iter()), "{said}");
}

#[test]
fn the_oldest_rust_of_the_documents_is_the_one_of_the_manifest() {
    let manifest: toml::Table = read("Cargo.toml")
        .text
        .parse()
        .expect("the manifest is TOML");
    let oldest = manifest["workspace"]["package"]["rust-version"]
        .as_str()
        .expect("a string");
    let readme = read("README.md");
    let wanted = format!("Rust {oldest}");
    assert!(
        readme.text.contains(&wanted),
        "README.md: name `{wanted}`, as Cargo.toml does"
    );
}

#[test]
fn both_licences_are_there_and_named() {
    for (path, opening) in [
        ("LICENSE-MIT", "MIT License"),
        ("LICENSE-APACHE", "Apache License"),
    ] {
        let text = read(path).text;
        assert!(
            text.trim_start().starts_with(opening),
            "{path}:1: not the {opening}"
        );
    }
    for path in ["Cargo.toml", "README.md"] {
        let named = read(path).text.contains("MIT OR Apache-2.0");
        assert!(named, "{path}: name the licence, MIT OR Apache-2.0");
    }
}

#[test]
fn ci_runs_what_the_readme_tells_a_person_to_run() {
    let script = read(".ci/run");
    let commands: Vec<(usize, &str)> = script
        .numbered()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .filter(|(_, line)| !line.starts_with("set ") && !line.starts_with("cd "))
        .filter(|(_, line)| !line.starts_with("export CARGO_"))
        .collect();
    let lines: Vec<&str> = commands.iter().map(|(_, line)| *line).collect();
    assert_eq!(
        lines,
        ["GRADWIRE_SLOW=1 make test"],
        ".ci/run: one command, nothing else"
    );
    assert!(
        read("README.md").text.contains("make test"),
        "README.md: tell `make test`"
    );
}

/// The environment variables of gradwire's own that a line names.
fn variables(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|char: char| !(char.is_ascii_uppercase() || char == '_'));
    words.filter(|word| {
        word.strip_prefix("GRADWIRE_")
            .is_some_and(|rest| !rest.is_empty())
    })
}

#[test]
fn every_environment_variable_that_is_read_is_documented() {
    let told = ["docs/job.md", "CONTRIBUTING.md"]
        .map(|path| read(path).text)
        .concat();
    let known: BTreeSet<&str> = told.lines().flat_map(variables).collect();
    let mut found = Vec::new();
    // Switch configurations read no environment; names in capitals there are a switch's own.
    let files = files(&["rs", "py"]).into_iter();
    for file in files.filter(|file| !file.path.starts_with("switch-config/")) {
        for (number, line) in file.numbered() {
            let unknown = variables(line).filter(|name| !known.contains(name));
            found.extend(unknown.map(|name| {
                file.finding(
                    number,
                    format!("`{name}`: docs/job.md or CONTRIBUTING.md must document it"),
                )
            }));
        }
    }
    report(&found);
}

#[test]
fn scripts_that_are_run_by_name_are_executable() {
    use std::os::unix::fs::PermissionsExt;
    let mode = root()
        .join(".ci/run")
        .metadata()
        .expect("the script is there")
        .permissions()
        .mode();
    assert!(mode & 0o100 != 0, ".ci/run: make it executable");
}

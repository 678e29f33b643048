//! Rules over the text of the source files.

use gradwire_tests::rust_text::{Function, Token, code_only, declared_names, functions, words};
use gradwire_tests::tree::{File, Finding, files, paths, read, report};
use gradwire_tests::{python_text, rust_text};

const CODE: [&str; 7] = ["rs", "py", "pyi", "cpp", "hpp", "h", "sh"];
const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// File and folder names that say how small a thing is instead of naming its decision.
const FILE_NAMES_BANNED: [&str; 10] = [
    "common", "handler", "handlers", "helper", "helpers", "manager", "misc", "tools", "util",
    "utils",
];

/// Words that a declared name may not contain, and the word to use.
const WORDS_BANNED: [(&str, &str); 13] = [
    ("node", "rank, host or switch"),
    ("nodes", "ranks, hosts or switches"),
    ("manager", "what it decides"),
    ("handler", "the event it takes (handle_… as a verb is fine)"),
    ("handlers", "the events they take"),
    ("helper", "what it does"),
    ("helpers", "what they do"),
    ("util", "what it does"),
    ("utils", "what they do"),
    ("misc", "what it holds"),
    ("context", "what it holds"),
    ("info", "what it tells"),
    ("prio", "class"),
];

/// Text that marks unfinished or disabled work. Cut in two so that this file passes its own rule.
const MARKS_BANNED: [(&str, &str); 8] = [
    (
        concat!("TO", "DO"),
        "finish it or file it, the code is no list of wishes",
    ),
    (concat!("FIX", "ME"), "mend it"),
    (concat!("XX", "X"), "say what is meant"),
    (concat!("dbg", "!("), "remove it"),
    (
        concat!("unimplemented", "!("),
        "leave out what is not there",
    ),
    (concat!("todo", "!("), "leave out what is not there"),
    (
        concat!("#[", "ignore"),
        "a slow test asks GRADWIRE_SLOW, see CONTRIBUTING.md",
    ),
    (
        concat!("```", "ignore"),
        "an example compiles, or it is not one",
    ),
];

/// Rooms in which some code is out of place: path prefix, code, reason.
const OUT_OF_PLACE: [(&str, &[&str], &str); 10] = [
    (
        "protocol/src/",
        SANS_IO_BANNED,
        "the protocol is sans-IO: bytes, time and seeds are arguments",
    ),
    (
        "collectives/src/",
        SANS_IO_BANNED,
        "collectives are sans-IO: bytes and time are arguments",
    ),
    (
        "tuning/src/",
        SANS_IO_BANNED,
        "a search proposes; who asks it measures",
    ),
    (
        "fabric/src/",
        SANS_IO_BANNED,
        "a fabric is made from text that others read",
    ),
    (
        "workloads/src/",
        SANS_IO_BANNED,
        "a workload is made from text that others read",
    ),
    (
        "testnet/src/",
        SANS_IO_BANNED,
        "the network of tests has its own time and a seed",
    ),
    (
        "netsim/src/",
        SANS_IO_BANNED,
        "the simulator has its own time; threads are in parallel.rs only",
    ),
    (
        "runtime/src/",
        &["unsafe "],
        "unsafe code is in transport and python only",
    ),
    (
        "cli/src/",
        &["unsafe "],
        "unsafe code is in transport and python only",
    ),
    (
        "transport/src/udp/",
        &["async "],
        "async code is in transport/src/control only",
    ),
];

/// Exceptions for one file: a run of the simulator uses several threads, and a prefetch takes a raw
/// pointer, but changes only times.
const EXCUSED: [(&str, &str); 2] = [
    ("netsim/src/engine/parallel.rs", "std::thread"),
    ("protocol/src/prefetch.rs", "unsafe "),
];

const SANS_IO_BANNED: &[&str] = &[
    "std::net",
    "std::fs",
    "std::env",
    "std::thread",
    "std::process",
    "std::time",
    "async ",
    "unsafe ",
    "println!",
    "eprintln!",
];

fn rust_files() -> Vec<File> {
    files(&["rs"])
}

fn findings(files: &[File], rule: impl Fn(&File) -> Vec<Finding>) -> Vec<Finding> {
    files.iter().flat_map(rule).collect()
}

#[test]
fn every_file_opens_with_what_it_is_for() {
    let rule = |file: &File| {
        let opening: &[&str] = match file.extension() {
            "rs" => &["//! "],
            "py" | "pyi" => &["\"\"\"", "r\"\"\""],
            "sh" => &["# "],
            _ => &["// ", "/* ", "/** "],
        };
        let first = file
            .text
            .lines()
            .find(|line| !line.starts_with("#!/"))
            .unwrap_or("");
        if opening.iter().any(|open| first.starts_with(open)) {
            return Vec::new();
        }
        let what = format!(
            "open with `{}` and one sentence on the decision of this file",
            opening[0]
        );
        vec![file.finding(1, what)]
    };
    report(&findings(&files(&CODE), rule));
}

#[test]
fn files_stay_within_their_length_and_lines_within_their_columns() {
    let rule = |file: &File| {
        let mut found = Vec::new();
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            let what = format!("{lines} lines, at most {FILE_LINES_MAX}: cut along a concept");
            found.push(file.finding(lines, what));
        }
        for (number, line) in file.numbered() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                let what = format!("{columns} columns, at most {COLUMNS_MAX}: break the line");
                found.push(file.finding(number, what));
            }
        }
        found
    };
    report(&findings(&files(&CODE), rule));
}

fn functions_of(file: &File) -> Vec<Function> {
    match file.extension() {
        "rs" => functions(&code_only(&file.text)),
        _ => python_text::functions(&file.text),
    }
}

#[test]
fn functions_fit_a_screen() {
    let rule = |file: &File| {
        let long = functions_of(file)
            .into_iter()
            .filter(|one| one.lines > FUNCTION_LINES_MAX);
        let found = long.map(|one| {
            let (name, lines) = (&one.name, one.lines);
            let what = format!("`{name}` has {lines} lines, at most {FUNCTION_LINES_MAX}: cut it");
            file.finding(one.line, what)
        });
        found.collect()
    };
    report(&findings(&files(&["rs", "py"]), rule));
}

#[test]
fn rust_tests_are_named_as_the_fact_they_prove() {
    let rule = |file: &File| {
        let tests = functions(&code_only(&file.text))
            .into_iter()
            .filter(|one| one.is_test);
        let vague = tests.filter(|one| one.name.starts_with("test") || words(&one.name).len() < 3);
        let found = vague.map(|one| {
            let what = format!(
                "`{}`: name the fact it proves, in three words or more",
                one.name
            );
            file.finding(one.line, what)
        });
        found.collect()
    };
    report(&findings(&rust_files(), rule));
}

#[test]
fn no_file_is_named_for_being_small() {
    let mut found = Vec::new();
    for path in paths() {
        let banned = path.split('/').find(|part| {
            let stem = part.split('.').next().unwrap_or(part);
            FILE_NAMES_BANNED.contains(&stem)
        });
        if let Some(part) = banned {
            let what = format!("`{part}` says nothing: name the file for what it decides");
            found.push(Finding {
                path: path.clone(),
                line: 1,
                what,
            });
        }
    }
    report(&found);
}

#[test]
fn declared_names_use_the_words_of_the_field() {
    let rule = |file: &File| {
        let names: Vec<Token> = match file.extension() {
            "rs" => declared_names(&code_only(&file.text)),
            _ => python_text::declared_names(&file.text),
        };
        let mut found = Vec::new();
        for name in names {
            let parts = words(&name.text);
            for (word, instead) in WORDS_BANNED {
                if parts.iter().any(|part| part == word) {
                    let what = format!("`{}`: not `{word}` but {instead}", name.text);
                    found.push(file.finding(name.line, what));
                }
            }
        }
        found
    };
    report(&findings(&files(&["rs", "py", "pyi"]), rule));
}

#[test]
fn no_unfinished_work_is_marked_in_the_text() {
    let text = ["rs", "py", "pyi", "cpp", "hpp", "h", "sh", "md", "toml"];
    let rule = |file: &File| {
        let mut found = Vec::new();
        for (number, line) in file.numbered() {
            for (mark, remedy) in MARKS_BANNED.iter().filter(|(mark, _)| line.contains(mark)) {
                found.push(file.finding(number, format!("`{mark}`: {remedy}")));
            }
        }
        found
    };
    report(&findings(&files(&text), rule));
}

#[test]
fn every_room_does_only_what_it_may() {
    let rule = |file: &File| {
        let mut found = Vec::new();
        let code = code_only(&file.text);
        let rooms = OUT_OF_PLACE
            .iter()
            .filter(|(room, ..)| file.path.starts_with(room));
        for (_, banned, reason) in rooms {
            let excused = EXCUSED
                .iter()
                .filter(|(path, _)| *path == file.path)
                .map(|(_, snippet)| *snippet);
            let excused: Vec<&str> = excused.collect();
            for (index, line) in code.lines().enumerate() {
                let stray = banned.iter().filter(|snippet| line.contains(**snippet));
                for snippet in stray.filter(|snippet| !excused.contains(snippet)) {
                    let what = format!("`{}` is out of place: {reason}", snippet.trim());
                    found.push(file.finding(index + 1, what));
                }
            }
        }
        found
    };
    report(&findings(&rust_files(), rule));
}

#[test]
fn the_driver_is_synchronous_and_async_stays_in_the_control_plane() {
    let rule = |file: &File| {
        let control = file.path.starts_with("transport/src/control");
        if control || file.path.starts_with("transport/tests/") {
            return Vec::new();
        }
        let tokens = rust_text::tokens(&code_only(&file.text));
        let stray = tokens.into_iter().filter(|token| token.text == "async");
        let what = "`async` is out of place: the control plane is the only async room";
        stray.map(|token| file.finding(token.line, what)).collect()
    };
    report(&findings(&rust_files(), rule));
}

#[test]
fn no_text_names_a_folder_of_one_machine() {
    let folders = [
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("/wo", "rk/"),
    ];
    let text = ["rs", "py", "pyi", "cpp", "hpp", "h", "sh", "md", "toml"];
    let rule = |file: &File| {
        let mut found = Vec::new();
        for (number, line) in file.numbered() {
            for folder in folders.iter().filter(|folder| line.contains(**folder)) {
                let what = format!("`{folder}` exists on one machine: use a relative path");
                found.push(file.finding(number, what));
            }
        }
        found
    };
    let mut all = files(&text);
    all.extend([read("Makefile"), read(".ci/run")]);
    report(&findings(&all, rule));
}

//! Rules over the prose: comments are written for a reader who reads each sentence once.

use std::collections::BTreeMap;

use gradwire_tests::tree::{files, paths, read};

/// The word opens noun clauses that have to be read twice; well-written code has it less than once
/// in a thousand words of comments.
const WHAT_PER_1000_WORDS_MAX: f64 = 4.0;

/// A folder with fewer words than this has too few for a share.
const WORDS_MIN: usize = 1000;

/// The comments of a file, without what stands between backticks.
fn prose(path: &str, text: &str) -> String {
    let is_python = path.ends_with(".py") || path.ends_with(".pyi");
    let lines: Vec<&str> = if is_python {
        python_comments(text)
    } else {
        text.lines().filter_map(comment_of).collect()
    };
    let without_code = |line: &&str| line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    lines
        .iter()
        .map(without_code)
        .collect::<Vec<_>>()
        .join("\n")
}

/// The text of a line comment.
fn comment_of(line: &str) -> Option<&str> {
    let comment = line.trim_start().strip_prefix("//")?;
    Some(comment.trim_start_matches(['/', '!']))
}

/// Docstrings and line comments.
fn python_comments(text: &str) -> Vec<&str> {
    let docstrings = text.split("\"\"\"").skip(1).step_by(2);
    let comments = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("# "));
    docstrings.chain(comments).collect()
}

/// Counts words, and those of them that open such clauses.
fn counted(prose: &str) -> (usize, usize) {
    let words = prose.split(|char: char| !(char.is_alphabetic() || char == '\''));
    let words = words.filter(|word| !word.is_empty());
    words.fold((0, 0), |(words, whats), word| {
        (
            words + 1,
            whats + usize::from(word.eq_ignore_ascii_case("what")),
        )
    })
}

#[test]
fn comments_name_the_actor_instead_of_what() {
    let mut folders: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for file in files(&["rs", "py", "pyi", "hpp", "cpp", "h"]) {
        let folder = file.path.split('/').next().unwrap_or_default().to_owned();
        let (words, whats) = counted(&prose(&file.path, &file.text));
        let sum = folders.entry(folder).or_default();
        *sum = (sum.0 + words, sum.1 + whats);
    }
    hold_below_the_limit(&folders);
}

#[test]
fn documents_name_the_actor_instead_of_what() {
    let mut documents = BTreeMap::new();
    for path in paths().into_iter().filter(|path| path.ends_with(".md")) {
        let text = read(&path).text;
        let prose: Vec<&str> = text.split("```").step_by(2).collect();
        documents.insert(path, counted(&prose.join(" ")));
    }
    hold_below_the_limit(&documents);
}

fn hold_below_the_limit(counts: &BTreeMap<String, (usize, usize)>) {
    let shares = counts
        .iter()
        .filter(|(_, (words, _))| *words >= WORDS_MIN)
        .map(|(place, (words, whats))| (place, 1000.0 * *whats as f64 / *words as f64));
    let above: Vec<String> = shares
        .filter(|(_, share)| *share >= WHAT_PER_1000_WORDS_MAX)
        .map(|(place, share)| format!("{place}: \"what\" {share:.1} times in 1,000 words"))
        .collect();
    assert!(
        above.is_empty(),
        "below {WHAT_PER_1000_WORDS_MAX} wanted; name who does it:\n{}",
        above.join("\n")
    );
}

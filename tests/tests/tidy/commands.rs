//! Rules over commands in documents and help texts: each can be typed, and its files exist.

use std::collections::BTreeSet;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Parser};
use gradwire_cli::arguments::Arguments;
use gradwire_tests::tree::{Finding, paths, report};

use crate::documents::documents;

/// The words of one command as a shell takes them: without assignments in front, and without
/// redirections and further commands behind it.
fn typed(line: &str) -> Vec<String> {
    let words = shlex::split(line).unwrap_or_default();
    let words = words.into_iter();
    let ends = ["|", "&&", "||", ";", "&"];
    let words = words.skip_while(|word| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    });
    words
        .take_while(|word| !ends.contains(&word.as_str()) && !word.starts_with('>'))
        .collect()
}

/// Whether a text is prose with fenced blocks, or code as a whole.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Form {
    Page,
    Help,
}

/// The commands of a text with their lines: in code, those behind `$ ` and lines that begin with
/// `gradwire `, up to a wide gap. A backslash joins lines.
fn shown(text: &str, form: Form) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut goes_on, mut is_code) = (false, form == Form::Help);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        is_code ^= line.starts_with("```");
        if !is_code {
            continue;
        }
        let line = line.split("   ").next().unwrap_or_default();
        let begins = line.starts_with("gradwire ").then_some(line);
        if goes_on {
            let (_, command) = found.last_mut().expect("a line before this one goes on");
            command.push_str(line.trim_end_matches('\\'));
        } else if let Some(command) = line.strip_prefix("$ ").or(begins) {
            found.push((index + 1, command.trim_end_matches('\\').to_owned()));
        } else {
            continue;
        }
        goes_on = line.ends_with('\\');
    }
    found
}

/// The mistake in a command of gradwire, if there is one.
fn mistake(words: &[String]) -> Option<String> {
    let asked = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
    let error = Arguments::try_parse_from(words).err()?;
    let told = error.to_string();
    let first = told.lines().next().unwrap_or_default().to_owned();
    (!asked.contains(&error.kind())).then_some(first)
}

#[test]
fn every_gradwire_command_that_a_document_shows_can_be_typed() {
    let mut found = Vec::new();
    for document in documents() {
        for (number, line) in shown(&document.text, Form::Page) {
            let words = typed(&line);
            let is_ours = words.first().is_some_and(|word| word == "gradwire");
            if !is_ours || line.contains("...") {
                continue;
            }
            let mistake = mistake(&words);
            found.extend(mistake.map(|what| document.finding(number, format!("`{line}`: {what}"))));
        }
    }
    report(&found);
}

#[test]
fn every_example_of_a_help_text_can_be_typed() {
    let mut found = Vec::new();
    let mut left = vec![Arguments::command()];
    while let Some(command) = left.pop() {
        let help = command.get_after_help().map(ToString::to_string);
        for (line, example) in shown(&help.unwrap_or_default(), Form::Help) {
            let words = typed(&example);
            let mistake = mistake(&words).filter(|_| !example.contains("..."));
            found.extend(mistake.map(|what| Finding {
                path: format!("help of {}", command.get_name()),
                line,
                what: format!("`{example}`: {what}"),
            }));
        }
        left.extend(command.get_subcommands().cloned());
    }
    report(&found);
}

/// The first word that is no command where one must stand.
fn unknown_word<'a>(words: &[&'a str]) -> Option<&'a str> {
    let mut command: Command = Arguments::command();
    for word in words {
        let plain = word
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        if !command.has_subcommands() || !plain || word.starts_with('-') {
            return None;
        }
        let Some(inner) = command.find_subcommand(word).cloned() else {
            return Some(word);
        };
        command = inner;
    }
    None
}

#[test]
fn every_command_in_running_text_exists() {
    let mut found = Vec::new();
    for document in documents() {
        for (number, line) in document.numbered() {
            for code in line.split('`').skip(1).step_by(2) {
                // A line of a log has a colon at its end.
                let rest = code.strip_prefix("gradwire ");
                let Some(rest) = rest.filter(|rest| !rest.ends_with(':')) else {
                    continue;
                };
                let words: Vec<&str> = rest.split_whitespace().collect();
                let unknown = unknown_word(&words);
                found.extend(unknown.map(|word| {
                    document.finding(number, format!("`{code}`: there is no command `{word}`"))
                }));
            }
        }
    }
    report(&found);
}

#[test]
fn every_script_and_module_that_a_document_runs_exists() {
    let tree: BTreeSet<String> = paths().into_iter().collect();
    let mut found = Vec::new();
    for document in documents() {
        for (number, line) in shown(&document.text, Form::Page) {
            let words = typed(&line);
            let scripts = words.iter().filter(|word| {
                let is_script = [".py", ".sh", ".yaml"]
                    .iter()
                    .any(|end| word.ends_with(end));
                is_script && word.contains('/')
            });
            let missing = scripts.filter(|script| !tree.contains(*script)).cloned();
            let modules = words.iter().filter(|word| word.starts_with("gradwire."));
            let missing_modules = modules.filter(|module| {
                let path = format!("python/{}", module.replace('.', "/"));
                let is_there = |end: &str| tree.contains(&format!("{path}{end}"));
                !is_there(".py") && !is_there("/__main__.py") && words.contains(&"-m".to_owned())
            });
            let missing = missing.chain(missing_modules.cloned());
            found.extend(missing.map(|name| {
                document.finding(
                    number,
                    format!("`{line}` runs {name}, which does not exist"),
                )
            }));
        }
    }
    report(&found);
}

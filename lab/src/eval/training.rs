//! Tables of real training: the commands that train, and their printed results.
//!
//! Each command keeps its finished work and goes on where it was. This file starts the commands one
//! after the other, since each uses all cores. A command prints JSON, and the last line is its
//! result.

use std::path::Path;
use std::process::Stdio;

use gradwire_report::eprintln;
use serde_json::Value;

use super::findings::TableFindings;
use super::request::EvalRequest;
use super::section::TableOutcome;
use crate::crew::leash;
use crate::shell;
use crate::sweep::folder::SweepFolder;

/// The trainings of a table.
#[derive(Debug)]
pub struct Study {
    /// Its folder beside the report.
    pub folder: &'static str,
    /// Its commands.
    pub parts: fn(&EvalRequest, &Path) -> Vec<StudyPart>,
    /// Its report in that folder, in Markdown.
    pub written: Option<&'static str>,
    /// Returns the part of a study that was not run, if any.
    pub left: fn(&Value) -> Option<String>,
    /// The advice to a user for whom a part of the study cannot run.
    pub remedy: &'static str,
    /// Turns the results of its parts into findings.
    pub found: fn(&[(String, Value)]) -> TableFindings,
}

/// One command of a study.
#[derive(Clone, Debug)]
pub struct StudyPart {
    /// Its name in the report.
    pub name: String,
    /// Its words.
    pub words: Vec<String>,
    /// The exit code besides 0 that comes with a result.
    pub also: Option<i32>,
}

/// Runs a study to its end.
pub fn run(study: &Study, options: &EvalRequest, folder: &SweepFolder) -> TableOutcome {
    let place = folder.path(study.folder);
    let parts = (study.parts)(options, &place);
    let (mut results, mut missing) = (Vec::new(), Vec::new());
    for part in &parts {
        match result(part, &place) {
            Ok(value) => {
                missing.extend((study.left)(&value));
                results.push((part.name.clone(), value));
            }
            Err(reason) => {
                missing.push(format!("{}: {reason}; {}", part.name, study.remedy));
            }
        }
    }
    let written = study.written.map(|name| place.join(name));
    TableOutcome {
        found: (study.found)(&results),
        commands: parts.iter().map(|part| typed(&part.words)).collect(),
        missing,
        written: written.and_then(|path| std::fs::read_to_string(path).ok()),
    }
}

fn typed(words: &[String]) -> String {
    shell::line(words.iter().map(String::as_str))
}

/// Runs one part, whose progress goes to the terminal. A kill of this process ends the part, too.
fn result(part: &StudyPart, place: &Path) -> Result<Value, String> {
    std::fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
    eprintln!("{}", typed(&part.words));
    let guard = leash::guarded(part.words.iter().cloned()).and_then(|mut command| {
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.spawn()
    });
    let mut guard = guard.map_err(|error| format!("its guard: {error}"))?;
    // Held for as long as the part may run.
    let leash = guard.stdin.take();
    let output = guard.wait_with_output();
    drop(leash);
    let output = output.map_err(|error| format!("its guard: {error}"))?;
    let is_result = output.status.success() || output.status.code() == part.also;
    let printed = String::from_utf8_lossy(&output.stdout);
    let last = printed.lines().rev().find_map(json);
    match last {
        Some(value) if is_result => Ok(value),
        _ => Err(format!("{} ended with {}", part.words[0], output.status)),
    }
}

/// Reads a line of JSON; Python's `NaN` and `Infinity` become `null`.
fn json(line: &str) -> Option<Value> {
    let line = line
        .replace("-Infinity", "null")
        .replace("Infinity", "null");
    let value = serde_json::from_str::<Value>(&line.replace("NaN", "null")).ok()?;
    value.is_object().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinities_of_python_are_read_as_null() {
        let value = json(r#"{"steps": Infinity, "final": 0.5}"#).expect("it is an object");
        assert_eq!(
            (value["steps"].as_f64(), value["final"].as_f64()),
            (None, Some(0.5))
        );
        assert!(json("12 of 24 trials").is_none());
    }
}

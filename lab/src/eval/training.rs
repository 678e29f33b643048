//! Tables of real training: commands that train and print their results at their ends.
//!
//! Those commands keep finished trainings themselves and continue where they were. They run one
//! after the other, since each uses all cores. The last line of JSON that each prints is its
//! result.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use gradwire_report::eprintln;
use serde_json::Value;

use super::findings::TableFindings;
use super::request::EvalRequest;
use crate::sweep::folder::SweepFolder;

/// The trainings of a table.
#[derive(Debug)]
pub struct Study {
    /// Its folder beside the report.
    pub folder: &'static str,
    /// Its commands.
    pub parts: fn(&EvalRequest, &Path) -> Vec<StudyPart>,
    /// A file in that folder, in Markdown, with the study's own summary.
    pub written: Option<&'static str>,
    /// Reads from a part's result which trainings were left out, if any.
    pub left: fn(&Value) -> Option<String>,
    /// The advice when a part cannot run.
    pub remedy: &'static str,
    /// Computes the table from the results of the parts.
    pub found: fn(&[(String, Value)]) -> TableFindings,
}

/// One command of a study.
#[derive(Clone, Debug)]
pub struct StudyPart {
    /// Its name in the report.
    pub name: String,
    /// Program and arguments.
    pub words: Vec<String>,
    /// The exit code, beside 0, with which it has a result.
    pub also: Option<i32>,
}

/// A study that was run, or why not.
#[derive(Debug)]
pub struct Trained {
    /// The table, computed from the results that there are.
    pub found: TableFindings,
    /// The commands, as typed.
    pub commands: Vec<String>,
    /// The missing results.
    pub missing: Vec<String>,
    /// The study's own summary, in Markdown.
    pub written: Option<String>,
}

/// Runs a study to its end.
pub fn run(study: &Study, options: &EvalRequest, folder: &SweepFolder) -> Trained {
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
    Trained {
        found: (study.found)(&results),
        commands: parts.iter().map(|part| typed(&part.words)).collect(),
        missing,
        written: written.and_then(|path| std::fs::read_to_string(path).ok()),
    }
}

fn typed(words: &[String]) -> String {
    let quoted = words.iter().map(|word| match word.contains(['{', ' ']) {
        true => format!("'{word}'"),
        false => word.clone(),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Runs one part; its messages go to the terminal. When this process is killed, the part is ended,
/// too.
fn result(part: &StudyPart, place: &Path) -> Result<Value, String> {
    std::fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
    eprintln!("{}", typed(&part.words));
    let mut guard = guarded(&part.words).map_err(|error| format!("its guard: {error}"))?;
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

fn guarded(words: &[String]) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(["tune-trial", "--"])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        // An interrupt from the terminal is for this process; the guard notices its end.
        .process_group(0)
        .spawn()
}

/// A line of JSON. Python writes infinities and NaN as words that JSON lacks; they become `null`
/// here.
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
    fn what_python_writes_of_no_number_is_read_as_none() {
        let value = json(r#"{"steps": Infinity, "final": 0.5}"#).expect("it is an object");
        assert_eq!(
            (value["steps"].as_f64(), value["final"].as_f64()),
            (None, Some(0.5))
        );
        assert!(json("12 of 24 trials").is_none());
    }
}

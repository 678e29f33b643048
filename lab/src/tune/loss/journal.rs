//! The journal of a search: a first line with the settings of every trial, and a line per finished
//! trial. Lines are only appended, so a killed search goes on behind its last complete line.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use gradwire_tuning::tolerance::ToleranceTrial;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::files;

/// Version of the journal's format.
const VERSION: u32 = 2;

/// The settings of all trials of a journal that affect their results.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Heading {
    gradwire_tune_loss: u32,
    /// The script.
    pub command: Vec<String>,
    /// The name of the metric.
    pub metric: String,
    /// The job without tolerance and faults.
    pub job: String,
}

impl Heading {
    /// Makes the heading of a search.
    pub fn new(command: &[String], metric: &str, job: String) -> Self {
        Self {
            gradwire_tune_loss: VERSION,
            command: command.to_owned(),
            metric: metric.to_owned(),
            job,
        }
    }

    /// Returns the first field in which another heading differs.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        let same = [
            ("form", self.gradwire_tune_loss == other.gradwire_tune_loss),
            ("command", self.command == other.command),
            ("--metric", self.metric == other.metric),
            ("job", self.job == other.job),
        ];
        same.into_iter()
            .find(|(_, same)| !same)
            .map(|(name, _)| name)
    }
}

/// The reason for a trial.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialPurpose {
    /// Its metric shows whether the script bears a tolerance.
    #[default]
    Metric,
    /// Its times show whether a tolerance is worth having.
    Time,
}

/// A finished trial.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TrialRecord {
    /// The setting and the metric.
    #[serde(flatten)]
    pub trial: ToleranceTrial,
    /// The reason for it.
    #[serde(default)]
    pub purpose: TrialPurpose,
    /// Share of packets dropped on purpose.
    pub drop: f64,
    /// Mean length of a run of drops.
    pub burst: f64,
    /// The losses that the ranks accepted.
    pub accepted: Accepted,
    /// Its duration.
    pub seconds: f64,
    /// Mean time of its all-reduces in microseconds, over all ranks, without the longest of each;
    /// `None` if the ranks told none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_reduce_us: Option<f64>,
    /// The reason why there is no metric, if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The losses that all ranks together accepted.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Accepted {
    /// Number of ranks that wrote their counts.
    pub ranks: u32,
    /// Bytes of messages that might lose packets.
    pub owed_bytes: u64,
    /// Bytes of these that the tolerance allowed to lose.
    pub allowed_bytes: u64,
    /// Bytes that were accepted as lost.
    pub lost_bytes: u64,
}

impl Accepted {
    /// Returns the lost share of the bytes that might be lost.
    pub fn share(&self) -> f64 {
        self.lost_bytes as f64 / self.owed_bytes.max(1) as f64
    }

    /// Adds several.
    pub fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            ranks: sum.ranks + one.ranks,
            owed_bytes: sum.owed_bytes + one.owed_bytes,
            allowed_bytes: sum.allowed_bytes + one.allowed_bytes,
            lost_bytes: sum.lost_bytes + one.lost_bytes,
        })
    }
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    records: Vec<TrialRecord>,
}

impl Journal {
    /// Opens the journal in a folder, or begins it.
    ///
    /// # Errors
    /// [`LabError::Input`] when it is of another search or damaged, [`LabError::System`] when it
    /// cannot be written.
    pub fn open(folder: &Path, heading: &Heading) -> Result<Self, LabError> {
        let path = folder.join("journal.jsonl");
        let told = |source| LabError::system(format!("cannot write {}", path.display()))(source);
        std::fs::create_dir_all(folder).map_err(told)?;
        let mut file = OpenOptions::new();
        let mut file = file
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .map_err(told)?;
        let text = files::text(&path)?;
        // The search was killed while it wrote a line without an end.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        if whole.len() < text.len() {
            file.set_len(whole.len() as u64).map_err(told)?;
        }
        let records =
            read(whole, heading).map_err(|message| LabError::input(path.display(), message))?;
        if whole.is_empty() {
            add(&mut file, &line(heading)).map_err(told)?;
        }
        Ok(Self {
            path,
            file,
            records,
        })
    }

    /// Returns the finished trials.
    pub fn records(&self) -> &[TrialRecord] {
        &self.records
    }

    /// Returns the finished trials that were done for this reason.
    pub fn of(&self, purpose: TrialPurpose) -> impl Iterator<Item = &TrialRecord> {
        let all = self.records.iter();
        all.filter(move |record| record.purpose == purpose)
    }

    /// Adds a trial; it is on disk when this returns.
    ///
    /// # Errors
    /// [`LabError::System`] when it cannot be written.
    pub fn add(&mut self, record: TrialRecord) -> Result<(), LabError> {
        add(&mut self.file, &line(&record)).map_err(LabError::system(format!(
            "cannot write {}",
            self.path.display()
        )))?;
        self.records.push(record);
        Ok(())
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn line(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("plain data with names as keys");
    format!("{json}\n")
}

fn add(file: &mut File, line: &str) -> std::io::Result<()> {
    file.write_all(line.as_bytes())?;
    file.sync_data()
}

fn read(text: &str, heading: &Heading) -> Result<Vec<TrialRecord>, String> {
    let mut lines = text.lines().zip(1..);
    let wrong = |number: i32, error: &dyn std::fmt::Display| {
        format!("line {number}: {error}; give another folder with --out, or delete this file")
    };
    let Some((first, _)) = lines.next() else {
        return Ok(Vec::new());
    };
    let written: Heading = serde_json::from_str(first).map_err(|error| wrong(1, &error))?;
    if let Some(differs) = written.difference(heading) {
        return Err(format!(
            "it belongs to a search with another {differs}: give another folder with --out, \
             or delete this one"
        ));
    }
    lines
        .map(|(line, number)| serde_json::from_str(line).map_err(|error| wrong(number, &error)))
        .collect()
}

#[cfg(test)]
mod tests {
    use gradwire_tuning::tolerance::ToleranceSetting;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("gradwire-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    fn heading(command: &str) -> Heading {
        Heading::new(
            &[command.to_owned()],
            "accuracy",
            "name = \"job\"".to_owned(),
        )
    }

    fn record(seed: u64, metric: Option<f64>) -> TrialRecord {
        let setting = ToleranceSetting::overall(0.015);
        TrialRecord {
            trial: ToleranceTrial {
                setting,
                seed,
                metric,
            },
            purpose: TrialPurpose::Metric,
            drop: 0.02,
            burst: 8.0,
            accepted: Accepted::default(),
            seconds: 1.5,
            all_reduce_us: Some(812.5),
            note: None,
        }
    }

    #[test]
    fn journals_are_read_back_without_torn_lines() {
        let folder = folder("journal-torn");
        let mut journal = Journal::open(&folder, &heading("a")).expect("a new one");
        let records = [record(1, Some(0.1 + 0.2)), record(2, None)];
        for record in &records {
            journal.add(record.clone()).expect("it is written");
        }
        let path = journal.path().to_owned();
        drop(journal);
        let whole = std::fs::read_to_string(&path).expect("it is there");
        std::fs::write(&path, format!("{whole}{{\"setting\"")).expect("it is writable");
        let mut journal = Journal::open(&folder, &heading("a")).expect("it goes on");
        assert_eq!(journal.records(), records);
        journal.add(record(3, Some(1.0))).expect("it is written");
        drop(journal);
        let journal = Journal::open(&folder, &heading("a")).expect("it goes on");
        assert_eq!(journal.records().len(), 3);
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn foreign_or_damaged_journals_are_refused() {
        let folder = folder("journal-other");
        drop(Journal::open(&folder, &heading("a")).expect("a new one"));
        let refused = Journal::open(&folder, &heading("b")).expect_err("another command");
        assert!(
            refused
                .to_string()
                .contains("a search with another command"),
            "{refused}"
        );
        let path = folder.join("journal.jsonl");
        let text = std::fs::read_to_string(&path).expect("it is there");
        std::fs::write(&path, format!("{text}nonsense\n")).expect("it is writable");
        let refused = Journal::open(&folder, &heading("a")).expect_err("nonsense");
        assert!(refused.to_string().contains("line 2: "), "{refused}");
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}

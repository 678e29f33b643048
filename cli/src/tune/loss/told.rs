//! The output of a search on the terminal: a row per trial, the time that it still takes, the
//! result.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use gradwire_tuning::tolerance::ToleranceSetting;
use indicatif::{HumanDuration, ProgressBar};
use serde_json::{Value, json};

use super::options::TuneLossOptions;
use gradwire_lab::sim::progress;
use gradwire_lab::tune::loss::evidence::{self, SearchEvidence, number_text, of};
use gradwire_lab::tune::loss::journal::{Journal, TrialPurpose, TrialRecord};
use gradwire_lab::tune::loss::trial::percent;
use gradwire_report::columns::heads;

/// Tells of a search as the options want it.
#[derive(Debug)]
pub struct Teller<'a> {
    options: &'a TuneLossOptions,
    bar: ProgressBar,
    /// About how many trials come after the one that runs.
    ahead: Cell<usize>,
    /// Seconds that finished trials took, in all, and their number.
    took: Cell<(f64, usize)>,
}

impl<'a> Teller<'a> {
    /// Prints the largest number of trials, and how many are done.
    pub fn new(options: &'a TuneLossOptions, journal: &Journal) -> Self {
        let beside = "{pos} of about {len} trials  {elapsed} gone  {msg}";
        let before = journal.records().len();
        let bar = progress::bar(u64::from(options.trials), beside);
        bar.set_position(before as u64);
        let teller = Self {
            options,
            bar,
            ahead: Cell::new(0),
            took: Cell::new((0.0, 0)),
        };
        if !options.json {
            teller.head(journal);
        }
        teller
    }

    fn head(&self, journal: &Journal) {
        let (trials, command) = (self.options.trials, self.options.command.join(" "));
        println!("# at most {trials} trials of: {command}");
        match journal.records() {
            [] => println!("# how long they take is known after the first"),
            records => {
                let (count, path) = (records.len(), journal.path().display());
                println!("# continues after the {count} trials in {path}");
            }
        }
        let metric = &self.options.metric;
        let names =
            format!("trial | tolerance | losses | seed | {metric} | lost, % | seconds | left");
        println!("{}", heads(&[6, 16, 12, 5, 12, 10, 9, 12], &names));
        self.bar.enable_steady_tick(Duration::from_millis(500));
    }

    /// A trial begins; about this many are still to come, this one with them.
    pub fn begin(
        &self,
        (setting, seed): (&ToleranceSetting, u64),
        remaining: usize,
        done: &[TrialRecord],
    ) {
        let sum: f64 = done.iter().map(|record| record.seconds).sum();
        self.took.set((sum, done.len()));
        self.ahead.set(remaining.saturating_sub(1));
        let left = left((sum, done.len()), remaining);
        self.bar.set_length((done.len() + remaining) as u64);
        self.bar
            .set_message(format!("{left} left  trying {}, seed {seed}", of(setting)));
    }

    /// A trial has ended.
    pub fn done(&self, record: &TrialRecord) {
        let number = self.bar.position() + 1;
        self.bar.suspend(|| match self.options.json {
            true => println!("{}", json!(record)),
            false => println!("{} {:>12}", row(number, record), self.left_after(record)),
        });
        self.bar.inc(1);
    }

    /// About how long the trials after this one take.
    fn left_after(&self, record: &TrialRecord) -> String {
        let (sum, count) = self.took.get();
        left((sum + record.seconds, count + 1), self.ahead.get())
    }

    /// Removes the progress bar.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// Prints the result, and the job file that it was written to.
    pub fn found(&self, evidence: &SearchEvidence<'_>, job: Option<&Path>) {
        let page = self.options.out.join("report.html");
        if self.options.json {
            println!("{}", summary(evidence, job, &page));
            return;
        }
        for line in evidence.lines() {
            println!("# {line}");
        }
        if let Some(job) = job {
            for (key, value) in evidence.values() {
                println!("{key} = {value}");
            }
            println!("# written to {}", job.display());
        }
        println!("# drawn in {}", page.display());
    }
}

/// How long this many trials take, after others took this many seconds in all.
fn left((seconds, done): (f64, usize), trials: usize) -> String {
    if done == 0 {
        return "unknown time".to_owned();
    }
    let left = Duration::from_secs_f64(seconds / done as f64 * trials as f64);
    format!("~{:#}", HumanDuration(left))
}

fn row(number: u64, record: &TrialRecord) -> String {
    let trial = &record.trial;
    let losses = match (record.purpose, record.burst > 1.0) {
        (TrialPurpose::Time, _) => "of the path",
        _ if trial.setting.is_lossless() => "none",
        (TrialPurpose::Metric, true) => "bursts",
        (TrialPurpose::Metric, false) => "independent",
    };
    let metric = trial.metric.map_or_else(|| "none".to_owned(), number_text);
    let row = format!(
        "{number:>6} {:>16} {losses:>12} {:>5} {metric:>12} {:>10} {:>9.1}",
        of(&trial.setting),
        trial.seed,
        percent(record.accepted.share()),
        record.seconds
    );
    match &record.note {
        Some(note) => format!("{row}  {note}"),
        None => row,
    }
}

fn summary(evidence: &SearchEvidence<'_>, job: Option<&Path>, page: &Path) -> Value {
    let finding = evidence.finding;
    let cells = finding.cells.iter().map(|cell| {
        json!({
            "setting": cell.setting,
            "verdict": evidence::verdict(cell.judgement.verdict),
            "trials": cell.judgement.trials,
            "worse_by": cell.judgement.worse_by,
            "at_most": cell.judgement.at_most,
            "lost_share": evidence.lost(&cell.setting),
        })
    });
    let undecided = evidence.undecided().into_iter();
    let undecided =
        undecided.map(|(setting, trials)| json!({ "setting": setting, "trials": trials }));
    let time_gained = evidence.timed.and_then(|timed| {
        let gain = timed.gain.as_ref()?;
        Some(json!({
            "path_loss": timed.path_loss,
            "times_as_fast": gain.median(),
            "range": gain.range(),
            "pairs": gain.pairs(),
        }))
    });
    let shown = |path: &Path| path.display().to_string();
    json!({ "summary": {
        "found": finding.found,
        "recommended": evidence.recommended(),
        "time_gained": time_gained,
        "complete": finding.is_complete,
        "metric": evidence.question.metric,
        "baseline": evidence.baseline().0,
        "baseline_deviation": evidence.baseline().1,
        "margin": finding.margin,
        "margin_of": finding.margin_of.0,
        "confidence": evidence.question.confidence,
        "trials": evidence.records.len(),
        "settings": cells.collect::<Vec<_>>(),
        "undecided": undecided.collect::<Vec<_>>(),
        "warnings": evidence.warnings(),
        "written_to": job.map(shown),
        "page": shown(page),
    } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_from_finished_trials() {
        assert_eq!(left((0.0, 0), 5), "unknown time");
        assert_eq!(left((30.0, 3), 12), "~2m");
    }
}

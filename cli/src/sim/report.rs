//! `gradwire sim report`: runs a scenario, with one transport or several, and draws what happened.

use gradwire_netsim::engine::parallel::Glance;
use gradwire_netsim::results::outcome::{FlowOutcome, Outcome};
use gradwire_netsim::results::statistics;
use gradwire_protocol::units::{Instant, Span};

use super::output::WholeFile;
use super::page::page;
use super::progress::{self, Progress};
use super::scenario::{Loaded, Scenario};
use super::summary::Summary;
use crate::arguments::SimReport;
use crate::exit::Failure;

/// Samples of queues in the least time that a run can take.
const SAMPLES: u64 = 200;
/// Queues are sampled not more often than this.
const SAMPLE_EVERY_MIN: Span = Span::from_nanos(200);

/// A run that is drawn.
#[derive(Debug)]
pub struct Run {
    /// What was run.
    pub loaded: Loaded,
    /// What it brought.
    pub outcome: Outcome,
    /// The numbers of it.
    pub summary: Summary,
}

impl Run {
    /// Runs a scenario with samples of its queues.
    ///
    /// # Errors
    /// [`Failure`] when the scenario makes no sense.
    pub fn of(
        scenario: &Scenario,
        mut loaded: Loaded,
        watch: &mut dyn FnMut(Glance),
    ) -> Result<Self, Failure> {
        let least = progress::least(&loaded.setup).divided(SAMPLES);
        loaded.setup.sample_every = Some(least.max(SAMPLE_EVERY_MIN));
        let (outcome, summary) = scenario.run(&loaded, watch)?;
        Ok(Self {
            loaded,
            outcome,
            summary,
        })
    }

    /// Flows of the workload, without those of a background.
    pub fn flows(&self) -> &[FlowOutcome] {
        &self.outcome.flows[..self.loaded.flows]
    }

    /// When the last flow or task ended, from the start of the simulation.
    pub fn end(&self) -> Span {
        let flows = self.outcome.flows.iter().filter_map(|flow| flow.received);
        let tasks = self.outcome.tasks.iter().filter_map(|task| task.ended);
        let last = flows.chain(tasks).max().unwrap_or_default();
        last.since(Instant::START)
    }

    /// From the first start to the last end of everything.
    pub fn time(&self) -> Span {
        statistics::makespan(&self.outcome.flows, &self.outcome.tasks)
    }
}

/// Runs all transports one after the other and writes the report.
///
/// # Errors
/// [`Failure`] when the scenario makes no sense or the file cannot be written, and then there is no
/// file; or when flows did not all end, which the report says too.
pub fn report(options: &SimReport) -> Result<(), Failure> {
    let file = WholeFile::create(&options.out)?;
    let scenarios = scenarios(options);
    let progress = Progress::of_runs(scenarios.len());
    let mut runs = Vec::new();
    for scenario in scenarios {
        let loaded = scenario.load()?;
        let mut watch = progress.run(&scenario.transport, &loaded);
        runs.push(Run::of(&scenario, loaded, &mut watch)?);
        progress.done(runs.len());
    }
    progress.end();
    file.keep(page(&runs, &command(options)).as_bytes())?;
    println!("{}", options.out.display());
    runs.iter().try_for_each(|run| run.summary.unfinished())
}

fn scenarios(options: &SimReport) -> Vec<Scenario> {
    if options.transports.is_empty() {
        return vec![options.scenario.clone()];
    }
    let of_transport = |transport: &String| Scenario {
        transport: transport.clone(),
        ..options.scenario.clone()
    };
    options.transports.iter().map(of_transport).collect()
}

/// What makes this report again, as it would be typed.
fn command(options: &SimReport) -> String {
    let mut words = vec!["gradwire".to_owned(), "sim".to_owned(), "report".to_owned()];
    words.extend(options.scenario.words(&options.transports));
    words.push("--out".to_owned());
    words.push(options.out.display().to_string());
    let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    quoted.join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=:.,/@%+".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_blanks_are_quoted() {
        assert_eq!(quoted("fat-tree:k=8@100G"), "fat-tree:k=8@100G");
        assert_eq!(quoted("my fabric's.toml"), r"'my fabric'\''s.toml'");
    }
}

//! A run with the samples and messages that its pictures need.

use gradwire_netsim::engine::parallel::Glance;
use gradwire_netsim::results::outcome::{FlowOutcome, Outcome};
use gradwire_netsim::results::statistics;
use gradwire_netsim::setup::JournalMode;
use gradwire_protocol::units::{Instant, Span};
use gradwire_report::html;
use gradwire_report::plot::colour;

use super::progress;
use super::scenario::{Loaded, Scenario};
use super::summary::Summary;
use crate::error::LabError;

/// Samples of queues in the least time that a run can take.
const SAMPLES: u64 = 200;
/// Queues are sampled not more often than this.
const SAMPLE_EVERY_MIN: Span = Span::from_nanos(200);

/// A run that is drawn.
#[derive(Debug)]
pub struct DrawnRun {
    /// The scenario.
    pub loaded: Loaded,
    /// The simulator's results.
    pub outcome: Outcome,
    /// The numbers of it.
    pub summary: Summary,
}

impl DrawnRun {
    /// Runs a scenario with samples of its queues and the times of its messages.
    ///
    /// # Errors
    /// [`LabError`] when the scenario makes no sense.
    pub fn of(
        scenario: &Scenario,
        mut loaded: Loaded,
        watch: &mut dyn FnMut(Glance),
    ) -> Result<Self, LabError> {
        let least = progress::least(&loaded.setup).divided(SAMPLES);
        loaded.setup.sample_every = Some(least.max(SAMPLE_EVERY_MIN));
        loaded.setup.journal = JournalMode::Messages;
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

/// The name of a transport after a dot of its colour.
pub fn swatch(transport: &str) -> String {
    html::swatch(colour(transport), transport)
}

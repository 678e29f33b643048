//! Training steps in the results of a run: their times, and the accepted losses of layers.

use gradwire_netsim::results::outcome::TaskOutcome;
use gradwire_netsim::results::statistics::{Spread, micros};
use gradwire_netsim::results::steps::{LayerLoss, Steps};
use gradwire_workloads::training::StepEnds;
use gradwire_workloads::workload::Workload;
use serde::{Deserialize, Serialize};

/// Layers of a table at most; those that lost most.
const LAYERS_MAX: usize = 8;

/// How the steps of a training job went.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TrainingSummary {
    /// The job: the workload that it came from.
    pub job: String,
    /// How many steps there were to be.
    pub steps: u32,
    /// How many hosts compute.
    pub workers: usize,
    /// Time of each step that ended, on the worker that is last.
    pub iterations_us: Vec<f64>,
    /// Their mean; `None` where no step ended.
    pub iteration_us: Option<f64>,
    /// Their 99th percentile, by nearest rank: of few steps the longest.
    pub iteration_p99_us: Option<f64>,
    /// How long the slowest worker computes in a step: the least that a step can take.
    pub compute_us: f64,
    /// By how much a step takes longer than that, on average: communication that computing does not
    /// hide.
    pub exposed_us: Option<f64>,
    /// Completion times of the job's messages as a training script knows them, from the time at
    /// which one could start: of a push on the worker, of a pull on the server, of an all-reduce
    /// on every rank.
    pub fct_us: Option<Spread>,
    /// Accepted losses of hosts, layers in the order of the forward pass.
    pub losses: Vec<LayerLoss>,
}

impl TrainingSummary {
    /// The steps of each training job of a workload.
    pub fn of(workload: &Workload, own_tasks: &[TaskOutcome]) -> Vec<Self> {
        let jobs = workload.step_ends.iter();
        let steps = Steps::of(workload, own_tasks);
        jobs.zip(steps)
            .map(|(ends, steps)| Self::of_job(ends, steps))
            .collect()
    }

    fn of_job(ends: &StepEnds, steps: Steps) -> Self {
        let times: Vec<f64> = steps.iterations.iter().copied().map(micros).collect();
        let exposed: Vec<f64> = steps.exposed().map(micros).collect();
        Self {
            job: steps.name,
            steps: ends.steps,
            workers: ends.workers.len(),
            iteration_us: mean(&times),
            iteration_p99_us: Spread::of(times.clone()).map(|figures| figures.p99),
            iterations_us: times,
            compute_us: micros(steps.compute),
            exposed_us: mean(&exposed),
            fct_us: Spread::of(steps.completions.into_iter().map(micros).collect()),
            losses: steps.losses,
        }
    }

    /// The table for people.
    pub fn table(&self) -> String {
        let mut text = format!(
            "\n{:<22}{:>12}{:>12}{:>12}{:>12}  {}\n",
            "training steps", "mean us", "p99 us", "least us", "most us", self.job
        );
        let (Some(mean), Some(exposed)) = (self.iteration_us, self.exposed_us) else {
            return text + "  none has ended\n";
        };
        let rows = [
            ("iteration", Spread::of(self.iterations_us.clone())),
            ("FCT", self.fct_us),
        ];
        for (name, figures) in rows {
            let values = figures.map(|one| [one.mean, one.p99, one.min, one.max]);
            let values = values.map(|values| values.map(|value| format!("{value:>12.1}")));
            text += &format!("  {name:<20}{}\n", values.unwrap_or_default().concat());
        }
        let compute = self.compute_us;
        text += &format!("  {:<20}{compute:>12.1}\n", "computing");
        let share = exposed / mean.max(f64::MIN_POSITIVE) * 100.0;
        text += &format!(
            "  {:<20}{exposed:>12.1}  communication that computing does not hide, {share:.1} %\n",
            "exposed"
        );
        if self.iterations_us.len() < self.steps as usize {
            let ended = self.iterations_us.len();
            text += &format!("  only {ended} of {} steps ended\n", self.steps);
        }
        text + &self.lost()
    }

    fn lost(&self) -> String {
        let mut lost: Vec<&LayerLoss> =
            self.losses.iter().filter(|loss| loss.share > 0.0).collect();
        lost.sort_by(|one, other| other.share.total_cmp(&one.share));
        let rows = lost.iter().take(LAYERS_MAX).map(|loss| {
            let share = loss.share * 100.0;
            format!(
                "  {:<40}{share:>10.3} %\n",
                format!("lost of {}", loss.layer)
            )
        });
        let mut text: String = rows.collect();
        if lost.len() > LAYERS_MAX {
            let more = lost.len() - LAYERS_MAX;
            text += &format!("  and less of {more} layers more, see --json\n");
        }
        text
    }
}

/// The arithmetic mean; `None` of an empty list.
pub fn mean(numbers: &[f64]) -> Option<f64> {
    let sum: f64 = numbers.iter().sum();
    (!numbers.is_empty()).then(|| sum / numbers.len() as f64)
}

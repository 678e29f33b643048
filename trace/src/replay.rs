//! Predicts a run: its tasks on its links, without packets (`gradwire_netsim::fluid`).
//!
//! Resources are compute units of ranks, both directions of each rank's link, and the credit of
//! each rank's scheduler. [`coarse`] is a stand-in for comparison: it knows no messages and gives
//! each collective one duration on a stream of its own, as replayers of single machines do.

use std::collections::BTreeMap;

use gradwire_netsim::fluid::{self, FluidError, FluidExtent, FluidOutcome, FluidSetup};
use gradwire_netsim::results::outcome::TaskOutcome;
use gradwire_netsim::results::steps::Steps;
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Span};
use gradwire_workloads::workload::{CollectiveKind, Work, Workload};

use crate::event::Category;
use crate::network::TracedNetwork;
use crate::run::TracedRun;

/// The stream on which the stand-in communicates.
const COMM_UNIT: u16 = 1;

/// A run as it is predicted.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Its tasks.
    pub workload: Workload,
    /// Its job.
    pub job: Job,
    /// Its links.
    pub network: TracedNetwork,
    /// The ranks that are replayed.
    pub extent: FluidExtent,
}

/// A predicted run.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// When tasks and messages began and ended.
    pub outcome: FluidOutcome,
    /// How long each step takes on its slowest worker, in microseconds.
    pub iterations_us: Vec<f64>,
    /// How long the slowest worker computes in a step, in microseconds.
    pub compute_us: f64,
}

impl Prediction {
    /// The mean iteration.
    pub fn iteration_us(&self) -> f64 {
        mean(&self.iterations_us)
    }
}

/// Predicts a run.
///
/// # Errors
/// [`FluidError`] when the run is too large.
pub fn replay(scene: &Scene) -> Result<Prediction, FluidError> {
    let outcome = fluid::run(&FluidSetup {
        workload: &scene.workload,
        job: &scene.job,
        links: scene.network.links.clone(),
        one_way: scene.network.one_way,
        extent: scene.extent,
    })?;
    let (iterations_us, compute_us) = iterations(&scene.workload, &outcome.tasks);
    Ok(Prediction {
        outcome,
        iterations_us,
        compute_us,
    })
}

/// The iterations of a workload's first training job, and its computing, in microseconds.
pub fn iterations(workload: &Workload, tasks: &[TaskOutcome]) -> (Vec<f64>, f64) {
    let micros = |span: Span| span.as_secs_f64() * 1e6;
    let steps = Steps::of(workload, tasks).into_iter().next();
    steps.map_or((Vec::new(), 0.0), |steps| {
        let iterations = steps.iterations.into_iter().map(micros);
        (iterations.collect(), micros(steps.compute))
    })
}

/// The mean iteration with one duration for each collective.
///
/// # Errors
/// [`FluidError`] when the run is too large.
pub fn coarse(scene: &Scene) -> Result<f64, FluidError> {
    let mut scene = scene.clone();
    let Scene {
        workload, network, ..
    } = &mut scene;
    for program in &mut workload.programs {
        for task in &mut program.tasks {
            if let Work::Collective {
                kind, group, bytes, ..
            } = &task.work
            {
                let ranks = workload.groups[*group as usize].len() as u64;
                let moved = bytes_moved(*kind, *bytes, ranks);
                let link = network.links[program.host as usize];
                let rate = link.up.min(link.down);
                let span = rate.transmit_time(moved) + network.one_way;
                task.work = Work::Compute {
                    span,
                    unit: COMM_UNIT,
                };
            }
        }
    }
    workload
        .step_ends
        .iter_mut()
        .for_each(|ends| ends.groups = 0..0);
    Ok(replay(&scene)?.iteration_us())
}

/// Bytes that a rank sends or receives in a collective, whichever is more.
fn bytes_moved(kind: CollectiveKind, bytes: ByteCount, ranks: u64) -> ByteCount {
    let others = ranks.saturating_sub(1);
    ByteCount::new(match kind {
        CollectiveKind::AllReduce => 2 * bytes.get() * others / ranks.max(1),
        CollectiveKind::ReduceScatter | CollectiveKind::AllGather | CollectiveKind::AllToAll => {
            bytes.get() * others / ranks.max(1)
        }
        CollectiveKind::Broadcast { .. } | CollectiveKind::Reduce { .. } => bytes.get(),
        CollectiveKind::Barrier => 0,
    })
}

/// The arithmetic mean; zero of an empty list.
pub(crate) fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

/// The iterations that a run measured: between the ends of forward passes, each on the rank that is
/// last, in microseconds.
pub fn measured(run: &TracedRun) -> Vec<f64> {
    let mut ends: BTreeMap<u32, BTreeMap<u32, f64>> = BTreeMap::new();
    for event in run
        .events
        .iter()
        .filter(|event| event.cat == Category::Forward)
    {
        let ranks = ends.entry(event.args.step).or_default();
        let end = ranks.entry(event.args.rank).or_insert(f64::MIN);
        *end = end.max(event.end());
    }
    let last = ends
        .values()
        .map(|ranks| ranks.values().copied().fold(f64::MIN, f64::max));
    let last: Vec<f64> = last.collect();
    last.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

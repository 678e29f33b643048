//! The map of distributed training: every legal cell runs once in the simulator and once as a tiny
//! training.
//!
//! Start here:
//! - [`cells`]: the axes, and which cells make sense.
//! - `plan`: the two runs that follow from a cell.
//! - `ranks`, `switch_sums`: the training, by hosts that add and by a switch that adds; `learning`
//!   is the problem, [`trained`] its outcome.
//! - [`mod@systems`]: published systems and their cells.
//! - [`outcome`]: the report; [`sheet`]: its forms.

pub mod cells;
mod learning;
pub mod outcome;
mod plan;
mod ranks;
pub mod sheet;
mod switch_sums;
pub mod systems;
pub mod trained;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;

use crate::error::LabError;
use crate::eval::request::Extent;
use crate::eval::section::{EvalGoal, GoalState};
use crate::sim::cost::{cores, now};
use crate::sim::progress::bar;
use crate::sweep::folder::SweepFolder;
use crate::values;
use cells::{ExchangePattern, LossBound, ModelPlace, Timing, TrainingCell};
use gradwire_report::json;
use learning::{LearningProblem, ModelQuality};
use outcome::{CellRuns, CellState, MappedCell, SimulatedSteps, TaxonomyReport};
use plan::{CellPlan, FABRIC, LEAST_WORKERS, TRAINED_STEPS};
use systems::{CROSSING, systems};
use trained::TrainedModel;

/// The share that a training must keep of the gain that exchange brings, in loss: that of the
/// synchronous lossless all-reduce over the best worker that learns alone. A way whose exchange
/// does not work keeps nothing, and stale or partly missing values cost progress, not most of it.
/// The bound follows from the problem and its seed, not from the cells.
const KEPT_GAIN: f64 = 0.5;
/// How far losses of one synchronous lossless model may be apart: it makes the same steps in every
/// cell, and only the order of its sums, of 32-bit floats, differs.
const ROUNDING: f64 = 1e-3;

/// The request for a map.
#[derive(Args, Clone, Debug)]
pub struct TaxonomyRequest {
    /// Simulate smaller and fewer steps, in seconds.
    #[arg(long)]
    pub quick: bool,
    /// Folder of the report; created if it is missing.
    #[arg(long, value_name = "DIR", default_value = "out/eval-taxonomy")]
    pub out: PathBuf,
    /// Cells that run at the same time; by default one per core.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub parallel: Option<u16>,
    /// Seed of all draws.
    #[arg(long, default_value_t = 1, value_parser = values::seed)]
    pub seed: u64,
}

impl TaxonomyRequest {
    fn extent(&self) -> Extent {
        match self.quick {
            true => Extent::Quick,
            false => Extent::Whole,
        }
    }

    /// The command that runs the simulation of a cell, if it is legal.
    pub fn command(&self, cell: TrainingCell) -> Option<String> {
        cell.legality().ok()?;
        Some(command(CellPlan::of(cell), self))
    }
}

/// Runs all legal cells, shows progress, and writes the report.
///
/// # Errors
/// [`LabError::System`] when the report cannot be written. A cell that fails is in the report.
pub fn run(request: &TaxonomyRequest) -> Result<TaxonomyReport, LabError> {
    let began = now();
    let folder = request.out.display();
    let told = format!("cannot make {folder}");
    std::fs::create_dir_all(&request.out).map_err(LabError::system(told))?;
    let problem = LearningProblem::new(request.seed);
    let cells = TrainingCell::all();
    let legal: Vec<TrainingCell> = cells
        .iter()
        .copied()
        .filter(|cell| cell.legality().is_ok())
        .collect();
    let bar = bar(
        legal.len() as u64,
        "{pos}/{len} cells  {elapsed} gone  {msg}",
    );
    let (next, ran) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..request
            .parallel
            .map_or_else(cores, usize::from)
            .min(legal.len())
        {
            scope.spawn(|| {
                while let Some(&cell) = legal.get(next.fetch_add(1, Ordering::Relaxed)) {
                    bar.set_message(cell.name());
                    let runs = runs(cell, &problem, request);
                    ran.lock().expect("no cell panics").push((cell, runs));
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut ran = ran.into_inner().expect("no cell panics");
    ran.sort_by_key(|(cell, _)| *cell);
    let mapped = cells.into_iter().map(|cell| {
        let state = match cell.legality() {
            Err(reason) => CellState::Illegal(reason),
            Ok(()) => match ran.binary_search_by_key(&cell, |(cell, _)| *cell) {
                Ok(at) => match &ran[at].1 {
                    Ok(runs) => CellState::Ran(runs.clone()),
                    Err(failure) => CellState::Failed(failure.to_string()),
                },
                Err(_) => CellState::Failed("it did not run".to_owned()),
            },
        };
        MappedCell {
            name: cell.name(),
            cell,
            systems: systems(cell),
            state,
        }
    });
    let mut report = TaxonomyReport {
        version: env!("CARGO_PKG_VERSION"),
        fabric: FABRIC,
        seed: request.seed,
        cells: mapped.collect(),
        crossing: &CROSSING,
        goals: Vec::new(),
        wall_s: now().duration_since(began).as_secs_f64(),
    };
    let alone = problem.alone(LEAST_WORKERS, TRAINED_STEPS);
    report.goals = goals(&report, alone);
    write(&report, request)?;
    Ok(report)
}

fn write(report: &TaxonomyReport, request: &TaxonomyRequest) -> Result<(), LabError> {
    let folder = SweepFolder::at(request.out.clone());
    folder.write(
        "report.json",
        format!("{}\n", json::line(report)).as_bytes(),
    )?;
    folder.write("report.md", sheet::markdown(report).as_bytes())?;
    folder.write("report.html", sheet::page(report).as_bytes())
}

fn runs(
    cell: TrainingCell,
    problem: &LearningProblem,
    request: &TaxonomyRequest,
) -> Result<CellRuns, LabError> {
    let plan = CellPlan::of(cell);
    let scenario = plan.scenario(request.extent(), request.seed);
    let loaded = scenario.load()?;
    let (outcome, summary) = scenario.run(&loaded, &mut |_| {})?;
    summary.unfinished()?;
    let ends = loaded.setup.workload.step_ends.first();
    let ends = ends.expect("a plan has training steps");
    Ok(CellRuns {
        command: command(plan, request),
        simulated: SimulatedSteps::of(ends, &outcome),
        trained: trained(plan, problem, request.seed)?,
    })
}

fn trained(plan: CellPlan, problem: &LearningProblem, seed: u64) -> Result<TrainedModel, LabError> {
    match plan.cell.pattern {
        ExchangePattern::InNetwork => switch_sums::train(plan, problem, seed),
        _ => ranks::train(plan, problem, seed),
    }
}

fn command(plan: CellPlan, request: &TaxonomyRequest) -> String {
    let scenario = plan.scenario(request.extent(), request.seed);
    format!("gradwire sim run {}", scenario.words(&[]).join(" "))
}

fn goals(report: &TaxonomyReport, alone: ModelQuality) -> Vec<EvalGoal> {
    let legal = report
        .cells
        .iter()
        .filter(|one| one.cell.legality().is_ok());
    let legal: Vec<&MappedCell> = legal.collect();
    let ran: Vec<(&MappedCell, &TrainedModel)> = legal
        .iter()
        .filter_map(|one| Some((*one, &one.state.runs()?.trained)))
        .collect();
    let all = ran.len() == legal.len();
    let mut goals = vec![EvalGoal {
        what: "every legal cell ran in the simulator and trained a model".to_owned(),
        found: format!("{} of {}", ran.len(), legal.len()),
        state: GoalState::of(Some(all)),
    }];
    let Some(reference) = report.reference().map(|runs| &runs.trained) else {
        return goals;
    };
    let most = reference.loss + (1.0 - KEPT_GAIN) * (alone.loss - reference.loss);
    let least = reference.accuracy - LearningProblem::accuracy_apart(reference.accuracy);
    let within = |what: String, fits: &dyn Fn(&MappedCell, &TrainedModel) -> bool| {
        let beyond = ran.iter().filter(|(cell, trained)| !fits(cell, trained));
        let beyond: Vec<&str> = beyond.map(|(cell, _)| cell.name.as_str()).collect();
        let losses = ran.iter().map(|(_, trained)| trained.loss);
        let accuracies = ran.iter().map(|(_, trained)| trained.accuracy);
        EvalGoal {
            what,
            found: match beyond.as_slice() {
                [] => format!(
                    "the largest loss is {:.3}, the lowest accuracy {:.3}",
                    losses.fold(0.0, f64::max),
                    accuracies.fold(1.0, f64::min)
                ),
                beyond => beyond.join("; "),
            },
            state: GoalState::of(Some(beyond.is_empty() && all)),
        }
    };
    goals.push(within(
        format!(
            "every synchronous lossless training of one model ends with the loss of the \
             all-reduce, {:.3}, but for rounding",
            reference.loss
        ),
        &|one, trained| {
            let is_same = one.cell.architecture != ModelPlace::Gossip
                && one.cell.timing == Timing::Synchronous
                && one.cell.loss == LossBound::Lossless;
            !is_same || (trained.loss - reference.loss).abs() <= ROUNDING
        },
    ));
    goals.push(within(
        format!(
            "every training ends with a loss of at most {most:.3}, halfway to {:.3}, that of the \
             best worker alone, and an accuracy not below {least:.3}, that of the all-reduce but \
             for chance",
            alone.loss
        ),
        &|_, trained| trained.loss <= most && trained.accuracy >= least,
    ));
    goals
}

#[cfg(test)]
mod tests {
    use super::plan::STALE_STEPS;
    use super::*;

    fn request(out: PathBuf) -> TaxonomyRequest {
        TaxonomyRequest {
            quick: true,
            out,
            parallel: None,
            seed: 1,
        }
    }

    fn check(cell: TrainingCell, runs: &CellRuns) {
        let (name, trained) = (cell.name(), &runs.trained);
        assert!(runs.simulated.step_us > 0.0, "{name}: {runs:?}");
        let may_lose = cell.loss == LossBound::Bounded;
        assert_eq!(trained.lost > 0, may_lose, "{name}: {trained:?}");
        let is_one_model = cell.architecture != ModelPlace::Gossip;
        if is_one_model && cell.timing == Timing::Synchronous {
            assert_eq!(trained.apart, 0.0, "{name}: {trained:?}");
        }
        if is_one_model && cell.timing != Timing::Asynchronous {
            let stale = u32::from(cell.timing == Timing::BoundedStale) * STALE_STEPS;
            assert!(trained.ahead <= stale + 1, "{name}: {trained:?}");
        }
    }

    #[test]
    fn every_legal_cell_ran_and_no_other() {
        let out = tempfile::tempdir().expect("there is a place for files");
        let report = run(&request(out.path().to_owned())).expect("the report is written");
        assert_eq!(report.cells.len(), TrainingCell::all().len());
        for one in &report.cells {
            match (&one.state, one.cell.legality()) {
                (CellState::Ran(runs), Ok(())) => check(one.cell, runs),
                (CellState::Illegal(told), Err(reason)) => {
                    assert_eq!(*told, reason);
                    assert!(one.systems.is_empty(), "{}", one.name);
                }
                (state, legality) => panic!("{}: {state:?}, {legality:?}", one.name),
            }
        }
        for goal in &report.goals {
            assert_eq!(goal.state, GoalState::Met, "{goal:?}");
        }
        for name in ["report.json", "report.md", "report.html"] {
            let text = std::fs::read_to_string(out.path().join(name)).expect("it was written");
            assert!(text.contains("AD-PSGD"), "{name}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_runs() {
        let problem = LearningProblem::new(7);
        let bounded = |one: &TrainingCell| {
            one.loss == LossBound::Bounded && one.pattern == ExchangePattern::Hierarchical
        };
        let legal = TrainingCell::all()
            .into_iter()
            .filter(|one| one.legality().is_ok());
        for cell in legal.filter(bounded).step_by(3) {
            let run = || runs(cell, &problem, &request(PathBuf::new())).expect("it is legal");
            assert_eq!(run(), run(), "{}", cell.name());
        }
    }
}

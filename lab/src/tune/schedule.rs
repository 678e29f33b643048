//! Finds chunk and credit of a job by simulated training steps.
//!
//! Start here:
//! - [`trials`]: points as cells of a sweep, and the results of their runs.
//! - [`report`]: the result in words, for programs, and as keys of a job file.
//!
//! The first points are independent and run on all cores at once, and so does a grid; each later
//! point depends on the results before it.

pub mod report;
pub mod trials;

use std::collections::BTreeMap;

use gradwire_tuning::surface::{Axes, SchedulePoint, ScheduleSearch, SizeAxis};

use crate::error::LabError;
use crate::sim::scenario::Scenario;
use report::ScheduleReport;
use trials::{PointRuns, PointTrial};

/// The question of a search.
#[derive(Clone, Debug)]
pub struct ScheduleQuestion {
    /// The scenario to simulate.
    pub scenario: Scenario,
    /// Trials at most.
    pub trials: u16,
    /// Chunks to choose from; `None` means all sensible ones.
    pub chunk: Option<SizeAxis>,
    /// Credits to choose from.
    pub credit: SizeAxis,
    /// The points to run.
    pub extent: Extent,
    /// Runs at the same time; `None` means one per core.
    pub parallel: Option<u16>,
}

/// The points to run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// The points that the search tries.
    Search,
    /// All points.
    Grid,
}

/// Finds chunk and credit.
///
/// # Errors
/// [`LabError`] when the scenario is faulty or has no training steps, or when one of its runs does
/// not end.
pub fn run(question: &ScheduleQuestion) -> Result<ScheduleReport, LabError> {
    let runs = PointRuns::of(question)?;
    let axes = runs.axes()?;
    let search = ScheduleSearch::new(axes, usize::from(question.trials), question.scenario.seed);
    let found = match question.extent {
        Extent::Grid => on_grid(&runs, axes, search),
        Extent::Search => step_by_step(&runs, search),
    };
    runs.end();
    Ok(ScheduleReport::new(question, found?, runs.seconds()))
}

/// The tried points in order, and all points if the caller asked for them.
#[derive(Clone, Debug)]
pub struct ScheduleTrials {
    /// The points that the search tried.
    pub trials: Vec<PointTrial>,
    /// The whole grid, by ascending chunk, then ascending credit.
    pub grid: Vec<PointTrial>,
}

/// Runs every point once, and lets the search read the results.
fn on_grid(
    runs: &PointRuns<'_>,
    axes: Axes,
    mut search: ScheduleSearch,
) -> Result<ScheduleTrials, LabError> {
    let points: Vec<SchedulePoint> = axes.points().collect();
    runs.announce(points.len());
    let grid = runs.run(&points)?;
    let times = grid.iter().map(|trial| (trial.point, trial.iteration_us));
    let times: BTreeMap<SchedulePoint, f64> = times.collect();
    let mut trials = Vec::new();
    while let Some(point) = search.propose() {
        let iteration_us = times[&point];
        search.tell(point, iteration_us);
        trials.push(PointTrial {
            point,
            iteration_us,
        });
    }
    Ok(ScheduleTrials { trials, grid })
}

fn step_by_step(
    runs: &PointRuns<'_>,
    mut search: ScheduleSearch,
) -> Result<ScheduleTrials, LabError> {
    runs.announce(search.trials());
    let mut trials = runs.run(&search.design())?;
    for trial in &trials {
        search.tell(trial.point, trial.iteration_us);
    }
    while let Some(point) = search.propose() {
        for trial in runs.run(&[point])? {
            search.tell(trial.point, trial.iteration_us);
            trials.push(trial);
        }
    }
    Ok(ScheduleTrials {
        trials,
        grid: Vec::new(),
    })
}

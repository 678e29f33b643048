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

use clap::Args;
use gradwire_protocol::job::notation;
use gradwire_protocol::units::ByteCount;
use gradwire_tuning::surface::{Axes, SchedulePoint, ScheduleSearch, SizeAxis, TRIALS};

use crate::error::LabError;
use crate::sim::scenario::Scenario;
use report::ScheduleReport;
use trials::{PointRuns, PointTrial};

/// The question of a search.
#[derive(Args, Clone, Debug)]
pub struct ScheduleQuestion {
    /// The scenario to simulate.
    #[command(flatten)]
    pub scenario: Scenario,
    /// Maximum number of trials.
    #[arg(long, default_value_t = TRIALS as u16, value_name = "COUNT",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub trials: u16,
    /// Chunks to choose from, each twice the one before; by default from 256 KiB to 32 MiB if the
    /// scale allows that.
    #[arg(long, value_parser = axis, value_name = "FROM..TO")]
    pub chunk: Option<SizeAxis>,
    /// Credits to choose from, each twice the one before.
    #[arg(long, default_value = "512KiB..64MiB", value_parser = axis, value_name = "FROM..TO")]
    pub credit: SizeAxis,
    /// Run every point, and compare the search's result with the best point.
    #[arg(long)]
    pub grid: bool,
    /// Runs at the same time, if possible; by default one per core.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub parallel: Option<u16>,
}

/// Most sizes of an axis.
const STEPS_MOST: u8 = 16;

fn axis(text: &str) -> Result<SizeAxis, String> {
    let allowed = || {
        format!("allowed is FROM..TO, both sizes, TO twice FROM or 4, 8 .. 2^{STEPS_MOST} times")
    };
    let sizes = text.split_once("..");
    let sizes = sizes.and_then(|(from, to)| Some((notation::size(from)?, notation::size(to)?)));
    let (from, to) = sizes.ok_or_else(allowed)?;
    let axis_of = |steps| SizeAxis {
        smallest: from,
        steps,
    };
    let zero = from == ByteCount::new(0);
    let fitting = (1..=STEPS_MOST)
        .map(axis_of)
        .find(|axis| axis.sizes().last() == Some(to));
    fitting.filter(|_| !zero).ok_or_else(allowed)
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
    let found = match question.grid {
        true => on_grid(&runs, axes, search),
        false => step_by_step(&runs, search),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_is_written_by_its_ends() {
        let read = axis("64KiB..8MiB").expect("a factor of 128");
        assert_eq!((read.smallest, read.steps), (ByteCount::kib(64), 8));
        assert_eq!(axis("1M..1M").expect("one size").steps, 1);
        for wrong in [
            "", "64K", "64K..65K", "2M..1M", "0..0", "1..1M", "a..b", "1M..",
        ] {
            assert!(axis(wrong).is_err(), "{wrong}");
        }
    }
}

//! `gradwire tune schedule`: chunk and credit of a job, found by simulated training steps.
//!
//! Start here:
//! - [`options`]: what can be typed.
//! - [`trials`]: points as cells of a sweep, and what their runs say.
//! - [`report`]: what is printed, and what is written into a job file.
//!
//! The first points depend on nothing and run on all cores at once, and so does a grid; behind
//! them each point depends on what was seen before.

pub mod options;
pub mod report;
pub mod trials;

use std::collections::BTreeMap;

use gradwire_tuning::surface::{Axes, Point, Search};

use crate::exit::Failure;
use options::Schedule;
use report::Report;
use trials::{Runs, Trial};

/// Finds chunk and credit, prints them, and writes them where that is asked for.
///
/// # Errors
/// [`Failure`] when the scenario is wrong or has no training steps, when one of its runs does not
/// end, or when a file cannot be written.
pub fn run(options: &Schedule) -> Result<(), Failure> {
    let runs = Runs::of(options)?;
    if let Some(path) = &options.write {
        // What cannot be written is better known now.
        crate::job::document::read(path)?;
    }
    let axes = runs.axes()?;
    let search = Search::new(axes, usize::from(options.trials), options.scenario.seed);
    let found = if options.grid {
        on_grid(&runs, axes, search)
    } else {
        step_by_step(&runs, search)
    };
    runs.end();
    let report = Report::new(options, found?, runs.seconds());
    report.print();
    options
        .write
        .as_ref()
        .map_or(Ok(()), |path| report.write(path))
}

/// What was tried, in order, and all points where that was asked for.
#[derive(Clone, Debug)]
pub struct Found {
    /// What the search tried.
    pub trials: Vec<Trial>,
    /// The whole grid, by rising chunk, then by rising credit.
    pub grid: Vec<Trial>,
}

/// Runs every point once, and lets the search look into the results.
fn on_grid(runs: &Runs<'_>, axes: Axes, mut search: Search) -> Result<Found, Failure> {
    let points: Vec<Point> = axes.points().collect();
    runs.announce(points.len());
    let grid = runs.run(&points)?;
    let times = grid.iter().map(|trial| (trial.point, trial.iteration_us));
    let times: BTreeMap<Point, f64> = times.collect();
    let mut trials = Vec::new();
    while let Some(point) = search.propose() {
        let iteration_us = times[&point];
        search.tell(point, iteration_us);
        trials.push(Trial {
            point,
            iteration_us,
        });
    }
    Ok(Found { trials, grid })
}

fn step_by_step(runs: &Runs<'_>, mut search: Search) -> Result<Found, Failure> {
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
    Ok(Found {
        trials,
        grid: Vec::new(),
    })
}

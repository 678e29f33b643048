//! Points as cells of a sweep: each is a process of its own, and a value is a mean step.

use std::sync::Mutex;
use std::time::Duration;

use gradwire_tuning::surface::Point;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::options::Schedule;
use crate::environment::Environment;
use crate::exit::Failure;
use crate::sim::scenario::Scenario;
use crate::sim::sweep::cells::Cell;
use crate::sim::sweep::crew;
use crate::sim::sweep::record::Record;

/// A point that was run.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// Chunk and credit.
    pub point: Point,
    /// Mean time of a training step.
    pub iteration_us: f64,
}

/// What runs points, and shows how far that is.
#[derive(Debug)]
pub struct Runs<'a> {
    options: &'a Schedule,
    scenario: Scenario,
    progress: ProgressBar,
}

impl<'a> Runs<'a> {
    /// Runs of the scenario that was typed.
    ///
    /// # Errors
    /// [`Failure`] when it is wrong, has no training steps, or is not carried by gradwire.
    pub fn of(options: &'a Schedule) -> Result<Self, Failure> {
        let mut scenario = options.scenario.clone();
        scenario.job = scenario.job.or_else(|| Environment::read().job);
        let loaded = scenario.load()?;
        if scenario.transport != "gradwire" {
            let given = &scenario.transport;
            return Err(Failure::Usage(format!(
                "--transport {given}: chunk and credit are gradwire's; leave it out"
            )));
        }
        if loaded.setup.workload.step_ends.is_empty() {
            return Err(Failure::Input {
                given: scenario.workload,
                message:
                    "it has no training steps; allowed is step:MODEL:HOW, see `gradwire model \
                          list`"
                        .to_owned(),
            });
        }
        let style = "{bar:30} {pos}/{len} runs, {elapsed} gone, about {eta} left  {msg}";
        let style = ProgressStyle::with_template(style);
        let style = style.expect("the template is constant and well-formed");
        Ok(Self {
            options,
            scenario,
            progress: ProgressBar::new(0).with_style(style),
        })
    }

    /// So many runs there will be.
    pub fn announce(&self, runs: usize) {
        self.progress.set_length(runs as u64);
        self.progress.enable_steady_tick(Duration::from_secs(1));
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.progress.finish_and_clear();
    }

    /// How long all took so far.
    pub fn seconds(&self) -> f64 {
        self.progress.elapsed().as_secs_f64()
    }

    /// Runs points, several at a time.
    ///
    /// # Errors
    /// [`Failure`] of the first run that has no result.
    pub fn run(&self, points: &[Point]) -> Result<Vec<Trial>, Failure> {
        let cells: Vec<Cell> = points.iter().map(|point| self.cell(*point)).collect();
        let cells: Vec<&Cell> = cells.iter().collect();
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let at_once = self.options.parallel.map_or_else(cores, usize::from);
        let records: Mutex<Vec<Record>> = Mutex::default();
        crew::run(&cells, at_once, &|record| {
            self.progress.inc(1);
            let mut records = records.lock().expect("nobody panics while it is held");
            records.push(record);
            Ok(())
        })?;
        let records = records
            .into_inner()
            .expect("nobody panics while it is held");
        let of_point = |point: &Point| {
            let id = id(*point);
            let record = records.iter().find(|record| record.id == id);
            let record = record.expect("a crew keeps a record of every cell");
            Ok(Trial {
                point: *point,
                iteration_us: iteration_us(record)?,
            })
        };
        points.iter().map(of_point).collect()
    }

    fn cell(&self, point: Point) -> Cell {
        let mut scenario = self.scenario.clone();
        for (key, size) in [
            ("collectives.chunk", point.chunk),
            ("collectives.credit", point.credit),
        ] {
            scenario.set.retain(|(set, _)| set != key);
            scenario.set.push((key.to_owned(), size.to_string()));
        }
        Cell {
            id: id(point),
            label: id(point),
            case: None,
            scenario,
            files: Vec::new(),
        }
    }
}

fn id(point: Point) -> String {
    format!("chunk={} credit={}", point.chunk, point.credit)
}

fn iteration_us(record: &Record) -> Result<f64, Failure> {
    let lacks = |why: &str| Failure::Check(format!("the run with {}: {why}", record.id));
    if let Some(error) = &record.error {
        return Err(lacks(error));
    }
    let result = record.result.as_ref();
    let training = result.and_then(|result| result.get("training"));
    let mean = training.and_then(|training| training.get("iteration_us"));
    mean.and_then(Value::as_f64)
        .filter(|mean| *mean > 0.0)
        .ok_or_else(|| lacks("no training step has ended"))
}

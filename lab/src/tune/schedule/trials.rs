//! Points as cells of a sweep: each runs in its own process, and its value is the mean step time.

use std::time::Duration;

use gradwire_protocol::units::ByteCount;
use gradwire_tuning::surface::{Axes, SchedulePoint, SizeAxis};
use indicatif::ProgressBar;

use super::ScheduleQuestion;
use crate::error::LabError;
use crate::sim::cost::cores;
use crate::sim::progress::bar;
use crate::sim::scenario::Scenario;
use crate::sweep::cells::SweepCell;
use crate::sweep::crew;
use crate::sweep::record::CellRecord;

/// A finished point.
#[derive(Clone, Copy, Debug)]
pub struct PointTrial {
    /// Chunk and credit.
    pub point: SchedulePoint,
    /// Mean time of a training step.
    pub iteration_us: f64,
}

/// Runs points and shows progress.
#[derive(Debug)]
pub struct PointRuns<'a> {
    question: &'a ScheduleQuestion,
    scenario: Scenario,
    shape: RunShape,
    progress: ProgressBar,
}

/// The properties of a workload that decide the sizes of its runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct RunShape {
    /// The divisor of the workload's model.
    scale: u64,
    exchange: Exchange,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Exchange {
    /// The workload cuts tensors into parts, which collectives of two ranks do not cut further.
    Servers,
    AllReduce,
}

/// The least allowed `collectives.chunk`.
const CHUNK_LEAST: ByteCount = *gradwire_protocol::job::CHUNKS.start();
/// Chunks to choose from by default: from the smallest that a packet's overhead allows to more than
/// any bucket has.
const CHUNKS: SizeAxis = SizeAxis {
    smallest: ByteCount::kib(256),
    steps: 8,
};

impl<'a> PointRuns<'a> {
    /// Prepares runs of the given scenario.
    ///
    /// # Errors
    /// [`LabError`] when it is faulty, has no training steps, or is not carried by gradwire.
    pub fn of(question: &'a ScheduleQuestion) -> Result<Self, LabError> {
        let scenario = question.scenario.clone();
        let loaded = scenario.load()?;
        if scenario.transport != "gradwire" {
            let given = &scenario.transport;
            return Err(LabError::Usage(format!(
                "--transport {given}: only gradwire has chunk and credit; leave the option out"
            )));
        }
        if loaded.setup.workload.step_ends.is_empty() {
            return Err(LabError::input(
                scenario.workload,
                "it has no training steps; allowed is step:MODEL:HOW, see `gradwire model list`",
            ));
        }
        let beside = "{pos}/{len} runs, {elapsed} gone, about {eta} left  {msg}";
        let shape = RunShape::of(&scenario.workload);
        Ok(Self {
            question,
            shape,
            scenario,
            progress: bar(0, beside),
        })
    }

    /// Returns the search space.
    ///
    /// # Errors
    /// [`LabError::Usage`] when a scaled chunk is below the least that a job allows.
    pub fn axes(&self) -> Result<Axes, LabError> {
        let least = self.shape.least_chunk();
        let chunk = self.question.chunk.unwrap_or_else(|| SizeAxis {
            smallest: CHUNKS.smallest.max(least),
            ..CHUNKS
        });
        if chunk.smallest < least {
            return Err(LabError::Usage(format!(
                "--chunk from {}: a run has {} times less, and collectives.chunk is at least \
                 {CHUNK_LEAST}; allowed is from {least} on, or a workload of less scale",
                chunk.smallest, self.shape.scale
            )));
        }
        Ok(Axes {
            chunk,
            credit: self.question.credit,
        })
    }

    /// Announces the number of runs.
    pub fn announce(&self, runs: usize) {
        self.progress.set_length(runs as u64);
        self.progress.enable_steady_tick(Duration::from_secs(1));
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.progress.finish_and_clear();
    }

    /// Returns the time of all runs so far.
    pub fn seconds(&self) -> f64 {
        self.progress.elapsed().as_secs_f64()
    }

    /// Runs points, several at a time.
    ///
    /// # Errors
    /// [`LabError`] of the first run that has no result.
    pub fn run(&self, points: &[SchedulePoint]) -> Result<Vec<PointTrial>, LabError> {
        let cells: Vec<SweepCell> = points.iter().map(|point| self.cell(*point)).collect();
        let cells: Vec<&SweepCell> = cells.iter().collect();
        let at_once = self.question.parallel.map_or_else(cores, usize::from);
        let records = crew::run(&cells, at_once, |record| {
            self.progress.inc(1);
            Ok(record)
        })?;
        let trial = |(point, record): (&SchedulePoint, &CellRecord)| {
            Ok(PointTrial {
                point: *point,
                iteration_us: iteration_us(record)?,
            })
        };
        points.iter().zip(&records).map(trial).collect()
    }

    fn cell(&self, point: SchedulePoint) -> SweepCell {
        let mut scenario = self.scenario.clone();
        let scaled = |size: ByteCount| ByteCount::new((size.get() / self.shape.scale).max(1));
        if self.shape.exchange == Exchange::Servers {
            // Of a key written twice, the last one counts.
            scenario.workload += &format!(",part={}", point.chunk);
        }
        for (key, size) in [
            ("collectives.chunk", scaled(point.chunk).max(CHUNK_LEAST)),
            ("collectives.credit", scaled(point.credit)),
        ] {
            scenario.set.retain(|(set, _)| set != key);
            scenario.set.push((key.to_owned(), size.to_string()));
        }
        SweepCell {
            id: id(point),
            label: id(point),
            case: None,
            scenario,
            files: Vec::new(),
        }
    }
}

impl RunShape {
    /// Returns the shape of training steps in one line.
    fn of(workload: &str) -> Self {
        let words = || workload.split([':', ',']);
        let mut scales = words().filter_map(|word| word.strip_prefix("scale="));
        let servers = words().any(|word| word.starts_with("ps="));
        Self {
            scale: scales.find_map(|scale| scale.parse().ok()).unwrap_or(1),
            exchange: if servers {
                Exchange::Servers
            } else {
                Exchange::AllReduce
            },
        }
    }

    fn least_chunk(self) -> ByteCount {
        match self.exchange {
            Exchange::Servers => CHUNK_LEAST,
            Exchange::AllReduce => ByteCount::new(CHUNK_LEAST.get() * self.scale),
        }
    }
}

fn id(point: SchedulePoint) -> String {
    format!("chunk={} credit={}", point.chunk, point.credit)
}

fn iteration_us(record: &CellRecord) -> Result<f64, LabError> {
    let lacks = |why: &str| LabError::Check(format!("the run with {}: {why}", record.id));
    if let Some(error) = &record.error {
        return Err(lacks(error));
    }
    let result = record.result.as_ref();
    let jobs = result.and_then(|result| result.get("training")?.as_array());
    let jobs = jobs.map_or(&[][..], Vec::as_slice);
    let means = jobs.iter().map(|job| job["iteration_us"].as_f64());
    let means: Option<Vec<f64>> = means.collect();
    let sum = means.iter().flatten().sum::<f64>();
    if sum > 0.0 {
        Ok(sum / jobs.len() as f64)
    } else {
        Err(lacks("no training step has ended"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_and_exchange_are_workload_options() {
        let shape = |workload: &str| {
            let RunShape { scale, exchange } = RunShape::of(workload);
            (scale, exchange)
        };
        let servers = Exchange::Servers;
        assert_eq!(shape("step:vgg16:ps=8,scale=16"), (16, servers));
        assert_eq!(shape("step:vgg16:ps=8"), (1, servers));
        let all_reduce = Exchange::AllReduce;
        assert_eq!(shape("step:mine.csv:ddp,scale=4,steps=2"), (4, all_reduce));
        let least = RunShape::of("step:vgg16:ddp,scale=16").least_chunk();
        assert_eq!(least, ByteCount::mib(1));
    }
}

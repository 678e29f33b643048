//! Plans a training step: each block of a model data parallel, sharded or tensor parallel, with or
//! without recomputing, so that a step is fast and fits the memory of a device.
//!
//! Start here:
//! - [`run`]: the frontier of time and memory, and the fastest plan that fits.
//! - [`report`]: the result in words and for programs; [`page`]: as a page with a picture.
//!
//! The parts of a block in each way are the workload's (`gradwire_workloads::training`), so a plan
//! and its simulation have the same. Computing takes the times of the model; an exchange takes the
//! time of a replay of it alone (`gradwire_trace::collective_costs`). Times add up: parts follow
//! one another, as `step:MODEL:plan=BLOCKS,overlap=off` runs them. The frontier is
//! `gradwire_tuning::frontier`.

pub mod page;
pub mod report;

use std::collections::BTreeSet;

use clap::Args;
use gradwire_fabric::fitting::{self, SendPattern};
use gradwire_fabric::settings;
use gradwire_fabric::topology::Fabric;
use gradwire_netsim::fluid::{FluidError, FluidExtent};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::Span;
use gradwire_trace::collective_costs::CollectiveCosts;
use gradwire_trace::replay::{Scene, replay};
use gradwire_tuning::frontier::{self, ChainLayer, FrontierPoint, LayerWay};
use gradwire_workloads::model::{Model, ModelBlock};
use gradwire_workloads::training::{
    ActivationLayout, BlockPart, BlockRun, BlockStrategy, DeviceShare, MixedPlan, layout_change,
};
use gradwire_workloads::workload::{Hosts, Workload};

use crate::error::LabError;
use crate::{files, values};
use report::{FrontierRow, PlanReport};

/// Points of a frontier are told apart by this part of the memory of the largest plan.
const GRAINS: u64 = 4_096;
/// Bytes times devices that the replay of a whole plan exchanges at most; larger ones are scaled.
const REPLAYED_BYTES: u64 = 8 << 30;
/// Steps of the replay of the fastest plan.
const REPLAYED_STEPS: u32 = 2;
/// Most devices: a replay of a collective has a message for each pair of them.
const DEVICES_MAX: i64 = 64;

/// The question of a plan.
#[derive(Args, Clone, Debug)]
pub struct PlanQuestion {
    /// A model that `model list` names, or a file: NAME.csv, NAME.txt, NAME.et or NAME.json.
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Number of devices, from 2 to 64; each is a host of the fabric.
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(2..=DEVICES_MAX))]
    pub devices: u32,
    /// Memory of a device that states and activations may take, such as 16G (2^30) or 16GB (10^9).
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub memory: u64,
    /// Rate of each device's link to one switch.
    #[arg(long, default_value = "100G", value_name = "RATE", value_parser = link)]
    pub link: String,
    /// Images or tokens of a step on one device, whose activations are kept and exchanged; by
    /// default those of the model. The model's computing times stay as they are.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub samples: Option<u32>,
}

fn link(text: &str) -> Result<String, String> {
    let rate = settings::rate(text).map(|_| text.to_owned());
    rate.ok_or_else(|| format!("allowed are {}", settings::RATE_ALLOWED))
}

fn memory(text: &str) -> Result<u64, String> {
    let decimal = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6)].into_iter();
    let mut decimal = decimal.filter_map(|(unit, bytes)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        (number > 0.0 && number < 1e6).then_some((number * bytes) as u64)
    });
    let binary = || values::size(text).ok().map(|size| size.get());
    let size = decimal.next().or_else(binary).filter(|&size| size > 0);
    size.ok_or_else(|| "allowed are 16G, 512M (powers of 1,024) or 16GB, 512MB".to_owned())
}

/// Finds the frontier and the fastest plan that fits.
///
/// # Errors
/// [`LabError`] when there is no such model.
pub fn run(question: &PlanQuestion) -> Result<PlanReport, LabError> {
    let model = files::model(&question.model)?;
    let blocks = model.blocks();
    let mut planner = Planner::new(question, &model)?;
    let ways: Vec<Vec<BlockRun<'_>>> = blocks.iter().map(|block| planner.ways(block)).collect();
    let chain = planner.chain(&blocks, &ways)?;
    let most = chain.iter().map(|layer| {
        let memory = layer.ways.iter().map(|way| way.memory);
        memory.max().unwrap_or_default()
    });
    let found = frontier::frontier(&chain, most.sum::<u64>() / GRAINS);
    let rows = found.iter().map(|point| row(&ways, point)).collect();
    let fastest = frontier::fastest_within(&found, question.memory);
    let fastest = fastest.map(|point| planner.replayed(&ways, point));
    let fastest = fastest.transpose()?;
    Ok(PlanReport::new(question, &model, (&blocks, rows), fastest))
}

/// The strategies of a point, and its memory in parts.
fn row(ways: &[Vec<BlockRun<'_>>], point: &FrontierPoint) -> FrontierRow {
    let runs = ways.iter().zip(&point.ways).map(|(ways, &way)| ways[way]);
    let memories = runs.clone().map(|run| run.memory());
    let plan = MixedPlan {
        blocks: runs.clone().map(|run| run.strategy()).collect(),
    };
    let computes = runs.flat_map(|run| run.forward().into_iter().chain(run.backward()));
    let computes = computes.fold(Span::ZERO, |all, part| match part {
        BlockPart::Compute(span) => all + span,
        BlockPart::Exchange(..) => all,
    });
    FrontierRow::new(plan, (point.time, computes), memories.collect())
}

/// The fastest plan with the iterations that a replay of all of it gives, in microseconds.
pub struct ReplayedPlan {
    /// The plan.
    pub row: FrontierRow,
    /// Without overlap, as it was planned.
    pub in_turn_us: f64,
    /// When gradients travel during the backward pass.
    pub overlapped_us: f64,
    /// The divisor of all sizes and times in the replays; 1 replays the plan as it is.
    pub scale: u32,
}

struct Planner<'a> {
    model: &'a Model,
    share: DeviceShare,
    fabric: Fabric,
    job: Job,
    costs: CollectiveCosts,
}

impl<'a> Planner<'a> {
    fn new(question: &PlanQuestion, model: &'a Model) -> Result<Self, LabError> {
        let fabric = files::fabric(&question.fabric())?;
        let pattern = SendPattern::InTurns;
        let job = fitting::fitted(&Job::default(), &BTreeSet::new(), &fabric, pattern);
        Ok(Self {
            model,
            share: DeviceShare {
                devices: question.devices,
                samples: question.samples.or(model.samples).unwrap_or(1),
            },
            costs: CollectiveCosts::new(&fabric, &job),
            fabric,
            job,
        })
    }

    /// The ways that suit a block.
    fn ways<'b>(&self, block: &'b ModelBlock) -> Vec<BlockRun<'b>> {
        let ways = BlockStrategy::all();
        ways.filter_map(|way| BlockRun::new(block, way, self.share))
            .collect()
    }

    /// The chain of blocks; behind the last one the loss takes samples.
    fn chain(
        &mut self,
        blocks: &[ModelBlock],
        ways: &[Vec<BlockRun<'_>>],
    ) -> Result<Vec<ChainLayer>, LabError> {
        let mut chain = Vec::new();
        let mut change = Span::ZERO;
        for (block, ways) in blocks.iter().zip(ways) {
            let ways = ways.iter().map(|run| self.way(run));
            chain.push(ChainLayer {
                ways: ways.collect::<Result<_, _>>()?,
                changes: changes(change),
            });
            // In the backward pass it is undone.
            change = self.span(layout_change(block, self.share))? * 2;
        }
        let samples = ActivationLayout::Samples as usize;
        let loss = LayerWay {
            takes: Some(samples),
            gives: samples,
            time: Span::ZERO,
            memory: 0,
            peak: 0,
        };
        chain.push(ChainLayer {
            ways: vec![loss],
            changes: changes(change),
        });
        Ok(chain)
    }

    fn way(&mut self, run: &BlockRun<'_>) -> Result<LayerWay, LabError> {
        let passes = run.forward().into_iter().chain(run.backward());
        let mut time = Span::ZERO;
        for part in passes.chain(run.update()) {
            time = time + self.span(part)?;
        }
        let memory = run.memory();
        Ok(LayerWay {
            takes: run.takes().map(|layout| layout as usize),
            gives: run.gives() as usize,
            time,
            memory: memory.states + memory.activations,
            peak: memory.peak,
        })
    }

    fn span(&mut self, part: BlockPart) -> Result<Span, LabError> {
        match part {
            BlockPart::Compute(span) => Ok(span),
            BlockPart::Exchange(_, 0) => Ok(Span::ZERO),
            BlockPart::Exchange(kind, bytes) => self.costs.span(kind, bytes).map_err(too_large),
        }
    }

    /// Replays the whole steps of a plan.
    fn replayed(
        &self,
        ways: &[Vec<BlockRun<'_>>],
        point: &FrontierPoint,
    ) -> Result<ReplayedPlan, LabError> {
        let row = row(ways, point);
        let runs = ways.iter().zip(&point.ways).map(|(ways, &way)| ways[way]);
        let parts = runs.flat_map(|run| {
            let passes = run.forward().into_iter().chain(run.backward());
            passes.chain(run.update()).collect::<Vec<_>>()
        });
        let exchanged = parts.map(|part| match part {
            BlockPart::Exchange(_, bytes) => bytes * u64::from(self.share.devices),
            BlockPart::Compute(_) => 0,
        });
        let scale = exchanged
            .sum::<u64>()
            .div_ceil(REPLAYED_BYTES)
            .next_power_of_two() as u32;
        let iteration_us = |overlap: &str| {
            let (name, samples) = (&self.model.name, self.share.samples);
            let line = format!(
                "step:{name}:plan={},samples={samples},steps={REPLAYED_STEPS},overlap={overlap},\
                 scale={scale}",
                row.plan
            );
            let hosts = Hosts {
                count: self.fabric.hosts,
                rate: self.fabric.host_rate(),
            };
            let models = std::slice::from_ref(self.model);
            let workload = Workload::from_pattern_with(&line, hosts, 0, models);
            let scene = Scene {
                workload: workload.map_err(|error| LabError::input(&line, error))?,
                job: self.job.clone(),
                network: self.costs.network(),
                extent: FluidExtent::Whole,
            };
            let prediction = replay(&scene).map_err(too_large)?;
            Ok::<_, LabError>(prediction.iteration_us() * f64::from(scale))
        };
        Ok(ReplayedPlan {
            in_turn_us: iteration_us("off")?,
            overlapped_us: iteration_us("on")?,
            row,
            scale,
        })
    }
}

impl PlanQuestion {
    /// The fabric on which a plan runs, as `gradwire sim run` takes it.
    pub fn fabric(&self) -> String {
        format!("single:{}@{}", self.devices, self.link)
    }
}

fn changes(change: Span) -> Vec<Vec<Span>> {
    vec![vec![Span::ZERO, change], vec![change, Span::ZERO]]
}

fn too_large(error: FluidError) -> LabError {
    LabError::Usage(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(devices: u32, memory: u64) -> PlanReport {
        let question = PlanQuestion {
            model: "vgg16".to_owned(),
            devices,
            memory,
            link: "25G".to_owned(),
            samples: None,
        };
        run(&question).expect("it is a model")
    }

    #[test]
    fn plans_change_with_the_number_of_devices() {
        let plans = [4, 8, 16].map(|devices| {
            let report = planned(devices, 2_400_000_000);
            let fastest = report.fastest.expect("it fits");
            let least = report.frontier.first().expect("there are plans").memory;
            assert!(fastest.row.memory <= 2_400_000_000);
            (fastest.row.plan, least)
        });
        assert!(
            plans[0].1 > plans[1].1 && plans[1].1 > plans[2].1,
            "{plans:?}"
        );
        assert!(
            plans[0].0 != plans[1].0 && plans[1].0 != plans[2].0,
            "{plans:?}"
        );
    }

    #[test]
    fn replays_of_the_whole_plan_take_the_time_of_its_parts() {
        let fastest = planned(4, 4_000_000_000).fastest.expect("it fits");
        let ratio = fastest.in_turn_us / fastest.row.time_us;
        assert!((0.95..1.05).contains(&ratio), "{ratio}");
        assert!(fastest.overlapped_us <= fastest.in_turn_us * 1.001);
    }

    #[test]
    fn memory_is_read_in_both_kinds_of_units() {
        assert_eq!(memory("16GB"), Ok(16_000_000_000));
        assert_eq!(memory("16G"), Ok(16 << 30));
        assert_eq!(memory("1.5TB"), Ok(1_500_000_000_000));
        for wrong in ["0", "GB", "-1GB", "lots", "nanGB", "0MB"] {
            assert!(memory(wrong).is_err(), "{wrong}");
        }
    }
}

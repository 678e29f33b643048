//! The result of planning: in words and for programs.

use gradwire_netsim::results::statistics::micros;
use gradwire_protocol::units::Span;
use gradwire_report::numbers::{bytes, count};
use gradwire_workloads::model::{Model, ModelBlock};
use gradwire_workloads::training::{BlockMemory, MixedPlan};
use serde::Serialize;

use super::{PlanQuestion, ReplayedPlan};

/// Rows of a table at most.
const ROWS_MAX: usize = 16;

/// The result as JSON: times in microseconds, memory in bytes on a device.
#[derive(Clone, Debug, Serialize)]
pub struct PlanReport {
    /// The model.
    pub model: String,
    /// The source of its computing times, in words.
    pub times: String,
    /// Number of devices.
    pub devices: u32,
    /// Rate of a device's link.
    pub link: String,
    /// Samples of a step on one device; `None` where the model has no activations.
    pub samples: Option<u32>,
    /// Memory of a device.
    pub memory: u64,
    /// Blocks of the model, in the order of the forward pass.
    pub blocks: Vec<PlannedBlock>,
    /// The fastest plan that fits; `None` if nothing fits.
    pub fastest: Option<FastestPlan>,
    /// All plans that no other beats in both, by ascending memory.
    pub frontier: Vec<FrontierRow>,
}

/// A block of the model.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedBlock {
    /// Its name.
    pub name: String,
    /// Elements of its weights.
    pub parameters: u64,
    forward_us: f64,
    backward_us: f64,
}

/// A plan and its costs.
#[derive(Clone, Debug, Serialize)]
pub struct FrontierRow {
    /// The way of each block, such as `2d-11tr-1s`.
    pub plan: String,
    /// Time of a step.
    pub time_us: f64,
    /// Computing within it.
    pub compute_us: f64,
    /// Memory in all: states, activations and peak.
    pub memory: u64,
    /// Weights, gradients and moments.
    pub states: u64,
    /// Activations.
    pub activations: u64,
    /// The largest need of a block while it runs.
    pub peak: u64,
}

/// The fastest plan that fits.
#[derive(Clone, Debug, Serialize)]
pub struct FastestPlan {
    /// Its costs.
    #[serde(flatten)]
    pub row: FrontierRow,
    /// Time of a step by a replay of all of it, parts in turn as planned.
    pub in_turn_us: f64,
    /// The same when gradients travel during the backward pass.
    pub overlapped_us: f64,
    /// The divisor of all sizes and times in both replays.
    pub scale: u32,
    /// The command that simulates it.
    pub command: String,
}

impl FrontierRow {
    pub(super) fn new(
        plan: MixedPlan,
        (time, computes): (Span, Span),
        memories: Vec<BlockMemory>,
    ) -> Self {
        let states = memories.iter().map(|one| one.states).sum();
        let activations = memories.iter().map(|one| one.activations).sum();
        let peak = memories.iter().map(|one| one.peak).max().unwrap_or(0);
        Self {
            plan: plan.to_string(),
            time_us: micros(time),
            compute_us: micros(computes),
            memory: states + activations + peak,
            states,
            activations,
            peak,
        }
    }

    fn cells(&self) -> String {
        format!(
            "{:>10}{:>12.3}{:>12.3}{:>12.3}{:>11}{:>13}{:>10}  {}",
            bytes(self.memory),
            self.time_us / 1e3,
            self.compute_us / 1e3,
            (self.time_us - self.compute_us) / 1e3,
            bytes(self.states),
            bytes(self.activations),
            bytes(self.peak),
            self.plan,
        )
    }
}

impl PlanReport {
    pub(super) fn new(
        question: &PlanQuestion,
        model: &Model,
        (blocks, frontier): (&[ModelBlock], Vec<FrontierRow>),
        fastest: Option<ReplayedPlan>,
    ) -> Self {
        let samples = question.samples.or(model.samples);
        let has_values = blocks.iter().any(|block| block.values.is_some());
        let samples = samples.filter(|_| has_values);
        let option = samples.map_or_else(String::new, |samples| format!(",samples={samples}"));
        let fastest = fastest.map(|replayed| FastestPlan {
            command: format!(
                "gradwire sim run {} step:{}:plan={}{option},overlap=off",
                question.fabric(),
                model.name,
                replayed.row.plan,
            ),
            row: replayed.row,
            in_turn_us: replayed.in_turn_us,
            overlapped_us: replayed.overlapped_us,
            scale: replayed.scale,
        });
        let blocks = blocks.iter().map(|block| PlannedBlock {
            name: block.name.clone(),
            parameters: block.parameters,
            forward_us: micros(block.forward),
            backward_us: micros(block.backward),
        });
        Self {
            model: model.name.clone(),
            times: model.times.clone(),
            devices: question.devices,
            link: question.link.clone(),
            samples,
            memory: question.memory,
            blocks: blocks.collect(),
            fastest,
            frontier,
        }
    }

    /// Returns model, devices and assumptions, a line each.
    pub fn headlines(&self) -> Vec<String> {
        let samples = match self.samples {
            Some(samples) => format!("{} samples a device", count(u64::from(samples))),
            None => "no activations: the model's file has none, so no t and no r".to_owned(),
        };
        vec![
            format!(
                "{} on {} devices of {}, links of {}; {samples}",
                self.model,
                self.devices,
                bytes(self.memory),
                self.link
            ),
            format!("computing: {}; an update takes no time", self.times),
            "exchanges: each replayed alone; parts of a step follow one another".to_owned(),
            "memory: 16 bytes a parameter (weight, gradient, Adam), kept activations of 4 bytes, \
             and the largest peak"
                .to_owned(),
        ]
    }

    /// Returns the result in words.
    pub fn text(&self) -> String {
        let lines = self.headlines().into_iter();
        let mut text: String = lines.map(|line| format!("# {line}\n")).collect();
        text += &format!(
            "\n{:>10}{:>12}{:>12}{:>12}{:>11}{:>13}{:>10}  plan\n",
            "memory", "time ms", "computing", "exchanges", "states", "activations", "peak"
        );
        for (number, row) in self.frontier.iter().enumerate() {
            if self.is_shown(number) {
                text += &format!("{}{}\n", row.cells(), self.mark(row));
            }
        }
        if self.frontier.len() > ROWS_MAX {
            let all = count(self.frontier.len() as u64);
            text += &format!("  some of {all} plans; --json has all\n");
        }
        text + &self.ending()
    }

    /// Whether a row is shown: evenly spread ones, both ends, and the fastest that fits.
    fn is_shown(&self, number: usize) -> bool {
        let last = self.frontier.len() - 1;
        let is_even = (0..ROWS_MAX).any(|row| row * last / (ROWS_MAX - 1) == number);
        is_even || last < ROWS_MAX || !self.mark(&self.frontier[number]).is_empty()
    }

    fn mark(&self, row: &FrontierRow) -> &'static str {
        let fastest = self.fastest.as_ref();
        match fastest.is_some_and(|fastest| fastest.row.plan == row.plan) {
            true => "  <- fastest that fits",
            false => "",
        }
    }

    fn ending(&self) -> String {
        let Some(fastest) = &self.fastest else {
            return format!("\n{}\n", self.nothing_fits());
        };
        let mut text = format!("\nfastest that fits {}:\n", bytes(self.memory));
        for (names, way) in self.groups(&fastest.row.plan) {
            text += &format!("  {names}: {way}\n");
        }
        text += &format!(
            "a step takes {:.3} ms; a replay of {} {:.3} ms, and {:.3} ms when gradients travel \
             during the backward pass\n\n  {}\n",
            fastest.row.time_us / 1e3,
            match fastest.scale {
                1 => "all of it".to_owned(),
                scale => format!("1/{scale} of all sizes, times {scale},"),
            },
            fastest.in_turn_us / 1e3,
            fastest.overlapped_us / 1e3,
            fastest.command,
        );
        text
    }

    /// Returns what to do when nothing fits.
    pub fn nothing_fits(&self) -> String {
        let least = self.frontier.first();
        let least = least.map_or_else(String::new, |row| {
            format!(
                ": the smallest plan takes {} ({})",
                bytes(row.memory),
                row.plan
            )
        });
        format!(
            "no plan of {} fits {} on {} devices{least}; give more --memory or --devices, or fewer \
             --samples",
            self.model,
            bytes(self.memory),
            self.devices,
        )
    }

    /// Returns the names of blocks that are run in one way, and the way in words.
    pub fn groups(&self, plan: &str) -> Vec<(String, &'static str)> {
        let plan: MixedPlan = plan.parse().expect("it was written by a plan");
        let mut groups = Vec::new();
        let mut at = 0;
        for run in plan.blocks.chunk_by(|a, b| a == b) {
            let names = &self.blocks[at..at + run.len()];
            at += run.len();
            let names = match names {
                [one] => one.name.clone(),
                [first, .., last] => format!("{} to {} ({})", first.name, last.name, run.len()),
                [] => continue,
            };
            groups.push((names, in_words(&run[0].to_string())));
        }
        groups
    }
}

fn in_words(way: &str) -> &'static str {
    match way {
        "d" => "data parallel",
        "dr" => "data parallel, recomputed",
        "s" => "sharded",
        "sr" => "sharded, recomputed",
        "t" => "tensor parallel",
        _ => "tensor parallel, recomputed",
    }
}

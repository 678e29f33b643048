//! The options of `gradwire sim`. Doc comments on options are the help text.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gradwire_lab::sim::compare::ComparisonPlan;
use gradwire_lab::sim::scenario::Scenario;
use gradwire_lab::values;
use gradwire_testnet::cluster::faults::FaultSet;
use gradwire_testnet::cluster::schedule::RANKS_MAX;

use super::sweep::options::{self, SweepOptions};
use crate::environment::Environment;

const SIM_RUN_EXAMPLES: &str = "\
Examples:
  gradwire sim run fat-tree:k=8@100G permutation:2MB
  gradwire sim run single:65@100G incast:64x64KB --tolerance 10% --json
  gradwire sim run leaf-spine:9x16x4@100G poisson:websearch@0.6:10ms --transport dctcp
  gradwire sim run fabric.toml flows.cm --set transport.window=1MiB --seed 7 --threads 2
  gradwire sim run fat-tree:k=8@100G permutation:2MB --flows flows.csv
  gradwire sim run single:16@25G step:vgg16:ps=8,scale=16
  gradwire sim run fat-tree:k=4@100G step:gpt2:summa=2x2x4,steps=1
  gradwire sim run leaf-spine:2x4x2@25G step:mine.csv:ddp,steps=5,slow=1.2,algorithm=ring

Times are simulated microseconds; percentiles are of flows that ended, by nearest rank.
  FCT        from a flow's start until its receiver is complete
  slowdown   FCT over the time of the flow alone on an idle fabric
  goodput    bytes that receivers have, without headers, first start to last end
  early      droppable packets that a queue above its threshold dropped
  full       packets that found no room
  marked     protected packets that a queue above its threshold marked

Training steps are step:MODEL:HOW; HOW is ddp (buckets of 25 MiB), tensors (an all-reduce for each),
ps=8 (parameter servers on the first 8 hosts), summa=4x4x2 (matrices sharded over 4 rows and 4
columns of hosts in 2 layers), megatron=32 (matrices split over 32 hosts, activations summed) or
plan=2d-11tr-1s (each block as `model plan` says). Options behind it, with commas:
  steps=3         how many; a step is timed from the end of its forward pass to the end of the next
  slow=1.5        the last worker computes 1.5 times as long
  update=all      a forward pass waits for all updates; without it, each layer for its own
  bucket=50MiB    size at which a bucket is closed; without it 25 MiB, as DDP
  overlap=off     gradients leave when the backward pass has ended, not during it
  beside=vgg16    train this model, too, in turns: one computes while the other exchanges gradients
  algorithm=ring  of all-reduces; without it, as the job says
  part=1MiB       size of the parts of a gradient for parameter servers; part=whole: not cut, but
                  shared by the servers from a million elements on
  codec=128G      values that a host encodes or decodes in a second, with ddp and tensors; without
                  it, codecs of the job take no time
  codec_on=compute  the computing unit does it, between computing and exchange; without it, other
                  cores do it while the message is on its way
  tokens=1024     in a host's share of the batch, with summa and megatron: the rows of activations
  samples=32      in a host's share of the batch, with plan: images or tokens
  scale=16        a 16th of all sizes and times, which takes a 16th of the run

Exit code 1 when flows or tasks have not ended at --limit; the table has those that ended.
JSON: one object on one line; times in microseconds, rates in Gb/s (10^9 bits per second).";

const SIM_COMPARE_EXAMPLES: &str = "\
Examples:
  gradwire sim compare fat-tree:k=8@100G permutation:2MB
  gradwire sim compare single:65@100G incast:64x64KB --transports gradwire,ndp,dctcp --seeds 20
  gradwire sim compare fat-tree:k=8@100G permutation:2MB --tolerance 10% --json

Each transport runs each seed once. A column has the mean over seeds, and how many times the first
transport that is: the geometric mean of the ratios seed by seed, with its 95 % interval (Student's
t). A ratio below 1 is a rival that was faster; \"=\" marks intervals that hold 1.";

const SIM_REPORT_EXAMPLES: &str = "\
Examples:
  gradwire sim report fat-tree:k=8@100G permutation:2MB --out report.html
  gradwire sim report fabric.toml flows.cm --transports gradwire,dctcp,ndp --out report.html

The file stands alone: its pictures are SVG within it.";

const SIM_FUZZ_EXAMPLES: &str = "\
Examples:
  gradwire sim fuzz --count 1000
  gradwire sim fuzz --seed 1000000 --count 500000 --json
  gradwire sim fuzz --seed 17 --count 1 --faults loss+freeze --ranks 2 --operations 3 --trace

A seed draws a job, 2 to 6 ranks, their operations and some faults of clocks, hosts and paths. A
failing seed is shrunk: the output has the check, the fewest faults, ranks and operations that break
it, and the command that runs them again.

Exit code 1 when a seed breaks a promise. JSON: one object on one line, times in microseconds.";

/// The simulations.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run a workload once: completion times, losses, queues.
    #[command(after_help = SIM_RUN_EXAMPLES)]
    Run(SimRun),
    /// Run a workload with several transports and seeds: ratios and their confidence intervals.
    #[command(after_help = SIM_COMPARE_EXAMPLES, mut_arg("transport", |one| one.hide(true)))]
    Compare(SimCompare),
    /// Run every combination of a plan on all cores; finished ones are never run again.
    #[command(after_help = options::EXAMPLES)]
    Sweep(SweepOptions),
    /// Run random operations under random faults, and check every promise at every instant.
    #[command(after_help = SIM_FUZZ_EXAMPLES)]
    Fuzz(SimFuzz),
    /// List the workloads, the fabrics and the options of both.
    Workloads(SimWorkloads),
    /// Run a workload and draw the results, as one HTML file.
    #[command(after_help = SIM_REPORT_EXAMPLES)]
    Report(SimReport),
}

/// The scenario that was typed; without `--job` its job is that of `GRADWIRE_JOB`.
pub fn scenario(typed: &Scenario) -> Scenario {
    let job = typed.job.clone().or_else(|| Environment::read().job);
    Scenario {
        job,
        ..typed.clone()
    }
}

/// Options of `gradwire sim run`.
#[derive(Args, Clone, Debug)]
pub struct SimRun {
    /// The scenario.
    #[command(flatten)]
    pub scenario: Scenario,
    /// Write the run's trace into this folder, a file for each host, for `gradwire trace replay`
    /// and Perfetto; training steps on gradwire only.
    #[arg(long, value_name = "FOLDER")]
    pub trace: Option<PathBuf>,
    /// Write each flow as a row of this CSV file: its ends, bytes, start, times, slowdown and loss.
    #[arg(long, value_name = "FILE")]
    pub flows: Option<PathBuf>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire sim compare`.
#[derive(Args, Clone, Debug)]
pub struct SimCompare {
    /// The comparison.
    #[command(flatten)]
    pub plan: ComparisonPlan,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire sim fuzz`.
#[derive(Args, Clone, Debug)]
pub struct SimFuzz {
    /// The first seed.
    #[arg(long, default_value_t = 0, value_parser = values::seed)]
    pub seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// These faults, with + between them, instead of those of each seed; or none.
    #[arg(long, value_name = "FAULTS")]
    pub faults: Option<FaultSet>,
    /// Number of ranks, instead of that of each seed.
    #[arg(long, value_parser = clap::value_parser!(u16).range(2..=i64::from(RANKS_MAX)))]
    pub ranks: Option<u16>,
    /// Number of operations, instead of that of each seed.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub operations: Option<u16>,
    /// Seeds at a time; by default one per core.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "SEEDS")]
    pub parallel: Option<u16>,
    /// Print every packet of the first seed, and run no other.
    #[arg(long, conflicts_with = "json")]
    pub trace: bool,
    /// Run a week of a training job without faults instead.
    #[arg(
        long,
        conflicts_with_all = ["count", "faults", "ranks", "operations", "parallel", "trace"]
    )]
    pub week: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire sim workloads`.
#[derive(Args, Clone, Debug)]
pub struct SimWorkloads {
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire sim report`.
#[derive(Args, Clone, Debug)]
pub struct SimReport {
    /// The scenario.
    #[command(flatten)]
    pub scenario: Scenario,
    /// Several transports in one report, instead of --transport.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        conflicts_with = "transport"
    )]
    pub transports: Vec<String>,
    /// The HTML file to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

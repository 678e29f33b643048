//! The options of `gradwire sim`. Doc comments on options are the help text.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gradwire_lab::sim::scenario::{self, Scenario};
use gradwire_protocol::job::notation;
use gradwire_protocol::units::{Share, Span};
use gradwire_testnet::cluster::faults::FaultSet;
use gradwire_testnet::cluster::schedule::RANKS_MAX;

use super::sweep::options::{self, SweepOptions};
use crate::environment::Environment;
use crate::values::share;

const SIM_RUN_EXAMPLES: &str = "\
Examples:
  gradwire sim run fat-tree:k=8@100G permutation:2MB
  gradwire sim run single:65@100G incast:64x64KB --tolerance 10% --json
  gradwire sim run leaf-spine:9x16x4@100G poisson:websearch@0.6:10ms --transport dctcp
  gradwire sim run fabric.toml flows.cm --set transport.window=1MiB --seed 7 --threads 2
  gradwire sim run single:16@25G step:vgg16:ps=8,scale=16
  gradwire sim run leaf-spine:2x4x2@25G step:mine.csv:ddp,steps=5,slow=1.2,algorithm=ring

Times are simulated microseconds; percentiles are of flows that ended, by nearest rank.
  FCT        from a flow's start until its receiver is complete
  slowdown   FCT over the time of the flow alone on an idle fabric
  goodput    bytes that receivers have, without headers, first start to last end
  early      droppable packets that a queue above its threshold dropped
  full       packets that found no room
  marked     protected packets that a queue above its threshold marked

Training steps are step:MODEL:HOW; HOW is ddp (buckets of 25 MiB), tensors (an all-reduce for each)
or ps=8 (parameter servers on the first 8 hosts). Options behind it, with commas:
  steps=3         how many; a step is timed from the end of its forward pass to the end of the next
  slow=1.5        the last worker computes 1.5 times as long
  update=all      a forward pass waits for all updates; without it, each layer for its own
  algorithm=ring  of all-reduces; without it, as the job says
  part=1MiB       size of the parts of a gradient for parameter servers; part=whole: not cut, but
                  shared by the servers from a million elements on
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
    /// Run a workload and draw the results, as one HTML file.
    #[command(after_help = SIM_REPORT_EXAMPLES)]
    Report(SimReport),
}

/// Options of a simulated scenario.
#[derive(Args, Clone, Debug)]
pub struct ScenarioOptions {
    /// The fabric: a shape such as fat-tree:k=16@100G, or a file: fabric.toml, .topo of htsim, .txt
    /// of HPCC.
    pub fabric: String,
    /// The workload: a pattern such as permutation:2MB, training steps such as step:vgg16:ddp or
    /// step:mine.csv:ps=8 (see `gradwire model`), or a file: .cm of htsim, .goal, .txt of SimAI or
    /// ASTRA-sim, NAME.0.et of Chakra, with NAME.1.et and so on in the same folder. Several
    /// workloads, with " + " between them, run in parallel; each job of training steps is measured
    /// by itself.
    pub workload: String,
    /// Another workload, which loads the fabric but is in no percentile; several with " + " between
    /// them. With training steps, its flows are cut off when the last step has ended.
    #[arg(long, value_name = "WORKLOAD")]
    pub background: Option<String>,
    /// The transport of the flows: gradwire, dctcp, dctcp-10ms (with timeouts of at least 10 ms),
    /// pfabric, ndp or roce. The last five take only collectives.algorithm, chunk, order and credit
    /// from the job: each message of a collective is a flow. With credit 0, the default, a flow
    /// begins as soon as it may, and order has no effect. With a credit, order = layers is
    /// ByteScheduler, and order = arrival first come, first served.
    #[arg(long, default_value_t = scenario::default_transport())]
    pub transport: String,
    /// The job file; by default GRADWIRE_JOB, else a job fitted to the fabric.
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Share of a message that may be missing, such as 10% or 0.1.
    #[arg(long, value_parser = share, value_name = "SHARE")]
    pub tolerance: Option<Share>,
    /// A key of the job and its value, such as transport.window=1MiB; may be repeated.
    #[arg(long, value_parser = assignment, value_name = "KEY=VALUE")]
    pub set: Vec<(String, String)>,
    /// How switches choose among equal paths: ecmp, random or adaptive; by default as the fabric
    /// says, else ecmp.
    #[arg(long, value_name = "HOW")]
    pub balance: Option<String>,
    /// Seed of all draws.
    #[arg(long, default_value_t = scenario::default_seed(), value_parser = seeds)]
    pub seed: u64,
    /// Threads of one simulation; any number gives the same bytes.
    #[arg(long, default_value_t = scenario::default_threads(), value_parser = threads)]
    pub threads: usize,
    /// Simulated time after which a run is stopped.
    #[arg(long, default_value = "10s", value_parser = span_ps, value_name = "SPAN")]
    pub limit: Span,
}

impl ScenarioOptions {
    /// The scenario that was typed; without `--job` its job is that of `GRADWIRE_JOB`.
    pub fn scenario(&self) -> Scenario {
        let from_environment = || Environment::read().job;
        Scenario {
            fabric: self.fabric.clone(),
            workload: self.workload.clone(),
            background: self.background.clone(),
            transport: self.transport.clone(),
            job: self.job.clone().or_else(from_environment),
            tolerance: self.tolerance,
            set: self.set.clone(),
            balance: self.balance.clone(),
            seed: self.seed,
            threads: self.threads,
            limit: self.limit,
        }
    }
}

/// Options of `gradwire sim run`.
#[derive(Args, Clone, Debug)]
pub struct SimRun {
    /// The scenario.
    #[command(flatten)]
    pub scenario: ScenarioOptions,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire sim compare`.
#[derive(Args, Clone, Debug)]
pub struct SimCompare {
    /// The scenario.
    #[command(flatten)]
    pub scenario: ScenarioOptions,
    /// The transports; ratios are to the first.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "gradwire,dctcp,ndp,roce,pfabric",
        value_name = "NAMES",
        conflicts_with = "transport"
    )]
    pub transports: Vec<String>,
    /// How many seeds, from --seed upwards.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(2..=1000))]
    pub seeds: u16,
    /// Runs at a time; by default as many as the cores allow with --threads.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "RUNS")]
    pub parallel: Option<u16>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire sim fuzz`.
#[derive(Args, Clone, Debug)]
pub struct SimFuzz {
    /// The first seed.
    #[arg(long, default_value_t = 0, value_parser = seeds)]
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

/// Options of `gradwire sim report`.
#[derive(Args, Clone, Debug)]
pub struct SimReport {
    /// The scenario.
    #[command(flatten)]
    pub scenario: ScenarioOptions,
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

fn span_ps(text: &str) -> Result<Span, String> {
    let allowed = || "allowed is a number with s, ms, us, ns or ps".to_owned();
    notation::span(text).ok_or_else(allowed)
}

fn seeds(text: &str) -> Result<u64, String> {
    let seed = text.parse().ok().filter(|seed| *seed <= i64::MAX as u64);
    seed.ok_or_else(|| "allowed are whole numbers from 0".to_owned())
}

fn threads(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=64).contains(count));
    count.ok_or_else(|| "allowed are 1 to 64".to_owned())
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let pair = text
        .split_once('=')
        .filter(|(key, _)| !key.trim().is_empty());
    let pair = pair.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
    pair.ok_or_else(|| "allowed is KEY=VALUE, such as transport.window=1MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        scenario: ScenarioOptions,
    }

    #[test]
    fn words_equal_the_typed_ones() {
        let line = "single:4@25G permutation:2MB --transport ndp --tolerance 10% \
                    --set transport.window=1MiB --balance random --seed 7 --threads 2 --limit 20ms";
        let scenario = |words: Vec<String>| {
            let program = std::iter::once("gradwire".to_owned());
            Typed::parse_from(program.chain(words)).scenario.scenario()
        };
        let typed: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let words = scenario(typed.clone()).words(&[]);
        assert_eq!(scenario(words), scenario(typed));
        let plain = Scenario::new("a", "b");
        assert_eq!(plain.words(&[]), ["a", "b"]);
        let two = ["ndp".to_owned(), "roce".to_owned()];
        assert_eq!(plain.words(&two), ["a", "b", "--transports", "ndp,roce"]);
    }
}

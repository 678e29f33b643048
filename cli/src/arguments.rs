//! What can be typed. Doc comments on options are the help text.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use gradwire_protocol::job::notation;
use gradwire_protocol::units::{ByteCount, Share, Span};

use crate::exit::EXIT_CODES;
use crate::sim::scenario::Scenario;
use crate::sim::sweep::options::{self, Sweep};

const PERF_EXAMPLES: &str = "\
Examples:
  gradwire perf all-reduce -n 2 -b 4K -e 64M
  gradwire perf all-reduce -n 2 -b 64K -e 16M --drop 20% --tolerance 10% --seed 7
  gradwire perf all-reduce -n 2 -b 64M -e 64M --against gloo

Columns (as in nccl-tests; counts are sums over all ranks, warm-up included):
  time       median over iterations of the slowest rank, in microseconds
  algbw      size / time, in gigabytes (10^9 bytes) per second
  busbw      algbw * 2(n-1)/n: what one link carries; comparable between world sizes
  lost       segments that stayed missing, within the tolerance
  repaired   segments that were sent again
  sent       segments that were sent, each counted once
  #wrong     results that broke a check; any makes the exit code 1

JSON: one object a line. algbw_gbps and busbw_gbps are giga*bits* (10^9 bits) per second.";

const RANK_EXAMPLES: &str = "\
Examples (two hosts; the token may also be given in GRADWIRE_TOKEN):
  gradwire rank --rank 0 --world 2 --bind 10.0.0.1 --rendezvous 10.0.0.1:29400 --token secret
  gradwire rank --rank 1 --world 2 --bind 10.0.0.2 --rendezvous 10.0.0.1:29400 --token secret";

const SIM_RUN_EXAMPLES: &str = "\
Examples:
  gradwire sim run fat-tree:k=8@100G permutation:2MB
  gradwire sim run single:65@100G incast:64x64KB --tolerance 10% --json
  gradwire sim run leaf-spine:9x16x4@100G poisson:websearch@0.6:10ms --transport dctcp
  gradwire sim run fabric.toml flows.cm --set transport.window=1MiB --seed 7 --threads 2

Times are simulated microseconds; percentiles are of flows that ended, by nearest rank.
  FCT        from a flow's start until its receiver has all that it needs
  slowdown   FCT over what the flow would take alone on an idle fabric
  goodput    bytes that receivers have, without headers, first start to last end
  early      droppable packets that a queue above its threshold dropped
  full       packets that found no room
  marked     protected packets that a queue above its threshold marked

Exit code 1, with the table of what ended, when flows or tasks have not ended at --limit.
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

The file needs nothing beside it: its pictures are SVG within.";

/// Packet-level transport for distributed training: bounded loss, priorities, any path.
#[derive(Debug, Parser)]
#[command(name = "gradwire", version, after_help = EXIT_CODES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Look at job files.
    #[command(subcommand)]
    Job(JobCommand),
    /// Measure collectives between ranks on this machine, over UDP.
    #[command(subcommand)]
    Perf(PerfCommand),
    /// Run one rank in the foreground: all-reduces in a loop, for trying on several hosts.
    #[command(after_help = RANK_EXAMPLES)]
    Rank(Rank),
    /// Simulate fabrics of hosts and switches that run the protocol that ships.
    #[command(subcommand)]
    Sim(SimCommand),
    /// One rank of `perf`, told what to do over standard input.
    #[command(hide = true)]
    PerfRank,
}

/// What can be done with job files.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Check a job file and print the job it resolves to.
    #[command(after_help = "Example:\n  gradwire job check job.toml --json")]
    Check(JobCheck),
    /// List every key of a job file: what it is for, what may be written, its default.
    Keys,
}

/// Options of `gradwire job check`.
#[derive(Args, Debug)]
pub struct JobCheck {
    /// The job file.
    pub path: PathBuf,
    /// Print one JSON object of dotted keys instead of TOML.
    #[arg(long)]
    pub json: bool,
}

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum PerfCommand {
    /// Sum of 32-bit floats over all ranks, for a range of sizes.
    #[command(after_help = PERF_EXAMPLES)]
    AllReduce(Perf),
}

/// Options of `gradwire perf`.
#[derive(Args, Clone, Debug)]
pub struct Perf {
    /// How many ranks to start, at least 2.
    #[arg(short = 'n', long, default_value_t = 2, value_name = "RANKS")]
    pub ranks: u16,
    /// Smallest size: bytes, or with K, M, G (powers of 1,024).
    #[arg(short, long, default_value = "4K", value_parser = size, value_name = "SIZE")]
    pub begin: ByteCount,
    /// Largest size.
    #[arg(short, long, default_value = "64M", value_parser = size, value_name = "SIZE")]
    pub end: ByteCount,
    /// Factor from one size to the next.
    #[arg(short, long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..))]
    pub factor: u64,
    /// Timed all-reduces per size; without it, about half a second's worth, 5 to 200.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000), value_name = "COUNT")]
    pub iterations: Option<u32>,
    /// All-reduces per size before the timed ones, at least; small sizes get about 50 ms of them.
    #[arg(long, default_value_t = 3, value_name = "COUNT")]
    pub warmup: u32,
    /// One JSON object a line instead of the table.
    #[arg(long)]
    pub json: bool,
    /// What the job is.
    #[command(flatten)]
    pub job: JobOptions,
    /// Measure another library too, in alternation, and print the ratio.
    #[arg(long, value_name = "LIBRARY", help_heading = "Comparison")]
    pub against: Option<Rival>,
    /// Python that has PyTorch; else that of VIRTUAL_ENV, else .venv/bin/python, else python3.
    #[arg(long, value_name = "PATH", help_heading = "Comparison")]
    pub python: Option<PathBuf>,
}

/// Options that choose and change a job.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Job")]
pub struct JobOptions {
    /// The job file; without it, GRADWIRE_JOB, else the default job.
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Share of a message that may be missing, such as 2% or 0.02.
    #[arg(long, value_parser = share, value_name = "SHARE")]
    pub tolerance: Option<Share>,
    /// Share of packets to drop on purpose, such as 1% or 0.01.
    #[arg(long, value_parser = share, value_name = "SHARE")]
    pub drop: Option<Share>,
    /// Seed of what is dropped.
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: Option<u64>,
    /// Largest IP packet in bytes.
    #[arg(long, value_parser = clap::value_parser!(u32).range(576..=65_535), value_name = "BYTES")]
    pub mtu: Option<u32>,
}

/// A library to compare with.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Rival {
    /// Gloo, as PyTorch brings it.
    Gloo,
}

/// Options of `gradwire rank`.
#[derive(Args, Clone, Debug)]
pub struct Rank {
    /// This rank, from 0.
    #[arg(long)]
    pub rank: u16,
    /// How many ranks the job has, at least 2.
    #[arg(long)]
    pub world: u16,
    /// Where rank 0 listens: host:port. Rank 0 opens this port itself; 0 takes any free one.
    #[arg(long, value_name = "HOST:PORT")]
    pub rendezvous: String,
    /// The secret that all ranks of the job share; without it, GRADWIRE_TOKEN.
    #[arg(long)]
    pub token: Option<String>,
    /// Local address that peers can reach.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "ADDRESS")]
    pub bind: IpAddr,
    /// Size of each all-reduce, the same on all ranks.
    #[arg(long, default_value = "1M", value_parser = size, value_name = "SIZE")]
    pub bytes: ByteCount,
    /// How many all-reduces, the same on all ranks.
    #[arg(long, default_value_t = 1_000, value_name = "COUNT")]
    pub iterations: u32,
    /// How long to wait for the other ranks.
    #[arg(long, default_value = "30s", value_parser = span, value_name = "SPAN")]
    pub join_timeout: Span,
    /// What the job is.
    #[command(flatten)]
    pub job: JobOptions,
}

/// What can be simulated.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run a workload once: completion times, losses, queues.
    #[command(after_help = SIM_RUN_EXAMPLES)]
    Run(SimRun),
    /// Run a workload with several transports and seeds: ratios and how sure they are.
    #[command(after_help = SIM_COMPARE_EXAMPLES, mut_arg("transport", |one| one.hide(true)))]
    Compare(SimCompare),
    /// Run every combination of a plan on all cores; what is finished is never run again.
    #[command(after_help = options::EXAMPLES)]
    Sweep(Sweep),
    /// Run a workload and draw what happened, as one HTML file.
    #[command(after_help = SIM_REPORT_EXAMPLES)]
    Report(SimReport),
}

/// Options of `gradwire sim run`.
#[derive(Args, Clone, Debug)]
pub struct SimRun {
    /// What is simulated.
    #[command(flatten)]
    pub scenario: Scenario,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire sim compare`.
#[derive(Args, Clone, Debug)]
pub struct SimCompare {
    /// What is simulated.
    #[command(flatten)]
    pub scenario: Scenario,
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
    /// Runs at a time; as many as there are cores for --threads without it.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "RUNS")]
    pub parallel: Option<u16>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire sim report`.
#[derive(Args, Clone, Debug)]
pub struct SimReport {
    /// What is simulated.
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

fn size(text: &str) -> Result<ByteCount, String> {
    notation::size(text).ok_or_else(|| "allowed are bytes, or a number with K, M or G".to_owned())
}

fn share(text: &str) -> Result<Share, String> {
    notation::share(text).ok_or_else(|| "allowed are 0 to 1, or 0% to 100%".to_owned())
}

fn span(text: &str) -> Result<Span, String> {
    notation::span(text).ok_or_else(|| "allowed is a number with s, ms, us or ns".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }
}

//! What can be typed. Doc comments on options are the help text.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use gradwire_protocol::job::notation;
use gradwire_protocol::units::{ByteCount, Share, Span};

use crate::eval::options::EvalCommand;
use crate::exit::EXIT_CODES;
use crate::perf::options::PerfCommand;
use crate::sim::scenario::Scenario;
use crate::sim::sweep::options::{self, Sweep};
use crate::switch::options::SwitchCommand;
use crate::tune::TuneCommand;
use crate::tune::guard::Guard;

const RANK_EXAMPLES: &str = "\
Examples (two hosts; the token may also be given in GRADWIRE_TOKEN):
  gradwire rank --rank 0 --world 2 --bind 10.0.0.1 --rendezvous 10.0.0.1:29400 --token secret
  gradwire rank --rank 1 --world 2 --bind 10.0.0.2 --rendezvous 10.0.0.1:29400 --token secret";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  gradwire doctor                                        this host alone
  gradwire doctor --ranks 8 --world 64 --job job.toml    this host for such a job
  gradwire doctor --serve --bind 10.0.0.2                on one host: answer probes, and
  gradwire doctor --peer 10.0.0.2:29410 --json           on another: check the path to it
  gradwire doctor --rank 0 --world 2 --rendezvous 10.0.0.1:29400 --token secret
                                                         on every host with its rank: all pairs

Findings:
  ok         as it should be
  warning    a job works, with less than it could have
  problem    a job hangs, fails, or loses more than half of its speed; makes the exit code 1

Speeds were measured on one core with packets of 1,400 bytes; trust the ratios. JSON: one object,
{\"host\": {\"checks\": [{name, state, found, costs, mend}]}, \"pairs\": [{from, to, checks}]}.
A server answers only its own protocol, never with more bytes than it was sent; it runs until it is
interrupted.";

const TOP_EXAMPLES: &str = "\
Examples (the job says `port = 9400` in its [metrics]):
  gradwire top
  gradwire top --host 10.0.0.1 --host 10.0.0.2 --port 9400
  gradwire top --once --json

Other hosts answer when the job says `bind = \"any\"` too.
Columns (rates are those of the last refresh; rtt is since the start, of ranks their worst peer's):
  out, in    megabytes (10^6 bytes) per second, headers included
  lost       of a rank, share of the bytes that might be lost; of a peer, of all that came from it
  tol        share that the tolerance allows
  repair/s   segments sent again
  mark/s     packets that came with CE
  rtt50/99   round trip that half, and 99 in 100, do not exceed, in microseconds
  kdrops     packets that this host's kernel dropped, since the start
  ops/s      operations that ended
  flight     kilobytes (10^3 bytes) on their way to the peer, and the window that bounds them

Keys: q quits, up and down choose a rank, left and right a column, s sorts by it, again the other
way round.";

const TRACE_SHOW_EXAMPLES: &str = "\
Examples (the ranks ran with GRADWIRE_TRACE=traces, and one of them failed):
  gradwire trace show traces
  gradwire trace show traces/gradwire-job-5f3a0c11-rank*.json
  gradwire trace show rank0.json rank1.json --json

Each rank writes one file when an operation fails, a peer is lost or the job is aborted, and when
it is asked: gradwire.trace() in Python, gw_trace_json in C. Ranks that stand alike share a row.
  entered        the last collective of the group that the rank was asked to do
  completed      the last that it has completed
  not completed  the first that it has not
  received       bytes of it that have come, of those that must come
  waits for      ranks that have not sent or not received everything
  last in        the rank that entered last, by the clocks of the hosts, which may differ

Exit codes: 0 when the files were compared, whatever they say; 2 when one cannot be used. JSON:
one object, {job, job_id, world_size, ranks, absent, groups, messages, longest}, times in
microseconds.";

const SIM_RUN_EXAMPLES: &str = "\
Examples:
  gradwire sim run fat-tree:k=8@100G permutation:2MB
  gradwire sim run single:65@100G incast:64x64KB --tolerance 10% --json
  gradwire sim run leaf-spine:9x16x4@100G poisson:websearch@0.6:10ms --transport dctcp
  gradwire sim run fabric.toml flows.cm --set transport.window=1MiB --seed 7 --threads 2
  gradwire sim run single:16@25G step:vgg16:ps=8,scale=16
  gradwire sim run leaf-spine:2x4x2@25G step:mine.csv:ddp,steps=5,slow=1.2,algorithm=ring

Times are simulated microseconds; percentiles are of flows that ended, by nearest rank.
  FCT        from a flow's start until its receiver has all that it needs
  slowdown   FCT over what the flow would take alone on an idle fabric
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
  part=1MiB       a gradient is cut into parts of so many bytes for parameter servers; whole: not
                  at all, but shared by the servers from a million elements on
  scale=16        a 16th of all sizes and times, which takes a 16th of the run

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

const MODEL_LIST_EXAMPLES: &str = "\
Examples:
  gradwire model list
  gradwire model list --json

Sizes are generated from the architectures, 4 bytes a parameter. Measured times are those of a
V100, published with Espresso (EuroSys'23); a forward pass takes 0.523 of its backward pass.
Any other model: `gradwire model show FILE` and `gradwire model record SCRIPT`.";

const MODEL_SHOW_EXAMPLES: &str = "\
Examples:
  gradwire model show vgg16
  gradwire model show bert-base --all
  gradwire model show mine.csv --json
  gradwire model show Resnet50_DataParallel.txt
  gradwire model show chakra.0.et

A file NAME.txt is a list of layers of SimAI, AICB or ASTRA-sim 1.0; NAME.et or NAME.json a Chakra
execution trace of one rank and one step. What such a file lacks or has beyond a model stands in
the lines that begin with #.

A table of your own, NAME.csv, has a first line `layer,parameters,forward_ns,backward_ns` and a line
per layer, in the order of the forward pass. With a column `tensor`, rows behind each other that
name one layer are its tensors. Lines that begin with # are left out.

  backward us  from the gradient before, or the begin of the backward pass, to this one
  ready ms     from the begin of the backward pass to this gradient
  forward us   of the layer, beside its last gradient";

const MODEL_RECORD_EXAMPLES: &str = "\
Examples:
  gradwire model record train.py --epochs 1
  gradwire model record --steps 50 --out mine.csv examples/train_mnist.py --backend gloo
  torchrun --nproc-per-node 2 -m gradwire.record --out mine.csv train.py

Options of the command stand before the script. The script is not changed; it runs as the only
process of a launch, until so many backward passes have made gradients. A layer is a module with
parameters, its forward time runs from the end of the layer before it. Times are medians, of the
CPU's clock, or of CUDA events where the model is on a GPU.

Exit codes: 0 when the table was written; 1 when the script trained no model, failed, or ended too
early; 2 when there is no such script; 5 when there is no Python with gradwire and PyTorch.";

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
    /// Measure collectives between ranks on this machine.
    #[command(subcommand)]
    Perf(PerfCommand),
    /// Run one rank in the foreground: all-reduces in a loop, for trying on several hosts.
    #[command(after_help = RANK_EXAMPLES)]
    Rank(Rank),
    /// Check this host and the paths to others: what is missing, what it costs, what mends it.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(Doctor),
    /// Watch a running job: throughput, loss, repairs, marks, round trips, rank by rank.
    #[command(after_help = TOP_EXAMPLES)]
    Top(Top),
    /// Read what the flight recorders of a job's ranks have left.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Simulate fabrics of hosts and switches that run the protocol that ships.
    #[command(subcommand)]
    Sim(SimCommand),
    /// Look at the models that training steps can be simulated with, and at tables of your own.
    #[command(subcommand)]
    Model(ModelCommand),
    /// Run a published evaluation anew, and write the report of it.
    #[command(subcommand)]
    Eval(EvalCommand),
    /// Configure switches: render, check, diff, undo and verify what a job needs of them.
    #[command(subcommand)]
    Switch(SwitchCommand),
    /// Find parameters of a job by trials.
    #[command(subcommand)]
    Tune(TuneCommand),
    /// One rank of `perf`, told what to do over standard input.
    #[command(hide = true)]
    PerfRank,
    /// A script that `tune` tries, ended when standard input is.
    #[command(hide = true)]
    TuneTrial(Guard),
}

/// What can be done with traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Compare the traces of a job's ranks: who waits for whom, who is behind, what does not fit.
    #[command(after_help = TRACE_SHOW_EXAMPLES)]
    Show(TraceShow),
}

/// Options of `gradwire trace show`.
#[derive(Args, Clone, Debug)]
pub struct TraceShow {
    /// Traces of ranks of one run, or folders that have some.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How many of the operations that took longest are listed.
    #[arg(long, default_value_t = 5, value_name = "COUNT")]
    pub longest: u16,
    /// Print one JSON object instead of the tables.
    #[arg(long)]
    pub json: bool,
}

/// What can be done with models.
#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// List the models that are known by name.
    #[command(after_help = MODEL_LIST_EXAMPLES)]
    List(ModelList),
    /// Show the gradients of a model: their sizes, and when the backward pass makes them.
    #[command(after_help = MODEL_SHOW_EXAMPLES)]
    Show(ModelShow),
    /// Run a PyTorch script as it is, and keep what its layers cost as a table of your own.
    #[command(after_help = MODEL_RECORD_EXAMPLES)]
    Record(ModelRecord),
}

/// Options of `gradwire model list`.
#[derive(Args, Clone, Debug)]
pub struct ModelList {
    /// Print one JSON array instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire model show`.
#[derive(Args, Clone, Debug)]
pub struct ModelShow {
    /// A model that `model list` names, or a file: NAME.csv, NAME.txt, NAME.et or NAME.json.
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Print every gradient, not just those at both ends.
    #[arg(long)]
    pub all: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire model record`.
#[derive(Args, Clone, Debug)]
pub struct ModelRecord {
    /// How many steps are recorded; the first two do not count. Then the script is ended.
    #[arg(long, default_value_t = 20, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(3..=10_000))]
    pub steps: u32,
    /// The table that is written.
    #[arg(long, default_value = "recorded.csv", value_name = "FILE")]
    pub out: PathBuf,
    /// Python that has gradwire and PyTorch; else that of VIRTUAL_ENV, else .venv/bin/python, else
    /// python3.
    #[arg(long, value_name = "FILE")]
    pub python: Option<PathBuf>,
    /// Print one JSON object instead of the summary.
    #[arg(long)]
    pub json: bool,
    /// The script, and what it is called with.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "SCRIPT"
    )]
    pub script: Vec<String>,
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
    /// What carries packets: auto, udp, uring, shm or rdma.
    #[arg(long, value_name = "WIRE")]
    pub wire: Option<String>,
    /// Protection of packets: aead or none.
    #[arg(long, value_name = "SECURITY")]
    pub security: Option<String>,
    /// What a rank does while it waits: busy, adaptive or block.
    #[arg(long, value_name = "POLICY")]
    pub idle: Option<String>,
    /// How all-reduces are done: auto, direct, ring, halving-doubling or hierarchical.
    #[arg(long, value_name = "NAME")]
    pub algorithm: Option<String>,
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
    /// This rank's certificate in PEM, with --key and --ca; without it, GRADWIRE_CERT.
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// The key of the certificate; without it, GRADWIRE_KEY.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// The authority that every rank's certificate must be of; without it, GRADWIRE_CA.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Local address that peers can reach.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "ADDRESS")]
    pub bind: IpAddr,
    /// Size of each all-reduce, the same on all ranks.
    #[arg(long, default_value = "1M", value_parser = size, value_name = "SIZE")]
    pub bytes: ByteCount,
    /// How many all-reduces, the same on all ranks.
    #[arg(long, default_value_t = 1_000, value_name = "COUNT")]
    pub iterations: u32,
    /// What this rank contributes, 32-bit floats: one all-reduce of them instead of those of a
    /// pattern. Files of all ranks have the same size.
    #[arg(
        long,
        requires = "result",
        conflicts_with_all = ["bytes", "iterations"],
        value_name = "FILE"
    )]
    pub tensor: Option<PathBuf>,
    /// Where the sum of the ranks' tensors is written.
    #[arg(long, requires = "tensor", value_name = "FILE")]
    pub result: Option<PathBuf>,
    /// How long to wait for the other ranks.
    #[arg(long, default_value = "30s", value_parser = span, value_name = "SPAN")]
    pub join_timeout: Span,
    /// What the job is.
    #[command(flatten)]
    pub job: JobOptions,
}

/// Options of `gradwire doctor`.
#[derive(Args, Clone, Debug)]
pub struct Doctor {
    /// Local address that a job would use; without it, the one towards the peers, or every
    /// interface's. With --serve, where to answer: 0.0.0.0 without it, "::" for IPv6.
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<IpAddr>,
    /// Ranks of the job on this host.
    #[arg(
        short = 'n',
        long,
        default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=65_536),
        value_name = "COUNT"
    )]
    pub ranks: u32,
    /// All ranks of the job; without it, those of this host.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..), value_name = "COUNT")]
    pub world: Option<u16>,
    /// The job file; without it, GRADWIRE_JOB, else the default job.
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Print one JSON object instead of the list.
    #[arg(long)]
    pub json: bool,
    /// Check the path to a host where `gradwire doctor --serve` runs; may be given several times.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Paths to other hosts")]
    pub peer: Vec<String>,
    /// Answer the probes of other hosts instead of checking this one.
    #[arg(long, conflicts_with_all = ["peer", "rank"], help_heading = "Paths to other hosts")]
    pub serve: bool,
    /// Port to answer on; 0 takes any free one.
    #[arg(
        long,
        default_value_t = 29_410,
        requires = "serve",
        help_heading = "Paths to other hosts"
    )]
    pub port: u16,
    /// This rank, from 0: the ranks of a job check the paths between all of them.
    #[arg(
        long,
        requires_all = ["world", "rendezvous"],
        conflicts_with = "peer",
        help_heading = "Paths between ranks"
    )]
    pub rank: Option<u16>,
    /// Where rank 0 listens: host:port. Rank 0 opens this port itself.
    #[arg(
        long,
        requires = "rank",
        value_name = "HOST:PORT",
        help_heading = "Paths between ranks"
    )]
    pub rendezvous: Option<String>,
    /// The secret that all ranks share; without it, GRADWIRE_TOKEN.
    #[arg(long, requires = "rank", help_heading = "Paths between ranks")]
    pub token: Option<String>,
    /// How long to wait for the other ranks.
    #[arg(
        long,
        default_value = "30s",
        value_parser = span,
        value_name = "SPAN",
        help_heading = "Paths between ranks"
    )]
    pub join_timeout: Span,
}

/// Options of `gradwire top`.
#[derive(Args, Clone, Debug)]
pub struct Top {
    /// The job's `metrics.port`: of each host, this port and up to 63 above it are asked.
    #[arg(long, default_value_t = 9400, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// A host of the job, by name or address; can be given several times.
    #[arg(long, default_value = "127.0.0.1", value_name = "HOST")]
    pub host: Vec<String>,
    /// Time from one refresh to the next.
    #[arg(long, default_value = "1s", value_parser = interval, value_name = "SPAN")]
    pub interval: Span,
    /// Print one table, of one interval, and end; so it is too when the output is no terminal.
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object a line and refresh, until the last rank is gone.
    #[arg(long)]
    pub json: bool,
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

/// Reads a size as it is typed.
pub(crate) fn size(text: &str) -> Result<ByteCount, String> {
    notation::size(text).ok_or_else(|| "allowed are bytes, or a number with K, M or G".to_owned())
}

/// Reads a share as it is typed.
pub(crate) fn share(text: &str) -> Result<Share, String> {
    notation::share(text).ok_or_else(|| "allowed are 0 to 1, or 0% to 100%".to_owned())
}

/// Reads a length of time as it is typed.
pub(crate) fn span(text: &str) -> Result<Span, String> {
    notation::span(text).ok_or_else(|| "allowed is a number with s, ms, us or ns".to_owned())
}

fn interval(text: &str) -> Result<Span, String> {
    let least = Span::from_millis(100);
    let given = notation::span(text).filter(|given| *given >= least);
    given.ok_or_else(|| "allowed is 100ms or more, with s, ms, us or ns".to_owned())
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

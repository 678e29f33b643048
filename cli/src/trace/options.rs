//! The options of `gradwire trace`. Doc comments on options are the help text.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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

const TRACE_ALIGN_EXAMPLES: &str = "\
Examples:
  gradwire trace align events
  gradwire trace align events --out one-clock.json

The offset of a host is bounded from both sides by its messages: none arrives before it left, none
is acknowledged before it arrived. `within` is half of the distance of the bounds.";

const TRACE_REPLAY_EXAMPLES: &str = "\
Examples:
  gradwire sim run single:16@25G step:vgg16:ps=8,scale=16 --trace events
  gradwire trace replay events --out events.html
  gradwire trace replay events --whatif bandwidth=x2
  gradwire trace replay events --whatif bucket=50MiB,credit=8MiB --json

An iteration is the time from the end of a forward pass to the end of the next one, on the rank that
is last. \"one time a collective\" is a coarser replay for comparison, without messages.

Questions for --whatif, with commas between them:
  bandwidth=25G    links of this rate; bandwidth=x2: twice as fast as recorded
  latency=10us     one way takes this long
  loss=1%          so many packets are lost; tolerance=1% bears as many
  chunk=1MiB, credit=8MiB   collectives.chunk and collectives.credit
  bucket=50MiB     all-reduces in buckets of this size
  scheduler=off    gradients leave in the order in which they are ready; on: front layers first
  slow=3:1.5       rank 3 computes 1.5 times as long
  beside=2         two such jobs on the same ranks, each with its own processors";

const TRACE_SEARCH_EXAMPLES: &str = "\
Examples:
  gradwire trace search events
  gradwire trace search events --out faster.toml --json

Each trial is a partial replay; the result is confirmed by a full one. --out writes the keys as
lines for job.toml, and bucket_cap_mb for DDP as a comment. Confirm it by a run with these keys.";

/// The commands for traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Compare the traces of a job's ranks: which rank waits for which, which is behind, which
    /// calls disagree.
    #[command(after_help = TRACE_SHOW_EXAMPLES)]
    Show(TraceShow),
    /// Find how far the clocks of a run's hosts are apart, by its messages.
    #[command(after_help = TRACE_ALIGN_EXAMPLES)]
    Align(TraceAlign),
    /// Predict the iteration of a recorded run, show its critical path, and ask what if.
    #[command(after_help = TRACE_REPLAY_EXAMPLES)]
    Replay(TraceReplay),
    /// Search the keys of the job and the bucket size that make a recorded step shortest.
    #[command(after_help = TRACE_SEARCH_EXAMPLES)]
    Search(TraceSearch),
}

/// Options of `gradwire trace show`.
#[derive(Args, Clone, Debug)]
pub struct TraceShow {
    /// Trace files of one run, or folders with such files.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How many of the longest operations to list.
    #[arg(long, default_value_t = 5, value_name = "COUNT")]
    pub longest: u16,
    /// Print one JSON object instead of the tables.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire trace align`.
#[derive(Args, Clone, Debug)]
pub struct TraceAlign {
    /// Event files of one run, or folders with such files.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write all events, on the clock of the first host, into this file.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire trace replay`.
#[derive(Args, Clone, Debug)]
pub struct TraceReplay {
    /// Event files of one run, or folders with such files.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Ask what would happen with these changes.
    #[arg(long, value_name = "CHANGES")]
    pub whatif: Option<String>,
    /// Draw the ranks and the critical path into this HTML file.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Take the clocks of the hosts as they were, without aligning them.
    #[arg(long)]
    pub unaligned: bool,
    /// Print one JSON object instead of the tables.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire trace search`.
#[derive(Args, Clone, Debug)]
pub struct TraceSearch {
    /// Event files of one run, or folders with such files.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Replay everything in each trial, instead of one iteration of ranks that differ.
    #[arg(long)]
    pub full: bool,
    /// Write the keys into this file, for job.toml.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print one JSON object instead of the text.
    #[arg(long)]
    pub json: bool,
}

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

/// The commands for traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Compare the traces of a job's ranks: which rank waits for which, which is behind, which
    /// calls disagree.
    #[command(after_help = TRACE_SHOW_EXAMPLES)]
    Show(TraceShow),
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

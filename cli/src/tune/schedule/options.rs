//! The options of `gradwire tune schedule`. Doc comments on options are the help text.

use std::path::PathBuf;

use clap::Args;

use gradwire_lab::tune::schedule::ScheduleQuestion;

/// Shown below the options.
pub const SCHEDULE_EXAMPLES: &str = "\
Examples:
  gradwire tune schedule single:16@25G step:vgg16:ps=8,scale=16
  gradwire tune schedule single:16@25G step:vgg16:ps=8,scale=64 --grid --json
  gradwire tune schedule leaf-spine:2x4x2@25G step:mine.csv:ddp,scale=16 --write job.toml

Each trial is a simulated run with one chunk (`collectives.chunk`: how much of a tensor is one
message) and one credit (`collectives.credit`: how much of that is on its way at once). It is
judged by the mean time of a training step. Small chunks pay for each message, large ones
cannot be overtaken; little credit leaves the wire idle, much credit is a queue in order of
arrival. Bayesian optimisation chooses the next point: a Gaussian process over the logarithms,
expected improvement, as in ByteScheduler (SOSP'19).

Sizes are those of the job. With scale=N in the workload a run has an Nth of everything, of chunk
and credit too, but not of the times on the way: that favours large ones. Parameter servers (ps=8)
get tensors in parts of a chunk.

JSON: one object, {fabric, workload, seed, trials: [{chunk, credit, iteration_us}], best, wall_s},
and with --grid {grid: [...], grid_best, excess}; sizes in bytes, `excess` is the share by which a
step at `best` takes longer than at `grid_best`.";

/// Options of `gradwire tune schedule`.
#[derive(Args, Clone, Debug)]
pub struct ScheduleOptions {
    /// The search.
    #[command(flatten)]
    pub question: ScheduleQuestion,
    /// Write the result into this job file; everything else in it stays as it is.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Print one object of JSON.
    #[arg(long)]
    pub json: bool,
}

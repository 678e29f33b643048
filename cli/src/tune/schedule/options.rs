//! The options of `gradwire tune schedule`. Doc comments on options are the help text.

use std::path::PathBuf;

use clap::Args;
use gradwire_protocol::job::notation;
use gradwire_protocol::units::ByteCount;
use gradwire_tuning::surface::{SizeAxis, TRIALS};

use crate::sim::options::ScenarioOptions;
use gradwire_lab::tune::schedule::{Extent, ScheduleQuestion};

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
    /// The scenario.
    #[command(flatten)]
    pub scenario: ScenarioOptions,
    /// Maximum number of trials.
    #[arg(long, default_value_t = TRIALS as u16, value_name = "COUNT",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub trials: u16,
    /// Chunks to choose from, each twice the one before; by default from 256 KiB to 32 MiB if the
    /// scale allows that.
    #[arg(long, value_parser = axis, value_name = "FROM..TO")]
    pub chunk: Option<SizeAxis>,
    /// Credits to choose from, each twice the one before.
    #[arg(long, default_value = "512KiB..64MiB", value_parser = axis, value_name = "FROM..TO")]
    pub credit: SizeAxis,
    /// Run every point, and compare the search's result with the best point.
    #[arg(long)]
    pub grid: bool,
    /// Runs at the same time, if possible; by default one per core.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub parallel: Option<u16>,
    /// Write the result into this job file; everything else in it stays as it is.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Print one object of JSON.
    #[arg(long)]
    pub json: bool,
}

impl ScheduleOptions {
    /// The question for the search.
    pub fn question(&self) -> ScheduleQuestion {
        ScheduleQuestion {
            scenario: self.scenario.scenario(),
            trials: self.trials,
            chunk: self.chunk,
            credit: self.credit,
            extent: match self.grid {
                true => Extent::Grid,
                false => Extent::Search,
            },
            parallel: self.parallel,
        }
    }
}

/// Most sizes of an axis.
const STEPS_MOST: u8 = 16;

fn axis(text: &str) -> Result<SizeAxis, String> {
    let allowed = || {
        format!("allowed is FROM..TO, both sizes, TO twice FROM or 4, 8 .. 2^{STEPS_MOST} times")
    };
    let sizes = text.split_once("..");
    let sizes = sizes.and_then(|(from, to)| Some((notation::size(from)?, notation::size(to)?)));
    let (from, to) = sizes.ok_or_else(allowed)?;
    let axis_of = |steps| SizeAxis {
        smallest: from,
        steps,
    };
    let zero = from == ByteCount::new(0);
    let fitting = (1..=STEPS_MOST)
        .map(axis_of)
        .find(|axis| axis.sizes().last() == Some(to));
    fitting.filter(|_| !zero).ok_or_else(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_is_written_by_its_ends() {
        let read = axis("64KiB..8MiB").expect("a factor of 128");
        assert_eq!((read.smallest, read.steps), (ByteCount::kib(64), 8));
        assert_eq!(axis("1M..1M").expect("one size").steps, 1);
        for wrong in [
            "", "64K", "64K..65K", "2M..1M", "0..0", "1..1M", "a..b", "1M..",
        ] {
            assert!(axis(wrong).is_err(), "{wrong}");
        }
    }
}

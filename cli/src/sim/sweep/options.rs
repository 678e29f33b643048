//! The options of `gradwire sim sweep`. Doc comments on options are the help text.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Shown below the options.
pub const EXAMPLES: &str = "\
Examples:
  gradwire sim sweep plan.toml --list
  gradwire sim sweep plan.toml --out results
  gradwire sim sweep plan.toml --out results --format parquet

A plan has a base for all cells, and the keys that vary; a cell is one simulated run:
  [base]                              # anything that `gradwire sim run` takes, by the same name
  fabric = \"leaf-spine:4x4x2@25G\"
  workload = \"incast:15x64KB\"
  [ranges]                            # every combination is a cell, the last key varying fastest
  tolerance = [\"0%\", \"5%\", \"10%\"]
  set.\"transport.gap\" = [\"20us\", \"1ms\"]
  seed = \"1..=10\"
  [[cases]]                           # keys that change together; each case with all the ranges
  name = \"ours\"                       # a name for the list, if you want one
  transport = \"gradwire\"
  [[cases]]
  transport = \"dctcp\"
Files are named relative to the plan; GRADWIRE_JOB has no effect.

Files:
  DIR/cells/ID.json   a finished cell; ID is a hash of everything that its result depends on
  DIR/results.jsonl   all cells in the order of the plan, equal byte for byte in every sweep
  DIR/costs.jsonl     time and memory that each cell took

A sweep that was stopped or killed continues where it was: finished cells never run again, even
when the plan has changed since. A cell that fails has the reason under \"error\"; the others run,
the exit code is 1, and the next sweep tries it again.

Several machines that share a disk: `--shard 0/4` to `--shard 3/4`, then `--gather`; `--slurm`
prints the job array that does so. For Ray, see `gradwire.sweep` in Python.";

/// Options of `gradwire sim sweep`.
#[derive(Args, Clone, Debug)]
pub struct SweepOptions {
    /// The plan: base, ranges and cases.
    #[arg(required_unless_present = "told")]
    pub plan: Option<PathBuf>,
    /// Folder of the results; created if it is missing.
    #[arg(long, value_name = "DIR", required_unless_present_any = ["list", "cell", "told"])]
    pub out: Option<PathBuf>,
    /// Cells that run at the same time; by default one per core.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub parallel: Option<u16>,
    /// Form of the results.
    #[arg(long, default_value = "jsonl", value_name = "FORMAT")]
    pub format: ResultFormat,
    /// Only list the cells, and whether they are finished.
    #[arg(long, group = "part")]
    pub list: bool,
    /// List as one JSON object a line.
    #[arg(long, requires = "list")]
    pub json: bool,
    /// Run one cell; without --out, print it.
    #[arg(long, group = "part", value_name = "ID")]
    pub cell: Option<String>,
    /// Run the cells I, I + N, I + 2 N and so on, counted from 0, and write no results.
    #[arg(long, group = "part", value_name = "I/N", value_parser = shard)]
    pub shard: Option<Shard>,
    /// Do not run cells: only write the results of cells that are all finished.
    #[arg(long, group = "part")]
    pub gather: bool,
    /// Do not run cells: print a Slurm job array of this many tasks; without a number, one per
    /// cell.
    #[arg(long, group = "part", value_name = "TASKS", num_args = 0..=1, require_equals = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub slurm: Option<Option<u16>>,
    /// One cell, told over standard input by the sweep that started this process.
    #[arg(long, group = "part", hide = true, conflicts_with = "plan")]
    pub told: bool,
}

/// The part of a sweep that was asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SweepPart<'a> {
    /// Run them all and write the results.
    Whole,
    /// List them.
    List,
    /// Run one.
    Cell(&'a str),
    /// Run a share.
    Shard(Shard),
    /// Write the results.
    Gather,
    /// Print a job array of this many tasks; without a number, one per cell.
    Slurm(Option<u16>),
}

impl SweepOptions {
    /// The part that was asked for.
    pub fn part(&self) -> SweepPart<'_> {
        if self.list {
            return SweepPart::List;
        }
        if self.gather {
            return SweepPart::Gather;
        }
        let cell = self.cell.as_deref().map(SweepPart::Cell);
        let shard = || self.shard.map(SweepPart::Shard);
        let slurm = || self.slurm.map(SweepPart::Slurm);
        cell.or_else(shard)
            .or_else(slurm)
            .unwrap_or(SweepPart::Whole)
    }
}

/// The form of results.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum ResultFormat {
    /// JSON lines.
    Jsonl,
    /// JSON lines, and a Parquet file of the same rows with a column per value.
    Parquet,
}

/// A share of the cells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shard {
    /// Which one, from 0.
    pub index: usize,
    /// How many there are.
    pub count: usize,
}

fn shard(text: &str) -> Result<Shard, String> {
    let parts = text.split_once('/');
    let numbers = parts.and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    match numbers {
        Some((index, count)) if index < count => Ok(Shard { index, count }),
        _ => Err("allowed are 0/N to N-1/N, such as 0/4".to_owned()),
    }
}

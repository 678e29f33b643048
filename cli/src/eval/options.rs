//! The options of `gradwire eval`. Doc comments on options are the help text.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use gradwire_lab::eval::request::EvalRequest;
use gradwire_lab::eval::request::Suite;
use gradwire_lab::eval::tables;
use gradwire_lab::eval::taxonomy::TaxonomyRequest;

/// Shown below the options.
const EXAMPLES: &str = "\
Examples:
  gradwire eval dlcp --list
  gradwire eval dlcp --quick --out out/eval-quick
  gradwire eval dlcp --only scheduling --only fabric
  gradwire eval dlcp --python .venv/bin/python

Tables:
  scheduling  a scheduler on and off: six models, four rates, servers and ring       simulated
  search      chunk and credit found by Bayesian search, beside a whole grid         simulated
  fabric      144 hosts with background: gradwire and its references                 simulated
  steps       the gain of each part of gradwire, one after the other                 simulated
  losses      links that lose packets, and how much a tolerance saves then           simulated
  loads       loads of other traffic, memory of switches, all transports             simulated
  stragglers  hosts that are slow now and then, and patience with them               simulated
  training    accuracy under loss, fill by fill, three seeds                         real training
  tolerance   results of `gradwire tune loss` on both scripts                        real training

Files:
  DIR/report.md, report.json, report.html   the report
  DIR/plans/*.toml                          the simulated cells, for `gradwire sim sweep`
  DIR/cells/*.json                          a finished cell each, never run again
  DIR/training, DIR/tolerance               files of the trainings

An evaluation that was stopped or killed continues where it was. Cells that fail are named, the
others run, the report is written, and the exit code is 1. A goal that is missed is a result.";

/// Shown below the options of the rivals.
const RIVAL_EXAMPLES: &str = "\
Examples:
  gradwire eval rivals --quick
  gradwire eval rivals --only faults
  gradwire eval rivals --thorough --out out/rivals

Tables, each with gradwire, nscc, rccc, eqds, ndp, swift, dctcp, roce, irn and pfabric, ten seeds
(--quick: two):
  flows        permutations, incasts and an all-to-all on 128 hosts
  faults       oversubscription 4:1, slow, gray and failing links
  collectives  all-reduces of 64 hosts; also switchml, atp, netreduce
  beside       beside other traffic that loads links to 30 and 70 %
  large        permutations and slow links on 1,024 hosts; --thorough only

An evaluation that was stopped or killed continues where it was. A goal that is missed is a result:
the exit code is 0.";

/// Shown below the options of the map.
const MAP_EXAMPLES: &str = "\
Examples:
  gradwire eval taxonomy
  gradwire eval taxonomy --quick --out out/map
  gradwire eval taxonomy --list
  gradwire eval taxonomy --quick --json

Axes:
  servers, all-reduce, gossip                             the place of the model
  synchronous, bounded-stale, asynchronous                the updates that a worker waits for
  star, ring, halving-doubling, hierarchical, in-network  the way of the bytes
  lossless, bounded                                       whether values may be missing

Files:
  DIR/report.md, report.json, report.html                 the report

Each legal cell runs once in the simulator and trains a small model once; a cell that makes no sense
has its reason. A cell that fails is named, the others run, and the exit code is 1. A goal that is
missed is a result.";

/// The evaluations.
#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Run DLCP's evaluation and ByteScheduler's, and write a report.
    #[command(after_help = EXAMPLES, mut_arg("only", |one| one.value_parser(names(Suite::Dlcp))))]
    Dlcp(EvalTables),
    /// Run gradwire beside the strongest known designs, and write a report that says who wins each
    /// cell.
    #[command(
        after_help = RIVAL_EXAMPLES,
        mut_arg("only", |one| one.value_parser(names(Suite::Rivals))),
        mut_arg("out", |one| one.default_value("out/eval-rivals")),
        mut_arg("python", |one| one.hide(true))
    )]
    Rivals(EvalTables),
    /// Map the ways to train in parallel: run each in the simulator, train a model with each, and
    /// write a report that names the published systems.
    #[command(after_help = MAP_EXAMPLES)]
    Taxonomy(Taxonomy),
}

/// Options of `gradwire eval taxonomy`.
#[derive(Args, Clone, Debug)]
pub struct Taxonomy {
    /// The size of the runs, and the folder of the report.
    #[command(flatten)]
    pub request: TaxonomyRequest,
    /// Only list all cells, each with its command or the reason against it.
    #[arg(long)]
    pub list: bool,
    /// Print the report, or the list, as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire eval dlcp` and `gradwire eval rivals`.
#[derive(Args, Clone, Debug)]
pub struct EvalTables {
    /// The tables, and the folder of the report.
    #[command(flatten)]
    pub request: EvalRequest,
    /// Only list the cells, and whether they are finished.
    #[arg(long)]
    pub list: bool,
    /// Print the report, or the list, as JSON.
    #[arg(long)]
    pub json: bool,
}

fn names(suite: Suite) -> PossibleValuesParser {
    PossibleValuesParser::new(tables::of(suite).iter().map(|table| table.name))
}

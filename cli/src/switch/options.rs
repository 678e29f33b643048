//! The options of `gradwire switch`. Doc comments on options are the help text.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::apply::options as apply;
use super::plan_options::PlanOptions;
use super::probe::options::{self as probe, ProbeOptions};

const RENDER_EXAMPLES: &str = "\
Examples:
  gradwire switch render --platform sonic job.toml fabric.toml > gradwire.json
  gradwire switch render --platform nvue:5.14 job.toml fabric.toml --ports swp1-32
  gradwire switch render --platform eos default leaf-spine:9x16x4@100G --switch \"spine 0\"
  gradwire switch render --platform sonic job.toml fabric.toml --out configs

The configuration goes to standard output. Decisions, rounded values and replacements for features
that the platform lacks go to standard error. This prints the whole configuration; for a switch that
runs, `gradwire switch diff` prints the change to load. JSON: one object, {target,
switch, origin, config, queues, profiles, selection, notes}.";

const CHECK_EXAMPLES: &str = "\
Examples:
  gradwire switch check --platform sonic job.toml fabric.toml config_db.json
  gradwire switch check --platform eos job.toml fabric.toml running.cfg --json

Two things are checked: whether the platform's schema accepts the file (our own rules always, and
the platform's own validator where it is installed: yanglint, nvueschema, pyavd), and whether the
ports follow the plan, which no schema knows. Exit code 1 when the file has a fault. JSON:
one object, {target, switch, findings: [{rule, place, text}], others, validator}; others has the
findings of ports that were not asked for, which do not fail.";

const DIFF_EXAMPLES: &str = "\
Examples:
  gradwire switch diff --platform sonic job.toml fabric.toml config_db.json > gradwire.json-patch
  gradwire switch diff --platform eos job.toml fabric.toml running.cfg --ports Ethernet1

RUNNING is the switch's export of today; `gradwire switch verify` tells how to get it. The change
touches only settings that the plan names; it is empty when they are right already. A port that the
switch does not have, or that runs at another speed than the fabric says, is refused. Standard error
tells each setting before and after, also on ports that were not asked for, and how to load the
change, try it and roll it back. JSON: one object, {target, origin, change, procedure, effects,
mended}.";

const UNDO_EXAMPLES: &str = "\
Examples:
  gradwire switch undo --platform sonic job.toml fabric.toml before.json > back.json-patch

RUNNING is the switch's export from before the change: the printed change takes a switch on which
`diff` was loaded back to exactly that. JSON: as for `diff`, without effects.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  gradwire switch verify --platform sonic job.toml fabric.toml
  gradwire switch verify --platform sonic job.toml fabric.toml --counters after.json
  gradwire switch verify --platform linux job.toml fabric.toml --counters b.json --since a.json

Without --counters: the commands to run on the switch, and the output to expect. With it: whether
marks and drops happened in the queues where they belong, and only there; exit code 1 when not.
Besides its platform's own form a file may hold [{\"port\", \"queue\", \"sent\", \"marked\",
\"early\", \"full\"}], counts of packets; a count that the platform lacks is left out.
  right    as the plan says          odd      a switch may do so, but look at it
  unseen   no traffic that could tell  wrong    against the plan";

const PLATFORMS_EXAMPLES: &str = "\
Examples:
  gradwire switch platforms
  gradwire switch platforms --platform junos --sources

JSON: a list of {target, facts: [{name, value, source}], remarks}.";

/// The commands for switches.
#[derive(Debug, Subcommand)]
pub enum SwitchCommand {
    /// Print the configuration of a switch: queues, thresholds, hashing, no pauses.
    #[command(after_help = RENDER_EXAMPLES)]
    Render(Render),
    /// Check a configuration: by the platform's schema, and against the plan.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(Running),
    /// Print the change to a running configuration; it touches only gradwire's own parts.
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(Running),
    /// Print the change that takes another one back.
    #[command(after_help = UNDO_EXAMPLES)]
    Undo(Running),
    /// List the commands to look at a switch with, or judge its counters.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(Verify),
    /// List platforms: their features and limits, and the sources of each fact.
    #[command(after_help = PLATFORMS_EXAMPLES)]
    Platforms(Platforms),
    /// Make a network namespace a switch with the queues of a plan.
    #[command(after_help = apply::EXAMPLES)]
    Apply(apply::Apply),
    /// See from two hosts whether a fabric treats a job's tags as planned.
    #[command(after_help = probe::EXAMPLES)]
    Probe(ProbeOptions),
}

/// Options of `gradwire switch render`.
#[derive(Args, Clone, Debug)]
pub struct Render {
    /// Which plan.
    #[command(flatten)]
    pub plan: PlanOptions,
    /// A folder: every switch of the fabric, or the one of --switch, is written into a file there.
    #[arg(long, value_name = "FOLDER", conflicts_with = "json")]
    pub out: Option<PathBuf>,
}

/// Options of the commands that look at a configuration.
#[derive(Args, Clone, Debug)]
pub struct Running {
    /// Which plan.
    #[command(flatten)]
    pub plan: PlanOptions,
    /// The configuration, as the switch exports it.
    #[arg(value_name = "RUNNING")]
    pub running: PathBuf,
}

/// Options of `gradwire switch verify`.
#[derive(Args, Clone, Debug)]
pub struct Verify {
    /// Which plan.
    #[command(flatten)]
    pub plan: PlanOptions,
    /// Counters of the switch.
    #[arg(long, value_name = "FILE")]
    pub counters: Option<PathBuf>,
    /// Counters from before, which are subtracted.
    #[arg(long, value_name = "FILE", requires = "counters")]
    pub since: Option<PathBuf>,
}

/// Options of `gradwire switch platforms`.
#[derive(Args, Clone, Debug)]
pub struct Platforms {
    /// This platform only.
    #[arg(long, value_name = "PLATFORM")]
    pub platform: Option<String>,
    /// Where each fact is known from, too.
    #[arg(long)]
    pub sources: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

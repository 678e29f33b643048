//! The commands that can be typed; the options of each are in its folder.

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};

use crate::aggregate::options::{AGGREGATE_EXAMPLES, Aggregate};
use crate::doctor::options::{DOCTOR_EXAMPLES, Doctor};
use crate::eval::options::EvalCommand;
use crate::exit::EXIT_CODES;
use crate::generate::options::GenerateCommand;
use crate::job::options::JobCommand;
use crate::model::options::ModelCommand;
use crate::perf::options::PerfCommand;
use crate::rank::options::{RANK_EXAMPLES, Rank};
use crate::sim::options::SimCommand;
use crate::switch::options::SwitchCommand;
use crate::top::options::{TOP_EXAMPLES, Top};
use crate::trace::options::TraceCommand;
use crate::tune::options::{TrialScript, TuneCommand};

/// Packet-level transport for distributed training: bounded loss, priorities, any path.
#[derive(Debug, Parser)]
#[command(name = "gradwire", version, after_help = EXIT_CODES)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check job files and list their keys.
    #[command(subcommand)]
    Job(JobCommand),
    /// Measure collectives between ranks on this machine.
    #[command(subcommand)]
    Perf(PerfCommand),
    /// Run one rank in the foreground, with all-reduces in a loop, to try several hosts.
    #[command(after_help = RANK_EXAMPLES)]
    Rank(Rank),
    /// Sum the all-reduces of ranks, as a switch would: for jobs with the algorithm in-network.
    #[command(after_help = AGGREGATE_EXAMPLES)]
    Aggregate(Aggregate),
    /// Check this host and the paths to others: each fault, its cost, and the command that repairs
    /// it.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(Doctor),
    /// Watch a running job: throughput, loss, repairs, marks, round trips, rank by rank.
    #[command(after_help = TOP_EXAMPLES)]
    Top(Top),
    /// Read the traces that the flight recorders of a job's ranks have written.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Simulate fabrics of hosts and switches, with the shipped protocol code.
    #[command(subcommand)]
    Sim(SimCommand),
    /// List, show and record the models whose training steps can be simulated.
    #[command(subcommand)]
    Model(ModelCommand),
    /// Rerun a published evaluation and write a report.
    #[command(subcommand)]
    Eval(EvalCommand),
    /// Configure switches for a job: render, check, diff, undo and verify.
    #[command(subcommand)]
    Switch(SwitchCommand),
    /// Find parameters of a job by trials.
    #[command(subcommand)]
    Tune(TuneCommand),
    /// Write shell completions, man pages, the reference of commands, and schemas for editors.
    #[command(subcommand)]
    Generate(GenerateCommand),
    /// One rank of `perf`, which reads its orders from standard input.
    #[command(hide = true)]
    PerfRank,
    /// A script that `tune` tries; it ends when standard input is closed.
    #[command(hide = true)]
    TuneTrial(TrialScript),
}

/// Removes hidden commands from the ones that an error suggests.
pub fn forget_hidden(error: &mut clap::Error) {
    let kind = ContextKind::SuggestedSubcommand;
    let shown = |name: &String| {
        let known = Arguments::command();
        known
            .find_subcommand(name)
            .is_none_or(|one| !one.is_hide_set())
    };
    let Some(ContextValue::Strings(names)) = error.get(kind) else {
        return;
    };
    let names: Vec<String> = names.iter().filter(|name| shown(name)).cloned().collect();
    if names.is_empty() {
        error.remove(kind);
    } else {
        error.insert(kind, ContextValue::Strings(names));
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn hidden_commands_are_not_suggested() {
        let mut error = Arguments::try_parse_from(["gradwire", "perfs"]).expect_err("no command");
        assert!(error.to_string().contains("'perf-rank'"), "{error}");
        forget_hidden(&mut error);
        let said = error.to_string();
        assert!(
            said.contains("'perf'") && !said.contains("perf-rank"),
            "{said}"
        );
    }
}

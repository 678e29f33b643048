//! The `gradwire` command: checks jobs, measures collectives, runs single ranks by hand.
//!
//! Start here:
//! - [`arguments`]: the commands; the options of each are in its folder, and their comments are the
//!   help text.
//! - [`exit`]: the exit codes, and the errors that lead to them.
//! - [`perf`]: `gradwire perf`: starts ranks on this machine, measures and checks them.
//! - [`aggregate`]: `gradwire aggregate`: sums for the ranks of jobs, as a switch would.
//! - [`rank`]: `gradwire rank`: one rank in the foreground, for trying on several hosts.
//! - [`job`]: `gradwire job`.
//! - [`doctor`]: `gradwire doctor`: faults of host and path, their cost, and their remedy.
//! - [`top`]: `gradwire top`: a running job, as its ranks tell it.
//! - [`trace`]: `gradwire trace`: compares the traces of a job's ranks.
//! - [`switch`]: `gradwire switch`: the configuration of switches, checked, changed, verified.
//! - [`model`]: `gradwire model`: the models of simulated training steps.
//! - [`sim`]: `gradwire sim`: simulated fabrics, numbers and reports.
//! - [`eval`]: `gradwire eval`: whole evaluations, simulated and trained, and their report.
//! - [`tune`]: `gradwire tune`: parameters of a job, found by trials.
//! - [`generate`]: `gradwire generate`: completions, man pages, the reference, schemas of files.
//!
//! Not here: how ranks work together (`gradwire-runtime` and below), experiments (`gradwire-lab`),
//! how results are drawn and written (`gradwire-report`), and the simulator (`gradwire-netsim`).

// Its macros stand for the standard ones: they end the program quietly when its reader has gone.
#[macro_use(print, println, eprintln)]
extern crate gradwire_report;

pub mod aggregate;
pub mod arguments;
pub mod doctor;
pub mod environment;
pub mod eval;
pub mod exit;
pub mod generate;
pub mod job;
pub mod model;
pub mod perf;
pub mod rank;
pub mod sim;
pub mod switch;
pub mod top;
pub mod trace;
pub mod tune;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};
use environment::Environment;
use exit::{CommandError, Exit};
use gradwire_lab::crew::worker::{self, RankProcess};
use gradwire_lab::tune::guard;
use gradwire_runtime::log::{self, LogLevel};
use job::options::JobCommand;

/// Runs the command that was typed; errors go to standard error as one line.
pub fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(mut error) => {
            arguments::forget_hidden(&mut error);
            // Help and version come as errors too, and belong on standard output.
            let _ = error.print();
            return if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Ok
            }
            .into();
        }
    };
    match start_log().and_then(|()| execute(arguments.command)) {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => {
            // If this cannot be printed, the exit code still says it.
            let _ = writeln!(std::io::stderr(), "error: {failure}");
            failure.exit().into()
        }
    }
}

/// Without `GRADWIRE_LOG`, warnings only: the commands print everything else themselves.
fn start_log() -> Result<(), CommandError> {
    let level = Environment::read()
        .log
        .map_or(Ok(LogLevel::Warn), |level| level.parse());
    log::start(level.map_err(|error| CommandError::Usage(format!("GRADWIRE_LOG: {error}")))?);
    Ok(())
}

fn execute(command: Command) -> Result<(), CommandError> {
    match command {
        Command::Job(JobCommand::Check(check)) => job::check(&check),
        Command::Job(JobCommand::Keys) => {
            job::keys();
            Ok(())
        }
        Command::Perf(command) => perf::run(&command),
        Command::Rank(rank) => rank::run(&rank),
        Command::Aggregate(options) => aggregate::run(&options),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Top(top) => top::run(&top),
        Command::Trace(command) => trace::run(&command),
        Command::Sim(command) => sim::run(&command),
        Command::Model(command) => model::run(&command),
        Command::Eval(command) => eval::run(&command),
        Command::Tune(command) => tune::run(&command),
        Command::Switch(command) => switch::run(&command),
        Command::Generate(command) => generate::run(&command),
        Command::PerfRank => perf_rank(),
        Command::TuneTrial(script) => Ok(guard::run(&script.command)?),
    }
}

/// A rank of `perf`: its launcher is told why it fails.
fn perf_rank() -> Result<(), CommandError> {
    let process = RankProcess {
        trace_folder: Environment::read().trace,
        orphaned: Exit::PeerLost as u8,
    };
    let Err(error) = process.run() else {
        return Ok(());
    };
    let failure = CommandError::from(error);
    let exit = failure.exit() as u8;
    worker::tell_failure(failure.to_string(), exit);
    std::process::exit(i32::from(exit))
}

//! `gradwire tune`: parameters of a job, found by trials.
//!
//! - [`schedule`]: chunk and credit, with simulated training steps.
//!
//! What is not here: which trial comes next (`gradwire-tuning`).

pub mod schedule;

use clap::Subcommand;

use crate::exit::Failure;
use schedule::options::{SCHEDULE_EXAMPLES, Schedule};

/// What can be tuned.
#[derive(Debug, Subcommand)]
pub enum TuneCommand {
    /// Find the chunk and the credit with which simulated training steps are fastest.
    #[command(after_help = SCHEDULE_EXAMPLES)]
    Schedule(Schedule),
}

/// Runs one of the commands.
///
/// # Errors
/// As the command.
pub fn run(command: &TuneCommand) -> Result<(), Failure> {
    match command {
        TuneCommand::Schedule(options) => schedule::run(options),
    }
}

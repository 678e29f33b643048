//! `gradwire tune`: parameters of a job, found by trials.
//!
//! - [`schedule`]: chunk and credit, with simulated training steps.
//! - [`loss`]: the loss that a training script's own metric bears.
//! - [`guard`]: the process around a script that is tried, which leaves nothing of it behind.
//!
//! What is not here: which trial comes next (`gradwire-tuning`).

pub mod guard;
pub mod loss;
pub mod schedule;

use clap::Subcommand;

use crate::exit::Failure;
use loss::options::{LOSS_EXAMPLES, Loss};
use schedule::options::{SCHEDULE_EXAMPLES, Schedule};

/// What can be tuned.
#[derive(Debug, Subcommand)]
pub enum TuneCommand {
    /// Find the chunk and the credit with which simulated training steps are fastest.
    #[command(after_help = SCHEDULE_EXAMPLES)]
    Schedule(Schedule),
    /// Find the largest tolerance that a training script's own metric bears.
    #[command(after_help = LOSS_EXAMPLES)]
    Loss(Loss),
}

/// Runs one of the commands.
///
/// # Errors
/// As the command.
pub fn run(command: &TuneCommand) -> Result<(), Failure> {
    match command {
        TuneCommand::Schedule(options) => schedule::run(options),
        TuneCommand::Loss(options) => loss::run(options),
    }
}

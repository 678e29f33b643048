//! `gradwire tune`: parameters of a job, found by trials.
//!
//! - [`schedule`]: chunk and credit, with simulated training steps.
//! - [`codec`]: which tensors gain from which codec, by costs of this host.
//! - [`redundancy`]: costs of codes over parameter servers.
//! - [`loss`]: the loss that a training script's own metric bears.
//!
//! Not here: the choice of the next trial (`gradwire-tuning`), and the trials themselves
//! (`gradwire_lab::tune`).

pub mod codec;
pub mod loss;
pub mod options;
pub mod redundancy;
pub mod schedule;

use crate::exit::CommandError;
use options::TuneCommand;

/// Runs one of the commands.
///
/// # Errors
/// As the command.
pub fn run(command: &TuneCommand) -> Result<(), CommandError> {
    match command {
        TuneCommand::Schedule(options) => schedule::run(options),
        TuneCommand::Codec(options) => codec::run(options),
        TuneCommand::Loss(options) => loss::run(options),
        TuneCommand::Redundancy(options) => redundancy::run(options),
    }
}

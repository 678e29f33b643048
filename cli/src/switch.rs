//! `gradwire switch`: the configuration of switches, from a job and a fabric.
//!
//! Start here: [`options`] is the command line, [`site`] makes the plan of a switch from it, and
//! [`render`], [`check`], [`change`], [`verify`] and [`platforms`] are one command each.
//! `gradwire-switch-config` writes each platform's configuration and judges existing ones.

pub mod apply;
pub mod change;
pub mod check;
pub mod options;
pub mod plan_options;
pub mod platforms;
pub mod probe;
pub mod render;
pub mod schema;
pub mod site;
mod tell;
pub mod verify;

use crate::exit::CommandError;
use options::SwitchCommand;

/// Runs a command of `gradwire switch`.
///
/// # Errors
/// [`CommandError`] names the file or option, the mistake, and the values that are allowed.
pub fn run(command: &SwitchCommand) -> Result<(), CommandError> {
    match command {
        SwitchCommand::Render(options) => render::run(options),
        SwitchCommand::Check(options) => check::run(options),
        SwitchCommand::Diff(options) => change::diff(options),
        SwitchCommand::Undo(options) => change::undo(options),
        SwitchCommand::Verify(options) => verify::run(options),
        SwitchCommand::Platforms(options) => platforms::run(options),
        SwitchCommand::Apply(options) => apply::run(options),
        SwitchCommand::Probe(options) => probe::run(options),
    }
}

//! `gradwire switch`: the configuration of switches, from a job and a fabric.
//!
//! Start here: [`options`] is what can be typed, [`site`] makes the plan of a switch out of it, and
//! [`render`], [`check`], [`change`], [`verify`] and [`platforms`] are one command each. What each
//! platform is told, and what is wrong with what it has, is decided in `gradwire-switch-config`.

pub mod apply;
pub mod change;
pub mod check;
pub mod options;
pub mod platforms;
pub mod probe;
pub mod render;
pub mod schema;
pub mod site;
pub mod verify;

use std::path::Path;

use gradwire_switch_config::dialect::Look;
use gradwire_switch_config::reading::ReadError;
use options::SwitchCommand;
use serde_json::{Value, json};

use crate::exit::Failure;

/// Runs a command of `gradwire switch`.
///
/// # Errors
/// [`Failure`] names the file or option, what is wrong with it, and what would be right.
pub fn run(command: &SwitchCommand) -> Result<(), Failure> {
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

/// A file that is not what the platform exports.
fn unreadable(path: &Path, error: &ReadError) -> Failure {
    Failure::Input {
        given: path.display().to_string(),
        message: error.to_string(),
    }
}

/// Where a list goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// Lists commands for people, each with what it should show.
fn list(looks: &[Look], stream: Stream) {
    for Look { command, expect } in looks {
        let text = format!("  {command}\n      {expect}");
        match stream {
            Stream::Output => println!("{text}"),
            Stream::Error => eprintln!("{text}"),
        }
    }
}

/// The same for programs.
fn looks(looks: &[Look]) -> Vec<Value> {
    let looks = looks.iter();
    let looks = looks.map(|look| json!({"command": look.command, "expect": look.expect}));
    looks.collect()
}

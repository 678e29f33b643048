//! How the commands list the commands to run on a switch, for people and programs.

use std::path::Path;

use gradwire_switch_config::dialect::Look;
use gradwire_switch_config::reading::ReadError;
use serde_json::{Value, json};

use crate::exit::CommandError;

/// The error of a file that is no export of the platform.
pub(super) fn unreadable(path: &Path, error: &ReadError) -> CommandError {
    CommandError::Input {
        given: path.display().to_string(),
        message: error.to_string(),
    }
}

/// Where a list goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PrintStream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// Lists commands for people, each with the expected output.
pub(super) fn list(looks: &[Look], stream: PrintStream) {
    for Look { command, expect } in looks {
        let text = format!("  {command}\n      {expect}");
        match stream {
            PrintStream::Output => println!("{text}"),
            PrintStream::Error => eprintln!("{text}"),
        }
    }
}

/// The same for programs.
pub(super) fn looks(looks: &[Look]) -> Vec<Value> {
    let looks = looks.iter();
    let looks = looks.map(|look| json!({"command": look.command, "expect": look.expect}));
    looks.collect()
}

//! How the commands list the commands to run on a switch, for people and programs.

use std::path::Path;

use gradwire_lab::error::LabError;
use gradwire_switch_config::dialect::Look;
use gradwire_switch_config::reading::ReadError;

/// The error of a file that is no export of the platform.
pub(super) fn unreadable(path: &Path, error: &ReadError) -> LabError {
    LabError::input(path.display(), error)
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

//! Printing that ends the program when its reader has gone, as behind `| head`.
//!
//! Rust's own macros panic then, since its programs ignore SIGPIPE; and to obey that signal would
//! end this program wherever a process that it has started does not read its orders. So here are
//! macros of the same names, which end the program quietly when its own output is closed.
//!
//! [`OutputForm`] chooses between the two forms of results: text for people, JSON for programs.

use std::fmt::Arguments;
use std::io::{Error, ErrorKind, Write};

use serde::Serialize;

use crate::json;

/// The exit code when standard output cannot be written.
pub const UNWRITABLE: i32 = 5;
/// The exit code when the reader of the output has gone, as behind `| head`: the code that shells
/// report for a program ended by SIGPIPE.
pub const UNREAD: i32 = 141;

/// For whom a command prints.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OutputForm {
    /// For people.
    Text,
    /// For programs: JSON, one value a line.
    Json,
}

impl From<bool> for OutputForm {
    /// The form that the option `--json` asks for when it is given.
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

impl OutputForm {
    /// The lines of this form.
    pub fn lines<V: Serialize>(
        self,
        text: impl FnOnce() -> String,
        value: impl FnOnce() -> V,
    ) -> String {
        let mut lines = match self {
            Self::Text => text(),
            Self::Json => json::line(&value()),
        };
        if !lines.ends_with('\n') {
            lines.push('\n');
        }
        lines
    }

    /// Prints the lines of this form.
    pub fn print<V: Serialize>(self, text: impl FnOnce() -> String, value: impl FnOnce() -> V) {
        to_output(format_args!("{}", self.lines(text, value)));
    }

    /// Prints a line that is for people only.
    pub fn remark(self, text: Arguments<'_>) {
        if self == Self::Text {
            to_output(format_args!("{text}\n"));
        }
    }
}

/// Prints to standard output.
#[macro_export]
macro_rules! print {
    ($($told:tt)*) => {
        $crate::printing::to_output(format_args!($($told)*))
    };
}

/// Prints a line to standard output.
#[macro_export]
macro_rules! println {
    () => {
        $crate::printing::to_output(format_args!("\n"))
    };
    ($($told:tt)*) => {
        $crate::printing::to_output(format_args!("{}\n", format_args!($($told)*)))
    };
}

/// Prints a line to standard error.
#[macro_export]
macro_rules! eprintln {
    ($($told:tt)*) => {
        $crate::printing::to_errors(format_args!("{}\n", format_args!($($told)*)))
    };
}

/// Writes to standard output, or ends the program when that cannot be.
pub fn to_output(told: Arguments<'_>) {
    let Err(error) = std::io::stdout().lock().write_fmt(told) else {
        return;
    };
    end_if_unread(&error);
    // Half of a result with exit code 0 would be a wrong one.
    to_errors(format_args!(
        "error: cannot write standard output: {error}\n"
    ));
    std::process::exit(UNWRITABLE);
}

/// Writes to standard error, or ends the program when its reader has gone.
pub fn to_errors(told: Arguments<'_>) {
    if let Err(error) = std::io::stderr().lock().write_fmt(told) {
        end_if_unread(&error);
    }
}

fn end_if_unread(error: &Error) {
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(UNREAD);
    }
}

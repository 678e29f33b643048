//! The help of all commands as one page of Markdown.

use std::fmt::Write;

use clap::{Command, CommandFactory};

use crate::arguments::Arguments;

/// The page: a heading and the help text for each command that is not hidden.
pub(super) fn page() -> String {
    let mut command = Arguments::command();
    command.build();
    let mut page = String::from(
        "# Reference of the command\n\n`gradwire generate reference` prints this page: the help \
         of every command.\n",
    );
    append(&mut page, &command);
    page
}

fn append(page: &mut String, command: &Command) {
    let name = command.get_bin_name().unwrap_or("gradwire");
    let help = command.clone().render_long_help().to_string();
    let _ = write!(page, "\n## `{name}`\n\n```text\n{}\n```\n", help.trim_end());
    let shown = |one: &&Command| !one.is_hide_set() && one.get_name() != "help";
    for inner in command.get_subcommands().filter(shown) {
        append(page, inner);
    }
}

//! `gradwire generate`: files for shells, manuals, sites and editors, made from the tables that the
//! command itself reads. Nothing in them is written by hand.
//!
//! `reference` has the help of every command as one page, `schema` the keys of files as JSON
//! Schema. Completions and man pages are clap's.

pub mod options;
mod reference;
mod schema;

use std::path::Path;

use clap::{Command, CommandFactory};
use gradwire_lab::error::LabError;

use crate::arguments::Arguments;
use crate::exit::CommandError;
use options::GenerateCommand;

/// `gradwire generate`.
///
/// # Errors
/// [`LabError::System`] names the folder that cannot be written.
pub fn run(command: &GenerateCommand) -> Result<(), CommandError> {
    match command {
        GenerateCommand::Completions(wanted) => print!("{}", completions(wanted.shell)),
        GenerateCommand::Man(wanted) => man_pages(&wanted.folder)?,
        GenerateCommand::Reference => print!("{}", reference::page()),
        GenerateCommand::Schema(wanted) => {
            println!("{:#}", schema::of_file(wanted.file));
        }
    }
    Ok(())
}

fn completions(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut without_hidden(), "gradwire", &mut script);
    String::from_utf8(script).expect("names and help of options are UTF-8")
}

/// The command line without hidden commands, which clap's completions would offer.
fn without_hidden() -> Command {
    let whole = Arguments::command();
    let shown = whole.get_subcommands().filter(|one| !one.is_hide_set());
    let shown: Vec<Command> = shown.cloned().collect();
    Command::new("gradwire")
        .args(whole.get_arguments().cloned())
        .subcommands(shown)
}

/// Writes a man page of each command that is not hidden.
fn man_pages(folder: &Path) -> Result<(), LabError> {
    let refused = || LabError::system(format!("man pages in {}", folder.display()));
    std::fs::create_dir_all(folder).map_err(refused())?;
    clap_mangen::generate_to(Arguments::command(), folder).map_err(refused())
}

#[cfg(test)]
mod tests {
    use clap_complete::Shell;
    use gradwire_protocol::job::describe;
    use serde_json::Value;

    use super::options::SchemaOf;
    use super::*;

    /// The commands below `command` that are not hidden, with dashes between their names.
    fn shown(command: &Command, prefix: &str) -> Vec<String> {
        let inner = command.get_subcommands().filter(|one| !one.is_hide_set());
        inner
            .flat_map(|one| {
                let name = format!("{prefix}-{}", one.get_name());
                let below = shown(one, &name);
                std::iter::once(name).chain(below)
            })
            .collect()
    }

    #[test]
    fn every_command_has_a_man_page_and_help() {
        let folder = tempfile::tempdir().expect("a folder");
        man_pages(folder.path()).expect("pages");
        let page = reference::page();
        for name in shown(&Arguments::command(), "gradwire") {
            let path = folder.path().join(format!("{name}.1"));
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(text.contains(".SH SYNOPSIS"), "{name}.1: {text}");
            let heading = format!("\n## `{}`\n", name.replace('-', " "));
            let plain = |text: &str| text.replace('-', " ");
            assert!(plain(&page).contains(&plain(&heading)), "no {heading}");
        }
        assert!(!page.contains("perf-rank"), "hidden commands are not shown");
        assert!(!folder.path().join("gradwire-perf-rank.1").exists());
    }

    #[test]
    fn every_shell_completes_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completions(shell);
            for command in Arguments::command().get_subcommands() {
                let name = command.get_name();
                let is_there = script.contains(name);
                assert_eq!(is_there, !command.is_hide_set(), "{shell}: {name}");
            }
        }
    }

    #[test]
    fn the_schema_of_a_job_has_its_keys() {
        let schema = schema::of_file(SchemaOf::Job);
        let properties = schema["properties"].as_object().expect("a table");
        let mut found: Vec<String> = Vec::new();
        for (name, value) in properties {
            match value["properties"].as_object() {
                Some(inner) => found.extend(inner.keys().map(|key| format!("{name}.{key}"))),
                None => found.push(name.clone()),
            }
        }
        let mut wanted: Vec<&str> = describe().map(|(key, _, _)| key).collect();
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
    }

    #[test]
    fn the_schema_of_a_fabric_closes_its_tables() {
        let schema = schema::of_file(SchemaOf::Fabric);
        let closed = |table: &Value| table["additionalProperties"] == Value::Bool(false);
        let link = &schema["properties"]["link"]["items"];
        assert!(closed(&schema) && closed(link), "{schema:#}");
        assert_eq!(link["required"], serde_json::json!(["ends", "rate"]));
    }
}

//! The options of `gradwire generate`. Doc comments on options are the help text.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::Shell;

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  gradwire generate completions bash > ~/.local/share/bash-completion/completions/gradwire
  gradwire generate completions zsh > ~/.zfunc/_gradwire
  gradwire generate completions fish > ~/.config/fish/completions/gradwire.fish";

const MAN_EXAMPLES: &str = "\
Example:
  gradwire generate man ~/.local/share/man/man1
  man gradwire-perf-all-reduce";

const SCHEMA_EXAMPLES: &str = "\
Example (editors with Taplo, such as VS Code with Even Better TOML, then complete and check keys):
  gradwire generate schema job > job.schema.json
  echo '#:schema ./job.schema.json' | cat - job.toml > checked.toml";

/// The files that can be generated.
#[derive(Debug, Subcommand)]
pub enum GenerateCommand {
    /// Print the completions of a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(Completions),
    /// Write a man page of each command into a folder.
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManPages),
    /// Print the help of all commands as one page of Markdown.
    #[command(after_help = "Example:\n  gradwire generate reference > reference.md")]
    Reference,
    /// Print the keys of a file as JSON Schema, for editors.
    #[command(after_help = SCHEMA_EXAMPLES)]
    Schema(FileSchema),
}

/// Options of `gradwire generate completions`.
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell.
    pub shell: Shell,
}

/// Options of `gradwire generate man`.
#[derive(Args, Debug)]
pub struct ManPages {
    /// The folder; it is made if it is not there.
    pub folder: PathBuf,
}

/// Options of `gradwire generate schema`.
#[derive(Args, Debug)]
pub struct FileSchema {
    /// The file whose keys are printed.
    pub file: SchemaOf,
}

/// A file that has a schema.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum SchemaOf {
    /// `job.toml`, the parameters of a job.
    Job,
    /// `fabric.toml`, hosts, switches and links.
    Fabric,
}

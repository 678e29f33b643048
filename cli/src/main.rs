//! The `gradwire` command; everything is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    gradwire_cli::run()
}

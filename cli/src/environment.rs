//! The only place where the command reads its environment.

use std::path::PathBuf;

/// Variables that options fall back to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Environment {
    /// `GRADWIRE_JOB`: the job file.
    pub job: Option<PathBuf>,
    /// `GRADWIRE_TOKEN`: the secret that the ranks of a job share.
    pub token: Option<String>,
    /// `VIRTUAL_ENV`: the active virtual environment of Python.
    pub virtual_env: Option<PathBuf>,
}

impl Environment {
    /// Reads the variables; empty ones count as absent.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the place that reads the environment"
    )]
    pub fn read() -> Self {
        let path = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            job: path("GRADWIRE_JOB").map(PathBuf::from),
            token: std::env::var("GRADWIRE_TOKEN")
                .ok()
                .filter(|token| !token.is_empty()),
            virtual_env: path("VIRTUAL_ENV").map(PathBuf::from),
        }
    }
}

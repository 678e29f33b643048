//! The request for an evaluation.

use std::path::PathBuf;

/// The tables to evaluate, and the folder of the report.
#[derive(Clone, Debug)]
pub struct EvalRequest {
    /// Whether to run only few cells of every table.
    pub quick: bool,
    /// The tables to run; empty means all.
    pub only: Vec<String>,
    /// Folder of the report.
    pub out: PathBuf,
    /// Folder of plans that replace the built-in plans of the same names.
    pub plans: Option<PathBuf>,
    /// Cells that run at the same time; `None` means one per core.
    pub parallel: Option<u16>,
    /// The Python of the tables of real training.
    pub python: PathBuf,
}

//! The parameters of an evaluation.

use std::path::PathBuf;

/// The extent of an evaluation, and where its files go.
#[derive(Clone, Debug)]
pub struct EvalRequest {
    /// Few cells of every table.
    pub quick: bool,
    /// Only these tables, if there are any.
    pub only: Vec<String>,
    /// Folder of the report.
    pub out: PathBuf,
    /// Folder of plans that stand for those of the same names.
    pub plans: Option<PathBuf>,
    /// Cells that run at the same time; without it, one per core.
    pub parallel: Option<u16>,
    /// The Python of the tables of real training.
    pub python: PathBuf,
}

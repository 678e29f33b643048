//! The processes that run cells, one cell each, several at a time.
//!
//! With a process per cell, a crash or a kill for memory ends one cell only, and time and memory
//! are measured per cell.

use std::io::Write;
use std::process::{Output, Stdio};

use super::cells::SweepCell;
use super::record::CellRecord;
use super::worker::CellOrder;
use crate::crew::leash::{self, how_it_ended};
use crate::error::LabError;
use crate::side_by_side::side_by_side;
use gradwire_report::json;

/// Runs cells, `at_once` at a time, and passes each record to `keep`, from several threads; returns
/// what `keep` returns, in the order of the cells.
///
/// # Errors
/// Returns the first failure of `keep` or of a start; started cells still end.
pub fn run<K: Send>(
    cells: &[&SweepCell],
    at_once: usize,
    keep: impl Fn(CellRecord) -> Result<K, LabError> + Sync,
) -> Result<Vec<K>, LabError> {
    side_by_side(cells, at_once, |cell| keep(record_of(cell)?))
}

fn record_of(cell: &SweepCell) -> Result<CellRecord, LabError> {
    let output = output_of(cell).map_err(LabError::system(
        "cannot run a cell in a process of its own",
    ))?;
    let record = serde_json::from_slice::<CellRecord>(&output.stdout);
    Ok(record.unwrap_or_else(|_| CellRecord::of_failure(&cell.id, &cell.scenario, death(&output))))
}

fn output_of(cell: &SweepCell) -> std::io::Result<Output> {
    let mut process = leash::own(&["sim", "sweep", "--told"])?
        .env_remove("GRADWIRE_JOB")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // Hold the input until the process has ended: it ends early when its input is closed.
    let mut input = process.stdin.take().expect("it was asked for");
    let order = json::line(&CellOrder::new(&cell.id, &cell.scenario));
    // The output shows a process that ended before it read its input.
    let _ = writeln!(input, "{order}");
    process.wait_with_output()
}

/// Describes how a process without a record ended.
fn death(output: &Output) -> String {
    let how = format!("its process {}", how_it_ended(output.status));
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() {
        return how;
    }
    format!("{how}: {}", lines.join("; "))
}

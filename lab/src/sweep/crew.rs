//! The processes that run cells, one cell each, several at a time.
//!
//! With a process per cell, a crash or a kill for memory ends one cell only, and time and memory
//! are measured per cell.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use super::cells::SweepCell;
use super::record::CellRecord;
use super::worker::CellOrder;
use crate::crew::launcher::how_it_ended;
use crate::error::LabError;
use gradwire_report::json;

/// Runs cells, `at_once` at a time, and passes each record to `keep`, from several threads.
///
/// # Errors
/// Returns the first failure of `keep` or of a start; started cells still end.
pub fn run(
    cells: &[&SweepCell],
    at_once: usize,
    keep: &(dyn Fn(CellRecord) -> Result<(), LabError> + Sync),
) -> Result<(), LabError> {
    let program = std::env::current_exe().map_err(LabError::system("cannot find this program"))?;
    let waiting = Mutex::new(cells.iter());
    let take = || {
        waiting
            .lock()
            .expect("nobody panics while it is held")
            .next()
    };
    let work = || {
        while let Some(cell) = take() {
            if let Err(failure) = record_of(&program, cell).and_then(keep) {
                while take().is_some() {}
                return Err(failure);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once.min(cells.len()))
            .map(|_| scope.spawn(work))
            .collect();
        let ends = threads.into_iter().map(|thread| thread.join());
        let ends: Vec<_> = ends.map(|end| end.expect("no worker panics")).collect();
        ends.into_iter().collect()
    })
}

fn record_of(program: &Path, cell: &SweepCell) -> Result<CellRecord, LabError> {
    let output = output_of(program, cell).map_err(LabError::system(
        "cannot run a cell in a process of its own",
    ))?;
    let record = serde_json::from_slice::<CellRecord>(&output.stdout);
    Ok(record.unwrap_or_else(|_| CellRecord::of_failure(&cell.id, &cell.scenario, death(&output))))
}

fn output_of(program: &Path, cell: &SweepCell) -> std::io::Result<Output> {
    let mut process = Command::new(program)
        .args(["sim", "sweep", "--told"])
        .env_remove("GRADWIRE_JOB")
        .stdin(Stdio::piped())
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

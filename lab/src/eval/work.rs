//! The open work of an evaluation: its cells, their order and the remaining time.
//!
//! Simulated cells are those of a sweep: each is a process, as many run at a time as there are
//! cores, and each leaves a file when it ends. A cell runs once, even if several tables need it.

use std::collections::BTreeMap;

use gradwire_report::printing::OutputForm;
use indicatif::ProgressBar;
use serde_json::json;

use super::plans::Written;
use crate::error::LabError;
use crate::sim::progress;
use crate::sweep::cells::SweepCell;
use crate::sweep::crew;
use crate::sweep::folder::SweepFolder;

/// The bar counts milliseconds.
const MILLIS: f64 = 1e3;

/// The cells of some tables.
#[derive(Debug, Default)]
pub struct CellWork {
    cells: Vec<(SweepCell, f64)>,
    /// The number that had finished before.
    pub kept: usize,
}

impl CellWork {
    /// Adds the new cells of a plan.
    ///
    /// # Errors
    /// [`LabError`] where the plan is faulty.
    pub fn add(&mut self, plan: &Written) -> Result<(), LabError> {
        for cell in plan.cells()? {
            if self.cells.iter().all(|(known, _)| known.id != cell.id) {
                self.cells.push((cell, plan.cell_s));
            }
        }
        Ok(())
    }

    /// Returns the cells.
    pub fn cells(&self) -> impl Iterator<Item = &SweepCell> {
        self.cells.iter().map(|(cell, _)| cell)
    }

    /// Runs the cells without a result, `at_once` at a time, the longest first.
    ///
    /// # Errors
    /// [`LabError`] when a process cannot be started or a record cannot be kept. A cell that fails
    /// is no error here: its record has the reason.
    pub fn run(&mut self, folder: &SweepFolder, at_once: usize) -> Result<(), LabError> {
        let (finished, mut missing): (Vec<_>, Vec<_>) = self
            .cells
            .iter()
            .partition(|(cell, _)| folder.is_finished(&cell.id));
        self.kept = finished.len();
        missing.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let seconds: BTreeMap<&str, f64> = missing
            .iter()
            .map(|(cell, seconds)| (cell.id.as_str(), *seconds))
            .collect();
        let progress = bar(seconds.values().sum(), missing.len());
        let cells: Vec<&SweepCell> = missing.iter().map(|(cell, _)| cell).collect();
        let ran = crew::run(&cells, at_once, |record| {
            folder.keep(&record)?;
            let seconds = seconds.get(record.id.as_str()).copied();
            progress.inc((seconds.unwrap_or(0.0) * MILLIS) as u64);
            Ok(())
        });
        progress.finish_and_clear();
        ran.map(drop)
    }

    /// Returns the approximate CPU seconds of its cells.
    pub fn seconds(&self) -> f64 {
        self.cells.iter().map(|(_, seconds)| seconds).sum()
    }

    /// Lists one cell a line: its id, whether it has finished, its settings.
    pub fn list(&self, folder: &SweepFolder, form: OutputForm) -> String {
        let lines = self.cells().map(|cell| {
            let finished = folder.is_finished(&cell.id);
            let state = if finished { "finished" } else { "to run" };
            form.lines(
                || format!("{}  {state:<8}  {}", cell.id, cell.label),
                || json!({ "id": cell.id, "label": cell.label, "finished": finished }),
            )
        });
        lines.collect()
    }
}

/// Makes a bar over this many seconds of work.
fn bar(seconds: f64, cells: usize) -> ProgressBar {
    let beside = "{msg}, {elapsed} gone, about {eta} left";
    let bar = progress::bar((seconds * MILLIS) as u64, beside);
    bar.set_message(format!("{cells} cells to run"));
    bar
}

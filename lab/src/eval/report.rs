//! The report of an evaluation: its sections, its cost, and its files.

use serde::Serialize;
use serde_json::Value;

use super::markdown;
use super::page;
use super::section::Section;
use crate::error::LabError;
use crate::sweep::folder::SweepFolder;
use crate::sweep::record::CellRecord;
use gradwire_report::{json, numbers::bytes};

/// The sections of all tables.
#[derive(Clone, Debug, Serialize)]
pub struct EvalReport {
    /// The heading.
    pub title: &'static str,
    /// The experiment, in words.
    pub about: String,
    /// The version of gradwire.
    pub version: &'static str,
    /// The tables.
    pub sections: Vec<Section>,
    /// Time and memory, the only part that differs between runs.
    pub cost: EvalCost,
}

/// The cost of a report's cells.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EvalCost {
    /// Simulated cells.
    pub cells: usize,
    /// Cells that an earlier run had finished.
    pub kept: usize,
    /// CPU seconds of all of them, whenever they ran.
    pub cells_cpu_s: f64,
    /// Largest resident memory of one of them, in bytes.
    pub peak_rss_bytes: u64,
    /// Wall time of this run in seconds.
    pub wall_s: f64,
    /// Number of cores available to it.
    pub cores: usize,
}

impl EvalCost {
    /// Adds the cost of a cell.
    pub fn add(&mut self, record: &CellRecord) {
        let number = |key: &str| record.cost.get(key).and_then(Value::as_f64);
        self.cells += 1;
        self.cells_cpu_s += number("cpu_s").unwrap_or(0.0);
        let peak = number("peak_rss_bytes").unwrap_or(0.0) as u64;
        self.peak_rss_bytes = self.peak_rss_bytes.max(peak);
    }

    /// Returns the cost in words.
    pub fn told(&self) -> String {
        format!(
            "This run took {:.0} s on {} cores. Its {} simulated cells took {:.0} s of CPU time in \
             all, {} of them in earlier runs; the largest had {} resident. Simulated tables are \
             of gradwire {}, packet by packet, and nothing in them was measured on a network: the \
             same version gives the same numbers.",
            self.wall_s,
            self.cores,
            self.cells,
            self.cells_cpu_s,
            self.kept,
            bytes(self.peak_rss_bytes),
            env!("CARGO_PKG_VERSION"),
        )
    }
}

impl EvalReport {
    /// Writes Markdown, JSON and HTML.
    ///
    /// # Errors
    /// [`LabError::System`] names the file that cannot be written.
    pub fn write(&self, folder: &SweepFolder) -> Result<(), LabError> {
        folder.write("report.md", markdown::document(self).as_bytes())?;
        folder.write("report.json", format!("{}\n", json::line(self)).as_bytes())?;
        folder.write("report.html", page::page(self).as_bytes())
    }

    /// Returns the missing parts of all tables.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        let sections = self.sections.iter();
        sections.flat_map(|section| section.outcome.missing.iter().map(String::as_str))
    }
}

//! The folder of a sweep and its files. Each file is complete or absent.

use std::path::PathBuf;

use super::record::CellRecord;
use crate::error::LabError;
use crate::output::WholeFile;
use gradwire_report::json;

/// The folder of a sweep's results.
#[derive(Clone, Debug)]
pub struct SweepFolder {
    root: PathBuf,
}

impl SweepFolder {
    /// Returns the folder at a path, which need not exist yet.
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Returns the path of a file of the sweep.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Reads the record of a cell; `None` where its file is missing or incomplete.
    pub fn record(&self, id: &str) -> Option<CellRecord> {
        let text = std::fs::read_to_string(self.path(&cell_name(id))).ok()?;
        let record: CellRecord = serde_json::from_str(&text).ok()?;
        (record.id == id).then_some(record)
    }

    /// Whether a cell has a result.
    pub fn is_finished(&self, id: &str) -> bool {
        self.record(id)
            .is_some_and(|record| record.result.is_some())
    }

    /// Keeps the record of a cell.
    ///
    /// # Errors
    /// [`LabError::System`] when the file cannot be written.
    pub fn keep(&self, record: &CellRecord) -> Result<(), LabError> {
        let text = format!("{}\n", json::line(record));
        self.write(&cell_name(&record.id), text.as_bytes())
    }

    /// Writes a file; a killed process leaves no part of it under its name.
    ///
    /// # Errors
    /// [`LabError::System`] names the file.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), LabError> {
        let path = self.path(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(LabError::system(format!(
                "cannot make {}",
                folder.display()
            )))?;
        }
        WholeFile::create(&path)?.keep(bytes)
    }
}

fn cell_name(id: &str) -> String {
    format!("cells/{id}.json")
}

//! Edits a job file in place: text around the changed keys stays.

use std::path::Path;

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use crate::error::LabError;
use crate::files;

/// A job file for editing, checked first; an empty document when the file does not exist.
///
/// # Errors
/// [`LabError`] when it cannot be read, or is no job.
pub fn read(path: &Path) -> Result<DocumentMut, LabError> {
    if !path.exists() {
        return Ok(DocumentMut::new());
    }
    super::read(path)?;
    let text = files::text(path)?;
    Ok(text.parse().expect("it has just been read as TOML"))
}

/// Writes a job file that was changed.
///
/// # Errors
/// [`LabError::System`].
pub fn save(path: &Path, document: &DocumentMut) -> Result<(), LabError> {
    std::fs::write(path, document.to_string())
        .map_err(LabError::system(format!("writing {}", path.display())))
}

/// One of the tables of a job; adds an empty one where it is missing.
pub fn table<'a>(document: &'a mut DocumentMut, name: &str) -> &'a mut dyn TableLike {
    let table = document
        .entry(name)
        .or_insert_with(|| Item::Table(Table::new()));
    table
        .as_table_like_mut()
        .expect("the job was read, so this is a table")
}

/// Sets a value and keeps the comments around the old one.
pub fn put(table: &mut dyn TableLike, key: &str, new: Value) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            let decor = old.decor().clone();
            *old = new;
            *old.decor_mut() = decor;
        }
        None => {
            table.insert(key, Item::Value(new));
        }
    }
}

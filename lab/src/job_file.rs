//! Jobs in files: read, and changed key by key.

pub mod document;

use std::path::Path;

use gradwire_protocol::job::Job;
use toml::{Table, Value};

use crate::error::LabError;

/// The job in a file.
///
/// # Errors
/// [`LabError::Job`] and [`LabError::Read`] name what is wrong with the file.
pub fn read(path: &Path) -> Result<Job, LabError> {
    let text = std::fs::read_to_string(path).map_err(|source| LabError::Read {
        path: path.to_owned(),
        source,
    })?;
    let wrong = |source| LabError::Job {
        path: path.to_owned(),
        source: Box::new(source),
    };
    Job::from_toml(&text).map_err(wrong)
}

/// A job with other values under some dotted keys; values are texts.
///
/// # Errors
/// [`LabError::Options`] names what is allowed under a key.
pub fn with_values<'a>(
    job: &Job,
    values: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<Job, LabError> {
    let mut table: Table = job
        .to_toml()
        .parse()
        .expect("a job writes what can be read");
    for (key, text) in values {
        let (outer, inner) = key.split_once('.').unwrap_or(("", key));
        let place = match outer {
            "" => &mut table,
            outer => table[outer].as_table_mut().expect("a job has this table"),
        };
        place.insert(inner.to_owned(), Value::String(text.to_owned()));
    }
    Job::from_toml(&table.to_string()).map_err(|source| LabError::Options(Box::new(source)))
}

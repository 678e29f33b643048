//! Jobs in files: read, and changed key by key.

pub mod document;

use std::path::Path;

use gradwire_protocol::job::Job;

use crate::error::LabError;
use crate::files;

/// The job in a file.
///
/// # Errors
/// [`LabError::Job`] names the mistake in the file; others say why it cannot be read.
pub fn read(path: &Path) -> Result<Job, LabError> {
    let advice = "a job is a TOML file, and `gradwire job keys` lists its keys";
    let text = files::text_advised(path, advice)?;
    let wrong = |source| LabError::Job {
        path: path.to_owned(),
        source: Box::new(source),
    };
    Job::from_toml(&text).map_err(wrong)
}

/// A job with other values under some keys.
///
/// # Errors
/// [`LabError::Options`] names the values that a key allows.
pub fn with_values<'a>(
    mut job: Job,
    values: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Job, LabError> {
    let set = values
        .into_iter()
        .try_for_each(|(key, text)| job.set(key, text));
    let checked = set.and_then(|()| job.checked());
    checked.map_err(|source| LabError::Options(Box::new(source)))
}

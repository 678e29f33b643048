//! Reads the traces of one run of a job.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gradwire_runtime::trace::TraceDump;

use crate::exit::CommandError;

/// The dumps in some files, in the order of ranks; of a folder, those in it.
///
/// # Errors
/// [`CommandError::Read`] when a file cannot be read, [`CommandError::Input`] when it is no dump,
/// or when they do not belong together.
pub fn read(places: &[PathBuf]) -> Result<Vec<TraceDump>, CommandError> {
    let mut dumps: BTreeMap<u16, (PathBuf, TraceDump)> = BTreeMap::new();
    for path in paths(places)? {
        let dump = read_one(&path)?;
        let first = dumps.values().next();
        if let Some((other_path, other)) = first.filter(|(_, other)| other.job_id != dump.job_id) {
            return Err(two_runs(&path, &dump, (other_path, other)));
        }
        if let Some((other, _)) = dumps.get(&dump.rank) {
            let (rank, other) = (dump.rank, other.display());
            let message = format!("it is of rank {rank}, as {other} is: give one of them");
            return Err(refused(&path, message));
        }
        dumps.insert(dump.rank, (path, dump));
    }
    Ok(dumps.into_values().map(|(_, dump)| dump).collect())
}

fn two_runs(path: &Path, dump: &TraceDump, other: (&PathBuf, &TraceDump)) -> CommandError {
    let (id, job) = (dump.job_id, &dump.job);
    let (other_path, other) = (other.0.display(), other.1.job_id);
    let message = format!(
        "it is of run {id:08x} of job {job}, but {other_path} is of run {other:08x}: give the \
         files of one run, for example gradwire-{job}-{id:08x}-rank*.json"
    );
    refused(path, message)
}

fn refused(path: &Path, message: String) -> CommandError {
    CommandError::Input {
        given: path.display().to_string(),
        message,
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> CommandError {
    CommandError::Read {
        path: path.to_owned(),
        source,
    }
}

fn paths(places: &[PathBuf]) -> Result<Vec<PathBuf>, CommandError> {
    let mut paths = Vec::new();
    for place in places {
        if !place.is_dir() {
            paths.push(place.clone());
            continue;
        }
        let entries = std::fs::read_dir(place).map_err(|error| unreadable(place, error))?;
        let inside = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let before = paths.len();
        paths.extend(inside.filter(|path| is_trace(path)));
        if paths.len() == before {
            let message = "the folder has no file gradwire-*.json: name the folder that \
                           GRADWIRE_TRACE named";
            return Err(refused(place, message.to_owned()));
        }
        paths[before..].sort();
    }
    Ok(paths)
}

fn is_trace(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("gradwire-") && name.ends_with(".json"))
}

fn read_one(path: &Path) -> Result<TraceDump, CommandError> {
    let bytes = std::fs::read(path).map_err(|error| unreadable(path, error))?;
    let text = String::from_utf8_lossy(&bytes);
    TraceDump::from_json(&text).map_err(|error| refused(path, error.to_string()))
}

//! Reads the traces of one run of a job.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::LabError;
use crate::files;
use gradwire_runtime::trace::TraceDump;

/// The dumps in some files, in the order of ranks; of a folder, those in it.
///
/// # Errors
/// [`LabError::Read`] when a file cannot be read, [`LabError::Input`] when it is no dump,
/// or when they do not belong together.
pub fn read(places: &[PathBuf]) -> Result<Vec<TraceDump>, LabError> {
    let mut dumps: BTreeMap<u16, (PathBuf, TraceDump)> = BTreeMap::new();
    let hint = "name the folder that GRADWIRE_TRACE named";
    for path in json_files(places, "gradwire-", hint)? {
        let dump = read_one(&path)?;
        let first = dumps.values().next();
        if let Some((other_path, other)) = first.filter(|(_, other)| other.job_id != dump.job_id) {
            return Err(two_runs(&path, &dump, (other_path, other)));
        }
        if let Some((other, _)) = dumps.get(&dump.rank) {
            let (rank, other) = (dump.rank, other.display());
            let message = format!("it is of rank {rank}, like {other}: give only one of them");
            return Err(LabError::input(path.display(), message));
        }
        dumps.insert(dump.rank, (path, dump));
    }
    Ok(dumps.into_values().map(|(_, dump)| dump).collect())
}

fn two_runs(path: &Path, dump: &TraceDump, other: (&PathBuf, &TraceDump)) -> LabError {
    let (id, job) = (dump.job_id, &dump.job);
    let (other_path, other) = (other.0.display(), other.1.job_id);
    let message = format!(
        "it is of run {id:08x} of job {job}, but {other_path} is of run {other:08x}: give the \
         files of one run, for example gradwire-{job}-{id:08x}-rank*.json"
    );
    LabError::input(path.display(), message)
}

/// The files among `places` and, of folders, the files `PREFIX*.json` in them, in the order of
/// names.
///
/// # Errors
/// [`LabError::Read`] when a folder cannot be read, [`LabError::Input`] when it has no such file;
/// `hint` says which folder to name.
pub fn json_files(places: &[PathBuf], prefix: &str, hint: &str) -> Result<Vec<PathBuf>, LabError> {
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(prefix) && name.ends_with(".json"))
    };
    let mut paths = Vec::new();
    for place in places {
        if !place.is_dir() {
            paths.push(place.clone());
            continue;
        }
        let entries = std::fs::read_dir(place).map_err(files::unreadable(place))?;
        let inside = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let before = paths.len();
        paths.extend(inside.filter(is_wanted));
        if paths.len() == before {
            let message = format!("the folder has no file {prefix}*.json: {hint}");
            return Err(LabError::input(place.display(), message));
        }
        paths[before..].sort();
    }
    Ok(paths)
}

fn read_one(path: &Path) -> Result<TraceDump, LabError> {
    let bytes = files::bytes(path)?;
    let text = String::from_utf8_lossy(&bytes);
    TraceDump::from_json(&text).map_err(|error| LabError::input(path.display(), error))
}

//! Jobs on the command line: read, changed by options, printed.

pub(crate) mod document;

use std::path::{Path, PathBuf};

use gradwire_protocol::job::{Job, describe};
use serde_json::Map;

use crate::arguments::JobCheck;
use crate::environment::Environment;
use crate::exit::Failure;

/// `gradwire job check`: prints the resolved job.
///
/// # Errors
/// [`Failure::Job`] and [`Failure::Read`] name what is wrong with the file.
pub fn check(arguments: &JobCheck) -> Result<(), Failure> {
    let job = read(&arguments.path)?;
    if arguments.json {
        println!("{}", to_json(&job));
    } else {
        print!("{}", job.to_annotated_toml());
    }
    say_if_unprotected(&job);
    Ok(())
}

/// Says on standard error what a job without security means; for the process that starts it, once.
pub fn say_if_unprotected(job: &Job) {
    if let Some(warning) = job.security_warning() {
        eprintln!("gradwire: {warning}");
    }
}

/// `gradwire job keys`: prints what a job file can say.
pub fn keys() {
    let defaults = Job::default().flat();
    for (key, meaning, allowed) in describe() {
        println!(
            "{key} = {}\n    {meaning}\n    allowed: {allowed}",
            defaults[key]
        );
    }
}

/// The job in a file.
///
/// # Errors
/// [`Failure::Job`] and [`Failure::Read`] name what is wrong with the file.
pub fn read(path: &Path) -> Result<Job, Failure> {
    let text = std::fs::read_to_string(path).map_err(|source| Failure::Read {
        path: path.to_owned(),
        source,
    })?;
    let wrong = |source| Failure::Job {
        path: path.to_owned(),
        source: Box::new(source),
    };
    Job::from_toml(&text).map_err(wrong)
}

/// The job in the file that was given or that `GRADWIRE_JOB` names; without any, the default job.
///
/// # Errors
/// As [`read`].
pub fn given_or_default(path: Option<&PathBuf>) -> Result<Job, Failure> {
    let path = path.cloned().or_else(|| Environment::read().job);
    path.map_or_else(|| Ok(Job::default()), |path| read(&path))
}

/// A job with other values under some keys.
///
/// # Errors
/// [`Failure::Options`] names what is allowed under a key.
pub fn with_values<'a>(
    mut job: Job,
    values: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Job, Failure> {
    let set = values
        .into_iter()
        .try_for_each(|(key, text)| job.set(key, text));
    let checked = set.and_then(|()| job.checked());
    checked.map_err(|source| Failure::Options(Box::new(source)))
}

/// The resolved job by dotted keys; values in the notation of `job.toml`.
pub fn to_json(job: &Job) -> serde_json::Value {
    let entries = job
        .flat()
        .into_iter()
        .map(|(key, value)| (key, serde_json::Value::from(value)));
    serde_json::Value::Object(entries.collect::<Map<_, _>>())
}

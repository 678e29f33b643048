//! Jobs on the command line: read, changed by options, printed.

pub mod options;

use std::path::PathBuf;

use gradwire_lab::job_file;
use gradwire_protocol::job::{Job, Mtu, describe};
use gradwire_report::printing::OutputForm;

use crate::environment::Environment;
use crate::exit::CommandError;
use options::{JobCheck, JobOptions};

/// `gradwire job check`: prints the resolved job.
///
/// # Errors
/// [`CommandError::Lab`] names the mistake in the file.
pub fn check(arguments: &JobCheck) -> Result<(), CommandError> {
    let job = job_file::read(&arguments.path)?;
    OutputForm::from(arguments.json).print(|| job.to_annotated_toml(), || job.flat());
    say_if_unprotected(&job);
    Ok(())
}

/// Warns on standard error about a job without security; the process that starts the job calls this
/// once.
pub fn say_if_unprotected(job: &Job) {
    if let Some(warning) = job.security_warning() {
        eprintln!("gradwire: {warning}");
    }
}

/// `gradwire job keys`: prints the keys of a job file.
pub fn keys() {
    let defaults = Job::default().flat();
    for (key, meaning, allowed) in describe() {
        println!(
            "{key} = {}\n    {meaning}\n    allowed: {allowed}",
            defaults[key]
        );
    }
}

/// The job in the file that was given or that `GRADWIRE_JOB` names; without any, the default job.
///
/// # Errors
/// As [`job_file::read`].
pub fn given_or_default(path: Option<&PathBuf>) -> Result<Job, CommandError> {
    let path = path.cloned().or_else(|| Environment::read().job);
    path.map_or_else(|| Ok(Job::default()), |path| Ok(job_file::read(&path)?))
}

/// The job of a file, changed by the options.
///
/// # Errors
/// [`CommandError`] when the file is wrong, or the job after the change.
pub fn with_options(options: &JobOptions) -> Result<Job, CommandError> {
    let mut job = given_or_default(options.job.as_ref())?;
    job.tolerance = options.tolerance.unwrap_or(job.tolerance);
    job.faults.drop = options.drop.unwrap_or(job.faults.drop);
    job.faults.seed = options.seed.unwrap_or(job.faults.seed);
    job.transport.mtu = options.mtu.map_or(job.transport.mtu, Mtu::Bytes);
    let named = [
        ("transport.wire", &options.wire),
        ("security", &options.security),
        ("transport.idle", &options.idle),
        ("collectives.algorithm", &options.algorithm),
        ("collectives.aggregator", &options.aggregator),
        ("collectives.codec", &options.codec),
    ];
    let named = named
        .into_iter()
        .filter_map(|(key, value)| Some((key, value.as_deref()?)));
    Ok(job_file::with_values(job, named)?)
}

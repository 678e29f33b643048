//! Gloo in the same harness: a Python process per rank that speaks the launcher's lines.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use gradwire_protocol::job::Job;

use super::launcher::Crew;
use crate::arguments::Perf;
use crate::environment::Environment;
use crate::exit::{Exit, Failure};

const SCRIPT: &str = include_str!("gloo.py");

/// Starts Gloo's ranks.
///
/// # Errors
/// [`Failure`] when there is no Python with PyTorch, or a rank fails.
pub fn crew(options: &Perf) -> Result<Crew, Failure> {
    let python = python(options);
    let has_torch = Command::new(&python)
        .args([
            "-c",
            "import torch.distributed as d; assert d.is_gloo_available()",
        ])
        .stdin(Stdio::null())
        .output();
    match has_torch {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().last().unwrap_or("no reason given");
            return Err(no_torch(&python, last));
        }
        Err(error) => return Err(no_torch(&python, &error.to_string())),
    }
    let command = |_| {
        let mut command = Command::new(&python);
        command.args(["-c", SCRIPT]).stderr(Stdio::piped());
        // As torchrun does; and loopback, which gradwire's ranks use too.
        command
            .env("OMP_NUM_THREADS", "1")
            .env("GLOO_SOCKET_IFNAME", "lo");
        command
    };
    Crew::start("gloo rank", (options.ranks, command), &Job::default())
}

fn no_torch(python: &std::path::Path, reason: &str) -> Failure {
    let message = format!(
        "needs a Python with PyTorch, and {} has none ({reason}); give one by --python or activate \
         its environment",
        python.display()
    );
    Failure::Process {
        who: "--against gloo".to_owned(),
        message,
        exit: Exit::Refused,
    }
}

fn python(options: &Perf) -> PathBuf {
    let active = || {
        Environment::read()
            .virtual_env
            .map(|path| path.join("bin/python"))
    };
    let local = || Some(PathBuf::from(".venv/bin/python")).filter(|path| path.exists());
    let given = options.python.clone().or_else(active).or_else(local);
    given.unwrap_or_else(|| PathBuf::from("python3"))
}

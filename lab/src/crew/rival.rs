//! Other libraries in the same harness: processes that speak the launcher's lines.

use std::path::Path;
use std::process::{Command, Stdio};

use gradwire_protocol::job::Job;

use super::kind::PerfCollective;
use super::launcher::Crew;
use super::place::CrewPlace;
use crate::error::LabError;

const GLOO: &str = include_str!("gloo.py");
const OPEN_MPI: &str = include_str!("openmpi.c");

/// A library to compare with.
#[derive(Clone, Copy, Debug, Eq, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Rival {
    /// Gloo, as PyTorch brings it.
    Gloo,
    /// Open MPI, which uses shared memory between ranks of one host; all-reduce only.
    Openmpi,
}

impl Rival {
    /// Its name in rows and on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Starts a rival's ranks; `python` runs those of Gloo.
///
/// # Errors
/// [`LabError`] when the rival cannot be compared here, a program that it needs is missing, or a
/// rank fails.
pub fn crew(
    rival: Rival,
    python: &Path,
    (kind, ranks): (PerfCollective, u16),
    place: &CrewPlace,
) -> Result<Crew, LabError> {
    match rival {
        Rival::Gloo => gloo(python, ranks, place),
        Rival::Openmpi if kind != PerfCollective::AllReduce => Err(LabError::Usage(format!(
            "--against openmpi measures all-reduce, not {kind}"
        ))),
        Rival::Openmpi => match place {
            CrewPlace::Host | CrewPlace::Addresses(_) => open_mpi(ranks),
            CrewPlace::Lab(_) => Err(LabError::Usage(
                "--against openmpi measures shared memory within one host: leave out --netns"
                    .to_owned(),
            )),
        },
    }
}

fn gloo(python: &Path, ranks: u16, place: &CrewPlace) -> Result<Crew, LabError> {
    let has_torch = Command::new(python)
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
            return Err(no_torch(python, last));
        }
        Err(error) => return Err(no_torch(python, &error.to_string())),
    }
    let command = || {
        let mut command = Command::new(python);
        command.args(["-c", GLOO]).stderr(Stdio::piped());
        // One thread per rank, as torchrun has it, and the network that gradwire's ranks use too.
        command
            .env("OMP_NUM_THREADS", "1")
            .env("GLOO_SOCKET_IFNAME", place.interface());
        Ok(command)
    };
    Crew::start("gloo rank", (ranks, command), &Job::default(), place)
}

fn no_torch(python: &Path, reason: &str) -> LabError {
    missing(
        "gloo",
        format!(
            "needs a Python with PyTorch, and {} has none ({reason}); give one by --python or \
             activate its environment",
            python.display()
        ),
    )
}

fn missing(rival: &str, message: String) -> LabError {
    LabError::Missing {
        who: format!("--against {rival}"),
        message,
    }
}

/// One process, mpirun, which starts all ranks and speaks for them.
fn open_mpi(ranks: u16) -> Result<Crew, LabError> {
    let refused = || LabError::system(format!("writing into {}", std::env::temp_dir().display()));
    let folder = tempfile::TempDir::with_prefix("gradwire-perf-").map_err(refused())?;
    let (source, program) = (
        folder.path().join("openmpi.c"),
        folder.path().join("openmpi"),
    );
    std::fs::write(&source, OPEN_MPI).map_err(refused())?;
    let mut compile = Command::new("mpicc");
    compile.arg("-O2").arg("-o").args([&program, &source]);
    let compiled = compile.stdin(Stdio::null()).output().map_err(no_open_mpi)?;
    if !compiled.status.success() {
        let errors = String::from_utf8_lossy(&compiled.stderr);
        let first = errors.lines().next().unwrap_or("no reason given");
        return Err(missing("openmpi", format!("mpicc failed: {first}")));
    }
    let command = || {
        let mut command = Command::new("mpirun");
        command
            .args(["--oversubscribe", "-n", &ranks.to_string()])
            .arg(&program)
            .stderr(Stdio::piped());
        // Root compiled this program a moment ago, so root may run it.
        command
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        Ok(command)
    };
    Crew::start("mpirun", (1, command), &Job::default(), &CrewPlace::Host)
}

fn no_open_mpi(error: std::io::Error) -> LabError {
    let message =
        format!("needs mpicc and mpirun (Debian packages openmpi-bin and libopenmpi-dev): {error}");
    missing("openmpi", message)
}

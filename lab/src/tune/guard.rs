//! The process around a tried script.
//!
//! The starter holds its standard input. When that ends, because the trial took too long or the
//! starter was killed, the guard ends the script's process group: first by SIGTERM, so that
//! `torchrun` ends its ranks, and by force after a while. When the script ends by itself, the guard
//! ends the processes that it left in its group.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::crew::leash;
use crate::error::LabError;

/// Time that a script has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(20);

/// Runs the script, a program and its arguments, to its end, and ends with its exit code.
///
/// # Errors
/// [`LabError::System`] when it cannot be started.
pub fn run(command: &[String]) -> Result<(), LabError> {
    let (program, arguments) = command.split_first().expect("a script has a name");
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = child.map_err(LabError::system(format!("starting {program}")))?;
    let group = Pid::from_raw(i32::try_from(child.id()).expect("process numbers are positive"));
    leash::when_input_ends(move || {
        let _ = killpg(group, Signal::SIGTERM);
        std::thread::sleep(GRACE);
        let _ = killpg(group, Signal::SIGKILL);
    });
    let status = child
        .wait()
        .map_err(LabError::system(format!("waiting for {program}")))?;
    // Usually the group is empty by now, and the error is harmless.
    let _ = killpg(group, Signal::SIGKILL);
    std::process::exit(code_of(status));
}

/// A signal counts as 128 plus its number, as in shells.
fn code_of(status: ExitStatus) -> i32 {
    let by_signal = status.signal().map(|signal| 128 + signal);
    status.code().or(by_signal).unwrap_or(1)
}

//! Network namespaces: making them, doing things in them.
//!
//! A thread can change only its own namespace, so all work in a namespace runs on a thread that
//! ends afterwards. The callers decide which namespaces are joined.

use std::fs::File;
use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

use nix::sched::{CloneFlags, setns, unshare};

use crate::error::LabError;

/// A new network namespace. It lasts as long as the file is open, or a process in it.
///
/// # Errors
/// The system's: only root makes namespaces.
pub fn unnamed() -> io::Result<File> {
    on_a_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        File::open("/proc/thread-self/ns/net")
    })
}

/// Does something in a namespace; processes that are started then are in it.
///
/// # Errors
/// The system's, when the namespace cannot be entered.
pub fn within<T: Send>(room: &File, act: impl FnOnce() -> T + Send) -> io::Result<T> {
    on_a_thread(|| {
        setns(room, CloneFlags::CLONE_NEWNET)?;
        Ok(act())
    })
}

fn on_a_thread<T: Send>(act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| scope.spawn(act).join().expect("nothing in it panics"))
}

/// Runs a program in a namespace with a text as its standard input.
///
/// # Errors
/// [`LabError`] when it cannot be started; how it ends is in the output.
pub fn run(who: &str, room: &File, command: &mut Command, input: &str) -> Result<Output, LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let ran = within(room, || {
        let mut process = command.spawn()?;
        let mut pipe = process.stdin.take().expect("it was asked for");
        let written = pipe.write_all(input.as_bytes());
        drop(pipe);
        let output = process.wait_with_output()?;
        // A program that ends before it has read everything says why.
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(output),
        }
    });
    ran.flatten().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => failure(
            who,
            format!(
                "needs the programs ip and tc (Debian package iproute2), and there is no {program}"
            ),
        ),
        _ => LabError::system(format!("running {program}"))(source),
    })
}

/// Gives commands to a program of iproute2 in a namespace.
///
/// # Errors
/// [`LabError`] has the command and the first line of the program's errors.
pub fn batch(who: &str, program: &str, room: &File, lines: &[String]) -> Result<(), LabError> {
    let mut command = Command::new(program);
    command.args(["-batch", "-"]);
    let output = run(who, room, &mut command, &(lines.join("\n") + "\n"))?;
    if output.status.success() {
        return Ok(());
    }
    let reason = first_line(&output);
    Err(failure(
        who,
        format!("{program} {}: {reason}", lines.join("; ")),
    ))
}

/// The first line that a failed program wrote to standard error.
pub fn first_line(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    errors
        .lines()
        .next()
        .unwrap_or("no reason given")
        .to_owned()
}

/// The error where namespaces may not be made.
pub fn refused(who: &str, source: io::Error) -> LabError {
    if source.kind() == io::ErrorKind::PermissionDenied {
        return failure(
            who,
            "network namespaces need root: run this by sudo or, where the kernel lets users make \
             namespaces, behind `unshare -Ur`"
                .to_owned(),
        );
    }
    LabError::system("making a network namespace")(source)
}

/// The failure of an option.
pub fn failure(who: &str, message: String) -> LabError {
    LabError::Missing {
        who: who.to_owned(),
        message,
    }
}

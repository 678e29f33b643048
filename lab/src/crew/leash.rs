//! Processes of this program that never outlive their starter: it holds their standard input, and
//! each ends when that does.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};

/// The command that starts this program once more; the caller keeps its standard input for as long
/// as the process may run.
///
/// # Errors
/// The system's, when this program cannot be found.
pub fn own(arguments: &[&str]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).stdin(Stdio::piped());
    Ok(command)
}

/// The command that starts a script behind its guard ([`crate::tune::guard`]). An interrupt from
/// the terminal is for this process; the guard notices its end.
///
/// # Errors
/// As [`own`].
pub fn guarded(words: impl IntoIterator<Item = String>) -> io::Result<Command> {
    let mut command = own(&["tune-trial", "--"])?;
    command.args(words).process_group(0);
    Ok(command)
}

/// Acts when standard input ends, even by an error: the starter of this process is gone then.
pub fn when_input_ends(act: impl FnOnce() + Send + 'static) {
    std::thread::spawn(move || {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        act();
    });
}

/// How a process ended, in words that follow its name.
pub fn how_it_ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, Some(code)) => format!("ended with exit code {code}"),
        (None, None) => "ended".to_owned(),
    }
}

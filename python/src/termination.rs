//! Writes the flight recorders of this process when it is told to end (SIGTERM), as
//! `torchrun` tells the ranks that survive another one's failure.
//!
//! - The signal wakes a thread, which writes; a thread that waits in an operation does not matter.
//! - A process that would have ended by the signal then ends by it. A handler that was there
//!   before, such as Python's, is called at once, and decides as if there were no recorder.
//! - A fork inherits the signal's handler but not the thread: there the signal acts as it did
//!   before.
#![expect(
    unsafe_code,
    reason = "a signal handler may only do what is safe in one"
)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use gradwire_runtime::LocalRank;
use signal_hook::consts::SIGTERM;
use signal_hook::low_level::{emulate_default_handler, register};

static RANKS: Mutex<Vec<Weak<LocalRank>>> = Mutex::new(Vec::new());
static WATCH: Once = Once::new();

/// Writes the recorder of `rank` when this process is told to end, for as long as it is open.
pub(crate) fn watch(rank: &Arc<LocalRank>) {
    let mut ranks = RANKS.lock().unwrap_or_else(PoisonError::into_inner);
    ranks.retain(|rank| rank.strong_count() > 0);
    ranks.push(Arc::downgrade(rank));
    drop(ranks);
    WATCH.call_once(|| {
        if let Err(error) = begin() {
            log::warn!("no trace at SIGTERM: {error}");
        }
    });
}

fn begin() -> std::io::Result<()> {
    let before = Disposition::of_sigterm()?;
    if before == Disposition::Ignored {
        return Ok(());
    }
    let (mut woken, wake) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    let process = std::process::id();
    let on_signal = move || {
        if std::process::id() == process {
            let _ = (&wake).write(&[1]);
        } else if before == Disposition::Default {
            let _ = emulate_default_handler(SIGTERM);
        }
    };
    // SAFETY: it only asks for the process's number, writes to a socket that never blocks, and
    // emulates the default, all of which a signal handler may do.
    unsafe { register(SIGTERM, on_signal) }?;
    let thread = std::thread::Builder::new().name("gradwire-sigterm".to_owned());
    thread.spawn(move || {
        while woken.read_exact(&mut [0]).is_ok() {
            write_recorders();
            if before == Disposition::Default {
                let _ = emulate_default_handler(SIGTERM);
            }
        }
    })?;
    Ok(())
}

fn write_recorders() {
    let ranks = RANKS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for rank in ranks.iter().filter_map(Weak::upgrade) {
        rank.keep_trace("this process was told to end (SIGTERM)");
    }
}

/// What a signal did before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Disposition {
    Default,
    Ignored,
    Caught,
}

impl Disposition {
    fn of_sigterm() -> std::io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        Ok(Self::of(SIGTERM, &status))
    }

    /// Reads the masks of signals in the text of /proc/PID/status (proc(5)).
    fn of(signal: i32, status: &str) -> Self {
        let is_in = |mask: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(mask));
            let bits = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
            bits.unwrap_or(0) >> (signal - 1) & 1 == 1
        };
        match (is_in("SigIgn:"), is_in("SigCgt:")) {
            (true, _) => Self::Ignored,
            (_, true) => Self::Caught,
            _ => Self::Default,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_tell_what_a_signal_does() {
        let status = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001000\n\
                      SigCgt:\t0000000100004002\n";
        assert_eq!(Disposition::of(15, status), Disposition::Caught);
        assert_eq!(Disposition::of(13, status), Disposition::Ignored);
        assert_eq!(Disposition::of(10, status), Disposition::Default);
    }
}

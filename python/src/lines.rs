//! An entry point for lines: those of the log go to a function of the caller, on a thread for that.
//!
//! The threads that log must not wait for a foreign function, which may need a lock that they hold.
//! So a channel is between them. If it is full, lines go to standard error, as they do if there is
//! no function.
#![expect(unsafe_code, reason = "a C interface is made of raw pointers")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header states the rules of every entry point"
)]

use std::ffi::{CString, c_char, c_int};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use gradwire_runtime::log::{self, Level};

/// `gw_line`.
pub type GwLine = unsafe extern "C" fn(level: c_int, text: *const c_char);

/// Lines that may be on their way to the function.
const LINES: usize = 1024;

/// The thread that calls the function. It ends when the log has dropped its channel.
static CALLER: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// See `gw_log_to` in the header. Null gives the lines back to standard error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_log_to(line: Option<GwLine>) {
    log::divert(None);
    let mut caller = CALLER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(before) = caller.take() {
        // A caller that panicked has no lines left to wait for.
        let _ = before.join();
    }
    let Some(line) = line else {
        return;
    };
    let (give, lines) = sync_channel::<(Level, String)>(LINES);
    let call = move || {
        for (level, text) in lines {
            let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
            // SAFETY: the header requires a function that takes lines until it is replaced.
            unsafe { line(python_level(level), text.as_ptr()) };
        }
    };
    let thread = std::thread::Builder::new().name("gradwire-log".to_owned());
    // Without a thread, lines stay on standard error.
    if let Ok(thread) = thread.spawn(call) {
        *caller = Some(thread);
        let process = std::process::id();
        log::divert(Some(Box::new(move |level, text| {
            std::process::id() == process && is_given(&give, level, text)
        })));
    }
}

fn is_given(give: &SyncSender<(Level, String)>, level: Level, text: &str) -> bool {
    let given = give.try_send((level, text.to_owned()));
    !matches!(
        given,
        Err(TrySendError::Full(_) | TrySendError::Disconnected(_))
    )
}

/// The number of a level in Python's `logging`, which has none below debug.
const fn python_level(level: Level) -> c_int {
    match level {
        Level::Error => 40,
        Level::Warn => 30,
        Level::Info => 20,
        Level::Debug => 10,
        Level::Trace => 5,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    static SEEN: Mutex<Vec<(c_int, String)>> = Mutex::new(Vec::new());

    unsafe extern "C" fn see(level: c_int, text: *const c_char) {
        // SAFETY: the library gives a string that ends with zero.
        let text = unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned();
        SEEN.lock().expect("no panic").push((level, text));
    }

    #[test]
    fn lines_reach_the_function_before_it_is_taken_away() {
        log::start(log::LogLevel::Info);
        // SAFETY: the function lives as long as the program.
        unsafe { gw_log_to(Some(see)) };
        ::log::error!(target: "gradwire_test", "a\0b");
        // SAFETY: null is allowed.
        unsafe { gw_log_to(None) };
        ::log::error!(target: "gradwire_test", "after");
        let seen = SEEN.lock().expect("no panic");
        let is_ours = |(_, text): &&(c_int, String)| text.ends_with("a b") || text == "after";
        let ours: Vec<_> = seen.iter().filter(is_ours).collect();
        assert_eq!(ours.len(), 1, "{seen:?}");
        assert_eq!(ours[0].0, 40);
    }
}

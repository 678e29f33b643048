//! The plugin's lines: in NCCL's log by the logger that NCCL gives, and in gradwire's.
#![expect(unsafe_code, reason = "NCCL's logger is a C function")]

use std::ffi::{CString, c_int, c_ulong};
use std::sync::{Mutex, PoisonError};

use super::abi::Logger;

/// `NCCL_LOG_WARN` and `NCCL_LOG_INFO`.
const WARN: c_int = 2;
const INFO: c_int = 3;
/// `NCCL_INIT | NCCL_NET`.
const SUBSYSTEMS: c_ulong = 1 | 16;

static LOGGER: Mutex<Logger> = Mutex::new(None);

/// Lines go to this logger too from now on.
pub(super) fn hear(logger: Logger) {
    *LOGGER.lock().unwrap_or_else(PoisonError::into_inner) = logger;
}

/// A line that users look for.
pub(super) fn info(text: &str) {
    log::info!("{text}");
    tell(INFO, text);
}

/// A failure.
pub(super) fn warn(text: &str) {
    log::warn!("{text}");
    tell(WARN, text);
}

fn tell(level: c_int, text: &str) {
    let logger = *LOGGER.lock().unwrap_or_else(PoisonError::into_inner);
    let (Some(logger), Ok(text)) = (logger, CString::new(format!("NET/gradwire : {text}"))) else {
        return;
    };
    let (file, form) = (c"gradwire", c"%s");
    // SAFETY: NCCL's logger takes a C format with its arguments; `%s` takes one string, which ends
    // with zero and lives for the call.
    unsafe {
        logger(
            level,
            SUBSYSTEMS,
            file.as_ptr(),
            0,
            form.as_ptr(),
            text.as_ptr(),
        )
    };
}

//! Changes chunk and credit while a job runs: `gw_tune`, `gw_reschedule`.
//!
//! The header states the safety rules, as for all entry points.
#![expect(unsafe_code, reason = "a C interface is made of raw pointers")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header and the module state it once for all entry points"
)]

use std::ffi::{c_char, c_int};
use std::time::Duration;

use gradwire_protocol::job::CHUNKS;
use gradwire_protocol::units::ByteCount;
use gradwire_runtime::tuner::{SchedulePoint, TuningAdvice};

use crate::abi::{ErrorOut, GwRank, guarded, joined};

/// `gw_schedule` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GwSchedule {
    /// `collectives.chunk` in bytes.
    pub chunk: u64,
    /// `collectives.credit` in bytes, 0 for unbounded.
    pub credit: u64,
}

/// See `gw_tune` in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_tune(
    rank: *mut GwRank,
    step_seconds: f64,
    out: *mut GwSchedule,
    error: *mut c_char,
    error_len: usize,
) -> c_int {
    let error = ErrorOut::new(error, error_len);
    let advised = guarded(error, || {
        // SAFETY: the header requires a valid rank, and null or a valid place.
        let (rank, out) = unsafe { (joined(rank)?, out.as_mut()) };
        let out = out.ok_or("the output is null")?;
        let step = Duration::try_from_secs_f64(step_seconds)
            .map_err(|_| format!("a step cannot take {step_seconds} s: give 0 or more"))?;
        let (point, trying) = match rank.tune(step) {
            TuningAdvice::Try(point) => (point, 1),
            TuningAdvice::Keep(point) => (point, 0),
        };
        *out = GwSchedule {
            chunk: point.chunk.get(),
            credit: point.credit.get(),
        };
        Ok(trying)
    });
    advised.unwrap_or(-1)
}

/// See `gw_reschedule` in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_reschedule(
    rank: *mut GwRank,
    schedule: *const GwSchedule,
    error: *mut c_char,
    error_len: usize,
) -> c_int {
    let error = ErrorOut::new(error, error_len);
    let done = guarded(error, || {
        // SAFETY: the header requires a valid rank, and null or a valid schedule.
        let (rank, schedule) = unsafe { (joined(rank)?, schedule.as_ref()) };
        let GwSchedule { chunk, credit } = *schedule.ok_or("the schedule is null")?;
        if !CHUNKS.contains(&ByteCount::new(chunk)) {
            let (least, most) = (CHUNKS.start().get(), CHUNKS.end().get());
            return Err(format!(
                "a chunk of {chunk} bytes: allowed are {least} to {most}"
            ));
        }
        rank.reschedule(SchedulePoint {
            chunk: ByteCount::new(chunk),
            credit: ByteCount::new(credit),
        });
        Ok(0)
    });
    done.unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr::{null, null_mut};

    use super::*;

    #[test]
    fn null_is_an_error_and_not_a_crash() {
        let mut error = [0 as c_char; 64];
        let (out, room) = (error.as_mut_ptr(), error.len());
        // SAFETY: null is allowed everywhere.
        unsafe {
            assert_eq!(gw_tune(null_mut(), 1.0, null_mut(), out, room), -1);
            assert_eq!(CStr::from_ptr(out), c"the rank is null");
            assert_eq!(gw_reschedule(null_mut(), null(), out, room), -1);
        }
    }
}

//! Residuals of error feedback: `gw_residual_take` for checkpoints, `gw_residual_scale` for mixed
//! precision.
//!
//! The header states the safety rules, as for all entry points.
#![expect(unsafe_code, reason = "a C interface is made of raw pointers")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header and the module state it once for all entry points"
)]

use std::ffi::{c_char, c_int, c_void};

use gradwire_collectives::holes::TensorShape;

use crate::abi::{ErrorOut, GwRank, guarded, joined};
use crate::operation::{dtype, slice_mut};

/// See `gw_residual_take` in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_residual_take(
    rank: *mut GwRank,
    tensor_key: u64,
    element: u32,
    values: *mut c_void,
    bytes: usize,
    error: *mut c_char,
    error_len: usize,
) -> c_int {
    let error = ErrorOut::new(error, error_len);
    let taken = guarded(error, || {
        // SAFETY: the header requires a valid rank and memory as long as its length says.
        let (rank, values) = unsafe { (joined(rank)?, slice_mut(values.cast(), bytes, "values")?) };
        let dtype = dtype(element)?;
        let residual = rank.take_residual(tensor_key, TensorShape { dtype, bytes });
        let Some(residual) = residual.map_err(|error| error.to_string())? else {
            return Ok(0);
        };
        values.fill(0);
        residual.write_to(values);
        Ok(1)
    });
    taken.unwrap_or(-1)
}

/// See `gw_residual_scale` in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_residual_scale(
    rank: *mut GwRank,
    tensor_key: u64,
    factor: f64,
    error: *mut c_char,
    error_len: usize,
) -> c_int {
    let error = ErrorOut::new(error, error_len);
    let scaled = guarded(error, || {
        // SAFETY: the header requires a valid rank.
        let rank = unsafe { joined(rank) }?;
        let scaled = rank.scale_residual(tensor_key, factor);
        scaled.map_err(|error| error.to_string())
    });
    c_int::from(scaled.is_none())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr::null_mut;

    use super::*;

    #[test]
    fn null_is_an_error_and_not_a_crash() {
        let mut error = [0 as c_char; 100];
        let (out, room) = (error.as_mut_ptr(), error.len());
        // SAFETY: null is allowed everywhere.
        unsafe {
            assert_eq!(
                gw_residual_take(null_mut(), 1, 7, null_mut(), 0, out, room),
                -1
            );
            assert_eq!(CStr::from_ptr(out), c"the rank is null");
            assert_eq!(gw_residual_scale(null_mut(), 1, 0.5, null_mut(), 0), 1);
        }
    }
}

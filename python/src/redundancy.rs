//! The code of a job's parameter servers: `gw_code_open`, `gw_code_express`, `gw_code_combine`.
//!
//! The header states the safety rules, as for all entry points.
#![expect(unsafe_code, reason = "a C interface is made of raw pointers")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header and the module state it once for all entry points"
)]

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::slice;

use gradwire_collectives::redundancy::{Code, combine};
use gradwire_protocol::job::Job;

use crate::abi::{ErrorOut, guarded, read_job};
use crate::text;

/// `gw_code`: the code of a job.
#[derive(Debug)]
pub struct GwCode(Code);

/// `gw_code_shape` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GwCodeShape {
    /// n, k and d.
    pub servers: u32,
    /// Any that many servers hold everything.
    pub needed: u32,
    /// That many servers rebuild a lost one.
    pub rebuilders: u32,
    /// Symbols of a server's own data.
    pub data_symbols: u32,
    /// All symbols that a server stores.
    pub stored_symbols: u32,
    /// Symbols that a rebuilder sends.
    pub sent_symbols: u32,
    /// Updates from one snapshot to the next.
    pub snapshot_every: u32,
}

/// `gw_symbols` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GwSymbols {
    targets: *const u32,
    targets_len: usize,
    sources: *const u32,
    sources_len: usize,
}

/// `gw_combination` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GwCombination {
    factors: *const u8,
    inputs: *const *const u8,
    inputs_len: usize,
    outputs: *const *mut u8,
    outputs_len: usize,
    bytes: usize,
}

/// The elements behind a pointer, which may be null if there are none.
///
/// # Safety
/// `first` is null or points to `count` elements that nobody changes.
unsafe fn elements<'a, T>(first: *const T, count: usize) -> Result<&'a [T], String> {
    match (first.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err("a list is null".to_owned()),
        // SAFETY: the caller guarantees the elements.
        (false, _) => Ok(unsafe { slice::from_raw_parts(first, count) }),
    }
}

/// See `gw_code_open` in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_code_open(
    job_path: *const c_char,
    code: *mut *mut GwCode,
    shape: *mut GwCodeShape,
    error: *mut c_char,
    error_len: usize,
) -> c_int {
    let opened = guarded(ErrorOut::new(error, error_len), || {
        // SAFETY: the header requires null or a string that ends with zero, and null or places.
        let (path, places) = unsafe {
            let places = code.as_mut().zip(shape.as_mut());
            (text::read_if_any(job_path, "the job's path")?, places)
        };
        let (code, shape) = places.ok_or("an output is null")?;
        (*code, *shape) = (null_mut(), GwCodeShape::default());
        let job = path.map_or_else(|| Ok(Job::default()), read_job)?;
        let Some(terms) = job.servers.redundancy else {
            return Ok(0);
        };
        let made = Code::new(terms).map_err(|error| format!("servers.redundancy = {error}"))?;
        *shape = GwCodeShape {
            servers: terms.servers() as u32,
            needed: terms.needed() as u32,
            rebuilders: terms.rebuilders() as u32,
            data_symbols: made.data_symbols() as u32,
            stored_symbols: made.stored_symbols() as u32,
            sent_symbols: made.sent_symbols() as u32,
            snapshot_every: job.servers.snapshot_every,
        };
        *code = Box::into_raw(Box::new(GwCode(made)));
        Ok(1)
    });
    opened.unwrap_or(-1)
}

/// See `gw_code_express` in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_code_express(
    code: *const GwCode,
    symbols: *const GwSymbols,
    factors: *mut u8,
    error: *mut c_char,
    error_len: usize,
) -> c_int {
    let done = guarded(ErrorOut::new(error, error_len), || {
        // SAFETY: the header requires null or valid pointers.
        let (code, symbols) = unsafe { (code.as_ref(), symbols.as_ref()) };
        let (code, symbols) = code
            .zip(symbols)
            .ok_or("the code or the symbols are null")?;
        // SAFETY: the header requires lists of these lengths.
        let lists = unsafe {
            [
                elements(symbols.targets, symbols.targets_len)?,
                elements(symbols.sources, symbols.sources_len)?,
            ]
        };
        let [targets, sources] =
            lists.map(|list| list.iter().map(|s| *s as usize).collect::<Vec<usize>>());
        let rows = code.0.express(&targets, &sources);
        let rows = rows.map_err(|error| error.to_string())?.concat();
        if !rows.is_empty() {
            if factors.is_null() {
                return Err("the factors are null".to_owned());
            }
            // SAFETY: the header requires room for one factor per target and source.
            unsafe { factors.copy_from_nonoverlapping(rows.as_ptr(), rows.len()) };
        }
        Ok(0)
    });
    done.unwrap_or(-1)
}

/// See `gw_code_combine` in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_code_combine(
    combination: *const GwCombination,
    error: *mut c_char,
    error_len: usize,
) -> c_int {
    let done = guarded(ErrorOut::new(error, error_len), || {
        // SAFETY: the header requires null or a valid combination.
        let given = unsafe { combination.as_ref() }.ok_or("the combination is null")?;
        // SAFETY: the header requires lists of these lengths, of memory of `bytes` bytes each, and
        // that outputs overlap neither inputs nor each other.
        let (factors, inputs, mut outputs) = unsafe {
            let factors = elements(given.factors, given.inputs_len * given.outputs_len)?;
            let inputs = elements(given.inputs, given.inputs_len)?.iter();
            let inputs = inputs.map(|input| elements(*input, given.bytes));
            let outputs = elements(given.outputs, given.outputs_len)?.iter();
            let outputs = outputs.map(|output| match output.is_null() {
                true => Err("an output is null".to_owned()),
                false => Ok(slice::from_raw_parts_mut(*output, given.bytes)),
            });
            (
                factors,
                inputs.collect::<Result<Vec<&[u8]>, String>>()?,
                outputs.collect::<Result<Vec<&mut [u8]>, String>>()?,
            )
        };
        let rows: Vec<&[u8]> = match given.inputs_len {
            0 => vec![&[]; given.outputs_len],
            count => factors.chunks_exact(count).collect(),
        };
        combine(&rows, &inputs, &mut outputs);
        Ok(0)
    });
    done.unwrap_or(-1)
}

/// See `gw_code_free` in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_code_free(code: *mut GwCode) {
    if !code.is_null() {
        // SAFETY: the header requires that it came from `gw_code_open` and was not freed.
        drop(unsafe { Box::from_raw(code) });
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::mem::size_of;
    use std::ptr::null;

    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_header() {
        assert_eq!(size_of::<GwCodeShape>(), 28);
        assert_eq!(size_of::<GwSymbols>(), 32);
        assert_eq!(size_of::<GwCombination>(), 48);
    }

    #[test]
    fn null_is_an_error_and_not_a_crash() {
        let mut error = [0 as c_char; 64];
        let (out, room) = (error.as_mut_ptr(), error.len());
        // SAFETY: null is allowed everywhere.
        unsafe {
            let opened = gw_code_open(null(), null_mut(), null_mut(), out, room);
            assert_eq!(opened, -1);
            assert_eq!(CStr::from_ptr(out), c"an output is null");
            assert_eq!(gw_code_express(null(), null(), null_mut(), out, room), -1);
            assert_eq!(gw_code_combine(null(), out, room), -1);
            gw_code_free(null_mut());
        }
    }

    #[test]
    fn a_job_without_redundancy_has_no_code() {
        let (mut code, mut shape) = (null_mut(), GwCodeShape::default());
        // SAFETY: the places are valid, and a null path is that of no file.
        let opened = unsafe { gw_code_open(null(), &raw mut code, &raw mut shape, null_mut(), 0) };
        assert_eq!((opened, code.is_null(), shape.servers), (0, true, 0));
    }
}

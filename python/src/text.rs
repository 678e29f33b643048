//! Text across the C boundary.
#![expect(unsafe_code, reason = "C strings are raw pointers")]

use std::ffi::{CStr, c_char};

/// Copies `text` into a C buffer and cuts it if it does not fit. Returns the length of the whole
/// text in bytes, without the terminating zero.
///
/// # Safety
/// `out` is null or has room for `room` bytes.
pub(crate) unsafe fn write(text: &str, out: *mut c_char, room: usize) -> usize {
    if out.is_null() || room == 0 {
        return text.len();
    }
    let mut end = text.len().min(room - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: `end` is less than `room`, the bytes that the caller guarantees.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out, end);
        *out.add(end) = 0;
    }
    text.len()
}

/// Reads a C string; `name` names it in the error.
///
/// # Safety
/// `text` is null or a string that ends with zero and lives through the call.
pub(crate) unsafe fn read<'a>(text: *const c_char, name: &str) -> Result<&'a str, String> {
    if text.is_null() {
        return Err(format!("{name} is null"));
    }
    // SAFETY: the caller guarantees a string that ends with zero.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| format!("{name} is not UTF-8"))
}

/// Reads a C string that may be null; `name` names it in the error.
///
/// # Safety
/// As [`read`].
pub(crate) unsafe fn read_if_any<'a>(
    text: *const c_char,
    name: &str,
) -> Result<Option<&'a str>, String> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees that the string is valid.
    unsafe { read(text, name) }.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_characters() {
        let mut out = [1 as c_char; 4];
        // SAFETY: the buffer has four bytes.
        let needed = unsafe { write("aä€", out.as_mut_ptr(), out.len()) };
        assert_eq!(needed, 6);
        // SAFETY: the call has written a terminating zero.
        assert_eq!(unsafe { read(out.as_ptr(), "out") }, Ok("aä"));
        // SAFETY: null is allowed.
        assert_eq!(unsafe { write("abc", std::ptr::null_mut(), 9) }, 3);
    }
}

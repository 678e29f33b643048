//! Objects of libibverbs, each destroyed once.
#![expect(unsafe_code, reason = "the library gives raw pointers")]

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::ptr::NonNull;

/// An object that the library has created. Dropping this destroys it. An object must be dropped
/// before those that it was created from, so structures list dependent objects first.
pub(super) struct VerbsObject<T> {
    raw: NonNull<T>,
    end: unsafe extern "C" fn(*mut T) -> c_int,
}

// SAFETY: the library's objects may be used by any thread (rdma-core's ibv_* manual pages:
// "thread-safe"), and this is their only owner.
unsafe impl<T> Send for VerbsObject<T> {}

impl<T> VerbsObject<T> {
    /// Takes ownership of the result of a library call.
    ///
    /// # Errors
    /// The system's error, if the call returned null.
    ///
    /// # Safety
    /// `raw` is null, or was made for this caller and is ended by `end`.
    pub(super) unsafe fn new(
        raw: *mut T,
        end: unsafe extern "C" fn(*mut T) -> c_int,
    ) -> io::Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, end })
    }

    /// The library's pointer to the object, valid as long as `self`.
    pub(super) fn raw(&self) -> *mut T {
        self.raw.as_ptr()
    }
}

impl<T> Drop for VerbsObject<T> {
    fn drop(&mut self) {
        // SAFETY: this is the only owner, and no object that was created from it is left. The call
        // can only fail if the device is gone, and then the object is gone, too.
        unsafe { (self.end)(self.raw.as_ptr()) };
    }
}

impl<T> fmt::Debug for VerbsObject<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerbsObject")
    }
}

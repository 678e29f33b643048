//! What the library has made, ended once.
#![expect(unsafe_code, reason = "the library gives raw pointers")]

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::ptr::NonNull;

/// Something that the library has made. It is ended when this is dropped, so whatever it was made
/// of has to be dropped later: structures list what depends on others first.
pub(super) struct VerbsObject<T> {
    raw: NonNull<T>,
    end: unsafe extern "C" fn(*mut T) -> c_int,
}

// SAFETY: the library's objects may be used by any thread (rdma-core's ibv_* manual pages:
// "thread-safe"), and this is their only owner.
unsafe impl<T> Send for VerbsObject<T> {}

impl<T> VerbsObject<T> {
    /// Takes what a call of the library gave back.
    ///
    /// # Errors
    /// What the system said, when it gave nothing.
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

    /// What the library calls it; valid as long as this.
    pub(super) fn raw(&self) -> *mut T {
        self.raw.as_ptr()
    }
}

impl<T> Drop for VerbsObject<T> {
    fn drop(&mut self) {
        // SAFETY: it was made for us and nothing made of it is left. That the device is gone is
        // all that can be wrong, and then it has ended already.
        unsafe { (self.end)(self.raw.as_ptr()) };
    }
}

impl<T> fmt::Debug for VerbsObject<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerbsObject")
    }
}

//! Files that are memory, and what is known of the place where they lie.
#![expect(unsafe_code, reason = "mapped files are raw pointers")]

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};

/// A file mapped into memory, shared with whoever maps it too.
#[derive(Debug)]
pub(super) struct FileMapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; who uses its bytes when is decided
// by the ring above.
unsafe impl Send for FileMapping {}
// SAFETY: as for Send.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// Maps the first `bytes` of a file, which has them.
    pub(super) fn of(file: &File, bytes: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file that is open, at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("a mapping is not at address 0");
        Ok(Self { start, bytes })
    }

    /// The address of byte `at`.
    pub(super) fn at(&self, at: usize) -> NonNull<u8> {
        assert!(at < self.bytes, "inside the mapping");
        // SAFETY: the byte lies inside the mapping.
        unsafe { self.start.add(at) }
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that was made; nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Makes sure that a file has `bytes`, and that they exist.
pub(super) fn allocate(file: &File, bytes: usize) -> io::Result<()> {
    let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: no pointers are passed.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Makes a named pipe that only this user can open.
pub(super) fn make_pipe(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the name is a string that ends in zero and lives until the call returns.
    match unsafe { libc::mkfifo(name.as_ptr(), 0o600) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Room of a file system, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MemoryRoom {
    /// All of it.
    pub size: u64,
    /// What this process may still fill.
    pub free: u64,
}

/// The room of the file system that holds `path`.
pub(super) fn room(path: &Path) -> io::Result<MemoryRoom> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: an all-zero statvfs is a valid one.
    let mut told: libc::statvfs = unsafe { mem::zeroed() };
    // SAFETY: the path is a C string, and the structure lives until the call returns.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut told) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(MemoryRoom {
        size: told.f_blocks * told.f_frsize,
        free: told.f_bavail * told.f_frsize,
    })
}

/// The user that this process acts as.
pub(super) fn user() -> u32 {
    // SAFETY: no pointers are passed.
    unsafe { libc::geteuid() }
}

/// Sixteen random hexadecimal digits.
pub(super) fn random_name() -> Option<String> {
    let mut bytes = [0; 8];
    let mut source = File::open("/dev/urandom").ok()?;
    source.read_exact(&mut bytes).ok()?;
    Some(format!("{:016x}", u64::from_le_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_no_more_free_than_it_has() {
        let shared = room(Path::new("/proc")).expect("it is there");
        assert!(shared.free <= shared.size);
        assert!(room(Path::new("/nowhere/at/all")).is_err());
    }
}

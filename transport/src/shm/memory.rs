//! Memory that is mapped, of files or of no file, and the file system that holds the files.
#![expect(unsafe_code, reason = "mapped files are raw pointers")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;

use nix::fcntl::posix_fallocate;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use nix::sys::stat::Mode;
use nix::sys::statvfs::statvfs;
use nix::unistd::{geteuid, mkfifo};

/// Mapped memory: of a file, shared with all processes that map it, or of this process alone.
#[derive(Debug)]
pub(crate) struct MappedMemory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread. The ring above decides which side
// may use which bytes.
unsafe impl Send for MappedMemory {}
// SAFETY: as for Send.
unsafe impl Sync for MappedMemory {}

impl MappedMemory {
    /// Maps the first `bytes` of a file, which has them.
    pub(super) fn of(file: &File, bytes: usize) -> io::Result<Self> {
        Self::part_of(file, (0, bytes))
    }

    /// Maps `bytes` of a file from `offset` on, where it has them. The offset is one of a page.
    pub(crate) fn part_of(file: impl AsFd, (offset, bytes): (i64, usize)) -> io::Result<Self> {
        let length = NonZeroUsize::new(bytes).ok_or_else(|| io::Error::other("an empty file"))?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: this is a new mapping of an open file, at an address that the kernel chooses.
        let start = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file, offset) }?;
        Self::kept_from_children(start, bytes)
    }

    /// Zeroed memory of this process alone. No allocator uses it again after it is dropped, so the
    /// kernel may still write into it for a moment.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Self> {
        let length = NonZeroUsize::new(bytes).ok_or_else(|| io::Error::other("no memory"))?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: this is a new mapping, at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(None, length, protection, MapFlags::MAP_PRIVATE) }?;
        Self::kept_from_children(start, bytes)
    }

    fn kept_from_children(start: NonNull<c_void>, bytes: usize) -> io::Result<Self> {
        // A forked child must not write into rings. It has no other use for them.
        // SAFETY: this is a mapping of that many bytes.
        unsafe { madvise(start, bytes, MmapAdvise::MADV_DONTFORK) }?;
        let start = start.cast();
        Ok(Self { start, bytes })
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Where `bytes` bytes from `at` on begin.
    pub(crate) fn range(&self, at: usize, bytes: usize) -> NonNull<u8> {
        assert!(at + bytes <= self.bytes, "inside the mapping");
        // SAFETY: the bytes lie inside the mapping.
        unsafe { self.start.add(at) }
    }

    /// The address of byte `at`.
    pub(crate) fn at(&self, at: usize) -> NonNull<u8> {
        assert!(at < self.bytes, "inside the mapping");
        // SAFETY: the byte lies inside the mapping.
        unsafe { self.start.add(at) }
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that was made; nothing borrows from it any more.
        let unmapped = unsafe { munmap(self.start.cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping can be unmapped: {unmapped:?}");
    }
}

/// Allocates a range of a file. Touching memory of a file that was not allocated ends the process
/// when the file system is full.
pub(super) fn allocate(file: &File, range: Range<usize>) -> io::Result<()> {
    let number = |bytes: usize| libc::off_t::try_from(bytes).map_err(io::Error::other);
    let (start, length) = (number(range.start)?, number(range.len())?);
    Ok(posix_fallocate(file, start, length)?)
}

/// Makes a named pipe that only this user can open.
pub(super) fn make_pipe(path: &Path) -> io::Result<()> {
    Ok(mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?)
}

/// Room of a file system, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MemoryRoom {
    /// Its size.
    pub size: u64,
    /// Bytes that this process may still fill.
    pub free: u64,
}

/// The room of the file system that holds `path`.
pub(super) fn room(path: &Path) -> io::Result<MemoryRoom> {
    let found = statvfs(path)?;
    Ok(MemoryRoom {
        size: found.blocks() * found.fragment_size(),
        free: found.blocks_available() * found.fragment_size(),
    })
}

/// The effective user of this process.
pub(super) fn user() -> u32 {
    geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_room_is_at_most_the_size() {
        let shared = room(Path::new("/proc")).expect("it is there");
        assert!(shared.free <= shared.size);
        assert!(room(Path::new("/nowhere/at/all")).is_err());
    }
}

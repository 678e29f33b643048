//! This process and its forked children. A child has a copy of all memory, but none of the threads.
//! If it used a rank's keys and counters, two packets would have one nonce; if it kept a descriptor
//! whose end signals a death, its parent would never seem dead.
//!
//! Not here: what a rank does when a child calls it.
#![expect(unsafe_code, reason = "forks are followed by calls of libc")]

use std::num::NonZeroUsize;
use std::os::fd::{IntoRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous};

/// The maximum number of descriptors that are released; of further ones children keep copies.
const RELEASED_MAX: usize = 4096;
/// A place without a descriptor.
const NONE: RawFd = -1;
/// Bytes of the page that the kernel clears in children.
const PAGE: usize = 4096;

/// Distinguishes a process from its forked children: they have another mark.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProcessMark(u32);

impl ProcessMark {
    /// The mark of this process. Costs a load.
    pub fn current() -> Self {
        let Some(word) = MARK.get_or_init(WipedWord::new) else {
            return Self(std::process::id());
        };
        let word = word.get();
        match word.load(Ordering::Relaxed) {
            0 => {
                word.store(std::process::id(), Ordering::Relaxed);
                Self(std::process::id())
            }
            mark => Self(mark),
        }
    }

    /// Whether this is the process that took the mark.
    pub fn is_current(self) -> bool {
        self == Self::current()
    }
}

static MARK: OnceLock<Option<WipedWord>> = OnceLock::new();

/// A word that the kernel sets to zero in a forked child.
struct WipedWord(NonNull<AtomicU32>);

// SAFETY: it points to an atomic that is never unmapped.
unsafe impl Send for WipedWord {}
// SAFETY: as above.
unsafe impl Sync for WipedWord {}

impl WipedWord {
    /// `None` where the kernel (before 4.14) does not clear pages.
    fn new() -> Option<Self> {
        let length = NonZeroUsize::new(PAGE).expect("a page has bytes");
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: this is a new mapping, at an address that the kernel chooses.
        let page = unsafe { mmap_anonymous(None, length, protection, MapFlags::MAP_PRIVATE) };
        let page = page.ok()?;
        // SAFETY: the page was mapped above, and holds no value yet.
        let wiped = unsafe { madvise(page, PAGE, MmapAdvise::MADV_WIPEONFORK) };
        wiped.ok().map(|()| Self(page.cast()))
    }

    fn get(&self) -> &AtomicU32 {
        // SAFETY: the page is mapped for good, zeroed, and used as this atomic only.
        unsafe { self.0.as_ref() }
    }
}

/// A descriptor that forked children let go of. Drop this before the descriptor is closed.
#[derive(Debug)]
pub(crate) struct ReleasedInChildren(Option<&'static AtomicI32>);

static RELEASED: [AtomicI32; RELEASED_MAX] = [const { AtomicI32::new(NONE) }; RELEASED_MAX];
static REGISTERED: OnceLock<()> = OnceLock::new();
/// Takes the place of released descriptors, so that their numbers are not used again.
static NOTHING: AtomicI32 = AtomicI32::new(NONE);

impl ReleasedInChildren {
    pub(crate) fn new(descriptor: RawFd) -> Self {
        REGISTERED.get_or_init(register);
        let take = |place: &&AtomicI32| {
            let taken =
                place.compare_exchange(NONE, descriptor, Ordering::SeqCst, Ordering::SeqCst);
            taken.is_ok()
        };
        Self(RELEASED.iter().find(take))
    }
}

impl Drop for ReleasedInChildren {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(NONE, Ordering::SeqCst);
        }
    }
}

fn register() {
    if let Ok(nothing) = std::fs::File::open("/dev/null") {
        NOTHING.store(nothing.into_raw_fd(), Ordering::SeqCst);
        // SAFETY: the function only loads atomics and exchanges descriptors, which a child may do.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(release)) };
    }
}

/// Runs in a new child.
extern "C" fn release() {
    let nothing = NOTHING.load(Ordering::SeqCst);
    for place in &RELEASED {
        let descriptor = place.swap(NONE, Ordering::SeqCst);
        if descriptor != NONE {
            // SAFETY: both are descriptors of this child; no memory depends on them.
            unsafe { libc::dup3(nothing, descriptor, libc::O_CLOEXEC) };
        }
    }
}

//! Pages that an RDMA device may read and write, and that packet slots point into.
#![expect(unsafe_code, reason = "pages are allocated and pointed into by hand")]

use std::alloc::{self, Layout};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

const PAGE: usize = 4096;

/// Zeroed pages, freed when the last holder drops them.
pub(crate) struct DmaRegion {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a region only has the address of memory; leases, and the rings that hold it, decide who
// may touch which part.
unsafe impl Send for DmaRegion {}
// SAFETY: as above.
unsafe impl Sync for DmaRegion {}

impl DmaRegion {
    /// `bytes` bytes, rounded up to pages.
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        let layout = Layout::from_size_align(bytes, PAGE).expect("rings are far below isize::MAX");
        // SAFETY: the layout has a size.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| alloc::handle_alloc_error(layout));
        Arc::new(Self { start, layout })
    }

    /// Where `bytes` bytes from `at` on begin.
    pub(crate) fn place(&self, at: usize, bytes: usize) -> NonNull<u8> {
        assert!(at + bytes <= self.layout.size(), "within the region");
        // SAFETY: within the region.
        unsafe { self.start.add(at) }
    }

    /// How many bytes it has: whole pages.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for DmaRegion {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl fmt::Debug for DmaRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region of {} bytes", self.bytes())
    }
}

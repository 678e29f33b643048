//! The buffers that hold received packets while the driver reads them.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::dma_region::DmaRegion;
use crate::message::SLOT_BYTES;

/// A buffer with packets in it: the reader's own, or part of the memory that an RDMA device writes
/// into. A receive call exchanges the slot for another one, so no byte is copied.
pub enum PacketSlot {
    /// The reader's own buffer of [`SLOT_BYTES`] bytes.
    Own(Vec<u8>),
    /// A buffer of a receive ring, lent until it is exchanged.
    Lent(SlotLease),
}

/// One place of a receive ring, lent while the device does not write into it.
#[derive(Debug)]
pub struct SlotLease {
    /// The number of the place.
    pub(crate) index: u32,
    start: NonNull<u8>,
    bytes: usize,
    /// Keeps the memory alive as long as the lease.
    _region: Arc<DmaRegion>,
}

#[expect(
    unsafe_code,
    reason = "a lease is a pointer that no other lease shares"
)]
mod lending {
    use super::{Arc, Deref, DerefMut, DmaRegion, PacketSlot, SlotLease, slice};

    // SAFETY: a lease is the only way to its bytes, wherever it goes.
    unsafe impl Send for SlotLease {}

    impl SlotLease {
        /// Place `index` of a region that consists of places of `bytes` bytes.
        ///
        /// # Safety
        /// A place has at most one lease, and the device writes into it only while the holder of
        /// the lease does not read it.
        pub(crate) unsafe fn new(region: &Arc<DmaRegion>, index: u32, bytes: usize) -> Self {
            Self {
                index,
                start: region.place(index as usize * bytes, bytes),
                bytes,
                _region: Arc::clone(region),
            }
        }

        /// The address of its first byte.
        pub(crate) fn address(&self) -> u64 {
            self.start.as_ptr() as u64
        }

        /// Its length in bytes.
        pub(crate) fn len(&self) -> usize {
            self.bytes
        }
    }

    impl Deref for PacketSlot {
        type Target = [u8];
        fn deref(&self) -> &[u8] {
            match self {
                Self::Own(bytes) => bytes,
                // SAFETY: the bytes lie in a region that lives, and this lease alone leads there.
                Self::Lent(lease) => unsafe {
                    slice::from_raw_parts(lease.start.as_ptr(), lease.bytes)
                },
            }
        }
    }

    impl DerefMut for PacketSlot {
        fn deref_mut(&mut self) -> &mut [u8] {
            match self {
                Self::Own(bytes) => bytes,
                // SAFETY: as above, and this lease is borrowed for as long.
                Self::Lent(lease) => unsafe {
                    slice::from_raw_parts_mut(lease.start.as_ptr(), lease.bytes)
                },
            }
        }
    }
}

impl PacketSlot {
    /// A slot with a buffer of the reader's own.
    pub fn new() -> Self {
        Self::Own(vec![0; SLOT_BYTES])
    }

    /// The reader's own buffer. A slot with a lent buffer gets a new one of its own.
    pub(crate) fn own(&mut self) -> &mut Vec<u8> {
        if matches!(self, Self::Lent(_)) {
            *self = Self::new();
        }
        match self {
            Self::Own(bytes) => bytes,
            Self::Lent(_) => unreachable!("replaced above"),
        }
    }
}

impl Default for PacketSlot {
    /// An empty slot, the placeholder while the real one is in use elsewhere.
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl fmt::Debug for PacketSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot of {} bytes", self.len())
    }
}

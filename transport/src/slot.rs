//! Where packets lie while they are looked at.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::rdma::DmaRegion;
use crate::udp::SLOT_BYTES;

/// Memory with packets in it: a reader's own, or a part of what an RDMA device writes into. Whoever
/// receives gives the slot of before and gets another; so no byte is copied.
pub enum PacketSlot {
    /// [`SLOT_BYTES`] bytes.
    Own(Vec<u8>),
    /// Lent by a receive ring, until it is exchanged.
    Lent(SlotLease),
}

/// One place of a receive ring, while the device does not write into it.
#[derive(Debug)]
pub struct SlotLease {
    /// Which place it is.
    pub(crate) index: u32,
    start: NonNull<u8>,
    bytes: usize,
    /// The memory lives as long as anything that points into it.
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
        /// There is one lease of a place at most, and the device writes into it only while its
        /// holder does not look.
        pub(crate) unsafe fn new(region: &Arc<DmaRegion>, index: u32, bytes: usize) -> Self {
            Self {
                index,
                start: region.place(index as usize * bytes, bytes),
                bytes,
                _region: Arc::clone(region),
            }
        }

        /// Where it begins.
        pub(crate) fn address(&self) -> u64 {
            self.start.as_ptr() as u64
        }

        /// How many bytes it has.
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
    /// A slot of the reader's own.
    pub fn new() -> Self {
        Self::Own(vec![0; SLOT_BYTES])
    }

    /// The slot as a reader's own.
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
    /// A slot of no bytes, which stands in for one that is lent.
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl fmt::Debug for PacketSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot of {} bytes", self.len())
    }
}

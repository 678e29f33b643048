//! The slots that the kernel fills: a ring of buffers that the kernel and this process share.
#![expect(
    unsafe_code,
    reason = "the kernel reads the ring and writes the buffers"
)]

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

use crate::udp::SLOT_BYTES;

/// The number of slots, a power of two. Together they should fit into a core's L2 cache, since the
/// kernel fills them in turn.
pub(super) const SLOTS: u16 = 16;
/// The number by which receives name the ring of slots.
pub(super) const GROUP: u16 = 0;

/// Slots by number. Each is with the kernel, or full and not yet taken.
#[derive(Debug)]
pub(super) struct UringSlots {
    entries: Box<SlotEntries>,
    bytes: Vec<Vec<u8>>,
    tail: u16,
}

/// The entries that the kernel reads; they must start at a page.
#[repr(C, align(4096))]
struct SlotEntries([BufRingEntry; SLOTS as usize]);

impl std::fmt::Debug for SlotEntries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entries")
    }
}

impl UringSlots {
    pub(super) fn new() -> Self {
        // SAFETY: an entry is three numbers, of which zero is valid.
        let entries = unsafe { Box::<SlotEntries>::new_zeroed().assume_init() };
        let mut slots = Self {
            entries,
            bytes: vec![vec![0; SLOT_BYTES]; usize::from(SLOTS)],
            tail: 0,
        };
        for slot in 0..SLOTS {
            slots.give_back(slot);
        }
        slots
    }

    /// Registers the slots with the kernel. They must live as long as its ring.
    pub(super) fn register(&self, submitter: &Submitter<'_>) -> io::Result<()> {
        let address = (&raw const *self.entries) as u64;
        // SAFETY: the entries stay where they are, in a box, until the ring is closed: this struct
        // is dropped after it. They are as many as said.
        unsafe { submitter.register_buf_ring_with_flags(address, SLOTS, GROUP, 0) }
    }

    /// Exchanges the bytes of a full slot for `bytes`, which the kernel fills next.
    pub(super) fn exchange(&mut self, slot: u16, bytes: &mut Vec<u8>) {
        std::mem::swap(&mut self.bytes[usize::from(slot)], bytes);
        self.give_back(slot);
    }

    /// Lets the kernel fill a slot.
    pub(super) fn give_back(&mut self, slot: u16) {
        let bytes = &mut self.bytes[usize::from(slot)];
        let entry = &mut self.entries.0[usize::from(self.tail % SLOTS)];
        entry.set_addr(bytes.as_mut_ptr() as u64);
        entry.set_len(bytes.len() as u32);
        entry.set_bid(slot);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail lies in the first entry, two aligned bytes that only this process
        // writes; storing it last hands over the entry written above.
        let tail = unsafe { &*BufRingEntry::tail(self.entries.0.as_ptr()).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}

//! The rings of an AF_XDP socket, which a process and the kernel share: one of them writes entries,
//! the other reads them, in order.
//!
//! Both count without end, modulo 2^32. An entry lies at its count modulo the ring's size.
#![expect(unsafe_code, reason = "rings are memory that the kernel shares")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::shm::MappedMemory;

/// Where the kernel has placed a ring.
#[derive(Clone, Copy)]
pub(super) struct RingPlace {
    /// What to map of the socket.
    pub(super) page: i64,
    pub(super) offsets: libc::xdp_ring_offset,
    /// A power of two.
    pub(super) entries: u32,
}

/// The memory of a ring with entries of type `E`.
#[derive(Debug)]
struct SharedRing<E> {
    mapping: MappedMemory,
    producer_at: usize,
    consumer_at: usize,
    flags_at: usize,
    entries_at: usize,
    mask: u32,
    entries: PhantomData<E>,
}

/// A ring whose entries this process writes.
#[derive(Debug)]
pub(super) struct RingProducer<E> {
    ring: SharedRing<E>,
    /// How many entries it has written so far.
    written: u32,
    /// How many the kernel had read when that was last looked at.
    read: u32,
}

/// A ring whose entries this process reads.
#[derive(Debug)]
pub(super) struct RingConsumer<E> {
    ring: SharedRing<E>,
    /// How many entries it has read so far.
    read: u32,
}

impl<E: Copy> SharedRing<E> {
    fn map(socket: BorrowedFd<'_>, place: RingPlace) -> io::Result<Self> {
        let offsets = place.offsets;
        let entries_at = offsets.desc as usize;
        let bytes = entries_at + place.entries as usize * size_of::<E>();
        Ok(Self {
            mapping: MappedMemory::part_of(socket, (place.page, bytes))?,
            producer_at: offsets.producer as usize,
            consumer_at: offsets.consumer as usize,
            flags_at: offsets.flags as usize,
            entries_at,
            mask: place.entries - 1,
            entries: PhantomData,
        })
    }

    fn number(&self, at: usize) -> &AtomicU32 {
        // SAFETY: the kernel has placed an aligned number there, which is changed atomically only.
        unsafe { AtomicU32::from_ptr(self.mapping.at(at).as_ptr().cast()) }
    }

    /// The entry with this count.
    fn entry(&self, count: u32) -> *mut E {
        let at = self.entries_at + (count & self.mask) as usize * size_of::<E>();
        self.mapping.at(at).as_ptr().cast()
    }
}

impl<E: Copy> RingProducer<E> {
    pub(super) fn map(socket: BorrowedFd<'_>, place: RingPlace) -> io::Result<Self> {
        Ok(Self {
            ring: SharedRing::map(socket, place)?,
            written: 0,
            read: 0,
        })
    }

    /// How many more entries have room.
    pub(super) fn room(&mut self) -> u32 {
        self.read = self
            .ring
            .number(self.ring.consumer_at)
            .load(Ordering::Acquire);
        self.ring.mask + 1 - self.written.wrapping_sub(self.read)
    }

    /// Writes an entry. The kernel sees it after [`RingProducer::publish`].
    ///
    /// # Panics
    /// When there is no room.
    pub(super) fn write(&mut self, entry: E) {
        let seems_full = self.written.wrapping_sub(self.read) > self.ring.mask;
        assert!(!seems_full || self.room() > 0, "a place is free");
        // SAFETY: the place is in the mapping, and belongs to this process until it is published.
        unsafe { self.ring.entry(self.written).write(entry) };
        self.written = self.written.wrapping_add(1);
    }

    /// Shows the kernel all entries.
    pub(super) fn publish(&mut self) {
        let shown = self.ring.number(self.ring.producer_at);
        shown.store(self.written, Ordering::Release);
    }

    /// Whether the kernel has not read all entries yet.
    pub(super) fn is_pending(&self) -> bool {
        let read = self.ring.number(self.ring.consumer_at);
        read.load(Ordering::Acquire) != self.written
    }

    /// Whether the kernel reads on only after a system call.
    pub(super) fn needs_wakeup(&self) -> bool {
        // The kernel sets the flag, and then looks once more for entries. So here the flag is read
        // after the entries are shown.
        fence(Ordering::SeqCst);
        let flags = self.ring.number(self.ring.flags_at).load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<E: Copy> RingConsumer<E> {
    pub(super) fn map(socket: BorrowedFd<'_>, place: RingPlace) -> io::Result<Self> {
        Ok(Self {
            ring: SharedRing::map(socket, place)?,
            read: 0,
        })
    }

    /// Whether there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.ring
            .number(self.ring.producer_at)
            .load(Ordering::Acquire)
            == self.read
    }

    /// The next entry, which stays.
    pub(super) fn peek(&self) -> Option<E> {
        // SAFETY: the kernel has written and shown this entry, and writes the place again only
        // after it is given back.
        (!self.is_empty()).then(|| unsafe { self.ring.entry(self.read).read() })
    }

    /// Takes the next entry. The kernel may use its place after [`RingConsumer::give_back`].
    pub(super) fn take(&mut self) -> Option<E> {
        let entry = self.peek()?;
        self.read = self.read.wrapping_add(1);
        Some(entry)
    }

    /// Gives the places of all taken entries back to the kernel.
    pub(super) fn give_back(&mut self) {
        let shown = self.ring.number(self.ring.consumer_at);
        shown.store(self.read, Ordering::Release);
    }
}

//! A ring of packets in shared memory, with one writer and one reader.
//!
//! ```text
//!   0    head      u64, bytes ever written; the writer's
//!   64   tail      u64, bytes ever read; the reader's
//!   128  records   each a header and a payload, filled up to whole cache lines
//! ```
//!
//! - A record never wraps. If the next record does not fit before the end of the ring, the rest is
//!   a gap. Its first byte is [`GAP`], where a packet has its version.
//! - Counts only grow. A record starts at its count modulo the ring's length, a power of two.
//! - Only the first [`RESERVED`] bytes of records exist at first. The writer goes back to the start
//!   if the reader has emptied the ring by then; else it allocates more, up to the whole ring.
#![expect(
    unsafe_code,
    reason = "the other side of this memory is another process"
)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gradwire_protocol::machine::{Payload, Transmit};
use gradwire_protocol::wire::{HEADER_BYTES, Header, LENGTH_AT};

use super::memory::{self, MappedMemory};

/// Head and tail, a cache line each.
pub(super) const CONTROL_BYTES: usize = 128;
const LINE: usize = 64;
/// Marks a gap: the byte where a packet has its version.
const GAP: u8 = 0xff;

/// Bytes of records that exist from the start, several packets.
pub(super) const RESERVED: usize = 64 << 10;

/// Allocates the part of a ring that exists from the start.
pub(super) fn reserve(file: &File, start: usize) -> io::Result<()> {
    memory::allocate(file, start..start + CONTROL_BYTES + RESERVED)
}

/// The file of a ring, for a writer that needs more of it.
#[derive(Debug)]
pub(super) struct RingFile {
    pub(super) file: File,
    /// Bytes that rings leave free in the file system.
    pub(super) spared: u64,
}

impl RingFile {
    /// Allocates a range, unless that takes memory that others may need.
    fn allocate(&self, range: Range<usize>) -> io::Result<()> {
        let room = super::room()?;
        match room.free < self.spared + range.len() as u64 {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => memory::allocate(&self.file, range),
        }
    }
}

/// The memory of a ring.
#[derive(Debug)]
struct RingMemory {
    mapping: Arc<MappedMemory>,
    start: usize,
    bytes: usize,
}

impl RingMemory {
    fn new(mapping: Arc<MappedMemory>, start: usize, bytes: usize) -> Self {
        assert!(
            bytes.is_power_of_two(),
            "counts are taken modulo the length"
        );
        assert_eq!(start % LINE, 0, "rings start at cache lines");
        Self {
            mapping,
            start,
            bytes,
        }
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        let address = self.mapping.at(self.start + at).cast::<AtomicU64>();
        // SAFETY: these are eight aligned bytes of the mapping, which both sides use only as an
        // atomic.
        unsafe { address.as_ref() }
    }

    fn head(&self) -> &AtomicU64 {
        self.counter(0)
    }

    fn tail(&self) -> &AtomicU64 {
        self.counter(LINE)
    }

    fn record(&self, count: u64) -> NonNull<u8> {
        let offset = count as usize & (self.bytes - 1);
        self.mapping.at(self.start + CONTROL_BYTES + offset)
    }

    /// Bytes from `count` to the end of the ring.
    fn to_the_end(&self, count: u64) -> usize {
        self.bytes - (count as usize & (self.bytes - 1))
    }
}

fn record_bytes(packet_bytes: usize) -> usize {
    packet_bytes.next_multiple_of(LINE)
}

/// The writing side of a ring.
#[derive(Debug)]
pub(super) struct RingWriter {
    place: RingMemory,
    /// `None` once the system has refused more memory.
    file: Option<RingFile>,
    /// Bytes of records that exist.
    reserved: usize,
    /// Whether the ring has ever been full.
    has_lagged: bool,
    head: u64,
    /// The reader's count when it was last looked at.
    tail: u64,
}

impl RingWriter {
    /// The writing side of the ring at `start` of `file`.
    pub(super) fn new(
        mapping: Arc<MappedMemory>,
        file: RingFile,
        start: usize,
        bytes: usize,
    ) -> Self {
        Self {
            place: RingMemory::new(mapping, start, bytes),
            file: Some(file),
            reserved: RESERVED.min(bytes),
            has_lagged: false,
            head: 0,
            tail: 0,
        }
    }

    /// Writes a packet of a run. Returns whether there was room.
    pub(super) fn write(&mut self, transmit: &Transmit<'_>, index: usize) -> bool {
        let header = transmit.header(index);
        let bytes = record_bytes(header.packet_bytes().as_usize());
        let Some(gap) = self.gap_before(bytes) else {
            return false;
        };
        if gap > 0 {
            // SAFETY: the byte lies in the ring and is free: `gap_before` has seen that.
            unsafe { self.place.record(self.head).write(GAP) };
        }
        let start = self.place.record(self.head + gap as u64);
        // SAFETY: the record lies within the ring, and is free: the reader does not touch bytes
        // from the head on, and there is no other writer.
        let record = unsafe { slice::from_raw_parts_mut(start.as_ptr(), bytes) };
        header.encode(record);
        if let Payload::Bytes(payload) = transmit.payload(&header) {
            record[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
        }
        self.head += (gap + bytes) as u64;
        self.place.head().store(self.head, Ordering::Release);
        true
    }

    /// Bytes to skip so that a record does not wrap; `None` if there is no room for it.
    fn gap_before(&mut self, bytes: usize) -> Option<usize> {
        let left = self.place.to_the_end(self.head);
        let offset = self.place.bytes - left;
        let fits = offset + bytes <= self.usable() || self.goes_further(offset + bytes);
        let gap = if fits { 0 } else { left };
        let is_free = self.is_free(gap + bytes);
        self.has_lagged |= !is_free;
        is_free.then_some(gap)
    }

    /// Whether the ring grows until it has records up to `end`. It goes back to the start instead
    /// while it is emptied in time. Then the skipped rest counts as used until the reader has
    /// passed it, so this would be a short ring for a reader that lags behind.
    fn goes_further(&mut self, end: usize) -> bool {
        let may_grow = end <= self.place.bytes && (self.has_lagged || !self.is_empty());
        while may_grow && end > self.usable() {
            if self.grow().is_none() {
                return false;
            }
        }
        may_grow
    }

    fn is_empty(&mut self) -> bool {
        self.tail = self.place.tail().load(Ordering::Acquire);
        self.tail == self.head
    }

    /// The end of the bytes that records may take. A line is left for the mark of a gap.
    fn usable(&self) -> usize {
        match self.reserved < self.place.bytes {
            true => self.reserved - LINE,
            false => self.reserved,
        }
    }

    /// Whether the reader has left this many bytes free from the head on.
    fn is_free(&mut self, bytes: usize) -> bool {
        let (end, ring) = (self.head + bytes as u64, self.place.bytes as u64);
        if end - self.tail > ring {
            self.tail = self.place.tail().load(Ordering::Acquire);
        }
        end - self.tail <= ring
    }

    /// Doubles the part of the ring that exists; `None` if the system has no more memory for it.
    #[cold]
    fn grow(&mut self) -> Option<()> {
        let more = self.reserved..(2 * self.reserved).min(self.place.bytes);
        let first = self.place.start + CONTROL_BYTES;
        let grown = first + more.start..first + more.end;
        if self.file.as_ref()?.allocate(grown).is_err() {
            self.file = None;
        }
        self.file.is_some().then(|| self.reserved = more.end)
    }
}

/// A packet as it lies in the ring.
#[derive(Clone, Copy, Debug)]
pub struct RingPacket<'a> {
    /// Its header.
    pub header: Header,
    /// The bytes after the header.
    pub payload: &'a [u8],
}

/// The reading side of a ring.
#[derive(Debug)]
pub(super) struct RingReader {
    place: RingMemory,
    tail: u64,
    /// The writer's count when it was last looked at.
    head: u64,
    /// Bytes of the record that was peeked at.
    peeked: usize,
}

impl RingReader {
    pub(super) fn new(mapping: Arc<MappedMemory>, start: usize, bytes: usize) -> Self {
        Self {
            place: RingMemory::new(mapping, start, bytes),
            tail: 0,
            head: 0,
            peeked: 0,
        }
    }

    /// The oldest packet. An invalid record blocks the ring, as if its writer had stopped there.
    pub(super) fn peek(&mut self) -> Option<RingPacket<'_>> {
        if self.tail == self.head {
            self.head = self.place.head().load(Ordering::Acquire);
        }
        // SAFETY: the byte lies in the ring, and the head says that the writer has published it.
        if self.tail < self.head && unsafe { self.place.record(self.tail).read() } == GAP {
            self.tail += self.place.to_the_end(self.tail) as u64;
            self.place.tail().store(self.tail, Ordering::Release);
        }
        let there = self.head.saturating_sub(self.tail) as usize;
        let most = there.min(self.place.to_the_end(self.tail));
        if most < HEADER_BYTES {
            return None;
        }
        let start = self.place.record(self.tail);
        // SAFETY: these bytes lie in the ring and were published; the writer does not touch them
        // until the tail has passed them, which needs `&mut self`.
        let record = unsafe { slice::from_raw_parts(start.as_ptr(), most) };
        let length = usize::from(u16::from_le_bytes([
            record[LENGTH_AT],
            record[LENGTH_AT + 1],
        ]));
        let packet = record.get(..HEADER_BYTES + length)?;
        let (header, payload) = Header::decode(packet).ok()?;
        self.peeked = record_bytes(packet.len());
        Some(RingPacket { header, payload })
    }

    /// Frees the packet that was peeked at: the writer may reuse its room.
    pub(super) fn release(&mut self) {
        self.tail += std::mem::take(&mut self.peeked) as u64;
        self.place.tail().store(self.tail, Ordering::Release);
    }
}

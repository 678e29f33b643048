//! The receive ring: buffers that the device fills in order, shared by all queue pairs of a rank.
//!
//! - A full buffer is lent to the reader, who opens the packet in place. Buffers go back to the
//!   device in batches.
//! - The ring is exhausted when all posted buffers are full. Packets that arrive then are dropped
//!   by this host, not by the network, and count as such.
#![expect(unsafe_code, reason = "requests are linked lists of C structures")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::abi::{
    CompletionChannel, Cq, HEADER_ROOM, ReceiveWork, ScatterEntry, Srq, SrqOptions, WITH_HEADER,
    WorkCompletion,
};
use super::device::{RdmaDevice, checked, nothing};
use super::error::RdmaError;
use super::header;
use super::memory::RegisteredRegion;
use super::verbs_object::VerbsObject;
use crate::address::QueuePair;
use crate::slot::{PacketSlot, SlotLease};

/// Bytes of the ring: half a millisecond of 100 Gb/s. With the send buffers of eight paths, a rank
/// locks 10 MiB of memory, more than the 8 MiB that systemd lets users lock by default.
const RING_BYTES: usize = 6 << 20;
/// The minimum and the maximum number of buffers of a ring.
const PLACES_MIN: usize = 256;
const PLACES_MAX: usize = 8192;
/// Buffers that are posted at a time, with one doorbell.
const REFILL: usize = 32;
/// The maximum number of completions of one poll.
const POLLED: usize = 64;

/// The receive ring of a rank.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    srq: VerbsObject<Srq>,
    cq: VerbsObject<Cq>,
    channel: VerbsObject<CompletionChannel>,
    memory: RegisteredRegion,
    /// Buffers by index; `None` while lent to the reader.
    places: Vec<Option<SlotLease>>,
    /// The buffers that the device gets next.
    empty: Vec<u32>,
    with_device: usize,
    ended: Vec<WorkCompletion>,
    next: usize,
    pub(super) tally: ReceiveRingCounters,
}

/// Counts of the ring.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct ReceiveRingCounters {
    /// Batches posted.
    pub(super) doorbells: u64,
    /// Times that the ring was found exhausted.
    pub(super) dry: u64,
}

/// A datagram in a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct RdmaArrival {
    pub(super) bytes: usize,
    pub(super) traffic_class: u8,
    pub(super) from: QueuePair,
}

impl ReceiveRing {
    pub(super) fn new(device: &RdmaDevice) -> Result<Self, RdmaError> {
        let stride = (HEADER_ROOM + device.place.mtu as usize).next_multiple_of(64);
        let possible = device.limits.shared_depth.max(1) as usize;
        let possible = possible.min(device.limits.completions.max(1) as usize);
        let count = (RING_BYTES / stride).clamp(PLACES_MIN, PLACES_MAX);
        let count = count.min(possible);
        let memory = RegisteredRegion::new(device, count * stride)?;
        let channel = channel(device)?;
        let cq = completion_queue(device, count, &channel)?;
        let mut wish = SrqOptions {
            owner: nothing(),
            depth: count as u32,
            parts: 1,
            limit: 0,
        };
        // SAFETY: the domain lives, and the wish until the call returns.
        let srq = unsafe {
            let raw = (device.library.make_srq)(device.domain(), &raw mut wish);
            VerbsObject::new(raw, device.library.end_srq)
        };
        let srq = srq.map_err(|source| device.failed("making a shared receive queue", source))?;
        // SAFETY: one lease for each place; the device gets a place only with its lease at rest.
        let lease = |index| unsafe { SlotLease::new(&memory.region, index, stride) };
        let mut receiving = Self {
            places: (0..count as u32).map(|index| Some(lease(index))).collect(),
            srq,
            cq,
            channel,
            memory,
            empty: (0..count as u32).rev().collect(),
            with_device: 0,
            ended: Vec::with_capacity(count),
            next: 0,
            tally: ReceiveRingCounters::default(),
        };
        while !receiving.empty.is_empty() {
            receiving.refill(device)?;
        }
        Ok(receiving)
    }

    /// The number of buffers.
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    /// The queues with which a queue pair receives into this ring.
    pub(super) fn queues(&self) -> (*mut Cq, *mut Srq) {
        (self.cq.raw(), self.srq.raw())
    }

    /// Whether packets have arrived. Costs no system call.
    pub(super) fn look(&mut self, device: &RdmaDevice) -> Result<bool, RdmaError> {
        if self.next < self.ended.len() {
            return Ok(true);
        }
        self.ended.clear();
        self.next = 0;
        if self.empty.len() >= REFILL {
            self.refill(device)?;
        }
        loop {
            let polled = poll(&self.cq, &mut self.ended, POLLED);
            let polled = polled.map_err(|source| gone(device, "its receive queue", &source))?;
            self.with_device = self.with_device.saturating_sub(polled);
            if polled < POLLED {
                break;
            }
        }
        if self.with_device == 0 {
            self.tally.dry += 1;
        }
        Ok(!self.ended.is_empty())
    }

    /// Puts the oldest datagram into `slot`. The device gets the former buffer of the slot.
    pub(super) fn take(
        &mut self,
        device: &RdmaDevice,
        slot: &mut PacketSlot,
    ) -> Result<Option<RdmaArrival>, RdmaError> {
        let Some(&ended) = self.ended.get(self.next) else {
            return Ok(None);
        };
        self.next += 1;
        let index = ended.id as u32;
        let lease = self.places[index as usize].take();
        let lease = lease.expect("a place with the device is not lent");
        if let PacketSlot::Lent(before) = std::mem::replace(slot, PacketSlot::Lent(lease)) {
            self.empty.push(before.index);
            let place = before.index as usize;
            self.places[place] = Some(before);
        }
        if self.empty.len() >= REFILL {
            self.refill(device)?;
        }
        if ended.status != 0 {
            return Err(failed(device, "receive", &ended));
        }
        let bytes = (ended.bytes as usize).checked_sub(HEADER_ROOM);
        let bytes = bytes.filter(|_| ended.flags & WITH_HEADER != 0);
        let header = slot[..HEADER_ROOM]
            .first_chunk()
            .and_then(|raw| header::read(raw, device.place.gid));
        // Without a header the sender is unknown: an empty packet, which the caller counts.
        let (bytes, header) = bytes.zip(header).unwrap_or_default();
        Ok(Some(RdmaArrival {
            bytes,
            traffic_class: header.traffic_class,
            from: QueuePair {
                gid: header.source,
                number: ended.source,
                key: 0,
                lid: ended.source_lid,
            },
        }))
    }

    /// Wakes the sleeper when the next datagram arrives. Earlier datagrams do not.
    pub(super) fn arm(&self, device: &RdmaDevice) -> Result<(), RdmaError> {
        arm(&self.cq).map_err(|source| gone(device, "asking to be woken", &source))
    }

    /// Reads the pending notices.
    pub(super) fn drain(&self, device: &RdmaDevice) {
        drain(device, &self.channel);
    }

    /// The descriptor that is readable when a notice has arrived.
    pub(super) fn descriptor(&self) -> RawFd {
        descriptor(&self.channel)
    }

    /// Posts empty buffers to the device, in one list.
    fn refill(&mut self, device: &RdmaDevice) -> Result<(), RdmaError> {
        let count = self.empty.len().min(REFILL);
        let key = self.memory.key();
        let mut parts = [ScatterEntry::NONE; REFILL];
        let mut requests = [ReceiveWork::EMPTY; REFILL];
        let taken = self.empty.len() - count;
        for (at, &index) in self.empty[taken..].iter().enumerate() {
            let place = self.places[index as usize].as_ref();
            let place = place.expect("an empty place is at rest");
            parts[at] = ScatterEntry {
                address: place.address(),
                length: place.len() as u32,
                key,
            };
            requests[at].id = u64::from(index);
        }
        link(&mut requests[..count], &mut parts);
        let mut failed: *mut ReceiveWork = nothing();
        // SAFETY: the list ends after `count` requests, and all of it lives until the call returns.
        // The buffers belong to this ring, which holds their leases and reads them only when they
        // are full.
        let code = unsafe {
            let srq = self.srq.raw();
            ((*(*srq).device).post_shared)(srq, requests.as_mut_ptr(), &raw mut failed)
        };
        checked(code).map_err(|source| gone(device, "posting receives", &source))?;
        self.empty.truncate(taken);
        self.with_device += count;
        self.tally.doorbells += 1;
        Ok(())
    }
}

fn link(requests: &mut [ReceiveWork], parts: &mut [ScatterEntry]) {
    let mut next = nothing();
    for (request, part) in requests.iter_mut().zip(parts).rev() {
        request.parts = part;
        request.next = next;
        next = request;
    }
}

/// Makes a channel for notices, whose reads return at once.
pub(super) fn channel(device: &RdmaDevice) -> Result<VerbsObject<CompletionChannel>, RdmaError> {
    // SAFETY: the device is open, and the new object is ours.
    let channel = unsafe {
        let raw = (device.library.make_channel)(device.raw());
        VerbsObject::new(raw, device.library.end_channel)
    };
    let channel = channel.map_err(|source| device.failed("making a completion channel", source))?;
    unblocked(descriptor(&channel))
        .map_err(|source| device.failed("changing a completion channel", source))?;
    Ok(channel)
}

/// Makes reads of a descriptor return at once.
pub(super) fn unblocked(fd: RawFd) -> io::Result<()> {
    // SAFETY: the descriptor is open, since the library's object that owns it lives.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Makes a queue for `count` completions.
pub(super) fn completion_queue(
    device: &RdmaDevice,
    count: usize,
    channel: &VerbsObject<CompletionChannel>,
) -> Result<VerbsObject<Cq>, RdmaError> {
    // SAFETY: the device is open, the channel is dropped after the queue, and the new object is
    // ours.
    let cq = unsafe {
        let count = count as c_int;
        let raw = (device.library.make_cq)(device.raw(), count, nothing(), channel.raw(), 0);
        VerbsObject::new(raw, device.library.end_cq)
    };
    cq.map_err(|source| device.failed("making a completion queue", source))
}

/// Appends at most `most` completions; returns how many.
pub(super) fn poll(
    cq: &VerbsObject<Cq>,
    into: &mut Vec<WorkCompletion>,
    most: usize,
) -> io::Result<usize> {
    into.reserve(most);
    let (raw, out) = (cq.raw(), into.spare_capacity_mut().as_mut_ptr());
    // SAFETY: the queue lives, and there is room for `most`.
    let polled = unsafe { ((*(*raw).device).poll_cq)(raw, most as c_int, out.cast()) };
    let count = usize::try_from(polled).map(|count| count.min(most));
    let count = count.map_err(|_| io::Error::other(format!("polling gave {polled}")))?;
    // SAFETY: this many were written.
    unsafe { into.set_len(into.len() + count) };
    Ok(count)
}

/// Asks for a notice of the next completion.
pub(super) fn arm(cq: &VerbsObject<Cq>) -> io::Result<()> {
    let raw = cq.raw();
    // SAFETY: the queue lives.
    checked(unsafe { ((*(*raw).device).request_notify)(raw, 0) })
}

/// Reads the notices of a channel.
pub(super) fn drain(device: &RdmaDevice, channel: &VerbsObject<CompletionChannel>) {
    let (mut cq, mut owner) = (nothing(), nothing());
    // SAFETY: both are written when a notice has arrived; the channel does not block.
    while unsafe { (device.library.next_notice)(channel.raw(), &raw mut cq, &raw mut owner) } == 0 {
        // SAFETY: the queue that the notice names lives until its notices are acknowledged.
        unsafe { (device.library.end_notices)(cq, 1) };
    }
}

/// The descriptor that is readable when a channel has a notice.
pub(super) fn descriptor(channel: &VerbsObject<CompletionChannel>) -> RawFd {
    // SAFETY: the channel lives, and its descriptor does not change.
    unsafe { (*channel.raw()).fd }
}

/// The error of a device that no longer works.
pub(super) fn gone(device: &RdmaDevice, what: &str, source: &io::Error) -> RdmaError {
    RdmaError::DeviceGone {
        device: device.name.clone(),
        sign: format!("{what}: {source}"),
    }
}

/// The error of a request that ended badly.
pub(super) fn failed(device: &RdmaDevice, what: &'static str, ended: &WorkCompletion) -> RdmaError {
    RdmaError::Failed {
        device: device.name.clone(),
        what,
        status: ended.status,
        vendor: ended.vendor_error,
    }
}

//! The send side: one queue pair per path, a ring of buffers for each, and address handles.
//!
//! - Packets are sealed directly into buffers that the device reads.
//! - A run is posted as one linked list, with one doorbell.
//! - Only every [`SIGNAL_EVERY`]th packet asks for a completion, which covers all packets before it
//!   on the same queue pair.
//! - Short packets travel inside the request.
#![expect(unsafe_code, reason = "requests are linked lists of C structures")]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::net::Ipv6Addr;
use std::ops::Range;
use std::os::fd::RawFd;

use gradwire_protocol::machine::Transmit;
use gradwire_protocol::units::Entropy;

use super::abi::{
    AddressHandle, AddressVector, CHANGE_PLACE, CHANGE_SEND_NUMBER, CHANGE_STATE,
    CompletionChannel, Cq, KIND_DATAGRAM, Qp, QpAttributes, QpOptions, SEND_INLINE, SEND_SIGNALLED,
    STATES, ScatterEntry, SendWork, WorkCompletion,
};
use super::device::{LinkLayer, RdmaDevice, checked, nothing, shown};
use super::error::RdmaError;
use super::memory::RegisteredRegion;
use super::receive_ring::{self, ReceiveRing};
use super::verbs_object::VerbsObject;
use crate::address::QueuePair;
use crate::seal::Seal;

/// The maximum number of packets of one queue pair in flight, a power of two.
const DEPTH: usize = 128;
/// Every packet of this number asks for a completion.
const SIGNAL_EVERY: u64 = 32;
/// The maximum number of packets of one list.
const CHAIN: usize = 64;
/// Packets up to this many bytes travel inside the request, if the provider allows it.
const INLINE_BYTES: u32 = 192;
/// The hop limit of packets.
const HOPS: u8 = 64;
/// The maximum number of completions of one poll.
const POLLED: usize = 16;

/// A rank's queue pairs.
#[derive(Debug)]
pub(super) struct SendQueues {
    handles: BTreeMap<HandleRoute, VerbsObject<AddressHandle>>,
    paths: Vec<SendPath>,
    cq: VerbsObject<Cq>,
    channel: VerbsObject<CompletionChannel>,
    memory: RegisteredRegion,
    stride: usize,
    ended: Vec<WorkCompletion>,
    /// Scratch space for a list of requests.
    requests: Vec<SendWork>,
    parts: Vec<ScatterEntry>,
    pub(super) tally: SendQueueCounters,
}

/// Counts of the send side.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct SendQueueCounters {
    /// Packets posted.
    pub(super) packets: u64,
    /// Lists posted.
    pub(super) doorbells: u64,
    /// Completions received.
    pub(super) completions: u64,
    /// Packets that travelled inside their requests.
    pub(super) inline: u64,
}

/// The key of an address handle: destination, traffic class and path.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct HandleRoute {
    gid: Ipv6Addr,
    lid: u16,
    traffic_class: u8,
    level: u8,
    path: u8,
}

/// The queue pair of a peer, and the seal for packets to it.
pub(super) struct PeerPair<'a> {
    pub(super) pair: &'a QueuePair,
    pub(super) seal: &'a mut Seal,
}

/// Packets of a run that are posted together.
struct PacketList {
    path: usize,
    handle: *mut AddressHandle,
    packets: Range<usize>,
}

/// A queue pair and its packets in flight.
#[derive(Debug)]
struct SendPath {
    pair: VerbsObject<Qp>,
    address: QueuePair,
    inline_bytes: u32,
    posted: u64,
    done: u64,
}

impl SendPath {
    fn room(&self) -> usize {
        DEPTH - (self.posted - self.done) as usize
    }
}

impl SendQueues {
    /// Makes `count` queue pairs, which accept packets with `key` and receive into `receiving`.
    pub(super) fn new(
        device: &RdmaDevice,
        receiving: &ReceiveRing,
        count: usize,
        key: u32,
    ) -> Result<Self, RdmaError> {
        let stride = (device.place.mtu as usize).next_multiple_of(64);
        let memory = RegisteredRegion::new(device, count * DEPTH * stride)?;
        let channel = receive_ring::channel(device)?;
        let cq = receive_ring::completion_queue(device, count * DEPTH, &channel)?;
        let make = |_| SendPath::new(device, &cq, receiving, key);
        let paths: Result<Vec<SendPath>, RdmaError> = (0..count).map(make).collect();
        Ok(Self {
            handles: BTreeMap::new(),
            paths: paths?,
            cq,
            channel,
            memory,
            stride,
            ended: Vec::with_capacity(POLLED),
            requests: vec![SendWork::EMPTY; CHAIN],
            parts: vec![ScatterEntry::NONE; CHAIN],
            tally: SendQueueCounters::default(),
        })
    }

    /// Whether the queue pair of an entropy takes more packets, as far as completions tell.
    pub(super) fn has_room(&self, path: Entropy) -> bool {
        self.paths[usize::from(path.0) % self.paths.len()].room() > 0
    }

    /// The addresses of this rank, one per path.
    pub(super) fn addresses(&self) -> impl Iterator<Item = QueuePair> {
        self.paths.iter().map(|path| path.address)
    }

    /// Sends the packets of a run. Returns how many of them are posted: fewer than all while the
    /// device still has too many earlier ones.
    pub(super) fn send(
        &mut self,
        device: &RdmaDevice,
        transmit: &Transmit<'_>,
        mut peer: PeerPair<'_>,
    ) -> Result<usize, RdmaError> {
        let to = peer.pair;
        let path = usize::from(transmit.entropy.0) % self.paths.len();
        let route = HandleRoute {
            gid: to.gid,
            lid: to.lid,
            traffic_class: transmit.dscp.0 << 2 | transmit.ecn as u8,
            level: transmit.class.0.min(15),
            path: path as u8,
        };
        let handle = self.handle(device, route)?;
        let mut done = 0;
        while done < transmit.packets() {
            if self.paths[path].room() < CHAIN {
                self.collect(device)?;
            }
            let left = transmit.packets() - done;
            let count = left.min(CHAIN).min(self.paths[path].room());
            if count == 0 {
                break;
            }
            let list = PacketList {
                path,
                handle,
                packets: done..done + count,
            };
            let posted = self.post(device, transmit, list, &mut peer)?;
            done += posted;
            if posted < count {
                break;
            }
        }
        Ok(done)
    }

    /// Seals packets into buffers and posts them as one list. Returns how many the device took.
    fn post(
        &mut self,
        device: &RdmaDevice,
        transmit: &Transmit<'_>,
        list: PacketList,
        peer: &mut PeerPair<'_>,
    ) -> Result<usize, RdmaError> {
        let (index, count) = (list.path, list.packets.len());
        let key = self.memory.key();
        let (requests, parts) = (&mut self.requests[..count], &mut self.parts[..count]);
        let path = &mut self.paths[index];
        let headers = transmit.headers();
        for (at, packet) in list.packets.enumerate() {
            let number = path.posted + at as u64;
            let place = index * DEPTH + number as usize % DEPTH;
            let start = self.memory.region.place(place * self.stride, self.stride);
            // SAFETY: the buffer belongs to this path, and its last packet was sent: at most DEPTH
            // packets are in flight.
            let bytes = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.stride) };
            let length = peer.seal.stage_one(&headers, packet, bytes) as u32;
            parts[at] = ScatterEntry {
                address: start.as_ptr() as u64,
                length,
                key,
            };
            let inline = if length <= path.inline_bytes {
                self.tally.inline += 1;
                SEND_INLINE
            } else {
                0
            };
            let is_signalled = (number + 1).is_multiple_of(SIGNAL_EVERY);
            requests[at] = SendWork {
                id: (index as u64) << 48 | (number + 1) & 0xffff_ffff_ffff,
                flags: inline | if is_signalled { SEND_SIGNALLED } else { 0 },
                handle: list.handle,
                number: peer.pair.number,
                queue_key: peer.pair.key,
                ..SendWork::EMPTY
            };
        }
        let mut failed = nothing();
        link(requests, parts);
        // SAFETY: the list ends after `count` requests, and all of it lives until the call returns;
        // the buffers live as long as the queue pair.
        let code = unsafe {
            let pair = path.pair.raw();
            ((*(*pair).device).post_send)(pair, requests.as_mut_ptr(), &raw mut failed)
        };
        let taken = match checked(code) {
            Ok(()) => count,
            Err(error) => {
                let at = requests.iter().position(|one| std::ptr::eq(one, failed));
                let full = error.raw_os_error() == Some(libc::ENOMEM);
                match at.filter(|_| full) {
                    Some(at) => at,
                    None => return Err(receive_ring::gone(device, "posting packets", &error)),
                }
            }
        };
        path.posted += taken as u64;
        self.tally.doorbells += 1;
        self.tally.packets += taken as u64;
        Ok(taken)
    }

    /// Reads the completions of packets that the device has sent.
    pub(super) fn collect(&mut self, device: &RdmaDevice) -> Result<(), RdmaError> {
        loop {
            self.ended.clear();
            let polled = receive_ring::poll(&self.cq, &mut self.ended, POLLED);
            let polled =
                polled.map_err(|source| receive_ring::gone(device, "its send queue", &source))?;
            for ended in &self.ended {
                if ended.status != 0 {
                    return Err(receive_ring::failed(device, "send", ended));
                }
                self.tally.completions += 1;
                let path = &mut self.paths[(ended.id >> 48) as usize];
                path.done = path.done.max(ended.id & 0xffff_ffff_ffff);
            }
            if polled < POLLED {
                return Ok(());
            }
        }
    }

    /// Asks for a notice when the device has sent more packets. Returns the descriptor that then
    /// becomes readable.
    pub(super) fn arm(&self, device: &RdmaDevice) -> Result<RawFd, RdmaError> {
        receive_ring::drain(device, &self.channel);
        receive_ring::arm(&self.cq)
            .map_err(|source| receive_ring::gone(device, "asking to be woken", &source))?;
        Ok(receive_ring::descriptor(&self.channel))
    }

    fn handle(
        &mut self,
        device: &RdmaDevice,
        route: HandleRoute,
    ) -> Result<*mut AddressHandle, RdmaError> {
        if let Some(handle) = self.handles.get(&route) {
            return Ok(handle.raw());
        }
        let place = &device.place;
        let mut way = AddressVector {
            gid: route.gid.octets(),
            flow_label: flow_label(self.paths[usize::from(route.path)].address.number, route),
            own_gid: place.index,
            hops: HOPS,
            traffic_class: route.traffic_class,
            lid: route.lid,
            is_global: 1,
            port: place.port,
            ..AddressVector::default()
        };
        if place.link == LinkLayer::InfiniBand {
            way.level = route.level;
        }
        // SAFETY: the domain lives, and the way until the call returns.
        let handle = unsafe {
            let raw = (device.library.make_handle)(device.domain(), &raw mut way);
            VerbsObject::new(raw, device.library.end_handle)
        };
        let handle = handle.map_err(|source| RdmaError::NoWay {
            device: device.name.clone(),
            from: shown(place.gid),
            to: shown(route.gid),
            source,
        })?;
        let raw = handle.raw();
        self.handles.insert(route, handle);
        Ok(raw)
    }
}

/// The flow label of a path. A provider folds it, low 14 bits and high 6, into the UDP source port
/// by which switches choose a path (the kernel's rdma_flow_label_to_udp_sport).
fn flow_label(number: u32, route: HandleRoute) -> u32 {
    let mixed = number.wrapping_mul(0x9e37_79b1) ^ u32::from(route.path).wrapping_mul(0x85eb_ca6b);
    (mixed >> 12).max(1)
}

fn link(requests: &mut [SendWork], parts: &mut [ScatterEntry]) {
    let mut next = nothing();
    for (request, part) in requests.iter_mut().zip(parts).rev() {
        request.parts = part;
        request.next = next;
        next = request;
    }
}

impl SendPath {
    fn new(
        device: &RdmaDevice,
        cq: &VerbsObject<Cq>,
        receiving: &ReceiveRing,
        key: u32,
    ) -> Result<Self, RdmaError> {
        let (pair, inline_bytes) = make_pair(device, cq, receiving)?;
        let change = QpAttributes {
            partition: 0,
            port: device.place.port,
            queue_key: key,
            ..QpAttributes::NONE
        };
        let wanted = [CHANGE_PLACE, 0, CHANGE_SEND_NUMBER];
        for (state, parts) in STATES.into_iter().zip(wanted) {
            let mut change = QpAttributes { state, ..change };
            // SAFETY: the queue pair lives, and the change until the call returns.
            let code = unsafe {
                let parts: c_int = CHANGE_STATE | parts;
                (device.library.change_qp)(pair.raw(), &raw mut change, parts)
            };
            checked(code).map_err(|source| device.failed("starting a queue pair", source))?;
        }
        // SAFETY: the queue pair lives, and its number does not change.
        let number = unsafe { (*pair.raw()).number };
        let address = QueuePair {
            gid: device.place.gid,
            number,
            key,
            lid: device.place.lid,
        };
        Ok(Self {
            pair,
            address,
            inline_bytes,
            posted: 0,
            done: 0,
        })
    }
}

/// Makes a queue pair, which takes short packets inside requests if the provider can.
fn make_pair(
    device: &RdmaDevice,
    cq: &VerbsObject<Cq>,
    receiving: &ReceiveRing,
) -> Result<(VerbsObject<Qp>, u32), RdmaError> {
    let (receive_cq, srq) = receiving.queues();
    let make = |inline_bytes| {
        let mut options = QpOptions {
            owner: nothing(),
            send_cq: cq.raw(),
            receive_cq,
            srq,
            send_depth: DEPTH as u32,
            receive_depth: 0,
            send_parts: 1,
            receive_parts: 0,
            inline_bytes,
            kind: KIND_DATAGRAM,
            signal_all: 0,
        };
        // SAFETY: all that the options name lives longer than the queue pair, which is ours.
        let pair = unsafe {
            let raw = (device.library.make_qp)(device.domain(), &raw mut options);
            VerbsObject::new(raw, device.library.end_qp)
        };
        pair.map(|pair| (pair, inline_bytes))
    };
    let made = make(INLINE_BYTES).or_else(|_| make(0));
    made.map_err(|source| device.failed("making a queue pair", source))
}

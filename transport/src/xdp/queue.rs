//! The AF_XDP socket of one queue of an interface: four rings, and the frames that they point to.
//!
//! - A frame has [`FRAME_BYTES`] bytes. Of those for arriving packets, each is with the kernel (in
//!   the fill ring) or full (in the receive ring). Of those for leaving packets, each is idle here,
//!   or with the kernel (in the send ring, then in the completion ring).
//! - Arrived packets are copied out: those that continue each other then lie one behind the other,
//!   as after GRO, and their frames go back at once.
#![expect(unsafe_code, reason = "frames are memory that the kernel shares")]

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::slice;

use nix::sys::socket::{setsockopt, sockopt};

use super::frame::{FrameHead, FrameTemplate};
use super::ring::{RingConsumer, RingPlace, RingProducer};
use crate::process::ReleasedInChildren;
use crate::shm::MappedMemory;

/// Bytes of a frame: a page, since only that is allowed everywhere.
pub(super) const FRAME_BYTES: usize = 4096;
/// Bytes of a frame that the kernel keeps free before an arriving packet (XDP_PACKET_HEADROOM).
pub(super) const HEADROOM: usize = 256;
/// Frames for packets that arrive, a power of two.
pub(super) const ARRIVING: u32 = 2048;
/// Entries of the fill ring, more than there are frames: the kernel tells of an arrival before it
/// says that it has read the entry.
const FILLED: u32 = 2 * ARRIVING;
/// Frames for packets that leave, a power of two: some runs.
const SENDING: u32 = 1024;
/// Packets that are joined at most.
const JOINED_MAX: usize = 64;
/// The kernel sends 32 packets a call, so this many calls empty the ring.
const KICKS_MAX: u32 = SENDING / 32;
/// Bytes of packets on their way, bookkeeping included: more than all frames have.
const SEND_BUFFER: usize = 16 << 20;

/// What the kernel fills in.
const OFFSET: libc::xdp_ring_offset = libc::xdp_ring_offset {
    producer: 0,
    consumer: 0,
    desc: 0,
    flags: 0,
};
const OFFSETS: libc::xdp_mmap_offsets = libc::xdp_mmap_offsets {
    rx: OFFSET,
    tx: OFFSET,
    fr: OFFSET,
    cr: OFFSET,
};
const STATISTICS: libc::xdp_statistics = libc::xdp_statistics {
    rx_dropped: 0,
    rx_invalid_descs: 0,
    tx_invalid_descs: 0,
    rx_ring_full: 0,
    rx_fill_ring_empty_descs: 0,
    tx_ring_empty_descs: 0,
};

/// The socket of a queue.
#[derive(Debug)]
pub(super) struct XdpQueue {
    /// Before the socket: a forked child would keep the NIC's queue occupied.
    _released: ReleasedInChildren,
    socket: OwnedFd,
    /// Whether the NIC reads and writes the frames itself, so that the kernel copies nothing.
    is_zero_copy: bool,
    received: RingConsumer<libc::xdp_desc>,
    fill: RingProducer<u64>,
    sending: RingProducer<libc::xdp_desc>,
    sent: RingConsumer<u64>,
    /// Frames that may be filled and sent.
    idle: Vec<u64>,
    /// Mapped, not allocated: the kernel may take the frames from the NIC only after the socket is
    /// closed.
    memory: MappedMemory,
}

/// Packets that came together from one sender.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct JoinedPackets {
    pub(super) from: SocketAddrV4,
    /// DSCP and ECN of each.
    pub(super) traffic_class: u8,
    /// Bytes of all.
    pub(super) bytes: usize,
    /// Bytes of each but the last, which may be shorter.
    pub(super) packet_bytes: usize,
}

impl JoinedPackets {
    /// What stands for a malformed packet.
    const MALFORMED: Self = Self {
        from: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
        traffic_class: 0,
        bytes: 0,
        packet_bytes: 1,
    };

    /// Whether a packet continues these, in a slot of `room` bytes: none of them was shorter than
    /// the first one, and it is not longer.
    fn takes(&self, next: &FrameHead, room: usize) -> bool {
        let is_same = self.from == next.from && self.traffic_class == next.traffic_class;
        let bytes = next.packet.len();
        let fits = bytes <= self.packet_bytes && self.bytes + bytes <= room;
        is_same && fits && self.bytes.is_multiple_of(self.packet_bytes)
    }
}

impl XdpQueue {
    /// A socket at queue `number` of interface `index`.
    ///
    /// # Errors
    /// The kernel's; EINVAL where there is no such queue.
    pub(super) fn open(index: u32, number: u32) -> io::Result<Self> {
        let socket = socket()?;
        let memory = MappedMemory::anonymous((ARRIVING + SENDING) as usize * FRAME_BYTES)?;
        let region = libc::xdp_umem_reg {
            addr: memory.at(0).as_ptr() as u64,
            len: memory.len() as u64,
            chunk_size: FRAME_BYTES as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(&socket, libc::XDP_UMEM_REG, &region)?;
        set(&socket, libc::XDP_UMEM_FILL_RING, &FILLED)?;
        set(&socket, libc::XDP_UMEM_COMPLETION_RING, &SENDING)?;
        set(&socket, libc::XDP_RX_RING, &ARRIVING)?;
        set(&socket, libc::XDP_TX_RING, &SENDING)?;
        // Where the kernel copies, it sends no more at a time than this buffer holds.
        setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER)?;
        let offsets = get(&socket, libc::XDP_MMAP_OFFSETS, OFFSETS)?;
        let place = |page, offsets, entries| RingPlace {
            page,
            offsets,
            entries,
        };
        let fill = place(libc::XDP_UMEM_PGOFF_FILL_RING as i64, offsets.fr, FILLED);
        let sent_at = libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64;
        let borrowed = socket.as_fd();
        let received = place(libc::XDP_PGOFF_RX_RING, offsets.rx, ARRIVING);
        let sending = place(libc::XDP_PGOFF_TX_RING, offsets.tx, SENDING);
        let mut queue = Self {
            received: RingConsumer::map(borrowed, received)?,
            fill: RingProducer::map(borrowed, fill)?,
            sending: RingProducer::map(borrowed, sending)?,
            sent: RingConsumer::map(borrowed, place(sent_at, offsets.cr, SENDING))?,
            idle: (ARRIVING..ARRIVING + SENDING).map(frame_at).collect(),
            _released: ReleasedInChildren::new(socket.as_raw_fd()),
            socket,
            is_zero_copy: false,
            memory,
        };
        // Some drivers want frames before a socket is bound.
        (0..ARRIVING).for_each(|frame| queue.fill.write(frame_at(frame)));
        queue.fill.publish();
        bind(&queue.socket, index, number)?;
        let options = get(
            &queue.socket,
            libc::XDP_OPTIONS,
            libc::xdp_options { flags: 0 },
        )?;
        queue.is_zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
        Ok(queue)
    }

    /// The descriptor that becomes readable when packets arrive.
    pub(super) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Whether the NIC reads and writes the frames itself, so that the kernel copies nothing.
    pub(super) fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Packets that the kernel has dropped because it had no frame or no place in the ring. Packets
    /// that a NIC drops for want of frames do not count.
    pub(super) fn drops(&self) -> u64 {
        let counts = get(&self.socket, libc::XDP_STATISTICS, STATISTICS);
        counts.map_or(0, |counts| counts.rx_dropped + counts.rx_ring_full)
    }

    /// Whether packets have arrived. Costs no system call, unless packets wait to leave, or the
    /// kernel waits for frames that were given back.
    pub(super) fn has_arrivals(&mut self) -> bool {
        // Some drivers give frames back only after a call.
        let waits = self.sending.is_pending() || (self.is_zero_copy && !self.is_idle());
        if waits && self.sending.needs_wakeup() {
            self.kick();
        }
        if self.received.is_empty() && self.fill.needs_wakeup() {
            receive_nothing(&self.socket);
        }
        !self.received.is_empty()
    }

    /// Whether the kernel has given back all frames of packets that have left.
    pub(super) fn is_idle(&mut self) -> bool {
        self.collect();
        self.idle.len() == SENDING as usize
    }

    /// Takes the frames back that have been sent.
    fn collect(&mut self) {
        while let Some(address) = self.sent.take() {
            self.idle.push(address);
        }
        self.sent.give_back();
    }

    /// Copies packets that continue each other into `slot`: equally long ones of one sender, up to
    /// a shorter one. `None` if no packet has arrived.
    pub(super) fn receive(&mut self, slot: &mut [u8]) -> Option<JoinedPackets> {
        let mut joined: Option<JoinedPackets> = None;
        let mut packets = 0;
        while let Some(entry) = self.received.peek() {
            let frame = self.frame(entry.addr, entry.len as usize);
            let Some(head) = FrameHead::read(frame) else {
                break;
            };
            let bytes = head.packet.len();
            let so_far = joined.get_or_insert_with(|| JoinedPackets {
                from: head.from,
                traffic_class: head.traffic_class,
                bytes: 0,
                packet_bytes: bytes.max(1),
            });
            if packets == JOINED_MAX || !so_far.takes(&head, slot.len()) {
                break;
            }
            slot[so_far.bytes..][..bytes].copy_from_slice(&frame[head.packet]);
            so_far.bytes += bytes;
            packets += 1;
            self.give_frame_back(entry);
            if bytes == 0 {
                break;
            }
        }
        if packets == 0
            && let Some(entry) = self.received.peek()
        {
            // It counts as an empty packet.
            joined = Some(JoinedPackets::MALFORMED);
            self.give_frame_back(entry);
        }
        self.received.give_back();
        self.fill.publish();
        joined
    }

    /// Gives the frame of the oldest arrival back to the kernel.
    fn give_frame_back(&mut self, arrival: libc::xdp_desc) {
        self.received.take();
        self.fill
            .write(arrival.addr - arrival.addr % FRAME_BYTES as u64);
    }

    /// How many packets can be sent.
    pub(super) fn room(&mut self) -> usize {
        self.collect();
        self.idle.len().min(self.sending.room() as usize)
    }

    /// Sends packets, which must have room. `headers` are those of all.
    ///
    /// # Panics
    /// When they have no room.
    pub(super) fn send<'a>(
        &mut self,
        headers: &FrameTemplate,
        packets: impl Iterator<Item = &'a [u8]>,
    ) {
        for packet in packets {
            let address = self.idle.pop().expect("packets have room");
            let frame = self.frame_mut(address);
            let bytes = headers.write(packet, frame);
            self.sending.write(libc::xdp_desc {
                addr: address,
                len: bytes as u32,
                options: 0,
            });
        }
        self.sending.publish();
        if self.sending.needs_wakeup() {
            self.kick();
        }
    }

    /// Asks the kernel to send the packets of the ring. Where it copies, it sends some a call.
    /// While the device is busy or down, packets wait in the ring for a later kick.
    fn kick(&self) {
        for _ in 0..KICKS_MAX {
            let error = send_nothing(&self.socket).err();
            let goes_on = error.is_none_or(|error| error.raw_os_error() == Some(libc::EAGAIN));
            if !goes_on || !self.sending.is_pending() {
                break;
            }
        }
    }

    /// The bytes of a packet that the kernel has received.
    fn frame(&self, address: u64, bytes: usize) -> &[u8] {
        let start = self.memory.range(address as usize, bytes);
        // SAFETY: the bytes are inside the region, and the kernel does not write into the frame
        // before it is given back.
        unsafe { slice::from_raw_parts(start.as_ptr(), bytes) }
    }

    /// An idle frame.
    fn frame_mut(&mut self, address: u64) -> &mut [u8] {
        let start = self.memory.range(address as usize, FRAME_BYTES);
        // SAFETY: the frame is inside the region, and the kernel does not touch it before it is
        // sent.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), FRAME_BYTES) }
    }
}

const fn frame_at(number: u32) -> u64 {
    number as u64 * FRAME_BYTES as u64
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: the arguments are plain numbers.
    let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    match socket {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just opened it for this process.
        socket => Ok(unsafe { OwnedFd::from_raw_fd(socket) }),
    }
}

fn set<V>(socket: &OwnedFd, option: libc::c_int, value: &V) -> io::Result<()> {
    let (value, bytes) = (
        ptr::from_ref(value).cast(),
        size_of::<V>() as libc::socklen_t,
    );
    let socket = socket.as_raw_fd();
    // SAFETY: the value has the length given and lives until the call returns.
    checked(unsafe { libc::setsockopt(socket, libc::SOL_XDP, option, value, bytes) } as isize)
}

fn get<V>(socket: &OwnedFd, option: libc::c_int, mut value: V) -> io::Result<V> {
    let mut bytes = size_of::<V>() as libc::socklen_t;
    let (out, socket) = ((&raw mut value).cast(), socket.as_raw_fd());
    // SAFETY: the value has the length given and lives until the call returns.
    let result = unsafe { libc::getsockopt(socket, libc::SOL_XDP, option, out, &raw mut bytes) };
    checked(result as isize).map(|()| value)
}

fn bind(socket: &OwnedFd, index: u32, queue: u32) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        // Without a wish for copies the kernel avoids them where the driver can.
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let bytes = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address has the length given and lives until the call returns.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    checked(result as isize)
}

/// Tells the kernel that there is something to send.
fn send_nothing(socket: &OwnedFd) -> io::Result<()> {
    let (socket, flags) = (socket.as_raw_fd(), libc::MSG_DONTWAIT);
    // SAFETY: no buffer and no address are given.
    checked(unsafe { libc::sendto(socket, ptr::null(), 0, flags, ptr::null(), 0) })
}

/// Tells the kernel that there are frames for packets that arrive.
fn receive_nothing(socket: &OwnedFd) {
    let (socket, flags) = (socket.as_raw_fd(), libc::MSG_DONTWAIT);
    let nowhere = ptr::null_mut();
    // SAFETY: no buffer and no address are given. The result says only that nothing was read.
    unsafe { libc::recvfrom(socket, nowhere, 0, flags, ptr::null_mut(), ptr::null_mut()) };
}

fn checked(result: isize) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

//! `sendmsg` and `recvmsg` with the ancillary data that a packet transport needs: segment size,
//! traffic class, and how many packets the kernel dropped.
//!
//! Socket options are set through `nix`. The two calls are our own: `nix` needs 360 more
//! instructions and an allocation for each `sendmsg`, 140 more instructions for each `recvmsg`
//! (counted by callgrind, version 0.31), and does not give its `msghdr` to io_uring.
#![expect(unsafe_code, reason = "the kernel's message interface is raw pointers")]

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, RawFd};
use std::ptr;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{SockAddr, SockAddrStorage};

use gradwire_protocol::wire::HEADER_BYTES;

/// Room for three control messages of at most 8 bytes of data each.
const CONTROL_BYTES: usize = 128;
/// The length of the array that SO_MEMINFO fills, and the index of its count of drops
/// (sock_diag(7), SK_MEMINFO_DROPS).
const MEMORY_VALUES: usize = 9;
const MEMORY_DROPS: usize = 8;
/// A super-packet as received: the largest there is, and the space that a ring needs before it.
pub const SLOT_BYTES: usize = 65_536 + RING_PACKETS_AT;
/// The maximum number of packets of one gathered send: only packets of at least 4 KiB are gathered,
/// and a send has less than 64 KiB.
const GATHERED_MAX: usize = 16;

/// The parameters of a send, apart from its bytes.
#[derive(Debug)]
pub(crate) struct SendControl<'a> {
    /// Bytes of each packet, if there are several.
    pub(crate) packet_bytes: Option<u16>,
    /// DSCP and ECN.
    pub(crate) traffic_class: u8,
    pub(crate) to: &'a SockAddr,
}

/// Packets whose headers and payloads lie in separate places.
#[derive(Debug, Default)]
pub(crate) struct GatheredPackets<'a> {
    headers: &'a [u8],
    payloads: [&'a [u8]; GATHERED_MAX],
    count: usize,
}

impl<'a> GatheredPackets<'a> {
    pub(crate) fn push(&mut self, payload: &'a [u8]) {
        self.payloads[self.count] = payload;
        self.count += 1;
    }

    pub(crate) fn with_headers(mut self, headers: &'a [u8]) -> Self {
        self.headers = headers;
        self
    }
}

/// The result of one `recvmsg`.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) bytes: usize,
    /// Bytes of each packet, if the kernel joined several into one super-packet.
    pub(crate) packet_bytes: Option<usize>,
    pub(crate) traffic_class: u8,
    /// The socket's drops so far, if there were any.
    pub(crate) kernel_drops: Option<u32>,
    pub(crate) from: SocketAddr,
}

/// Control messages, aligned as the kernel requires.
#[repr(C, align(8))]
struct AncillaryBuffer([u8; CONTROL_BYTES]);

/// The packets of one send.
#[derive(Debug)]
pub(crate) enum SendPackets<'a> {
    /// Packets that lie one behind the other.
    Staged(&'a [u8]),
    /// Packets whose headers and payloads lie apart.
    Gathered(&'a GatheredPackets<'a>),
}

/// Builds the message that sends `packets`, and passes it to `act`. Everything that it points to
/// lives until `act` returns.
pub(crate) fn written<T>(
    packets: &SendPackets<'_>,
    control: &SendControl<'_>,
    act: impl FnOnce(&libc::msghdr) -> T,
) -> T {
    let vector = |part: &[u8]| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast(),
        iov_len: part.len(),
    };
    let gathered = match packets {
        SendPackets::Staged(bytes) => return written_vectors(&mut [vector(bytes)], control, act),
        SendPackets::Gathered(gathered) => gathered,
    };
    let mut vectors = [vector(&[]); 2 * GATHERED_MAX];
    let headers = gathered.headers.chunks_exact(HEADER_BYTES);
    let mut used = 0;
    for (header, payload) in headers.zip(&gathered.payloads[..gathered.count]) {
        for part in [header, payload] {
            vectors[used] = vector(part);
            used += 1;
        }
    }
    written_vectors(&mut vectors[..used], control, act)
}

fn written_vectors<T>(
    vectors: &mut [libc::iovec],
    control: &SendControl<'_>,
    act: impl FnOnce(&libc::msghdr) -> T,
) -> T {
    let mut buffer = AncillaryBuffer([0; CONTROL_BYTES]);
    // SAFETY: an all-zero msghdr is a valid one without any part.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = control.to.as_ptr().cast_mut().cast();
    message.msg_namelen = control.to.len();
    message.msg_iov = vectors.as_mut_ptr();
    // The types of these lengths differ between C libraries.
    message.msg_iovlen = vectors.len() as _;
    message.msg_control = buffer.0.as_mut_ptr().cast();
    let class = libc::c_int::from(control.traffic_class).to_ne_bytes();
    let mut used = put(&mut buffer, 0, traffic_class_kind(control.to), &class);
    if let Some(bytes) = control.packet_bytes {
        used = put(&mut buffer, used, SEGMENT_SIZE, &bytes.to_ne_bytes());
    }
    message.msg_controllen = used as _;
    act(&message)
}

/// Sends a message built by [`written`].
pub(crate) fn send(descriptor: RawFd, message: &libc::msghdr) -> io::Result<()> {
    // SAFETY: the message points to an address, vectors and control bytes that all live until the
    // call returns; the kernel reads them and writes none.
    let sent = unsafe { libc::sendmsg(descriptor, message, 0) };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The kind of a control message.
#[derive(Clone, Copy)]
struct AncillaryKind {
    level: libc::c_int,
    kind: libc::c_int,
}

const SEGMENT_SIZE: AncillaryKind = AncillaryKind {
    level: libc::SOL_UDP,
    kind: libc::UDP_SEGMENT,
};

fn traffic_class_kind(to: &SockAddr) -> AncillaryKind {
    let (level, kind) = match to.is_ipv6() {
        true => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        false => (libc::IPPROTO_IP, libc::IP_TOS),
    };
    AncillaryKind { level, kind }
}

/// Appends a control message at `at`, and returns the offset of the next one.
fn put(buffer: &mut AncillaryBuffer, at: usize, kind: AncillaryKind, data: &[u8]) -> usize {
    // SAFETY: pure arithmetic on lengths.
    let (length, space) = unsafe {
        (
            libc::CMSG_LEN(data.len() as u32),
            libc::CMSG_SPACE(data.len() as u32) as usize,
        )
    };
    let start = length as usize - data.len();
    // SAFETY: an all-zero cmsghdr is valid.
    let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
    header.cmsg_len = length as _;
    header.cmsg_level = kind.level;
    header.cmsg_type = kind.kind;
    let out = &mut buffer.0[at..at + space];
    // SAFETY: `out` has CMSG_SPACE bytes, no fewer than a cmsghdr, and starts at a multiple of 8.
    unsafe { ptr::write(out.as_mut_ptr().cast(), header) };
    out[start..start + data.len()].copy_from_slice(data);
    at + space
}

/// Receives one packet, or several that the kernel joined into a super-packet, into `slot`.
pub(crate) fn receive(descriptor: RawFd, slot: &mut [u8]) -> io::Result<ReceivedMessage> {
    let mut buffer = AncillaryBuffer([0; CONTROL_BYTES]);
    let mut vector = libc::iovec {
        iov_base: slot.as_mut_ptr().cast(),
        iov_len: slot.len(),
    };
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: an all-zero msghdr is a valid one without any part.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = (&raw mut storage).cast();
    message.msg_namelen = storage.size_of();
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = buffer.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: the message points to an address, one vector over `slot` and control bytes, each with
    // its true length, and all live until the call returns.
    let bytes = unsafe { libc::recvmsg(descriptor, &raw mut message, libc::MSG_DONTWAIT) };
    if bytes < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel wrote an address of `msg_namelen` bytes into the storage.
    let from = unsafe { SockAddr::new(storage, message.msg_namelen) };
    let from = from
        .as_socket()
        .ok_or_else(|| io::Error::other("a packet without an address"))?;
    let mut received = ReceivedMessage {
        bytes: bytes as usize,
        packet_bytes: None,
        traffic_class: 0,
        kernel_drops: None,
        from,
    };
    read_control(&message, &mut received);
    Ok(received)
}

/// Offset of the packets in a slot that a ring has filled. The ring's header, the source address
/// and the control messages lie before them, in the space that [`ring_template`] reserves.
pub(crate) const RING_PACKETS_AT: usize =
    size_of::<RingHeader>() + size_of::<SockAddrStorage>() + CONTROL_BYTES;

/// The header that a ring writes at the start of a slot (io_uring_recvmsg_out).
#[repr(C)]
struct RingHeader {
    name_bytes: u32,
    control_bytes: u32,
    packet_bytes: u32,
    flags: u32,
}

/// Reserves space for the address and the control messages in each slot of a ring.
pub(crate) const fn ring_template() -> libc::msghdr {
    // SAFETY: an all-zero msghdr is a valid one without any part.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_namelen = size_of::<SockAddrStorage>() as libc::socklen_t;
    message.msg_controllen = CONTROL_BYTES as _;
    message
}

/// Reads the header, address and control messages that a ring wrote into `slot`.
pub(crate) fn received_in(slot: &[u8]) -> io::Result<ReceivedMessage> {
    let wrong = || io::Error::other("a ring filled a slot in an unknown way");
    let (header, rest) = slot.split_at(size_of::<RingHeader>());
    let (name, rest) = rest.split_at(size_of::<SockAddrStorage>());
    // SAFETY: the header is whole, and any bytes are a valid one.
    let header: RingHeader = unsafe { ptr::read_unaligned(header.as_ptr().cast()) };
    let mut storage = SockAddrStorage::zeroed();
    if header.name_bytes > storage.size_of() || header.control_bytes as usize > CONTROL_BYTES {
        return Err(wrong());
    }
    // SAFETY: `name` has the bytes of a storage, of which any are valid.
    unsafe { ptr::copy_nonoverlapping(name.as_ptr(), (&raw mut storage).cast(), name.len()) };
    // SAFETY: the kernel wrote an address of that many bytes.
    let from = unsafe { SockAddr::new(storage, header.name_bytes) };
    let mut control = AncillaryBuffer([0; CONTROL_BYTES]);
    control.0.copy_from_slice(&rest[..CONTROL_BYTES]);
    let mut message = ring_template();
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = header.control_bytes as _;
    let mut received = ReceivedMessage {
        bytes: header.packet_bytes as usize,
        packet_bytes: None,
        traffic_class: 0,
        kernel_drops: None,
        from: from.as_socket().ok_or_else(wrong)?,
    };
    read_control(&message, &mut received);
    Ok(received)
}

fn read_control(message: &libc::msghdr, received: &mut ReceivedMessage) {
    // SAFETY: `message` was filled by the kernel and its control buffer lives in the caller.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: the CMSG macros only give headers that lie whole in the control buffer.
        let (level, kind, data) = unsafe {
            (
                (*header).cmsg_level,
                (*header).cmsg_type,
                libc::CMSG_DATA(header),
            )
        };
        // SAFETY: the kernel puts at least this type's size behind a header of this kind.
        unsafe {
            match (level, kind) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let bytes = ptr::read_unaligned(data.cast::<libc::c_int>());
                    received.packet_bytes = Some(bytes as usize);
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => {
                    received.traffic_class = ptr::read_unaligned(data);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    let class = ptr::read_unaligned(data.cast::<libc::c_int>());
                    received.traffic_class = class as u8;
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    received.kernel_drops = Some(ptr::read_unaligned(data.cast::<u32>()));
                }
                _ => {}
            }
        }
        // SAFETY: as for the first header.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
}

/// Makes the socket's buffers as large as this process may, up to `bytes`.
pub(crate) fn enlarge_buffers(socket: &impl AsFd, bytes: usize) {
    // Only a privileged process may exceed the limits of the system.
    if setsockopt(socket, sockopt::RcvBufForce, &bytes).is_err() {
        let _ = setsockopt(socket, sockopt::RcvBuf, &bytes);
    }
    if setsockopt(socket, sockopt::SndBufForce, &bytes).is_err() {
        let _ = setsockopt(socket, sockopt::SndBuf, &bytes);
    }
}

/// Asks for super-packets, traffic classes and drop counts. Without GRO reading is slower, and
/// without drop counts losses of this host look like losses of the network; both are allowed.
pub(crate) fn ask_for_ancillary(socket: &impl AsFd, address: IpAddr) -> io::Result<()> {
    let _ = setsockopt(socket, sockopt::UdpGroSegment, &true);
    let _ = setsockopt(socket, sockopt::RxqOvfl, &1);
    match address {
        IpAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvTClass, &true)?,
        IpAddr::V4(_) => setsockopt(socket, sockopt::IpRecvTos, &true)?,
    }
    Ok(())
}

/// How many packets the kernel has dropped at a socket so far, modulo 2^32.
pub(crate) fn drops(descriptor: RawFd) -> io::Result<u32> {
    let mut values = [0_u32; MEMORY_VALUES];
    let mut length = size_of_val(&values) as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_MEMINFO);
    let out = values.as_mut_ptr().cast();
    // SAFETY: the array has the length given and lives until the call returns.
    let failed = unsafe { libc::getsockopt(descriptor, level, option, out, &raw mut length) };
    if failed == 0 {
        Ok(values[MEMORY_DROPS])
    } else {
        Err(io::Error::last_os_error())
    }
}

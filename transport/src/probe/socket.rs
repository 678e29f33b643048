//! A UDP socket whose packets are not cut unless asked, and what ICMP says about its packets.
#![expect(unsafe_code, reason = "the error queue and poll are raw system calls")]

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

use crate::message::{self, ReceivedMessage, SendControl, SendPackets};

const BUFFER_BYTES: usize = 8 << 20;
/// Room for one report of the error queue: its header, the report and an address.
const CONTROL_BYTES: usize = 256;
const ICMP_UNREACHABLE: u8 = 3;
const ICMP6_UNREACHABLE: u8 = 1;

/// What the network or this host's kernel said about a packet that it did not carry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PacketRefusal {
    /// The packet is longer than the next link takes.
    TooBig {
        /// What the link takes, in bytes of an IP packet.
        mtu: u32,
        /// Whom the packet was for.
        to: Option<IpAddr>,
        /// Who said it: a router, or this host itself.
        by: RefusalOrigin,
    },
    /// Nothing listens there, or a firewall says no.
    Unreachable {
        /// Code of ICMP's "destination unreachable".
        code: u8,
    },
}

/// Who refused a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RefusalOrigin {
    /// This host's kernel.
    Host,
    /// Somebody on the way, by ICMP.
    Network,
}

/// An open socket.
#[derive(Debug)]
pub(super) struct ProbeSocket {
    socket: Socket,
    address: SocketAddr,
}

/// Whether hosts and routers may cut a packet that is too long for a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fragmentation {
    Allowed,
    Forbidden,
}

/// Everything about a send apart from its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendOptions {
    pub(super) to: SocketAddr,
    pub(super) class: u8,
    /// Bytes of each packet of a run.
    pub(super) packet_bytes: Option<u16>,
}

impl ProbeSocket {
    /// Opens a socket whose packets are cut neither here nor on the way.
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = socket(address)?;
        message::enlarge_buffers(&socket, BUFFER_BYTES);
        message::ask_for_ancillary(&socket, address.ip())?;
        set(
            socket.as_raw_fd(),
            cutting_option(address.ip(), Fragmentation::Forbidden),
        )?;
        set(socket.as_raw_fd(), reports_option(address.ip()))?;
        socket.bind(&SockAddr::from(address))?;
        let address = socket.local_addr()?.as_socket();
        let address = address.ok_or_else(|| io::Error::other("a socket without an IP address"))?;
        Ok(Self { socket, address })
    }

    /// Whether packets from now on may be cut.
    pub(super) fn set_cutting(&self, cutting: Fragmentation) -> io::Result<()> {
        set(
            self.descriptor(),
            cutting_option(self.address.ip(), cutting),
        )
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Sends one packet or one run. A report about an earlier packet is not taken for this one's.
    pub(super) fn send(&self, bytes: &[u8], sending: SendOptions) -> io::Result<()> {
        let to = SockAddr::from(sending.to);
        let control = SendControl {
            packet_bytes: sending.packet_bytes,
            traffic_class: sending.class,
            to: &to,
        };
        let send = |message: &_| message::send(self.descriptor(), message);
        message::written(
            &SendPackets::Staged(bytes),
            &control,
            |message| match send(message) {
                Err(error) if is_a_report(&error) => send(message),
                other => other,
            },
        )
    }

    /// What has arrived; `None` when there is nothing to read.
    pub(super) fn receive(&self, slot: &mut [u8]) -> Option<ReceivedMessage> {
        let first = message::receive(self.descriptor(), slot);
        match first {
            Err(error) if is_a_report(&error) => message::receive(self.descriptor(), slot).ok(),
            other => other.ok(),
        }
    }

    /// The next report about packets that were not carried.
    pub(super) fn refusal(&self) -> Option<PacketRefusal> {
        // Reports that mean neither are skipped; the queue is finite.
        loop {
            let refusal = next_report(self.descriptor())?;
            if refusal.is_some() {
                return refusal;
            }
        }
    }
}

/// Waits until one of the sockets has something, or `most` has passed.
pub(super) fn wait<'a>(sockets: impl Iterator<Item = &'a ProbeSocket>, most: Duration) {
    let waits_on = |socket: &ProbeSocket| libc::pollfd {
        fd: socket.descriptor(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polled: Vec<libc::pollfd> = sockets.map(waits_on).collect();
    let time = libc::timespec {
        tv_sec: most.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(most.subsec_nanos() as i32),
    };
    let count = polled.len() as libc::nfds_t;
    let entries = polled.as_mut_ptr();
    // SAFETY: the array has `count` entries, the time lives until the call returns, and no signal
    // mask is passed. An interrupted wait is a short one.
    unsafe { libc::ppoll(entries, count, &raw const time, ptr::null()) };
}

/// The address of this host that packets to `peer` leave by.
pub(super) fn address_towards(peer: SocketAddr) -> io::Result<IpAddr> {
    let socket = socket(peer)?;
    socket.connect(&SockAddr::from(peer))?;
    let address = socket.local_addr()?.as_socket();
    address
        .map(|address| address.ip())
        .ok_or_else(|| io::Error::other("a socket without an IP address"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "probes have sockets of their own, in the crate that may open sockets"
)]
fn socket(address: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))
}

/// IP_PMTUDISC_PROBE sets DF and ignores what the kernel remembers about the path, so that each
/// probe asks the path itself; IP_PMTUDISC_DONT lets whoever must cut a packet (ip(7)).
fn cutting_option(
    address: IpAddr,
    cutting: Fragmentation,
) -> (libc::c_int, libc::c_int, libc::c_int) {
    match (address, cutting) {
        (IpAddr::V4(_), Fragmentation::Forbidden) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_PROBE,
        ),
        (IpAddr::V4(_), Fragmentation::Allowed) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DONT,
        ),
        (IpAddr::V6(_), Fragmentation::Forbidden) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        ),
        (IpAddr::V6(_), Fragmentation::Allowed) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DONT,
        ),
    }
}

fn reports_option(address: IpAddr) -> (libc::c_int, libc::c_int, libc::c_int) {
    match address {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVERR, 1),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
    }
}

fn set(
    descriptor: RawFd,
    (level, option, value): (libc::c_int, libc::c_int, libc::c_int),
) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the value is an int of the length given.
    let failed =
        unsafe { libc::setsockopt(descriptor, level, option, (&raw const value).cast(), length) };
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Errors that ICMP has caused, about a packet sent before; they are reported once.
fn is_a_report(error: &io::Error) -> bool {
    let reports = [
        libc::ECONNREFUSED,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
        libc::EMSGSIZE,
        libc::EACCES,
        libc::EPROTO,
    ];
    error
        .raw_os_error()
        .is_some_and(|code| reports.contains(&code))
}

/// Control messages, aligned as the kernel wants them.
#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL_BYTES]);

/// The next report, `Some(None)` when it is about something else.
fn next_report(descriptor: RawFd) -> Option<Option<PacketRefusal>> {
    let mut buffer = ControlBuffer([0; CONTROL_BYTES]);
    let mut storage = SockAddrStorage::zeroed();
    let mut payload = [0_u8; 8];
    let mut vector = libc::iovec {
        iov_base: payload.as_mut_ptr().cast(),
        iov_len: payload.len(),
    };
    // SAFETY: an all-zero msghdr is a valid one without any part.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = (&raw mut storage).cast();
    message.msg_namelen = storage.size_of();
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = buffer.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the message points to an address, one vector and control bytes, each with its true
    // length, and all live until the call returns.
    if unsafe { libc::recvmsg(descriptor, &raw mut message, flags) } < 0 {
        return None;
    }
    // SAFETY: the kernel wrote an address of `msg_namelen` bytes into the storage.
    let to = unsafe { SockAddr::new(storage, message.msg_namelen) };
    let to = to.as_socket().map(|address| address.ip());
    Some(report_in(&message).and_then(|report| refusal_of(&report, to)))
}

fn report_in(message: &libc::msghdr) -> Option<libc::sock_extended_err> {
    // SAFETY: `message` was filled by recvmsg and its control buffer lives in the caller.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: the CMSG macros only give headers that lie whole in the control buffer.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        let ours = [
            (libc::IPPROTO_IP, libc::IP_RECVERR),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        ];
        if ours.contains(&(level, kind)) {
            // SAFETY: the kernel puts a whole report behind a header of this kind.
            return Some(unsafe { ptr::read_unaligned(libc::CMSG_DATA(header).cast()) });
        }
        // SAFETY: as for the first header.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

fn refusal_of(report: &libc::sock_extended_err, to: Option<IpAddr>) -> Option<PacketRefusal> {
    let by = match report.ee_origin {
        libc::SO_EE_ORIGIN_LOCAL => RefusalOrigin::Host,
        libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6 => RefusalOrigin::Network,
        _ => return None,
    };
    if report.ee_errno == libc::EMSGSIZE as u32 {
        let mtu = report.ee_info;
        return Some(PacketRefusal::TooBig { mtu, to, by });
    }
    let unreachable = [ICMP_UNREACHABLE, ICMP6_UNREACHABLE].contains(&report.ee_type);
    (by == RefusalOrigin::Network && unreachable).then_some(PacketRefusal::Unreachable {
        code: report.ee_code,
    })
}

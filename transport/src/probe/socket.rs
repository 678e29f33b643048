//! A UDP socket that forbids fragmentation unless asked, and reads ICMP errors about its packets.
#![expect(unsafe_code, reason = "a socket option is set by a raw system call")]

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, RecvMsg, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::message::{self, ReceivedMessage, SendControl, SendPackets};

const BUFFER_BYTES: usize = 8 << 20;
/// Room for one report of the error queue: its header, the report and an address.
const CONTROL_BYTES: usize = 256;
const ICMP_UNREACHABLE: u8 = 3;
const ICMP6_UNREACHABLE: u8 = 1;

/// A report of the network, or of this host's kernel, about a packet that it did not carry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PacketRefusal {
    /// The packet is longer than the MTU of the next link.
    TooBig {
        /// The MTU of the link: bytes of an IP packet.
        mtu: u32,
        /// The destination of the packet.
        to: Option<IpAddr>,
        /// The author: a router, or this host itself.
        by: RefusalOrigin,
    },
    /// No process listens there, or a firewall rejects the packet.
    Unreachable {
        /// Code of ICMP's "destination unreachable".
        code: u8,
    },
}

/// The origin of a refusal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RefusalOrigin {
    /// This host's kernel.
    Host,
    /// A router or host on the path, by ICMP.
    Network,
}

/// An open socket.
#[derive(Debug)]
pub(super) struct ProbeSocket {
    socket: Socket,
    address: SocketAddr,
}

/// Whether hosts and routers may fragment a packet that is too long for a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fragmentation {
    Allowed,
    Forbidden,
}

/// Destination, class and segment size of a send.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendOptions {
    pub(super) to: SocketAddr,
    pub(super) class: u8,
    /// Bytes of each packet of a run.
    pub(super) packet_bytes: Option<u16>,
}

impl ProbeSocket {
    /// Opens a socket whose packets are never fragmented, neither here nor on the path.
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = socket(address)?;
        message::enlarge_buffers(&socket, BUFFER_BYTES);
        message::ask_for_ancillary(&socket, address.ip())?;
        set_fragmentation(&socket, address.ip(), Fragmentation::Forbidden)?;
        ask_for_reports(&socket, address.ip())?;
        socket.bind(&SockAddr::from(address))?;
        let address = socket.local_addr()?.as_socket();
        let address = address.ok_or_else(|| io::Error::other("a socket without an IP address"))?;
        Ok(Self { socket, address })
    }

    /// Sets whether packets may be fragmented from now on.
    pub(super) fn set_fragmentation(&self, fragmentation: Fragmentation) -> io::Result<()> {
        set_fragmentation(&self.socket, self.address.ip(), fragmentation)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Sends one packet or one run. If the error is a report about an earlier packet, sends again.
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

    /// Receives a packet; `None` if there is none.
    pub(super) fn receive(&self, slot: &mut [u8]) -> Option<ReceivedMessage> {
        let first = message::receive(self.descriptor(), slot);
        match first {
            Err(error) if is_a_report(&error) => message::receive(self.descriptor(), slot).ok(),
            other => other.ok(),
        }
    }

    /// The next report about packets that were not carried.
    pub(super) fn refusal(&self) -> Option<PacketRefusal> {
        // Reports of other kinds are skipped; the queue is finite.
        loop {
            let refusal = next_report(&self.socket)?;
            if refusal.is_some() {
                return refusal;
            }
        }
    }
}

/// Waits until a packet has arrived at one of the sockets, or `most` has passed.
pub(super) fn wait<'a>(sockets: impl Iterator<Item = &'a ProbeSocket>, most: Duration) {
    let waits_on = |one: &'a ProbeSocket| PollFd::new(one.socket.as_fd(), PollFlags::POLLIN);
    let mut polled: Vec<PollFd<'_>> = sockets.map(waits_on).collect();
    // A signal only makes the wait shorter.
    let _ = ppoll(&mut polled, Some(TimeSpec::from_duration(most)), None);
}

/// The source address of packets from this host to `peer`.
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

/// Sets whether packets may be fragmented. IP_PMTUDISC_PROBE sets DF and ignores what the kernel
/// remembers about the path, so that each probe asks the path itself. IP_PMTUDISC_DONT lets hosts
/// and routers fragment a packet (ip(7)).
fn set_fragmentation(socket: &Socket, ip: IpAddr, fragmentation: Fragmentation) -> io::Result<()> {
    let (level, option, allowed, forbidden) = match ip {
        IpAddr::V4(_) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DONT,
            libc::IP_PMTUDISC_PROBE,
        ),
        IpAddr::V6(_) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DONT,
            libc::IPV6_PMTUDISC_PROBE,
        ),
    };
    let value = match fragmentation {
        Fragmentation::Allowed => allowed,
        Fragmentation::Forbidden => forbidden,
    };
    let (fd, length) = (socket.as_raw_fd(), size_of_val(&value) as libc::socklen_t);
    // SAFETY: the value is an int of the length given.
    let failed = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), length) };
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Asks the kernel to keep reports about packets that were not carried.
fn ask_for_reports(socket: &Socket, address: IpAddr) -> io::Result<()> {
    Ok(match address {
        IpAddr::V4(_) => setsockopt(socket, sockopt::Ipv4RecvErr, &true),
        IpAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvErr, &true),
    }?)
}

/// Whether an error is a report of ICMP about an earlier packet; each is reported once.
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

/// The next report of the error queue; `Some(None)` when it is about something else.
fn next_report(socket: &Socket) -> Option<Option<PacketRefusal>> {
    let mut control = vec![0_u8; CONTROL_BYTES];
    let mut payload = [0; 8];
    let mut parts = [IoSliceMut::new(&mut payload)];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message: RecvMsg<'_, '_, SockaddrStorage> =
        recvmsg(socket.as_raw_fd(), &mut parts, Some(&mut control), flags).ok()?;
    let to = message.address.and_then(ip_of);
    let report = message.cmsgs().ok()?.find_map(|one| match one {
        ControlMessageOwned::Ipv4RecvErr(report, _)
        | ControlMessageOwned::Ipv6RecvErr(report, _) => Some(report),
        _ => None,
    });
    Some(report.and_then(|report| refusal_of(&report, to)))
}

fn ip_of(address: SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| address.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))
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

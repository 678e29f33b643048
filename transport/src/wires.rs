//! The four ways by which a rank's packets reach the network.
//!
//! - [`Sockets`] work in every container, and are the default.
//! - A [`UringSockets`] does the same through io_uring. The job must ask for it: container runtimes
//!   forbid it, only one thread may use it, and it saves few system calls, because GSO and GRO need
//!   only one for 64 KiB, whose copies cost a hundred times as much.
//! - [`XdpSockets`] go past the network stack by AF_XDP, where this process may take over a NIC.
//!   The job must ask for it: only virtual links could be measured, and there large tensors take
//!   four times as long, since the kernel copies each packet and joins none.
//! - [`Rdma`] bypasses the kernel where a device can. The job must ask for it too: only software
//!   devices could be measured, and they are slower than UDP.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use gradwire_protocol::job::{TransportKeys, WireChoice};
use gradwire_protocol::machine::Transmit;
use gradwire_protocol::units::{Entropy, Rank};

use crate::address::Address;
use crate::rdma::{Rdma, RdmaError};
use crate::seal::Destination;
use crate::slot::PacketSlot;
use crate::udp::{self, SocketCounters, Sockets, SuperPacket};
use crate::uring::{UringSockets, UringUnavailable};
use crate::wake::{self, ReadableSockets, RoomNotice, SocketPoller};
use crate::xdp::{XdpSockets, XdpUnavailable};

/// The sockets or queue pairs of a rank.
#[derive(Debug)]
pub enum Wires {
    /// A system call for each send and receive.
    Sockets(Sockets),
    /// The same sockets through io_uring.
    Uring(Box<UringSockets>),
    /// Queues of a NIC by AF_XDP, beside the same sockets.
    Xdp(Box<XdpSockets>),
    /// Queue pairs of an RDMA device.
    Rdma(Box<Rdma>),
}

/// Which threads may use [`Wires`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WireThreads {
    /// Any, one at a time.
    Any,
    /// Only the thread that uses them first.
    First,
}

/// The wires that the job asks for could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum WiresError {
    /// Sockets cannot be opened.
    #[error(transparent)]
    Sockets(#[from] udp::SocketsError),
    /// The job asks for io_uring, which does not work here.
    #[error("transport.wire is \"uring\": {0}")]
    Uring(#[from] UringUnavailable),
    /// The job asks for AF_XDP, which does not work here.
    #[error("transport.wire is \"xdp\": {0}")]
    Xdp(#[from] XdpUnavailable),
    /// The job asks for RDMA, which does not work here.
    #[error("transport.wire is \"rdma\": {0}")]
    Rdma(#[from] RdmaError),
}

impl Wires {
    /// Opens the wires that the job asks for, for a rank on `address`: one socket or queue pair per
    /// entropy.
    ///
    /// # Errors
    /// [`WiresError`] when sockets cannot be opened, or the job asks for io_uring, AF_XDP or RDMA
    /// and it does not work here.
    pub fn open(
        transport: &TransportKeys,
        address: IpAddr,
        rank: Rank,
    ) -> Result<Self, WiresError> {
        let sockets = || Sockets::open(address, transport.entropies);
        Ok(match transport.wire {
            WireChoice::Uring => Self::Uring(Box::new(UringSockets::over(sockets()?)?)),
            WireChoice::Xdp => {
                Self::Xdp(Box::new(XdpSockets::over(sockets()?, transport, address)?))
            }
            WireChoice::Rdma => Self::Rdma(Box::new(Rdma::open(transport, address, rank)?)),
            WireChoice::Auto | WireChoice::Udp | WireChoice::SharedMemory => {
                Self::Sockets(sockets()?)
            }
        })
    }

    /// The name that reports use.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sockets(_) => "udp",
            Self::Uring(_) => "uring",
            Self::Xdp(_) => "xdp",
            Self::Rdma(_) => "rdma",
        }
    }

    /// The subject of error messages.
    pub fn subject(&self) -> String {
        match self {
            Self::Sockets(_) => "a socket".to_owned(),
            Self::Uring(_) => "io_uring".to_owned(),
            Self::Xdp(xdp) => format!("AF_XDP on {}", xdp.interface()),
            Self::Rdma(rdma) => format!("RDMA over {}", rdma.device()),
        }
    }

    /// The largest packet that they take, as `transport.mtu` counts it; `None` where the
    /// interface's MTU decides.
    pub fn mtu(&self) -> Option<u32> {
        match self {
            Self::Sockets(_) | Self::Uring(_) => None,
            Self::Xdp(xdp) => Some(xdp.mtu()),
            Self::Rdma(rdma) => Some(rdma.mtu()),
        }
    }

    /// Which threads may send and receive.
    pub const fn threads(&self) -> WireThreads {
        match self {
            Self::Sockets(_) | Self::Xdp(_) | Self::Rdma(_) => WireThreads::Any,
            Self::Uring(_) => WireThreads::First,
        }
    }

    /// The sockets that can be read now, or some of them if there are many. The set is empty only
    /// when every packet that had arrived was read.
    ///
    /// # Errors
    /// The kernel's error about a ring.
    pub fn readable(&mut self) -> io::Result<ReadableSockets> {
        match self {
            Self::Sockets(sockets) => Ok(sockets.readable()),
            Self::Uring(ring) => ring.readable(),
            Self::Xdp(xdp) => Ok(xdp.readable()),
            Self::Rdma(rdma) => rdma.readable(),
        }
    }

    /// Reads one super-packet from socket `index` into `slot`, or exchanges `slot` for one that
    /// holds it; `None` when the socket is empty.
    ///
    /// # Errors
    /// The kernel's error, unless it only means an empty socket or a peer that does not listen.
    pub fn receive(
        &mut self,
        index: usize,
        slot: &mut PacketSlot,
    ) -> io::Result<Option<SuperPacket>> {
        match self {
            Self::Sockets(sockets) => sockets.receive(index, slot.own()),
            Self::Uring(ring) => ring.receive(index, slot.own()),
            Self::Xdp(xdp) => xdp.receive(index, slot.own()),
            Self::Rdma(rdma) => rdma.receive(slot),
        }
    }

    /// As [`Sockets::send`].
    ///
    /// # Errors
    /// As [`Sockets::send`].
    pub fn send(&mut self, transmit: &Transmit<'_>, to: Destination<'_>) -> io::Result<usize> {
        match self {
            Self::Sockets(sockets) => sockets.send(transmit, to),
            Self::Uring(ring) => ring.send(transmit, to),
            Self::Xdp(xdp) => xdp.send(transmit, to),
            Self::Rdma(rdma) => rdma.send(transmit, to),
        }
    }

    /// Whether the path of an entropy takes more packets, after it has taken fewer than all.
    ///
    /// # Errors
    /// When the device no longer works.
    pub(crate) fn has_room(&mut self, path: Entropy) -> io::Result<bool> {
        match self {
            Self::Rdma(rdma) => rdma.has_room(path),
            Self::Xdp(xdp) => Ok(xdp.has_room(path)),
            Self::Sockets(_) | Self::Uring(_) => Ok(wake::is_writable(self.descriptor(path))),
        }
    }

    /// Ends a sleep when the path of an entropy may take more packets.
    ///
    /// # Errors
    /// When the device no longer works.
    pub(crate) fn room_notice(&mut self, path: Entropy) -> io::Result<RoomNotice> {
        match self {
            Self::Rdma(rdma) => Ok(RoomNotice::Completion(rdma.room_notice()?)),
            Self::Sockets(_) | Self::Uring(_) | Self::Xdp(_) => {
                Ok(RoomNotice::Writable(self.descriptor(path)))
            }
        }
    }

    /// From here on an arriving packet ends a sleep on [`Wires::readiness`]. Look once more between
    /// this and sleeping.
    pub(crate) fn arm(&mut self) -> io::Result<()> {
        match self {
            Self::Sockets(_) | Self::Uring(_) | Self::Xdp(_) => Ok(()),
            Self::Rdma(rdma) => rdma.lie_down(),
        }
    }

    /// The thread does not sleep.
    pub(crate) fn disarm(&mut self) -> io::Result<()> {
        match self {
            Self::Sockets(_) | Self::Uring(_) | Self::Xdp(_) => Ok(()),
            Self::Rdma(rdma) => rdma.get_up(),
        }
    }

    /// The sockets, if these wires have any.
    pub fn sockets(&self) -> Option<&Sockets> {
        match self {
            Self::Sockets(sockets) => Some(sockets),
            Self::Uring(ring) => Some(ring.sockets()),
            Self::Xdp(xdp) => Some(xdp.sockets()),
            Self::Rdma(_) => None,
        }
    }

    /// The sockets, to change how they are used, if all packets go through them.
    pub fn sockets_mut(&mut self) -> Option<&mut Sockets> {
        match self {
            Self::Sockets(sockets) => Some(sockets),
            Self::Uring(ring) => Some(ring.sockets_mut()),
            Self::Xdp(_) | Self::Rdma(_) => None,
        }
    }

    /// Where peers reach this rank, one address per entropy.
    pub fn addresses(&self) -> &[Address] {
        match self {
            Self::Sockets(sockets) => sockets.addresses(),
            Self::Uring(ring) => ring.sockets().addresses(),
            Self::Xdp(xdp) => xdp.sockets().addresses(),
            Self::Rdma(rdma) => rdma.addresses(),
        }
    }

    /// Bytes of packets that are buffered until they are read.
    pub fn receive_buffer(&self) -> u64 {
        match self {
            Self::Sockets(sockets) => sockets.receive_buffer(),
            Self::Uring(ring) => ring.sockets().receive_buffer(),
            Self::Xdp(xdp) => xdp.receive_buffer(),
            Self::Rdma(rdma) => rdma.receive_buffer(),
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> SocketCounters {
        match self {
            Self::Sockets(sockets) => sockets.counters(),
            Self::Uring(ring) => ring.sockets().counters(),
            Self::Xdp(xdp) => xdp.counters(),
            Self::Rdma(rdma) => rdma.counters(),
        }
    }

    /// How many packets this host has dropped so far; see [`Sockets::ask_for_drops`].
    pub fn ask_for_drops(&mut self) -> u64 {
        match self {
            Self::Sockets(sockets) => sockets.ask_for_drops(),
            Self::Uring(ring) => ring.sockets_mut().ask_for_drops(),
            Self::Xdp(xdp) => xdp.ask_for_drops(),
            Self::Rdma(rdma) => rdma.counters().kernel_drops,
        }
    }

    /// The descriptor that becomes readable when packets arrive by the path of an entropy.
    pub fn descriptor(&self, entropy: Entropy) -> RawFd {
        match self {
            Self::Sockets(sockets) => sockets.descriptor(entropy),
            Self::Uring(ring) => ring.sockets().descriptor(entropy),
            Self::Xdp(xdp) => xdp.descriptor(entropy),
            Self::Rdma(rdma) => rdma.descriptor(),
        }
    }

    /// The poller to sleep on until a packet arrives. With a ring it is that of the sockets: a
    /// packet stays in its socket until the ring is read.
    pub(crate) fn readiness(&self) -> &SocketPoller {
        match self {
            Self::Sockets(sockets) => sockets.readiness(),
            Self::Uring(ring) => ring.sockets().readiness(),
            Self::Xdp(xdp) => xdp.readiness(),
            Self::Rdma(rdma) => rdma.readiness(),
        }
    }
}

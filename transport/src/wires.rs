//! By which of three ways a rank's packets reach the network.
//!
//! [`Sockets`] need nothing but sockets, and work in every container. A [`UringSockets`] asks io_uring for
//! the same; the job has to want it, since container runtimes forbid it, only one thread may use
//! it, and it saves system calls where GSO and GRO have left few: one for 64 KiB, whose copies cost
//! a hundred times as much. [`Rdma`] goes past the kernel where a device can. The job has to want
//! it, too: only devices of software could be measured, which are slower than UDP.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use gradwire_protocol::job::{TransportKeys, WireChoice};
use gradwire_protocol::machine::Transmit;
use gradwire_protocol::units::{Entropy, Rank, Span};

use crate::address::Address;
use crate::rdma::{Rdma, RdmaError};
use crate::seal::Seal;
use crate::slot::PacketSlot;
use crate::udp::{self, SocketCounters, Sockets, SuperPacket};
use crate::uring::{UringSockets, UringUnavailable};
use crate::wake::{self, ReadableSockets, SocketPoller};

/// A rank's sockets and how they are used.
#[derive(Debug)]
pub enum Wires {
    /// A system call for each send and receive.
    Sockets(Sockets),
    /// By io_uring.
    Uring(Box<UringSockets>),
    /// By queue pairs of an RDMA device.
    Rdma(Box<Rdma>),
}

/// How packets arrive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ArrivalMode {
    /// Many at a time, glued together by the kernel.
    Glued,
    /// Each by itself.
    Single,
}

/// Which threads may use [`Wires`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WireThreads {
    /// Any, one at a time.
    Any,
    /// Only the one that uses them first.
    First,
}

/// Why there are no wires.
#[derive(Debug, thiserror::Error)]
pub enum WiresError {
    /// Sockets cannot be opened.
    #[error(transparent)]
    Sockets(#[from] udp::SocketsError),
    /// The job wants io_uring, which does not work here.
    #[error("transport.wire is \"uring\": {0}")]
    Uring(#[from] UringUnavailable),
    /// The job wants RDMA, which does not work here.
    #[error("transport.wire is \"rdma\": {0}")]
    Rdma(#[from] RdmaError),
}

impl Wires {
    /// Opens what the job wants for a rank on `address`: one socket or queue pair per entropy.
    ///
    /// # Errors
    /// [`WiresError`] when there are no sockets, or no io_uring or RDMA where it is wanted.
    pub fn open(
        transport: &TransportKeys,
        address: IpAddr,
        rank: Rank,
    ) -> Result<Self, WiresError> {
        let sockets = || Sockets::open(address, transport.entropies);
        Ok(match transport.wire {
            WireChoice::Uring => Self::Uring(Box::new(UringSockets::over(sockets()?)?)),
            WireChoice::Rdma => Self::Rdma(Box::new(Rdma::open(transport, address, rank)?)),
            WireChoice::Auto | WireChoice::Udp | WireChoice::SharedMemory => {
                Self::Sockets(sockets()?)
            }
        })
    }

    /// What reports call them.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sockets(_) => "udp",
            Self::Uring(_) => "uring",
            Self::Rdma(_) => "rdma",
        }
    }

    /// What messages about failures begin with.
    pub fn subject(&self) -> String {
        match self {
            Self::Sockets(_) => "a socket".to_owned(),
            Self::Uring(_) => "io_uring".to_owned(),
            Self::Rdma(rdma) => format!("RDMA over {}", rdma.device()),
        }
    }

    /// How packets arrive.
    pub const fn arrivals(&self) -> ArrivalMode {
        match self {
            Self::Sockets(_) | Self::Uring(_) => ArrivalMode::Glued,
            Self::Rdma(_) => ArrivalMode::Single,
        }
    }

    /// The largest packet that they take, in the terms of `transport.mtu`, where that is not the
    /// interface's.
    pub fn mtu(&self) -> Option<u32> {
        match self {
            Self::Sockets(_) | Self::Uring(_) => None,
            Self::Rdma(rdma) => Some(rdma.mtu()),
        }
    }

    /// Which threads may send and receive.
    pub const fn threads(&self) -> WireThreads {
        match self {
            Self::Sockets(_) | Self::Rdma(_) => WireThreads::Any,
            Self::Uring(_) => WireThreads::First,
        }
    }

    /// The sockets that can be read now, or some of them when they are many; none only when all
    /// that had arrived was read.
    ///
    /// # Errors
    /// Whatever the kernel says about a ring.
    pub fn readable(&mut self) -> io::Result<ReadableSockets> {
        match self {
            Self::Sockets(sockets) => Ok(sockets.readable()),
            Self::Uring(ring) => ring.readable(),
            Self::Rdma(rdma) => rdma.readable(),
        }
    }

    /// Reads one super-packet from socket `index` into `slot`, which may be exchanged for another;
    /// `None` when there is none.
    ///
    /// # Errors
    /// Whatever the kernel says, except that there is nothing or that a peer does not listen.
    pub fn receive(
        &mut self,
        index: usize,
        slot: &mut PacketSlot,
    ) -> io::Result<Option<SuperPacket>> {
        match self {
            Self::Sockets(sockets) => sockets.receive(index, slot.own()),
            Self::Uring(ring) => ring.receive(index, slot.own()),
            Self::Rdma(rdma) => rdma.receive(slot),
        }
    }

    /// As [`Sockets::send`].
    ///
    /// # Errors
    /// As [`Sockets::send`].
    pub fn send(
        &mut self,
        transmit: &Transmit<'_>,
        skip: usize,
        to: (&[Address], &mut Seal),
    ) -> io::Result<usize> {
        match self {
            Self::Sockets(sockets) => sockets.send(transmit, skip, to),
            Self::Uring(ring) => ring.send(transmit, skip, to),
            Self::Rdma(rdma) => rdma.send(transmit, skip, to),
        }
    }

    /// Waits until more can be sent by a path, or `most` has passed.
    ///
    /// # Errors
    /// When the device no longer works.
    pub fn wait_to_send(&mut self, path: Entropy, most: Span) -> io::Result<()> {
        match self {
            Self::Rdma(rdma) => return rdma.wait_to_send(most),
            Self::Sockets(sockets) => wake::wait_writable(sockets.descriptor(path), most),
            Self::Uring(ring) => wake::wait_writable(ring.sockets().descriptor(path), most),
        }
        Ok(())
    }

    /// From here on what arrives ends a sleep on [`Wires::readiness`]. Look once more before.
    pub(crate) fn lie_down(&mut self) -> io::Result<()> {
        match self {
            Self::Sockets(_) | Self::Uring(_) => Ok(()),
            Self::Rdma(rdma) => rdma.lie_down(),
        }
    }

    /// The sleep is over, or there was none.
    pub(crate) fn get_up(&mut self) -> io::Result<()> {
        match self {
            Self::Sockets(_) | Self::Uring(_) => Ok(()),
            Self::Rdma(rdma) => rdma.get_up(),
        }
    }

    /// The sockets themselves, where there are some.
    pub fn sockets(&self) -> Option<&Sockets> {
        match self {
            Self::Sockets(sockets) => Some(sockets),
            Self::Uring(ring) => Some(ring.sockets()),
            Self::Rdma(_) => None,
        }
    }

    /// The sockets themselves, to change how they are used, where there are some.
    pub fn sockets_mut(&mut self) -> Option<&mut Sockets> {
        match self {
            Self::Sockets(sockets) => Some(sockets),
            Self::Uring(ring) => Some(ring.sockets_mut()),
            Self::Rdma(_) => None,
        }
    }

    /// Where peers reach this rank, one address per entropy.
    pub fn addresses(&self) -> &[Address] {
        match self {
            Self::Sockets(sockets) => sockets.addresses(),
            Self::Uring(ring) => ring.sockets().addresses(),
            Self::Rdma(rdma) => rdma.addresses(),
        }
    }

    /// Bytes of packets that are kept until they are read.
    pub fn receive_buffer(&self) -> u64 {
        match self {
            Self::Sockets(sockets) => sockets.receive_buffer(),
            Self::Uring(ring) => ring.sockets().receive_buffer(),
            Self::Rdma(rdma) => rdma.receive_buffer(),
        }
    }

    /// What was counted so far.
    pub fn counters(&self) -> SocketCounters {
        match self {
            Self::Sockets(sockets) => sockets.counters(),
            Self::Uring(ring) => ring.sockets().counters(),
            Self::Rdma(rdma) => rdma.counters(),
        }
    }

    /// What this host has dropped so far, as [`Sockets::ask_for_drops`].
    pub fn ask_for_drops(&mut self) -> u64 {
        match self {
            Self::Sockets(sockets) => sockets.ask_for_drops(),
            Self::Uring(ring) => ring.sockets_mut().ask_for_drops(),
            Self::Rdma(rdma) => rdma.counters().kernel_drops,
        }
    }

    /// What can be read when packets have arrived by a path.
    pub fn descriptor(&self, entropy: Entropy) -> RawFd {
        match self {
            Self::Sockets(sockets) => sockets.descriptor(entropy),
            Self::Uring(ring) => ring.sockets().descriptor(entropy),
            Self::Rdma(rdma) => rdma.descriptor(),
        }
    }

    /// What to sleep on until something can be read. With a ring as well: what arrives stays in the
    /// socket until the ring is looked at.
    pub(crate) fn readiness(&self) -> &SocketPoller {
        match self {
            Self::Sockets(sockets) => sockets.readiness(),
            Self::Uring(ring) => ring.sockets().readiness(),
            Self::Rdma(rdma) => rdma.readiness(),
        }
    }
}

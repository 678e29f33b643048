//! By which of two ways a rank's UDP packets reach the kernel.
//!
//! [`Sockets`] need nothing but sockets, and work in every container. A [`Ring`] asks io_uring for
//! the same; the job has to want it, since container runtimes forbid it, only one thread may use
//! it, and it saves system calls where GSO and GRO have left few: one for 64 KiB, whose copies cost
//! a hundred times as much.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use gradwire_protocol::job::Wire;
use gradwire_protocol::machine::Transmit;
use gradwire_protocol::units::Entropy;

use crate::seal::Seal;
use crate::udp::{self, Arrival, SocketCounters, Sockets};
use crate::uring::{Ring, Unavailable};
use crate::wake::{Readable, Readiness};

/// A rank's sockets and how they are used.
#[derive(Debug)]
pub enum Wires {
    /// A system call for each send and receive.
    Sockets(Sockets),
    /// By io_uring.
    Uring(Box<Ring>),
}

/// Which threads may use [`Wires`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Threads {
    /// Any, one at a time.
    Any,
    /// Only the one that uses them first.
    First,
}

/// Why there are no wires.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Sockets cannot be opened.
    #[error(transparent)]
    Sockets(#[from] udp::OpenError),
    /// The job wants io_uring, which does not work here.
    #[error("transport.wire is \"uring\": {0}")]
    Uring(#[from] Unavailable),
}

impl Wires {
    /// Opens one socket per entropy on `address`, for io_uring if the job wants just that.
    ///
    /// # Errors
    /// [`OpenError`] when there are no sockets, or no io_uring where it is wanted.
    pub fn open(wire: Wire, address: IpAddr, entropies: u8) -> Result<Self, OpenError> {
        let sockets = Sockets::open(address, entropies)?;
        Ok(match wire {
            Wire::Uring => Self::Uring(Box::new(Ring::over(sockets)?)),
            Wire::Auto | Wire::Udp | Wire::SharedMemory => Self::Sockets(sockets),
        })
    }

    /// What reports call them.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sockets(_) => "udp",
            Self::Uring(_) => "uring",
        }
    }

    /// Which threads may send and receive.
    pub const fn threads(&self) -> Threads {
        match self {
            Self::Sockets(_) => Threads::Any,
            Self::Uring(_) => Threads::First,
        }
    }

    /// The sockets that can be read now, or some of them when they are many; none only when all
    /// that had arrived was read.
    ///
    /// # Errors
    /// Whatever the kernel says about a ring.
    pub fn readable(&mut self) -> io::Result<Readable> {
        match self {
            Self::Sockets(sockets) => Ok(sockets.readable()),
            Self::Uring(ring) => ring.readable(),
        }
    }

    /// Reads one super-packet from socket `index` into `slot`, which has
    /// [`SLOT_BYTES`](udp::SLOT_BYTES) bytes and may be exchanged for another of that size; `None`
    /// when there is none.
    ///
    /// # Errors
    /// Whatever the kernel says, except that there is nothing or that a peer does not listen.
    pub fn receive(&mut self, index: usize, slot: &mut Vec<u8>) -> io::Result<Option<Arrival>> {
        match self {
            Self::Sockets(sockets) => sockets.receive(index, slot),
            Self::Uring(ring) => ring.receive(index, slot),
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
        to: (&[SocketAddr], &mut Seal),
    ) -> io::Result<usize> {
        match self {
            Self::Sockets(sockets) => sockets.send(transmit, skip, to),
            Self::Uring(ring) => ring.send(transmit, skip, to),
        }
    }

    /// The sockets themselves.
    pub fn sockets(&self) -> &Sockets {
        match self {
            Self::Sockets(sockets) => sockets,
            Self::Uring(ring) => ring.sockets(),
        }
    }

    /// The sockets themselves, to change how they are used.
    pub fn sockets_mut(&mut self) -> &mut Sockets {
        match self {
            Self::Sockets(sockets) => sockets,
            Self::Uring(ring) => ring.sockets_mut(),
        }
    }

    /// Where peers reach this rank, one address per entropy.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.sockets().addresses()
    }

    /// Bytes of packets that the kernel keeps until they are read.
    pub fn receive_buffer(&self) -> u64 {
        self.sockets().receive_buffer()
    }

    /// What was counted so far.
    pub fn counters(&self) -> SocketCounters {
        self.sockets().counters()
    }

    /// As [`Sockets::ask_for_drops`].
    pub fn ask_for_drops(&mut self) -> u64 {
        self.sockets_mut().ask_for_drops()
    }

    /// The socket that packets of an entropy leave by.
    pub fn descriptor(&self, entropy: Entropy) -> RawFd {
        self.sockets().descriptor(entropy)
    }

    /// What to sleep on until a socket can be read. With a ring as well: what arrives stays in the
    /// socket until the ring is looked at.
    pub(crate) fn readiness(&self) -> &Readiness {
        self.sockets().readiness()
    }
}

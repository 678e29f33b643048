//! The same UDP sockets by io_uring: no system call per send or receive.
//!
//! One thread owns a [`UringSockets`] from its first call on. The kernel works for it only while
//! that thread is inside `io_uring_enter` (single issuer, deferred task running). Hence:
//!
//! - The kernel writes into slots only then. A full slot is exchanged for the caller's empty one,
//!   so no byte is copied.
//! - The kernel has read the bytes of a send before [`UringSockets::send`] returns: a send never
//!   waits in the kernel (`MSG_DONTWAIT`), and the call waits for its completion. So packets may be
//!   gathered from a tensor, and staging needs no pool.
//! - Packets that arrive while the thread sleeps stay in the sockets. So the thread sleeps on the
//!   sockets, as without a ring.
//! - Completions are bounded: one per slot, one for the end of each socket's receive, and one send.
//!   So the completion queue never overflows.
//!
//! Not here: runs, GSO, addresses and counts ([`Sockets`]), and the choice of a wire
//! ([`crate::wires`]).

mod queue;
mod slots;

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use socket2::SockAddr;

use gradwire_protocol::machine::Transmit;
use gradwire_protocol::units::{Entropy, Span};

use crate::message::{self, RING_PACKETS_AT, SendControl, SendPackets};
use crate::seal::Destination;
use crate::udp::{SLOT_BYTES, Sockets, SuperPacket};
use crate::wake::{self, ReadableSockets};
use queue::UringQueue;

/// How long the probe's packet may take through loopback.
const PROBE_PATIENCE: Span = Span::from_millis(100);
/// The kernel's release.
const RELEASE_PATH: &str = "/proc/sys/kernel/osrelease";
/// Which processes may use io_uring.
const DISABLED_PATH: &str = "/proc/sys/kernel/io_uring_disabled";

/// The features of a working ring.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UringFeatures {
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
}

/// The reason why io_uring does not work here.
#[derive(Debug, thiserror::Error)]
pub enum UringUnavailable {
    /// The kernel is older than deferred task running, or has some feature left out.
    #[error(
        "io_uring of kernel {kernel} cannot receive several packets by one request into a ring of \
         buffers: Linux 6.1 or newer is needed; update it, or set transport.wire to \"udp\""
    )]
    TooOld {
        /// The kernel's release.
        kernel: String,
    },
    /// The administrator forbids it.
    #[error(
        "kernel.io_uring_disabled is {setting}, which forbids io_uring to this process: run \
         `sysctl kernel.io_uring_disabled=0` as root, or set transport.wire to \"udp\""
    )]
    Disabled {
        /// The value of the setting.
        setting: String,
    },
    /// A filter of system calls forbids it.
    #[error(
        "a filter of system calls forbids io_uring, as container runtimes do ({source}): run the \
         container with a seccomp profile that allows io_uring_setup, io_uring_enter and \
         io_uring_register, or set transport.wire to \"udp\""
    )]
    Filtered {
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel was built without it.
    #[error(
        "kernel {kernel} has no io_uring, or a filter of system calls hides it: use a kernel with \
         CONFIG_IO_URING, or set transport.wire to \"udp\""
    )]
    Absent {
        /// The kernel's release.
        kernel: String,
    },
    /// The limit of locked memory is too low.
    #[error(
        "no memory for a ring ({source}): raise the limit of locked memory (`ulimit -l`) or of the \
         container's memory, or set transport.wire to \"udp\""
    )]
    Memory {
        /// The kernel's error.
        source: io::Error,
    },
    /// A packet through loopback did not arrive unchanged.
    #[error("a packet sent by io_uring was lost on loopback: set transport.wire to \"udp\"")]
    Silent,
    /// Something else.
    #[error("io_uring does not work here: {source}; set transport.wire to \"udp\"")]
    Refused {
        /// The kernel's error.
        source: io::Error,
    },
}

/// Tests a ring by sending a packet through it. This takes less than a millisecond if it works.
///
/// # Errors
/// [`UringUnavailable`] if it does not.
pub fn probe() -> Result<UringFeatures, UringUnavailable> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let sockets = Sockets::open(loopback, 1).map_err(|error| UringUnavailable::Refused {
        source: io::Error::other(error),
    })?;
    let mut ring = UringSockets::over(sockets)?;
    match ring
        .reaches_itself(b"gradwire")
        .map_err(UringUnavailable::of)?
    {
        true => Ok(UringFeatures { kernel: kernel() }),
        false => Err(UringUnavailable::Silent),
    }
}

/// Sockets whose packets come and go by io_uring.
#[derive(Debug)]
pub struct UringSockets {
    queue: UringQueue,
    sockets: Sockets,
}

impl UringSockets {
    /// A ring over open sockets. Only the thread that uses it first may use it.
    ///
    /// # Errors
    /// [`UringUnavailable`] if the kernel refuses a ring.
    pub fn over(sockets: Sockets) -> Result<Self, UringUnavailable> {
        let descriptors = (0..sockets.len()).map(|index| sockets.descriptor(Entropy(index as u8)));
        let queue = UringQueue::new(descriptors.collect()).map_err(UringUnavailable::of)?;
        Ok(Self { queue, sockets })
    }

    /// The sockets below.
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// The sockets below, to change how they are used.
    pub fn sockets_mut(&mut self) -> &mut Sockets {
        &mut self.sockets
    }

    /// The sockets with arrived packets. The result is empty only after all earlier packets were
    /// received. An empty result costs no system call.
    ///
    /// # Errors
    /// The kernel's error about a socket or the ring.
    pub fn readable(&mut self) -> io::Result<ReadableSockets> {
        self.queue.look()
    }

    /// Puts the oldest super-packet of socket `index` into `slot`, and gives the former buffer of
    /// the slot to the kernel. `None` if there is no packet.
    ///
    /// # Errors
    /// If the kernel does not name the sender.
    pub fn receive(&mut self, index: usize, slot: &mut Vec<u8>) -> io::Result<Option<SuperPacket>> {
        if !self.queue.take(index, slot) {
            return Ok(None);
        }
        let received = message::received_in(slot)?;
        let arrival = self.sockets.arrived(index, RING_PACKETS_AT, &received);
        Ok(Some(arrival))
    }

    /// As [`Sockets::send`].
    ///
    /// # Errors
    /// As [`Sockets::send`].
    pub fn send(&mut self, transmit: &Transmit<'_>, to: Destination<'_>) -> io::Result<usize> {
        let queue = &mut self.queue;
        let hand_over = |descriptor, message: &_| queue.send(descriptor, message);
        self.sockets.send_by(hand_over, transmit, to)
    }

    /// Sends a packet to the first socket's own address. Returns whether it came.
    fn reaches_itself(&mut self, packet: &[u8]) -> io::Result<bool> {
        // The receive is armed before the send, so the packet has to wake it up.
        self.readable()?;
        let own = self.sockets.addresses()[0].socket();
        let to = SockAddr::from(own.expect("sockets have addresses of sockets"));
        let control = SendControl {
            packet_bytes: None,
            traffic_class: 0,
            to: &to,
        };
        let descriptor = self.sockets.descriptor(Entropy(0));
        let hand_over = |message: &_| self.queue.send(descriptor, message);
        message::written(&SendPackets::Staged(packet), &control, hand_over)?;
        if self.readable()?.is_empty() {
            wake::wait_readable(self.sockets.readiness(), PROBE_PATIENCE);
        }
        let mut slot = vec![0; SLOT_BYTES];
        let came = match self.readable()?.next() {
            Some(index) => self.receive(index, &mut slot)?,
            None => None,
        };
        Ok(came.is_some_and(|arrival| arrival.packets(&mut slot).any(|one| one == packet)))
    }
}

impl UringUnavailable {
    /// Explains a refusal of the kernel.
    fn of(source: io::Error) -> Self {
        let setting = std::fs::read_to_string(DISABLED_PATH).unwrap_or_default();
        Self::explained(source, setting.trim())
    }

    fn explained(source: io::Error, setting: &str) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM) if !["", "0"].contains(&setting) => Self::Disabled {
                setting: setting.to_owned(),
            },
            Some(libc::EPERM | libc::EACCES) => Self::Filtered { source },
            Some(libc::ENOSYS) => Self::Absent { kernel: kernel() },
            Some(libc::EINVAL) => Self::TooOld { kernel: kernel() },
            Some(libc::ENOMEM) => Self::Memory { source },
            _ => Self::Refused { source },
        }
    }
}

/// The kernel's release.
fn kernel() -> String {
    let release = std::fs::read_to_string(RELEASE_PATH);
    release.map_or_else(
        |_| "of unknown release".to_owned(),
        |text| text.trim().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_names_a_remedy() {
        let said = |errno, setting| {
            let source = io::Error::from_raw_os_error(errno);
            UringUnavailable::explained(source, setting).to_string()
        };
        assert!(said(libc::EPERM, "2").contains("kernel.io_uring_disabled is 2"));
        assert!(said(libc::EPERM, "0").contains("seccomp profile"));
        assert!(said(libc::ENOSYS, "").contains("CONFIG_IO_URING"));
        assert!(said(libc::EINVAL, "0").contains("Linux 6.1"));
        assert!(said(libc::ENOMEM, "0").contains("ulimit -l"));
        assert!(said(libc::EMFILE, "0").contains("Too many open files"));
        for errno in [
            libc::EPERM,
            libc::ENOSYS,
            libc::EINVAL,
            libc::ENOMEM,
            libc::EIO,
        ] {
            assert!(said(errno, "0").contains("transport.wire"), "{errno}");
        }
    }
}

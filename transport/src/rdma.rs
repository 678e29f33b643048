//! Packets as unreliable datagrams of an RDMA device: no kernel on the way of a packet.
//!
//! A rank has one queue pair per path, so that switches see several UDP source ports; all of them
//! receive into one ring. What is sent is sealed right into memory that the device reads, what
//! arrives is opened where the device wrote it. Headers, keys and the replay window are those of
//! every wire, so a queue pair's number and key protect nothing and need not be secret.
//!
//! - `library` loads libibverbs, whose structures are in `abi`; `device` chooses device, port and
//!   GID; `memory` registers; `sending` and `receiving` are the two rings; `header` tells what the
//!   network did to a packet; [`RdmaError`] says what is wrong and what helps.
//!
//! No copy of a tensor is saved by registering tensors: packets that are sealed have to be written
//! anew, and packets that are not would need a list of two parts (header, segment) per request and
//! a registration per tensor, which outlives the operation. The rings' own memory is all that is
//! registered.
//!
//! What is not here: which packets are sent (the machine), when (the [driver](crate::driver)), and
//! how ranks learn each other's queue pairs (the [control plane](crate::control)).

mod abi;
mod device;
mod error;
mod header;
mod library;
pub(crate) mod memory;
mod receive_ring;
pub mod rehearsal;
mod send_queues;
#[cfg(test)]
mod tests;
mod verbs_object;
mod watch;

use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, RawFd};

use aws_lc_rs::rand;

use gradwire_protocol::job::{Mtu, TransportKeys};
use gradwire_protocol::machine::{Ecn, Transmit};
use gradwire_protocol::units::{Rank, Span};

use crate::address::Address;
use crate::seal::Destination;
use crate::slot::PacketSlot;
use crate::udp::{SocketCounters, SuperPacket};
use crate::wake::{self, ReadableSockets, SocketPoller};
use abi::HEADER_ROOM;
use device::{DeviceRequest, RdmaDevice};
pub use error::RdmaError;
use library::Library;
use memory::GpuMemory;
use receive_ring::ReceiveRing;
use send_queues::SendQueues;
use watch::DeviceWatch;

/// Which of the descriptors stands for packets; the other one tells of the device.
const PACKETS: usize = 0;
/// What a job's MTU counts besides a packet: IPv6 and UDP headers, as `segment_bytes` says.
const IP_AND_UDP_BYTES: u32 = 48;

/// A rank's queue pairs.
#[derive(Debug)]
pub struct Rdma {
    sending: SendQueues,
    receiving: ReceiveRing,
    watch: DeviceWatch,
    readiness: SocketPoller,
    addresses: Vec<Address>,
    device: RdmaDevice,
}

/// What a rank's queue pairs did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RdmaCounters {
    /// Packets posted to be sent.
    pub packets: u64,
    /// Times that the device was told of a list of them.
    pub send_doorbells: u64,
    /// Completions of sends that were looked at.
    pub completions: u64,
    /// Packets that travelled inside their requests.
    pub inline: u64,
    /// Batches of places given to the device to receive into.
    pub receive_doorbells: u64,
    /// Times that all places were filled, so that the device may have dropped packets.
    pub dry: u64,
}

impl Rdma {
    /// Opens the device that the job names, or the one with the rank's address, and makes a queue
    /// pair for each path.
    ///
    /// # Errors
    /// [`RdmaError`], which says what to do.
    pub fn open(transport: &TransportKeys, address: IpAddr, rank: Rank) -> Result<Self, RdmaError> {
        Self::open_by(library::loaded()?, transport, (address, rank))
    }

    fn open_by(
        library: &'static Library,
        transport: &TransportKeys,
        (address, rank): (IpAddr, Rank),
    ) -> Result<Self, RdmaError> {
        let wish = DeviceRequest {
            devices: &transport.rdma_device,
            gid: transport.rdma_gid,
            address,
            turn: usize::from(rank.0),
        };
        let device = RdmaDevice::find(library, &wish)?;
        let most = device.place.mtu;
        if let Mtu::Bytes(given) = transport.mtu
            && given > mtu_of(most)
        {
            return Err(RdmaError::MtuTooLarge {
                given,
                device: device.name,
                most,
            });
        }
        let receiving = ReceiveRing::new(&device)?;
        let paths = usize::from(transport.entropies);
        let sending = SendQueues::new(&device, &receiving, (paths, queue_key()))?;
        let watch = DeviceWatch::new(&device, transport.peer_timeout)?;
        let descriptors = [receiving.descriptor(), watch.descriptor()];
        let readiness = SocketPoller::of(descriptors.into_iter());
        let readiness =
            readiness.map_err(|source| device.failed("waiting for its notices", source))?;
        Ok(Self {
            addresses: sending.addresses().map(Address::QueuePair).collect(),
            sending,
            receiving,
            watch,
            readiness,
            device,
        })
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        &self.device.name
    }

    /// The largest packet in the terms of a job's `transport.mtu`, which counts IP and UDP headers.
    pub fn mtu(&self) -> u32 {
        mtu_of(self.device.place.mtu)
    }

    /// Where peers reach this rank, one address per path.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Bytes of full packets that may arrive before they are read.
    pub fn receive_buffer(&self) -> u64 {
        self.receiving.places() as u64 * u64::from(self.device.place.mtu)
    }

    /// What was counted so far, in the terms of sockets. What the ring dropped is not known; each
    /// time that it was dry counts as one packet.
    pub fn counters(&self) -> SocketCounters {
        SocketCounters {
            sent_packets: self.sending.tally.packets,
            send_calls: self.sending.tally.doorbells,
            kernel_drops: self.receiving.tally.dry,
            refused_packets: 0,
        }
    }

    /// What was counted so far, in its own terms.
    pub fn tally(&self) -> RdmaCounters {
        let (sending, receiving) = (self.sending.tally, self.receiving.tally);
        RdmaCounters {
            packets: sending.packets,
            send_doorbells: sending.doorbells,
            completions: sending.completions,
            inline: sending.inline,
            receive_doorbells: receiving.doorbells,
            dry: receiving.dry,
        }
    }

    /// Whether something has arrived; none only when all that had arrived was received. Costs no
    /// system call, but for a look at the device now and then.
    ///
    /// # Errors
    /// When the device no longer works.
    pub fn readable(&mut self) -> io::Result<ReadableSockets> {
        if self.receiving.look(&self.device)? {
            return Ok(ReadableSockets::from_iter([PACKETS]));
        }
        self.watch.look_sometimes(&self.device)?;
        Ok(ReadableSockets::from_iter([]))
    }

    /// Puts the oldest packet into `slot`, whose former place the device fills later; `None` when
    /// there is none.
    ///
    /// # Errors
    /// When the device no longer works.
    pub fn receive(&mut self, slot: &mut PacketSlot) -> io::Result<Option<SuperPacket>> {
        let arrived = self.receiving.take(&self.device, slot)?;
        Ok(arrived.map(|arrived| SuperPacket {
            at: HEADER_ROOM,
            bytes: arrived.bytes,
            packet_bytes: arrived.bytes.max(1),
            ecn: Ecn::from_bits(arrived.traffic_class),
            dscp: arrived.traffic_class >> 2,
            from: Address::QueuePair(arrived.from),
        }))
    }

    /// As [`Sockets::send`](crate::udp::Sockets::send): fewer than all while the device has not
    /// sent what was posted before.
    ///
    /// # Errors
    /// When the device no longer works, or the peer has no queue pair.
    pub fn send(
        &mut self,
        transmit: &Transmit<'_>,
        skip: usize,
        to: Destination<'_>,
    ) -> io::Result<usize> {
        let path = usize::from(transmit.entropy.0);
        let Destination { addresses, seal } = to;
        let Address::QueuePair(to) = &addresses[path % addresses.len()] else {
            return Err(io::Error::other("a peer has no queue pair"));
        };
        let sent = self
            .sending
            .send(&self.device, (transmit, skip), (to, seal));
        Ok(sent?)
    }

    /// Waits until the device has sent something, or `most` has passed.
    ///
    /// # Errors
    /// When the device no longer works.
    pub fn wait_to_send(&mut self, most: Span) -> io::Result<()> {
        let before = self.sending.tally.completions;
        let fd = self.sending.arm(&self.device)?;
        // What was sent before it was asked for gives no notice.
        self.sending.collect(&self.device)?;
        if self.sending.tally.completions == before {
            self.watch.look(&self.device)?;
            wake::wait_descriptor(fd, most);
        }
        Ok(())
    }

    /// From here on what arrives wakes the sleeper. Look once more before sleeping.
    ///
    /// # Errors
    /// When the device no longer works.
    pub fn lie_down(&mut self) -> io::Result<()> {
        Ok(self.receiving.arm(&self.device)?)
    }

    /// Takes the notices that have come.
    ///
    /// # Errors
    /// When the device no longer works.
    pub fn get_up(&mut self) -> io::Result<()> {
        self.receiving.drain(&self.device);
        Ok(self.watch.look(&self.device)?)
    }

    /// What to sleep on until something arrives.
    pub(crate) fn readiness(&self) -> &SocketPoller {
        &self.readiness
    }

    /// What can be read when something has arrived.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.receiving.descriptor()
    }
}

/// Finds out whether an RDMA device can read and write memory of a GPU: registers `bytes` bytes
/// from `offset` on of what the dma-buf `fd` stands for, and gives that back at once. Packets do
/// not use it: they are sealed by the processor, which a GPU's memory is too far from.
///
/// # Errors
/// [`RdmaError`]: as for [`Rdma::open`], and [`RdmaError::Dmabuf`] with the cause.
pub fn try_gpu_memory(
    transport: &TransportKeys,
    address: IpAddr,
    (fd, offset, bytes): (BorrowedFd<'_>, u64, usize),
) -> Result<u32, RdmaError> {
    let wish = DeviceRequest {
        devices: &transport.rdma_device,
        gid: transport.rdma_gid,
        address,
        turn: 0,
    };
    let device = RdmaDevice::find(library::loaded()?, &wish)?;
    let memory = GpuMemory::new(&device, fd, (offset, bytes))?;
    Ok(memory.key())
}

/// A port that takes datagrams of so many bytes, in the terms of `transport.mtu`.
const fn mtu_of(datagram_bytes: u32) -> u32 {
    datagram_bytes + IP_AND_UDP_BYTES
}

/// A key that packets must carry, so that what strays is dropped by the device. Its highest bit
/// would make it a privileged one.
fn queue_key() -> u32 {
    let mut bytes = [0; 4];
    rand::fill(&mut bytes).expect("the system has random numbers");
    u32::from_ne_bytes(bytes) & 0x7fff_ffff
}

//! Packets as unreliable datagrams of an RDMA device, which bypass the kernel.
//!
//! - A rank has one queue pair per path, so that switches see several UDP source ports. All queue
//!   pairs receive into one ring.
//! - The sender seals packets directly into memory that the device reads. The receiver opens them
//!   where the device wrote them.
//! - Headers, keys and the replay window are those of every wire. So the number and key of a queue
//!   pair protect nothing and need not be secret.
//! - Only the memory of the rings is registered. Registering tensors would save no copy: sealed
//!   packets are written to a new place, and unsealed ones would need a list of two parts (header,
//!   segment) per request, and a registration per tensor that outlives the operation.
//!
//! `library` loads libibverbs, whose structures are in `abi`. `device` chooses device, port and
//! GID, and `watch` notices when they fail. `memory` registers memory, `send_queues` and
//! `receive_ring` use it. `header` reads the IP header of arrived packets. [`RdmaError`] states
//! each cause and its remedy.
//!
//! Not here: which packets are sent (the machine), when (the [driver](crate::driver)), and how
//! ranks learn each other's queue pairs (the [control plane](crate::control)).

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
use std::os::fd::RawFd;

use aws_lc_rs::rand;

use gradwire_protocol::job::{Mtu, TransportKeys};
use gradwire_protocol::machine::{Ecn, Transmit};
use gradwire_protocol::units::{Entropy, Rank};

use crate::address::Address;
use crate::seal::Destination;
use crate::slot::PacketSlot;
use crate::udp::{SocketCounters, SuperPacket};
use crate::wake::{ReadableSockets, SocketPoller};
use abi::HEADER_ROOM;
use device::{DeviceRequest, RdmaDevice};
pub use error::RdmaError;
use header::mtu_of;
use library::VerbsLibrary;
use memory::GpuMemory;
pub use memory::GpuRange;
use receive_ring::ReceiveRing;
use send_queues::{PeerPair, SendQueues};
use watch::DeviceWatch;

/// Index of the descriptor for packets; the other one is for events of the device.
const PACKETS: usize = 0;

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

/// Counts of a rank's queue pairs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RdmaCounters {
    /// Packets posted to be sent.
    pub packets: u64,
    /// Lists of packets that were posted, each with one doorbell.
    pub send_doorbells: u64,
    /// Completions of sends that were read.
    pub completions: u64,
    /// Packets that travelled inside their requests.
    pub inline: u64,
    /// Batches of receive buffers that were posted.
    pub receive_doorbells: u64,
    /// Times that all posted buffers were full, so that the device may have dropped packets.
    pub dry: u64,
}

impl Rdma {
    /// Opens the device that the job names, or the one with the rank's address, and makes a queue
    /// pair for each path.
    ///
    /// # Errors
    /// [`RdmaError`] states the cause and a remedy.
    pub fn open(transport: &TransportKeys, address: IpAddr, rank: Rank) -> Result<Self, RdmaError> {
        Self::open_by(library::loaded()?, transport, address, rank)
    }

    fn open_by(
        library: &'static VerbsLibrary,
        transport: &TransportKeys,
        address: IpAddr,
        rank: Rank,
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
        let sending = SendQueues::new(&device, &receiving, paths, queue_key())?;
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

    /// The addresses of this rank, one per path.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Bytes of full packets that the ring can hold until they are read.
    pub fn receive_buffer(&self) -> u64 {
        self.receiving.places() as u64 * u64::from(self.device.place.mtu)
    }

    /// The counts so far, in the terms of sockets. The ring cannot count its drops, so each time
    /// that it was empty counts as one packet.
    pub fn counters(&self) -> SocketCounters {
        SocketCounters {
            sent_packets: self.sending.tally.packets,
            send_calls: self.sending.tally.doorbells,
            kernel_drops: self.receiving.tally.dry,
            ..SocketCounters::default()
        }
    }

    /// The counts so far.
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

    /// Whether packets have arrived. The answer is no only after all earlier ones were received.
    /// Costs no system call, except for a look at the device now and then.
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

    /// Puts the oldest packet into `slot`, and gives the former buffer of the slot back to the
    /// device. `None` if no packet has arrived.
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

    /// As [`Sockets::send`](crate::udp::Sockets::send). Sends fewer than all while the device still
    /// has too many earlier packets.
    ///
    /// # Errors
    /// When the device no longer works, or the peer has no queue pair.
    pub fn send(&mut self, transmit: &Transmit<'_>, to: Destination<'_>) -> io::Result<usize> {
        let path = usize::from(transmit.entropy.0);
        let Destination { addresses, seal } = to;
        let Address::QueuePair(to) = &addresses[path % addresses.len()] else {
            return Err(io::Error::other("a peer has no queue pair"));
        };
        let peer = PeerPair { pair: to, seal };
        Ok(self.sending.send(&self.device, transmit, peer)?)
    }

    /// Whether the queue pair of an entropy takes more packets.
    pub(crate) fn has_room(&mut self, path: Entropy) -> io::Result<bool> {
        self.sending.collect(&self.device)?;
        Ok(self.sending.has_room(path))
    }

    /// Asks for a notice of the next packets that the device has sent, and gives its descriptor.
    pub(crate) fn room_notice(&mut self) -> io::Result<RawFd> {
        Ok(self.sending.arm(&self.device)?)
    }

    /// Makes arrivals wake the sleeper from now on. The caller checks once more before it sleeps.
    ///
    /// # Errors
    /// When the device no longer works.
    pub fn lie_down(&mut self) -> io::Result<()> {
        Ok(self.receiving.arm(&self.device)?)
    }

    /// Reads the pending notices, and checks the device.
    ///
    /// # Errors
    /// When the device no longer works.
    pub fn get_up(&mut self) -> io::Result<()> {
        self.receiving.drain(&self.device);
        Ok(self.watch.look(&self.device)?)
    }

    /// The poller to sleep on until packets arrive.
    pub(crate) fn readiness(&self) -> &SocketPoller {
        &self.readiness
    }

    /// The descriptor that is readable when packets have arrived.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.receiving.descriptor()
    }
}

/// Finds out whether an RDMA device can read and write memory of a GPU: registers a range of a
/// dma-buf, and gives it back at once. Packets do not use this: the processor seals them, and it is
/// too far from a GPU's memory.
///
/// # Errors
/// [`RdmaError`]: as for [`Rdma::open`], and [`RdmaError::Dmabuf`] with the cause.
pub fn try_gpu_memory(
    transport: &TransportKeys,
    address: IpAddr,
    range: GpuRange<'_>,
) -> Result<u32, RdmaError> {
    let wish = DeviceRequest {
        devices: &transport.rdma_device,
        gid: transport.rdma_gid,
        address,
        turn: 0,
    };
    let device = RdmaDevice::find(library::loaded()?, &wish)?;
    let memory = GpuMemory::new(&device, range)?;
    Ok(memory.key())
}

/// A random key that packets must carry, so that the device drops stray ones. The highest bit is
/// reserved for privileged keys.
fn queue_key() -> u32 {
    let mut bytes = [0; 4];
    rand::fill(&mut bytes).expect("the system has random numbers");
    u32::from_ne_bytes(bytes) & 0x7fff_ffff
}

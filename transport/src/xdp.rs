//! Packets of a rank through AF_XDP: queues of a NIC that this process shares with the driver, past
//! the network stack of the kernel.
//!
//! - The rank has its UDP sockets as ever. They own the ports, so peers see the same packets. A
//!   program at the interface hands what arrives at these ports to AF_XDP sockets, one
//!   per queue of the NIC.
//! - Packets from this host, or of another interface, arrive at the sockets.
//! - Packets to a peer leave by AF_XDP when the kernel has resolved its Ethernet address
//!   (`next_hops`), and through the sockets otherwise.
//! - Equal packets that arrive in a row are joined here, as GRO does it for sockets.
//! - It needs an IPv4 address, frames that fit into a page, and an interface for each rank.
//!
//! Not here: which packets are sent (the machine), and when (the [driver](crate::driver)).

mod error;
mod frame;
mod next_hops;
mod program;
mod queue;
mod ring;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::RawFd;
use std::thread;
use std::time::{Duration, Instant};

use gradwire_protocol::job::{Mtu, TransportKeys};
use gradwire_protocol::machine::{Ecn, Transmit};
use gradwire_protocol::units::Entropy;

use crate::address::Address;
use crate::interface::{self, EthernetInterface};
use crate::seal::{Destination, Seal};
use crate::udp::{SocketCounters, Sockets, SuperPacket};
use crate::wake::{self, ReadableSockets, SocketPoller};
pub use error::XdpUnavailable;
use frame::{ETHERNET_BYTES, FrameEnds, FrameTemplate, Mac};
use next_hops::{Backlog, NextHops};
use program::{WantedPackets, XdpMode, XdpProgram};
use queue::{ARRIVING, FRAME_BYTES, HEADROOM, XdpQueue};

/// The largest IP packet that fits into a frame, in bytes. Drivers of virtual links keep the end of
/// a page for themselves, 320 bytes.
const MTU_MAX: u32 = (FRAME_BYTES - HEADROOM - ETHERNET_BYTES - 320) as u32;
/// How often an occupied queue is tried again, and after how long: the kernel frees one some
/// milliseconds after the process has ended that had it.
const FREED_POLLS: u32 = 100;
const FREED_POLL: Duration = Duration::from_millis(5);
/// What a set of sockets can hold, queues included.
const WATCHED_MAX: u32 = 64;
/// Bytes of packets that are sealed before they go to a queue: they stay in the core's cache.
const STAGED_BYTES: usize = 32 << 10;
/// Looks at full queues between two looks at the sockets, which take a system call.
const SOCKETS_EVERY: u32 = 16;
/// Looks between two questions for drops.
const DROPS_EVERY: u32 = 1 << 14;

/// How a run leaves.
#[derive(Clone, Copy, Debug)]
enum SendWay {
    Queue,
    Socket,
}

/// Tries AF_XDP on the interface with `address`; says how packets would go.
///
/// # Errors
/// [`XdpUnavailable`] if it does not work.
pub fn probe(transport: &TransportKeys, address: IpAddr) -> Result<String, XdpUnavailable> {
    let sockets = Sockets::open(address, transport.entropies).map_err(|error| {
        let source = io::Error::other(error);
        XdpUnavailable::of("the interface", source)
    })?;
    Ok(XdpSockets::over(sockets, transport, address)?.to_string())
}

/// A rank's queues of a NIC, and its sockets.
#[derive(Debug)]
pub struct XdpSockets {
    /// Before the queues, so that no packet is sent to a closed one.
    program: XdpProgram,
    queues: Vec<XdpQueue>,
    sockets: Sockets,
    /// Watches queues, then sockets.
    readiness: SocketPoller,
    interface: EthernetInterface,
    own: Ipv4Addr,
    /// The port of each entropy.
    ports: Vec<u16>,
    next_hops: NextHops,
    mtu: u32,
    looks: u32,
    /// The way that the last run took.
    way: SendWay,
    tally: SocketCounters,
    drops: u64,
}

impl XdpSockets {
    /// Takes over the packets that arrive at the sockets' ports by the interface with `address`.
    ///
    /// # Errors
    /// [`XdpUnavailable`] states the cause and a remedy.
    pub fn over(
        sockets: Sockets,
        transport: &TransportKeys,
        address: IpAddr,
    ) -> Result<Self, XdpUnavailable> {
        let IpAddr::V4(own) = address else {
            return Err(XdpUnavailable::NotIpv4 { address });
        };
        let interface = interface::ethernet(address);
        let interface = interface.map_err(|_| XdpUnavailable::NoEthernet { address })?;
        let name = interface.name.clone();
        let refused = |source| XdpUnavailable::of(&name, source);
        let mtu = interface::mtu_of(&name).map_err(refused)?.min(MTU_MAX);
        if let Mtu::Bytes(given) = transport.mtu
            && given > mtu
        {
            return Err(XdpUnavailable::MtuTooLarge {
                given,
                interface: name,
                most: mtu,
            });
        }
        let queues = queues_of(&interface, sockets.len() as u32)?;
        let descriptors: Vec<RawFd> = queues.iter().map(XdpQueue::descriptor).collect();
        let own_ports = sockets.addresses().iter().filter_map(|one| one.socket());
        let ports: Vec<u16> = own_ports.map(|socket| socket.port()).collect();
        let wanted = WantedPackets {
            mac: interface.mac,
            address: own,
            ports: &ports,
        };
        let program = XdpProgram::attach(interface.index, &descriptors, wanted);
        let program = program.map_err(refused)?;
        let of_sockets = (0..sockets.len()).map(|index| sockets.descriptor(Entropy(index as u8)));
        let readiness = SocketPoller::of(descriptors.into_iter().chain(of_sockets));
        let readiness = readiness.map_err(refused)?;
        let wires = Self {
            next_hops: NextHops::by(&name).map_err(refused)?,
            program,
            queues,
            sockets,
            readiness,
            interface,
            own,
            ports,
            mtu,
            looks: 0,
            way: SendWay::Socket,
            tally: SocketCounters::default(),
            drops: 0,
        };
        log::info!("packets go by {wires}");
        Ok(wires)
    }

    /// The sockets.
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// The interface's name.
    pub fn interface(&self) -> &str {
        &self.interface.name
    }

    /// The largest packet, as `transport.mtu` counts it.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Bytes of full packets that the frames can hold until they are read.
    pub fn receive_buffer(&self) -> u64 {
        let frames = u64::from(ARRIVING) * self.queues.len() as u64;
        frames * u64::from(self.mtu)
    }

    /// The counters so far, those of the sockets included.
    pub fn counters(&self) -> SocketCounters {
        let sockets = self.sockets.counters();
        SocketCounters {
            sent_packets: self.tally.sent_packets + sockets.sent_packets,
            send_calls: self.tally.send_calls + sockets.send_calls,
            kernel_drops: self.drops + sockets.kernel_drops,
            ..sockets
        }
    }

    /// Packets that went by AF_XDP, not through a socket.
    pub fn bypassed_packets(&self) -> u64 {
        self.tally.sent_packets
    }

    /// Asks the kernel for its drops, and returns all so far.
    pub fn ask_for_drops(&mut self) -> u64 {
        self.ask_queues();
        self.drops + self.sockets.ask_for_drops()
    }

    fn ask_queues(&mut self) {
        self.drops = self.queues.iter().map(XdpQueue::drops).sum();
    }

    /// The queues, and behind them the sockets, that have packets. The set is empty only when every
    /// packet that had arrived was read.
    pub fn readable(&mut self) -> ReadableSockets {
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(DROPS_EVERY) {
            self.ask_queues();
        }
        let queues = self.queues.iter_mut().enumerate();
        let full = queues.filter_map(|(index, queue)| queue.has_arrivals().then_some(index));
        let full: ReadableSockets = full.collect();
        match full.is_empty() || self.looks.is_multiple_of(SOCKETS_EVERY) {
            true => self.readiness.readable(),
            false => full,
        }
    }

    /// Reads packets of one sender from a queue or a socket, by its index in the set, into `slot`.
    /// `None` if there are none.
    ///
    /// # Errors
    /// As [`Sockets::receive`].
    pub fn receive(&mut self, index: usize, slot: &mut [u8]) -> io::Result<Option<SuperPacket>> {
        let Some(queue) = self.queues.get_mut(index) else {
            return self.sockets.receive(index - self.queues.len(), slot);
        };
        Ok(queue.receive(slot).map(|joined| SuperPacket {
            at: 0,
            bytes: joined.bytes,
            packet_bytes: joined.packet_bytes,
            ecn: Ecn::from_bits(joined.traffic_class),
            dscp: joined.traffic_class >> 2,
            from: Address::Socket(joined.from.into()),
        }))
    }

    /// As [`Sockets::send`].
    ///
    /// # Errors
    /// As [`Sockets::send`].
    #[expect(
        clippy::disallowed_methods,
        reason = "the protocol does not depend on the age of Ethernet addresses"
    )]
    pub fn send(&mut self, transmit: &Transmit<'_>, to: Destination<'_>) -> io::Result<usize> {
        let path = usize::from(transmit.entropy.0);
        let peer = to.addresses[path % to.addresses.len()].socket();
        if let Some(SocketAddr::V4(peer)) = peer {
            let queues = &mut self.queues;
            let backlog = || match queues.iter_mut().all(XdpQueue::is_idle) {
                true => Backlog::None,
                false => Backlog::Some,
            };
            let hop = (self.next_hops).find(*peer.ip(), Instant::now(), backlog);
            if let Some(hop) = hop {
                self.way = SendWay::Queue;
                return Ok(self.send_to_queue(transmit, (hop, peer), to.seal));
            }
        }
        self.way = SendWay::Socket;
        self.sockets.send(transmit, to)
    }

    /// Sends the packets of a run to a next hop; returns how many had room.
    fn send_to_queue(
        &mut self,
        transmit: &Transmit<'_>,
        destination: (Mac, SocketAddrV4),
        seal: &mut Seal,
    ) -> usize {
        let path = usize::from(transmit.entropy.0) % self.ports.len();
        let from = SocketAddrV4::new(self.own, self.ports[path]);
        let ends = FrameEnds {
            source: (self.interface.mac, from),
            destination,
        };
        let traffic_class = transmit.dscp.0 << 2 | transmit.ecn as u8;
        let headers = FrameTemplate::new(&ends, traffic_class);
        let index = self.queue_of(transmit.entropy);
        let queue = &mut self.queues[index];
        let mut done = 0;
        while done < transmit.packets() {
            let packet = transmit.packet_bytes(done).as_usize() + seal.tag_bytes();
            let count = (STAGED_BYTES / packet)
                .max(1)
                .min(transmit.packets() - done);
            let count = count.min(queue.room());
            if count == 0 {
                break;
            }
            let staged = seal.stage(transmit, done..done + count);
            queue.send(&headers, staged.chunks(packet));
            done += count;
            self.tally.send_calls += 1;
        }
        self.tally.sent_packets += done as u64;
        done
    }

    /// Whether the queue or the socket of a path takes more packets, whichever the last run took.
    pub(crate) fn has_room(&mut self, path: Entropy) -> bool {
        match self.way {
            SendWay::Queue => {
                let index = self.queue_of(path);
                self.queues[index].room() > 0
            }
            SendWay::Socket => wake::is_writable(self.sockets.descriptor(path)),
        }
    }

    /// The descriptor that becomes writable when these may take more packets.
    pub(crate) fn descriptor(&self, path: Entropy) -> RawFd {
        match self.way {
            SendWay::Queue => self.queues[self.queue_of(path)].descriptor(),
            SendWay::Socket => self.sockets.descriptor(path),
        }
    }

    /// The index of the queue by which the packets of a path leave.
    fn queue_of(&self, path: Entropy) -> usize {
        usize::from(path.0) % self.queues.len()
    }

    /// The poller to sleep on until a packet arrives.
    pub(crate) fn readiness(&self) -> &SocketPoller {
        &self.readiness
    }
}

impl fmt::Display for XdpSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copies = match self.queues.iter().all(XdpQueue::is_zero_copy) {
            true => "without copies",
            false => "with copies by the kernel",
        };
        let place = match self.program.mode {
            XdpMode::Native => "the driver",
            XdpMode::Generic => "the kernel's common code, which is slow",
        };
        let (name, queues) = (&self.interface.name, self.queues.len());
        write!(
            f,
            "AF_XDP on {queues} queues of {name}, {copies}, by {place}"
        )
    }
}

/// The AF_XDP sockets of all queues of an interface.
fn queues_of(interface: &EthernetInterface, sockets: u32) -> Result<Vec<XdpQueue>, XdpUnavailable> {
    let refused = |source| XdpUnavailable::of(&interface.name, source);
    let most = WATCHED_MAX.saturating_sub(sockets);
    let too_many = || XdpUnavailable::TooManyQueues {
        interface: interface.name.clone(),
        entropies: sockets,
    };
    if most == 0 {
        return Err(too_many());
    }
    let mut queues = vec![open_freed(interface.index, 0).map_err(refused)?];
    // The files of the kernel that tell how many queues there are may be those of another network
    // namespace. A socket for one more than there are is refused.
    for number in 1..=most {
        match open_freed(interface.index, number) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(queues),
            opened => queues.push(opened.map_err(refused)?),
        }
    }
    Err(too_many())
}

/// Opens a queue that the kernel may still be about to take from a process that has ended.
fn open_freed(index: u32, number: u32) -> io::Result<XdpQueue> {
    for _ in 0..FREED_POLLS {
        match XdpQueue::open(index, number) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => thread::sleep(FREED_POLL),
            opened => return opened,
        }
    }
    XdpQueue::open(index, number)
}

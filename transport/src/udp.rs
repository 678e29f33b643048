//! The UDP sockets of one rank: runs of packets out, super-packets in.
//!
//! Without GSO and GRO a UDP socket reaches an eighth of TCP's speed, so a run of equal packets is
//! one `sendmsg`, and one `recvmsg` brings up to 64 packets that the kernel has glued together.
//! Every entropy is a socket with a port of its own. DSCP and ECN are set per run and read per
//! super-packet. Where a kernel or a NIC refuses GSO, packets go one by one.
//!
//! What is not here: which packets are sent (the machine), when (the [driver](crate::driver)), and
//! whether they survive ([faults](crate::faults)).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::slice::ChunksMut;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use gradwire_protocol::machine::{Ecn, Payload, Transmit};
use gradwire_protocol::units::Entropy;

use crate::address::Address;
use crate::message::{self, RING_PACKETS_AT, ReceivedMessage, SendControl, SendPackets};
use crate::seal::Seal;
pub use crate::wake::ReadableSockets;
use crate::wake::SocketPoller;

/// The most packets of one GSO send.
const GSO_PACKETS_MAX: usize = 64;
/// The most bytes of one GSO send.
const GSO_BYTES_MAX: usize = 65_000;
/// A super-packet as received, with room for the largest and for what a ring writes before it.
pub const SLOT_BYTES: usize = 65_536 + RING_PACKETS_AT;
/// Packets at least this long are gathered from where they lie, unless they are sealed; shorter
/// ones are copied together first, which costs less than two vectors a packet.
const GATHER_FROM: usize = 4096;
/// What the sockets ask for; the kernel may grant less.
const BUFFER_BYTES: usize = 8 << 20;

/// A super-packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct SuperPacket {
    /// Where it begins in the slot.
    pub at: usize,
    /// How many bytes it has there.
    pub bytes: usize,
    /// Bytes of each of its packets but the last.
    pub packet_bytes: usize,
    /// The ECN bits of all of them.
    pub ecn: Ecn,
    /// The DSCP of all of them.
    pub dscp: u8,
    /// Who sent them.
    pub from: Address,
}

impl SuperPacket {
    /// Its packets in the slot, which lie one behind the other.
    pub fn packets<'a>(&self, slot: &'a mut [u8]) -> ChunksMut<'a, u8> {
        slot[self.at..self.at + self.bytes].chunks_mut(self.packet_bytes)
    }
}

/// Counts of what the sockets did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SocketCounters {
    /// Packets handed to the kernel.
    pub sent_packets: u64,
    /// Calls that it took.
    pub send_calls: u64,
    /// Packets that the kernel dropped because a receive buffer was full; those of one send that
    /// came as one count as one.
    pub kernel_drops: u64,
    /// Packets that the kernel refused to send, for want of a route or by a rule.
    pub refused_packets: u64,
}

/// How runs of packets are handed to the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum GsoMode {
    Kernel,
    OneByOne,
}

/// A rank's sockets, one per entropy.
#[derive(Debug)]
pub struct Sockets {
    sockets: Vec<Socket>,
    addresses: Vec<Address>,
    readiness: SocketPoller,
    segmentation: GsoMode,
    /// Drops of each socket so far, and the sockets read since they were last asked for theirs.
    drops_seen: Vec<u32>,
    unasked: u64,
    counters: SocketCounters,
    receive_buffer: usize,
}

/// Why sockets could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open {entropies} UDP sockets on {address}: {source}; is the address this host's?")]
pub struct SocketsError {
    entropies: u8,
    address: IpAddr,
    source: io::Error,
}

impl Sockets {
    /// Opens one socket per entropy on `address`, at ports that the kernel chooses.
    ///
    /// # Errors
    /// [`SocketsError`] when the address is not this host's or sockets run out.
    pub fn open(address: IpAddr, entropies: u8) -> Result<Self, SocketsError> {
        let failed = |source| SocketsError {
            entropies,
            address,
            source,
        };
        let sockets: io::Result<Vec<Socket>> = (0..entropies).map(|_| open_one(address)).collect();
        let sockets = sockets.map_err(failed)?;
        let local = |socket: &Socket| {
            let address = socket.local_addr()?.as_socket();
            let address = address.map(Address::Socket);
            address.ok_or_else(|| io::Error::other("a UDP socket without an IP address"))
        };
        let addresses: io::Result<Vec<Address>> = sockets.iter().map(local).collect();
        let addresses = addresses.map_err(failed)?;
        let receive_buffer = sockets[0].recv_buffer_size().map_err(failed)?;
        let readiness = SocketPoller::of(sockets.iter().map(AsRawFd::as_raw_fd)).map_err(failed)?;
        let drops_seen = vec![0; sockets.len()];
        Ok(Self {
            sockets,
            addresses,
            readiness,
            segmentation: GsoMode::Kernel,
            drops_seen,
            unasked: 0,
            counters: SocketCounters::default(),
            receive_buffer,
        })
    }

    /// Where peers reach this rank, one address per entropy.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Bytes of packets that the kernel keeps in all sockets together until they are read. Of what
    /// it grants, half is for its own bookkeeping (socket(7), SO_RCVBUF).
    pub fn receive_buffer(&self) -> u64 {
        self.receive_buffer as u64 / 2 * self.sockets.len() as u64
    }

    /// What was counted so far.
    pub fn counters(&self) -> SocketCounters {
        self.counters
    }

    /// Asks the kernel what it has dropped, and gives back how much that is so far. A packet tells
    /// of drops before it (SO_RXQ_OVFL), but the last ones no packet follows. Sockets that were
    /// not read since they were last asked are not asked: only a full one drops.
    pub fn ask_for_drops(&mut self) -> u64 {
        let mut unasked = std::mem::take(&mut self.unasked);
        while unasked != 0 {
            let index = unasked.trailing_zeros() as usize;
            unasked &= unasked - 1;
            if let Ok(drops) = message::drops(self.sockets[index].as_raw_fd()) {
                self.note_drops(index, drops);
            }
        }
        self.counters.kernel_drops
    }

    /// The sockets that can be read now, or some of them when they are many; one system call.
    pub fn readable(&self) -> ReadableSockets {
        self.readiness.readable()
    }

    /// What to sleep on until a socket can be read.
    pub(crate) fn readiness(&self) -> &SocketPoller {
        &self.readiness
    }

    /// The socket that packets of an entropy leave by.
    pub fn descriptor(&self, entropy: Entropy) -> RawFd {
        self.sockets[usize::from(entropy.0) % self.sockets.len()].as_raw_fd()
    }

    /// How many sockets there are.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Whether there are none; there is at least one.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Lets the kernel keep so many bytes of packets at each socket at most, bookkeeping included,
    /// as a host short of memory would.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn limit_receive_buffers(&mut self, bytes: usize) -> io::Result<()> {
        for socket in &self.sockets {
            socket.set_recv_buffer_size(bytes)?;
        }
        self.receive_buffer = self.sockets[0].recv_buffer_size()?;
        Ok(())
    }

    /// Sends packets one by one from now on, as after the kernel refused GSO.
    pub fn send_one_by_one(&mut self) {
        self.segmentation = GsoMode::OneByOne;
    }

    /// Sends the packets of a run from `skip` on to `peer`, whose addresses are one per entropy.
    /// Gives back how many packets of the run the kernel has taken, `skip` included: fewer than
    /// all when its buffer is full.
    ///
    /// # Errors
    /// Whatever the kernel says about the socket itself. Packets that it refuses because nobody
    /// listens there or no route leads there are counted, and lost like others on the way.
    pub fn send(
        &mut self,
        transmit: &Transmit<'_>,
        skip: usize,
        to: (&[Address], &mut Seal),
    ) -> io::Result<usize> {
        self.send_by(message::send, (transmit, skip), to)
    }

    /// [`Sockets::send`] by whatever hands a message to the kernel.
    pub(crate) fn send_by(
        &mut self,
        mut hand_over: impl FnMut(RawFd, &libc::msghdr) -> io::Result<()>,
        (transmit, skip): (&Transmit<'_>, usize),
        (peer, seal): (&[Address], &mut Seal),
    ) -> io::Result<usize> {
        let path = usize::from(transmit.entropy.0);
        let descriptor = self.descriptor(transmit.entropy);
        let to = peer[path % peer.len()].socket();
        let to = to.ok_or_else(|| io::Error::other("a peer has no UDP sockets"))?;
        let to = SockAddr::from(to);
        let traffic_class = transmit.dscp.0 << 2 | transmit.ecn as u8;
        let mut done = skip;
        while done < transmit.packets() {
            let packet = transmit.header(done).packet_bytes().as_usize() + seal.tag_bytes();
            let fitting = (GSO_BYTES_MAX / packet).clamp(1, GSO_PACKETS_MAX);
            let most = if self.segmentation == GsoMode::Kernel {
                fitting
            } else {
                1
            };
            let count = most.min(transmit.packets() - done);
            let control = SendControl {
                packet_bytes: (count > 1).then_some(packet as u16),
                traffic_class,
                to: &to,
            };
            let gathered;
            let packets = match transmit.message {
                Payload::Bytes(message) if packet >= GATHER_FROM && seal.may_gather() => {
                    gathered = seal.gather(transmit, message, done..done + count);
                    SendPackets::Gathered(&gathered)
                }
                _ => SendPackets::Staged(seal.stage(transmit, done..done + count)),
            };
            let hand_over = |message: &_| hand_over(descriptor, message);
            match message::written(&packets, &control, hand_over) {
                Ok(()) => {
                    done += count;
                    self.counters.send_calls += 1;
                    self.counters.sent_packets += count as u64;
                }
                Err(error) if is_full(&error) => return Ok(done),
                Err(error) if count > 1 && refuses_gso(&error) => self.send_one_by_one(),
                Err(error) if is_of_the_path(&error) => {
                    done += count;
                    self.counters.refused_packets += count as u64;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Reads one super-packet from socket `index` into `slot`; `None` when there is none.
    ///
    /// # Errors
    /// Whatever the kernel says, except that there is nothing or that a peer does not listen.
    pub fn receive(&mut self, index: usize, slot: &mut [u8]) -> io::Result<Option<SuperPacket>> {
        let descriptor = self.sockets[index].as_raw_fd();
        match message::receive(descriptor, slot) {
            Ok(received) => Ok(Some(self.arrived(index, 0, &received))),
            Err(error) if is_passing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What socket `index` received into a slot, from byte `at` of it on.
    pub(crate) fn arrived(
        &mut self,
        index: usize,
        at: usize,
        received: &ReceivedMessage,
    ) -> SuperPacket {
        self.unasked |= 1 << index;
        if let Some(drops) = received.kernel_drops {
            self.note_drops(index, drops);
        }
        SuperPacket {
            at,
            bytes: received.bytes,
            packet_bytes: received.packet_bytes.unwrap_or(received.bytes).max(1),
            ecn: Ecn::from_bits(received.traffic_class),
            dscp: received.traffic_class >> 2,
            from: Address::Socket(received.from),
        }
    }

    /// Socket `index` had this many drops at some time. What a packet says is as old as the packet,
    /// and may be less than the kernel has said since.
    fn note_drops(&mut self, index: usize, drops: u32) {
        let new = drops.wrapping_sub(self.drops_seen[index]) as i32;
        if new > 0 {
            self.counters.kernel_drops += u64::from(new.unsigned_abs());
            self.drops_seen[index] = drops;
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is where data sockets are opened"
)]
fn socket(address: IpAddr) -> io::Result<Socket> {
    Socket::new(
        Domain::for_address(SocketAddr::new(address, 0)),
        Type::DGRAM,
        Some(Protocol::UDP),
    )
}

fn open_one(address: IpAddr) -> io::Result<Socket> {
    let socket = socket(address)?;
    socket.set_nonblocking(true)?;
    message::enlarge_buffers(socket.as_raw_fd(), BUFFER_BYTES);
    message::ask_for_ancillary(socket.as_raw_fd(), address)?;
    socket.bind(&SockAddr::from(SocketAddr::new(address, 0)))?;
    Ok(socket)
}

/// There is nothing to read, or what was sent before met nobody who listens.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    is_full(error) || error.kind() == io::ErrorKind::ConnectionRefused
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Packets larger than the path takes are refused as a run; one by one the kernel fragments them.
fn refuses_gso(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP | libc::EMSGSIZE)
    )
}

/// What may pass: no route, an interface that is down, a firewall, nobody who listens.
fn is_of_the_path(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::ENETDOWN
                | libc::EHOSTDOWN
                | libc::EPERM
        )
    )
}

//! The UDP sockets of one rank: they send runs of packets and receive super-packets.
//!
//! - Without GSO and GRO a UDP socket reaches an eighth of TCP's speed. So one `sendmsg` sends a
//!   run of equal packets, and one `recvmsg` returns up to 64 packets that the kernel has joined.
//! - Every entropy is a socket with a port of its own.
//! - DSCP and ECN are set per run and read per super-packet.
//! - If the kernel refuses GSO on the way to a peer, packets to it go one by one for a while.
//! - The kernel's refusal to send is a loss on the path, as the path may be mended. Only errors
//!   that this process has made end its rank.
//!
//! Not here: which packets are sent (the machine decides), when (the [driver](crate::driver)), and
//! which are dropped on purpose ([faults](crate::faults)).

mod filter;
mod kept_out;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::slice::ChunksMut;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use gradwire_protocol::machine::{Ecn, Payload, Transmit};
use gradwire_protocol::units::{Entropy, JobId};

use crate::address::Address;
pub use crate::message::SLOT_BYTES;
use crate::message::{self, ReceivedMessage, SendControl, SendPackets};
use crate::seal::Destination;
pub use crate::wake::ReadableSockets;
use crate::wake::SocketPoller;
use kept_out::KeptOut;

/// The maximum number of packets of one GSO send.
const GSO_PACKETS_MAX: usize = 64;
/// The maximum number of bytes of one GSO send.
const GSO_BYTES_MAX: usize = 65_000;
/// Packets of at least this many bytes are sent from where they are, unless they are sealed.
/// Shorter ones are copied together first, which costs less than two vectors a packet.
const GATHER_FROM: usize = 4096;
/// Packets that go one by one to a peer before a run is tried again.
const PACKETS_BEFORE_RUN: u32 = 4096;
/// The buffer size that sockets ask for; the kernel may grant less.
const BUFFER_BYTES: usize = 8 << 20;

/// A super-packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct SuperPacket {
    /// The offset of its first byte in the slot.
    pub at: usize,
    /// Its length in bytes.
    pub bytes: usize,
    /// Bytes of each of its packets; the last may be shorter.
    pub packet_bytes: usize,
    /// The ECN bits of all its packets.
    pub ecn: Ecn,
    /// The DSCP of all its packets.
    pub dscp: u8,
    /// The address that sent them.
    pub from: Address,
}

impl SuperPacket {
    /// Its packets in the slot, which lie one behind the other.
    pub fn packets<'a>(&self, slot: &'a mut [u8]) -> ChunksMut<'a, u8> {
        slot[self.at..self.at + self.bytes].chunks_mut(self.packet_bytes)
    }
}

/// Counts of a rank's sockets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SocketCounters {
    /// Packets handed to the kernel.
    pub sent_packets: u64,
    /// System calls that this took.
    pub send_calls: u64,
    /// Packets that the kernel dropped because a receive buffer was full. A super-packet counts as
    /// one. Those of other jobs that a filter keeps out do not count; while it does,
    /// [`Sockets::ask_for_drops`] tells them apart.
    pub kernel_drops: u64,
    /// Packets that the kernel refused to send, because it had no route or a firewall forbade it.
    pub refused_packets: u64,
    /// Runs that the kernel refused as one call although it took their packets one by one.
    pub super_packets_refused: u64,
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
    /// Peers to which packets go one by one, and how many go so before the next run is tried.
    refusing: BTreeMap<IpAddr, u32>,
    /// Drops of each socket so far.
    drops_seen: Vec<u32>,
    /// The sockets read since they were last asked for their drops, a bit for each.
    unasked: u64,
    /// The drops while a filter keeps packets of other jobs out.
    kept_out: Option<KeptOut>,
    counters: SocketCounters,
    receive_buffer: usize,
}

/// The sockets could not be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot open {entropies} UDP sockets on {address}: {source}; bind to an address \
         of this host, or raise its limit of open files"
)]
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
            refusing: BTreeMap::new(),
            drops_seen,
            unasked: 0,
            kept_out: None,
            counters: SocketCounters::default(),
            receive_buffer,
        })
    }

    /// The addresses at which peers reach this rank, one per entropy.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Bytes of packets that the kernel buffers in all sockets together until they are read. Half
    /// of the size that it grants is for its own bookkeeping (socket(7), SO_RCVBUF).
    pub fn receive_buffer(&self) -> u64 {
        self.receive_buffer as u64 / 2 * self.sockets.len() as u64
    }

    /// The counters so far.
    pub fn counters(&self) -> SocketCounters {
        self.counters
    }

    /// Asks the kernel for its drops, and returns all drops so far. A received packet carries the
    /// number of drops before it (SO_RXQ_OVFL), but no packet follows the last drops. Sockets that
    /// were not read since they were last asked are skipped: only a full socket drops.
    pub fn ask_for_drops(&mut self) -> u64 {
        let mut unasked = std::mem::take(&mut self.unasked);
        while unasked != 0 {
            let index = unasked.trailing_zeros() as usize;
            unasked &= unasked - 1;
            self.ask_socket(index);
        }
        self.count_own_drops();
        self.counters.kernel_drops
    }

    fn ask_socket(&mut self, index: usize) {
        if let Ok(drops) = message::drops(self.sockets[index].as_raw_fd()) {
            self.note_drops(index, drops);
        }
    }

    fn count_own_drops(&mut self) {
        let own = self.kept_out.as_mut().map(KeptOut::own_drops);
        self.counters.kernel_drops += own.unwrap_or_default();
    }

    /// The sockets that can be read now, or some of them if there are many; one system call.
    pub fn readable(&self) -> ReadableSockets {
        self.readiness.readable()
    }

    /// The poller to sleep on until a socket can be read.
    pub(crate) fn readiness(&self) -> &SocketPoller {
        &self.readiness
    }

    /// The socket that sends the packets of an entropy.
    pub fn descriptor(&self, entropy: Entropy) -> RawFd {
        self.sockets[usize::from(entropy.0) % self.sockets.len()].as_raw_fd()
    }

    /// How many sockets there are.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Whether there are no sockets; [`Sockets::open`] always opens at least one.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Lets the kernel drop all packets but those of this job and epoch.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn keep_foreign_out(&mut self, job: JobId, epoch: u16) -> io::Result<()> {
        let program = filter::of_job(job, epoch);
        self.let_foreign_in();
        let kept_out = KeptOut::begin();
        // Until now no filter has dropped anything.
        (0..self.sockets.len()).for_each(|index| self.ask_socket(index));
        self.kept_out = Some(kept_out);
        let attach = |socket: &Socket| socket.attach_filter(&program);
        self.sockets.iter().try_for_each(attach)
    }

    /// Lets packets of other jobs in again.
    pub fn let_foreign_in(&mut self) {
        for socket in &self.sockets {
            // The error says that there is no filter.
            let _ = socket.detach_filter();
        }
        if self.kept_out.is_some() {
            (0..self.sockets.len()).for_each(|index| self.ask_socket(index));
            self.count_own_drops();
            self.kept_out = None;
        }
    }

    /// Limits the kernel's buffer at each socket to `bytes`, bookkeeping included, as on a host
    /// that is short of memory.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn limit_receive_buffers(&mut self, bytes: usize) -> io::Result<()> {
        for socket in &self.sockets {
            socket.set_recv_buffer_size(bytes)?;
        }
        self.receive_buffer = self.sockets[0].recv_buffer_size()?;
        Ok(())
    }

    /// Limits the kernel's queue of packets to send at each socket to `bytes`, bookkeeping
    /// included, as for a user without privileges.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn limit_send_buffers(&mut self, bytes: usize) -> io::Result<()> {
        let limit = |socket: &Socket| socket.set_send_buffer_size(bytes);
        self.sockets.iter().try_for_each(limit)
    }

    /// Sends packets one by one from now on, as to a peer for which the kernel refused GSO.
    pub fn send_one_by_one(&mut self) {
        self.segmentation = GsoMode::OneByOne;
    }

    /// Sends the packets of a run. Returns how many of them the kernel has accepted: fewer than all
    /// if its buffer is full.
    ///
    /// # Errors
    /// The kernel's error about the socket itself. Packets that it refuses, because the peer does
    /// not listen or is not reachable, are counted and then lost like any other.
    pub fn send(&mut self, transmit: &Transmit<'_>, to: Destination<'_>) -> io::Result<usize> {
        self.send_by(message::send, transmit, to)
    }

    /// [`Sockets::send`], with `hand_over` in place of the system call.
    pub(crate) fn send_by(
        &mut self,
        mut hand_over: impl FnMut(RawFd, &libc::msghdr) -> io::Result<()>,
        transmit: &Transmit<'_>,
        to: Destination<'_>,
    ) -> io::Result<usize> {
        let path = usize::from(transmit.entropy.0);
        let descriptor = self.descriptor(transmit.entropy);
        let Destination { addresses, seal } = to;
        let to = addresses[path % addresses.len()].socket();
        let peer = to.ok_or_else(|| io::Error::other("a peer has no UDP sockets"))?;
        let to = SockAddr::from(peer);
        let traffic_class = transmit.dscp.0 << 2 | transmit.ecn as u8;
        let mut done = 0;
        while done < transmit.packets() {
            let packet = transmit.packet_bytes(done).as_usize() + seal.tag_bytes();
            let fitting = (GSO_BYTES_MAX / packet).clamp(1, GSO_PACKETS_MAX);
            let most = match self.takes_runs(peer.ip()) {
                true => fitting,
                false => 1,
            };
            let count = most.min(transmit.packets() - done);
            let control = SendControl {
                packet_bytes: (count > 1).then_some(packet as u16),
                traffic_class,
                to: &to,
            };
            let gathered;
            let packets = match transmit.message {
                Payload::Bytes(_) if packet >= GATHER_FROM && seal.may_gather() => {
                    gathered = seal.gather(transmit, done..done + count);
                    SendPackets::Gathered(&gathered)
                }
                _ => SendPackets::Staged(seal.stage(transmit, done..done + count)),
            };
            let hand_over = |message: &_| hand_over(descriptor, message);
            match message::written(&packets, &control, hand_over) {
                Ok(()) => {
                    self.on_taken(peer.ip(), count);
                    done += count;
                    self.counters.send_calls += 1;
                    self.counters.sent_packets += count as u64;
                }
                Err(error) if is_full(&error) => return Ok(done),
                Err(error) if count > 1 && refuses_gso(&error) => {
                    self.refusing.insert(peer.ip(), PACKETS_BEFORE_RUN);
                }
                Err(error) if is_own_fault(&error) => return Err(error),
                Err(_) => {
                    self.refusing.remove(&peer.ip());
                    done += count;
                    self.counters.refused_packets += count as u64;
                }
            }
        }
        Ok(done)
    }

    /// Whether a run to this peer may go by one call.
    fn takes_runs(&self, peer: IpAddr) -> bool {
        let refuses = || !self.refusing.is_empty() && self.refusing.contains_key(&peer);
        self.segmentation == GsoMode::Kernel && !refuses()
    }

    /// The kernel has taken packets to this peer by one call.
    fn on_taken(&mut self, peer: IpAddr, count: usize) {
        if count > 1 || self.refusing.is_empty() {
            return;
        }
        let Some(left) = self.refusing.get_mut(&peer) else {
            return;
        };
        *left -= 1;
        match *left {
            // It takes the first single packet after it has refused a run, so GSO is the reason.
            n if n == PACKETS_BEFORE_RUN - 1 => self.note_refused_run(peer),
            0 => {
                self.refusing.remove(&peer);
            }
            _ => {}
        }
    }

    fn note_refused_run(&mut self, peer: IpAddr) {
        self.counters.super_packets_refused += 1;
        if self.counters.super_packets_refused == 1 {
            log::warn!(
                "the kernel refuses several packets in one call to {peer} (the route's MTU may be \
                 below transport.mtu): packets go one by one, which is slower, and runs are tried \
                 again after every {PACKETS_BEFORE_RUN} packets; further refusals are only counted"
            );
        }
    }

    /// Reads one super-packet from socket `index` into `slot`; `None` when the socket is empty.
    ///
    /// # Errors
    /// The kernel's error about the socket itself.
    pub fn receive(&mut self, index: usize, slot: &mut [u8]) -> io::Result<Option<SuperPacket>> {
        let descriptor = self.sockets[index].as_raw_fd();
        match message::receive(descriptor, slot) {
            Ok(received) => Ok(Some(self.arrived(index, 0, &received))),
            Err(error) if is_own_fault(&error) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Records a super-packet that socket `index` received into a slot, from byte `at` on.
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

    /// Records that socket `index` had this many drops at some time. A packet's number is as old as
    /// the packet, so it may be less than one that the kernel has given since.
    fn note_drops(&mut self, index: usize, drops: u32) {
        let new = drops.wrapping_sub(self.drops_seen[index]) as i32;
        if new > 0 {
            let new = u64::from(new.unsigned_abs());
            match &mut self.kept_out {
                Some(kept_out) => kept_out.note(new),
                None => self.counters.kernel_drops += new,
            }
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
    message::enlarge_buffers(&socket, BUFFER_BYTES);
    message::ask_for_ancillary(&socket, address)?;
    socket.bind(&SockAddr::from(SocketAddr::new(address, 0)))?;
    Ok(socket)
}

/// Whether the socket is merely empty, or reports that a peer of an earlier send does not listen.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    is_full(error) || error.kind() == io::ErrorKind::ConnectionRefused
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Whether the kernel refused a run as such. It refuses runs of packets larger than the path's MTU,
/// but fragments such packets if they come one by one.
fn refuses_gso(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP | libc::EMSGSIZE)
    )
}

/// Whether an error is this process's own, and so every further call would fail. An error without a
/// number is one of a ring. All others come from the path, the device or the kernel, and may pass:
/// no route, an interface that is down, a firewall, no memory.
fn is_own_fault(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        None | Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT)
    )
}

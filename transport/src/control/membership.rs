//! A process's own membership of a job, and how the roster describes it to every rank.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use gradwire_protocol::units::Rank;
use serde::{Deserialize, Serialize};

use super::certificates::Certificates;
use super::error::BindError;
use super::rank_list::rank_number;
use crate::address::Address;
use crate::lanes::AegisLanes;
use crate::shm::MemoryOffer;

/// Largest world size: a rank is a 16-bit number. The roster must also fit in one message of
/// 1 MiB, which allows about 4,000 ranks with 8 data addresses each.
pub const MAX_WORLD_SIZE: u32 = 1 << 16;

/// Everything a process tells rank 0 in order to join a job.
#[derive(Clone)]
pub struct Membership {
    /// The rank of this process.
    pub rank: Rank,
    /// How many processes the job has, at most [`MAX_WORLD_SIZE`].
    pub world_size: u32,
    /// The secret that all processes of the job share. It may be empty; make it random and long.
    pub token: String,
    /// Certificates, if ranks authenticate with them. Either all ranks have certificates or no
    /// rank has.
    pub certificates: Option<Certificates>,
    /// The resolved job, by dotted key. It must be equal on all ranks.
    pub job: BTreeMap<String, String>,
    /// Where peers send data packets: this rank's UDP sockets or queue pairs, one per entropy.
    pub data_addresses: Vec<Address>,
    /// Name of this host, shown to people and used to find ranks of the same host.
    pub host: String,
    /// The largest IP packet that this rank's interface takes, in bytes.
    pub mtu: u32,
    /// Bytes that this rank's kernel buffers in all its data sockets until they are read.
    pub receive_buffer: u64,
    /// The lanes in which this rank's processor computes AEGIS fastest.
    pub lanes: AegisLanes,
    /// The memory this rank offers to ranks of its host, if it shares memory.
    pub memory: Option<MemoryOffer>,
    /// A rank that sends nothing for this long counts as lost. It must be equal on all ranks.
    pub peer_timeout: Duration,
}

/// Prints everything except the token and the certificates.
impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership")
            .field("rank", &self.rank)
            .field("world_size", &self.world_size)
            .field("job", &self.job)
            .field("data_addresses", &self.data_addresses)
            .field("host", &self.host)
            .field("mtu", &self.mtu)
            .field("receive_buffer", &self.receive_buffer)
            .field("lanes", &self.lanes)
            .field("memory", &self.memory)
            .field("peer_timeout", &self.peer_timeout)
            .finish_non_exhaustive()
    }
}

impl Membership {
    /// This rank's entry in the roster.
    pub(super) fn peer(&self) -> RosterPeer {
        RosterPeer {
            rank: self.rank,
            host: self.host.clone(),
            data_addresses: self.data_addresses.clone(),
            mtu: self.mtu,
            receive_buffer: self.receive_buffer,
            lanes: self.lanes,
            memory: self.memory.clone(),
            round_trip_us: 0,
        }
    }
}

/// One rank as all ranks know it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RosterPeer {
    /// Its rank.
    #[serde(with = "rank_number")]
    pub rank: Rank,
    /// The name of its host.
    pub host: String,
    /// Where to send data packets to, one address per entropy.
    pub data_addresses: Vec<Address>,
    /// The largest IP packet that its interface takes, in bytes.
    pub mtu: u32,
    /// Bytes that its kernel buffers in all its data sockets until they are read.
    pub receive_buffer: u64,
    /// The lanes in which its processor computes AEGIS fastest.
    pub lanes: AegisLanes,
    /// The memory it offers to ranks of its host, if it shares memory.
    pub memory: Option<MemoryOffer>,
    /// The least time in which it answered rank 0 while it joined, in microseconds; 0 of rank 0.
    pub round_trip_us: u64,
}

/// How this process meets the others.
#[derive(Debug)]
pub enum JoinRole {
    /// Rank 0 waits for the others.
    Leader(Listener),
    /// Every other rank connects to rank 0 at this address, which may start listening later.
    Member(SocketAddr),
}

/// Rank 0's open port, before it joins. Other ranks may connect from now on.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: UdpSocket,
    pub(super) address: SocketAddr,
}

impl Listener {
    /// Opens the UDP port of the control plane; port 0 takes any free one.
    ///
    /// # Errors
    /// [`BindError`] when the port is taken, the address is not this host's, or the system refuses
    /// for another reason.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let refused = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::AddrInUse => BindError::InUse { address },
            std::io::ErrorKind::AddrNotAvailable => BindError::NotThisHost { address },
            _ => BindError::Refused { address, source },
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the control plane's own socket, in the crate that may open sockets"
        )]
        let socket = UdpSocket::bind(address).map_err(refused)?;
        let address = socket.local_addr().map_err(refused)?;
        Ok(Self { socket, address })
    }

    /// The address of this port: the one given to [`Listener::bind`], with the port that was taken.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

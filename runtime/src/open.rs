//! A rank before it has met the others: its sockets are open, so that it can announce them.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use gradwire_protocol::job::{Job, Mtu, WireChoice};
use gradwire_protocol::units::Rank;
use gradwire_transport::address::Address;
use gradwire_transport::control::{CertificateFiles, Certificates, JoinRole, Listener, Membership};
use gradwire_transport::interface;
use gradwire_transport::lanes::AegisLanes;
use gradwire_transport::shm::{OwnInbox, ShareError};
use gradwire_transport::wires::Wires;

use crate::error::{OpenError, RankJoinError};
use crate::log;
use crate::rank::LocalRank;

/// The arguments for opening a rank.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The job; equal on all ranks.
    pub job: Job,
    /// Which rank this is.
    pub rank: Rank,
    /// How many there are.
    pub world_size: u16,
    /// A local address that peers can send to.
    pub bind: IpAddr,
    /// Where rank 0 listens for the others, 0 for any free port; other ranks ignore it.
    pub port: u16,
    /// The secret that the ranks share; may be empty where they have certificates.
    pub token: String,
    /// Certificates that prove a rank, besides the token. Either all ranks have one, or no rank.
    pub certificates: Option<CertificateFiles>,
}

/// A rank with open sockets.
#[derive(Debug)]
pub struct OpenRank {
    pub(crate) job: Job,
    pub(crate) rank: Rank,
    pub(crate) world_size: u16,
    pub(crate) sockets: Wires,
    mtu: u32,
    pub(crate) inbox: Option<OwnInbox>,
    pub(crate) local_rank: Option<u16>,
    pub(crate) trace_folder: Option<PathBuf>,
    listener: Option<Listener>,
    token: String,
    certificates: Option<Certificates>,
}

impl OpenRank {
    /// Opens the data sockets, and on rank 0 the port of the control plane.
    ///
    /// # Errors
    /// [`OpenError`] when the rank does not exist or the system refuses a socket.
    pub fn open(opening: Opening) -> Result<Self, OpenError> {
        let Opening {
            job,
            rank,
            world_size,
            bind,
            port,
            token,
            certificates,
        } = opening;
        if rank.0 >= world_size {
            return Err(OpenError::NoSuchRank { rank, world_size });
        }
        log::rank_is(rank);
        let certificates = certificates.as_ref().map(Certificates::read).transpose()?;
        let listening = (rank == Rank(0)).then(|| Listener::bind(SocketAddr::new(bind, port)));
        let listener = listening.transpose()?;
        let transport = &job.transport;
        let sockets = Wires::open(transport, bind, rank)?;
        let mtu = match (job.transport.mtu, sockets.mtu()) {
            (Mtu::Bytes(bytes), _) => bytes,
            (Mtu::Auto, Some(mtu)) => mtu,
            (Mtu::Auto, None) => interface::mtu(bind).map_err(OpenError::Mtu)?,
        };
        let inbox = inbox_of(&job)?;
        Ok(Self {
            job,
            rank,
            world_size,
            sockets,
            mtu,
            inbox,
            local_rank: None,
            trace_folder: None,
            listener,
            token,
            certificates,
        })
    }

    /// The rank with its number on its host, which a launcher may give: its metrics are at the port
    /// with that number from the job's on.
    #[must_use]
    pub fn with_local_rank(mut self, local_rank: Option<u16>) -> Self {
        self.local_rank = local_rank;
        self
    }

    /// The rank with a folder, into which its flight recorder is written when something fails;
    /// without it, the recorder is only shown on request.
    #[must_use]
    pub fn with_trace_folder(mut self, folder: Option<PathBuf>) -> Self {
        self.trace_folder = folder;
        self
    }

    /// Rank 0: where the others find it.
    pub fn rendezvous(&self) -> Option<SocketAddr> {
        self.listener.as_ref().map(Listener::local_addr)
    }

    /// Where this rank takes data packets, one address per entropy.
    pub fn data_addresses(&self) -> &[Address] {
        self.sockets.addresses()
    }

    /// How many ranks the job has.
    pub fn world_size(&self) -> u16 {
        self.world_size
    }

    /// The job. An MTU that it leaves open is resolved when the ranks have met.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Meets the others, and returns when all are ready. `rendezvous` is rank 0's "host:port";
    /// rank 0 itself needs none.
    ///
    /// # Errors
    /// [`RankJoinError`] when the ranks do not form a job within `timeout`.
    pub fn join(mut self, rendezvous: &str, timeout: Duration) -> Result<LocalRank, RankJoinError> {
        let role = match self.listener.take() {
            Some(listener) => JoinRole::Leader(listener),
            None => JoinRole::Member(resolve(rendezvous)?),
        };
        let membership = Membership {
            rank: self.rank,
            world_size: u32::from(self.world_size),
            token: std::mem::take(&mut self.token),
            certificates: self.certificates.take(),
            job: self.job.flat(),
            data_addresses: self.sockets.addresses().to_vec(),
            host: log::host_name(),
            mtu: self.mtu,
            receive_buffer: self.sockets.receive_buffer(),
            lanes: AegisLanes::of_this_host(),
            memory: self.inbox.as_ref().map(|inbox| inbox.offer().clone()),
            peer_timeout: Duration::from_nanos(self.job.transport.peer_timeout.as_nanos()),
        };
        LocalRank::start(self, role, membership, timeout)
    }
}

/// This rank's inbox in shared memory, if the job uses any. Where the job leaves the wire open, a
/// host without shared memory uses sockets.
fn inbox_of(job: &Job) -> Result<Option<OwnInbox>, ShareError> {
    if !shares_memory(job) {
        return Ok(None);
    }
    match OwnInbox::make() {
        Ok(inbox) => Ok(Some(inbox)),
        Err(error) if job.transport.wire == WireChoice::SharedMemory => Err(error),
        Err(error) => {
            ::log::warn!(
                "packets between the ranks of this host go by UDP, slower: {error}; mount a \
                 writable tmpfs at /dev/shm to share memory (docker: --shm-size=1g)"
            );
            Ok(None)
        }
    }
}

/// Whether ranks of a host share memory. Injected faults are those of a network, so a job with
/// faults uses a network, unless it names memory.
fn shares_memory(job: &Job) -> bool {
    match job.transport.wire {
        WireChoice::Auto => !job.faults.any(),
        WireChoice::SharedMemory => true,
        WireChoice::Udp | WireChoice::Uring | WireChoice::Xdp | WireChoice::Rdma => false,
    }
}

fn resolve(rendezvous: &str) -> Result<SocketAddr, RankJoinError> {
    let wrong = |reason: String| RankJoinError::Rendezvous {
        given: rendezvous.to_owned(),
        reason,
    };
    let mut addresses = rendezvous
        .to_socket_addrs()
        .map_err(|error| wrong(error.to_string()))?;
    let first = addresses
        .next()
        .ok_or_else(|| wrong("the name has no address".to_owned()))?;
    if first.port() == 0 {
        return Err(wrong("port 0 accepts no connections".to_owned()));
    }
    Ok(first)
}

//! The control plane: how the processes of a job find each other, agree on the job, notice who
//! dies, and end together. No tensor travels here.
//!
//! Rank 0 listens, every other rank connects to it over QUIC, once, and stays connected:
//!
//! ```text
//!   rank r                                  rank 0
//!   Prove{proof over this channel} ------->  wrong token: Refused, rank 0 goes on waiting
//!          <------------------------------- Prove{proof}
//!   Join{world size, addresses, job} ----->  enters the roster
//!          <------------------------------- Waiting{missing}, once a second
//!          <------------------------------- Secrets{of this rank's pairs}
//!          <------------------------------- Start{job id, epoch, roster}
//!                                           or Refused{why}, the same words to every rank
//!   Barrier, Abort, Leave ---------------->
//!          <------------------------------- BarrierPassed, PeerLost, PeerLeft, Aborted, Released
//!   Ask{question}, Answer{to} ------------>
//!          <------------------------------- Asked{by}, Answered{by}
//! ```
//!
//! [`join`] blocks until all ranks agree. From then on the thread `gradwire-control` keeps the
//! connections alive and calls back with what happens to peers: a peer that gives no sign of life
//! for `peer_timeout` is lost, and every rank knows of a dead one half a second later.
//!
//! Start here: [`join`] and [`ControlPlane`], then `hub` (rank 0's view of all ranks) and
//! `participant` (a rank's view of the job); both are free of sockets and clocks. `assembly` decides who may
//! join, `identity` who is trusted, by token or by `certificates`; `secrets` is what packet keys
//! are made from. Asynchronous code exists in `leader`, `door`, `member` and `link` only.
//!
//! What is not here: the data plane's packets, and what a rank does about a lost peer.

mod assembly;
mod certificates;
mod door;
mod error;
mod hub;
mod identity;
mod leader;
mod link;
mod member;
mod messages;
mod participant;
mod seat;
mod secrets;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use gradwire_protocol::units::{JobId, Rank};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedSender;

pub use certificates::{CertificateError, CertificateFiles, Certificates};
pub use error::{BarrierError, BindError, JobDifference, JoinError, LeaveError};
pub use error::{CertificateHolder, JoinRefusal, RankList, RefusedJoins};

pub use participant::stall;
pub use secrets::PairSecrets;

use crate::address::Address;
use crate::shm::MemoryOffer;
use messages::{Admission, JoinRequest, shortened};
use participant::ControlCommand;
use seat::{ControlTask, GRACE};

/// Largest world size: a rank is a number of 16 bits. Besides, the roster must fit in a message of
/// 1 MiB, which is about 4,000 ranks with 8 data addresses each.
pub const MAX_WORLD_SIZE: u32 = 1 << 16;

/// What this process brings to the job.
#[derive(Clone)]
pub struct Membership {
    /// This process.
    pub rank: Rank,
    /// How many processes the job has, at most [`MAX_WORLD_SIZE`].
    pub world_size: u32,
    /// The secret that all processes of the job share; may be empty, is to be random and long.
    pub token: String,
    /// Certificates, where ranks prove themselves by those; all ranks have some, or none has.
    pub certificates: Option<Certificates>,
    /// The resolved job, by dotted key; must be equal on all ranks.
    pub job: BTreeMap<String, String>,
    /// Where peers send data packets to: this rank's UDP sockets or queue pairs, one per entropy.
    pub data_addresses: Vec<Address>,
    /// Name of this host, for people and for finding ranks of the same host.
    pub host: String,
    /// The largest IP packet that this rank's interface takes, in bytes.
    pub mtu: u32,
    /// Bytes that this rank's kernel keeps in all its data sockets until they are read.
    pub receive_buffer: u64,
    /// What this rank offers to ranks of its host, if it shares memory.
    pub memory: Option<MemoryOffer>,
    /// A rank that gives no sign of life for so long is lost; equal on all ranks.
    pub peer_timeout: Duration,
}

/// Shows everything but secrets.
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
            .field("memory", &self.memory)
            .field("peer_timeout", &self.peer_timeout)
            .finish_non_exhaustive()
    }
}

impl Membership {
    fn peer(&self) -> RosterPeer {
        RosterPeer {
            rank: self.rank,
            host: self.host.clone(),
            data_addresses: self.data_addresses.clone(),
            mtu: self.mtu,
            receive_buffer: self.receive_buffer,
            memory: self.memory.clone(),
        }
    }

    fn hello(&self) -> JoinRequest {
        JoinRequest {
            world_size: self.world_size,
            peer: self.peer(),
            job: self.job.clone(),
        }
    }
}

/// What this process does to meet the others.
#[derive(Debug)]
pub enum JoinRole {
    /// Rank 0: waits for the others.
    Leader(Listener),
    /// Every other rank: connects to rank 0 at this address, which may appear later.
    Member(SocketAddr),
}

/// Rank 0's open port, before it joins: others may knock from now on.
#[derive(Debug)]
pub struct Listener {
    socket: UdpSocket,
    address: SocketAddr,
}

impl Listener {
    /// Opens the UDP port of the control plane; port 0 takes any free one.
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

    /// Where this port is: the address given, with the port that was taken.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

/// One rank as all ranks know it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RosterPeer {
    /// Its rank.
    #[serde(with = "error::rank_number")]
    pub rank: Rank,
    /// The name of its host.
    pub host: String,
    /// Where to send data packets to, one address per entropy.
    pub data_addresses: Vec<Address>,
    /// The largest IP packet that its interface takes, in bytes.
    pub mtu: u32,
    /// Bytes that its kernel keeps in all its data sockets until they are read.
    pub receive_buffer: u64,
    /// What it offers to ranks of its host, if it shares memory.
    pub memory: Option<MemoryOffer>,
}

/// What happens to others. Raised on the control plane's thread.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ControlEvent {
    /// A peer died, hangs, or cannot be reached; `reason` says how that was noticed.
    PeerLost {
        /// The lost rank.
        rank: Rank,
        /// How it was noticed.
        reason: String,
    },
    /// A peer has left properly: it will send nothing new and is not missed.
    PeerLeft {
        /// The rank that left.
        rank: Rank,
    },
    /// A rank ended the job: another one, or this one because it was stopped for too long.
    Aborted {
        /// The rank that aborted.
        rank: Rank,
        /// The reason it gave.
        reason: String,
    },
    /// Another rank asks this one; [`ControlSender::answer`] answers.
    Asked {
        /// The rank that asks.
        rank: Rank,
        /// What it asks.
        question: String,
    },
    /// Another rank answers what this one has asked by [`ControlSender::ask`].
    Answered {
        /// The rank that answers.
        rank: Rank,
        /// What it answers.
        answer: String,
    },
    /// Rank 0 only: somebody was not let in.
    Refused {
        /// Where the refused process is.
        from: SocketAddr,
        /// What it was told.
        refusal: JoinRefusal,
    },
}

/// Receives events. It must return soon and must not call [`ControlPlane`]'s blocking methods:
/// until it returns the control plane does no other work, keep-alives included.
pub type OnEvent = Box<dyn Fn(ControlEvent) + Send>;

/// Meets all other ranks and agrees with them on the job. Blocks until that is done or has
/// failed, at most `timeout` and a few seconds. Events may arrive before this returns.
pub fn join(
    role: JoinRole,
    membership: Membership,
    timeout: Duration,
    on_event: OnEvent,
) -> Result<ControlPlane, JoinError> {
    check(&role, &membership)?;
    let rank = membership.rank;
    let (joined, verdict) = mpsc::sync_channel(1);
    let (commands, seat) = ControlTask::new(membership, timeout, on_event, joined);
    let waited = seat.timeout + GRACE;
    let thread = std::thread::Builder::new()
        .name("gradwire-control".into())
        .spawn(move || seat.run(role))
        .map_err(|error| identity::setup("starting its thread", &error))?;
    let admission = verdict
        .recv_timeout(waited)
        .unwrap_or(Err(JoinError::Stopped))?;
    Ok(ControlPlane {
        rank,
        admission,
        commands,
        thread: Some(thread),
    })
}

fn check(role: &JoinRole, membership: &Membership) -> Result<(), JoinError> {
    let &Membership {
        rank, world_size, ..
    } = membership;
    if u32::from(rank.0) >= world_size || world_size > MAX_WORLD_SIZE {
        return Err(JoinError::RankOutOfRange { rank, world_size });
    }
    if (rank == Rank(0)) != matches!(role, JoinRole::Leader(_)) {
        return Err(JoinError::WrongRole { rank });
    }
    let unreachable = |address: &&Address| !address.is_reachable();
    match membership.data_addresses.iter().find(unreachable) {
        Some(&address) => Err(JoinError::UnreachableData { address }),
        None => Ok(()),
    }
}

/// Membership in a started job. If it is dropped without [`ControlPlane::leave`], the connections
/// close and the peers see this rank as lost.
#[derive(Debug)]
pub struct ControlPlane {
    rank: Rank,
    admission: Admission,
    commands: UnboundedSender<ControlCommand>,
    thread: Option<JoinHandle<()>>,
}

impl ControlPlane {
    /// Which rank this is.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// All ranks of the job, in the order of ranks.
    pub fn roster(&self) -> &[RosterPeer] {
        &self.admission.start.roster
    }

    /// The identity of this job, drawn by rank 0: packets of other jobs are not ours.
    pub fn job_id(&self) -> JobId {
        JobId(self.admission.start.job_id)
    }

    /// Which membership of the job this is, counted from 0.
    pub fn epoch(&self) -> u16 {
        self.admission.start.epoch
    }

    /// The secrets that this rank shares with each of the others, to make packet keys from.
    pub fn secrets(&self) -> &PairSecrets {
        &self.admission.secrets
    }

    /// Tells every other rank that the job is over. Does not wait; the message is delivered even
    /// when this is dropped right after.
    pub fn abort(&self, reason: &str) {
        self.voice().abort(reason);
    }

    /// What can speak to the other ranks as long as this rank is a member, from any thread.
    pub fn voice(&self) -> ControlSender {
        ControlSender(self.commands.clone())
    }

    /// Blocks until every rank has called this as often as this one. Fails at once when a rank is
    /// lost, has left or has aborted, and after `timeout` with the ranks that did not arrive.
    pub fn barrier(&self, timeout: Duration) -> Result<(), BarrierError> {
        let timeout = seat::bounded(timeout);
        let (reply, passed) = mpsc::sync_channel(1);
        let _ = self
            .commands
            .send(ControlCommand::Barrier { timeout, reply });
        answer(&passed, timeout).unwrap_or(Err(BarrierError::Stopped))
    }

    /// Says that this rank is done, then stays reachable until all others are done or lost too, or
    /// `timeout` is over: until then the data plane must go on answering retransmissions.
    pub fn leave(self, timeout: Duration) -> Result<(), LeaveError> {
        let timeout = seat::bounded(timeout);
        let (reply, left) = mpsc::sync_channel(1);
        let _ = self.commands.send(ControlCommand::Leave { timeout, reply });
        answer(&left, timeout).unwrap_or(Err(LeaveError::Stopped))
    }
}

/// Speaks to the other ranks without waiting for anything.
#[derive(Clone, Debug)]
pub struct ControlSender(UnboundedSender<ControlCommand>);

impl ControlSender {
    /// Tells every other rank that the job is over, as [`ControlPlane::abort`] does.
    pub fn abort(&self, reason: &str) {
        let reason = shortened(reason);
        // Nobody is there to be told when the thread has ended.
        let _ = self.0.send(ControlCommand::Abort { reason });
    }

    /// Asks all other ranks. Their answers arrive as [`ControlEvent::Answered`], if they do.
    pub fn ask(&self, question: &str) {
        let question = shortened(question);
        let _ = self.0.send(ControlCommand::Ask { question });
    }

    /// Answers a rank that has asked.
    pub fn answer(&self, to: Rank, answer: &str) {
        let answer = shortened(answer);
        let _ = self.0.send(ControlCommand::Answer { to, answer });
    }
}

/// The reply to a command that is answered within `timeout`; `None` when the thread has ended.
fn answer<T>(reply: &Receiver<T>, timeout: Duration) -> Option<T> {
    reply.recv_timeout(timeout + GRACE).ok()
}

/// Where the result of a blocking call goes.
type Reply<E> = SyncSender<Result<(), E>>;

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let _ = self.commands.send(ControlCommand::Close);
        let thread = self.thread.take().expect("taken here only");
        if thread.thread().id() != std::thread::current().id() {
            // A panic of that thread was a panic of the event callback, printed there.
            let _ = thread.join();
        }
    }
}

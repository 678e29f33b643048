//! Errors of the control plane's calls. Each names the value given, the values allowed, and the
//! next step for the person who started the ranks.

use std::net::SocketAddr;
use std::time::Duration;

use gradwire_protocol::units::Rank;

use super::rank_list::RankList;
use super::refusal::JoinRefusal;
use crate::address::Address;

/// Rank 0 cannot listen for other ranks.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process (often an earlier run) holds the port.
    #[error(
        "cannot listen for other ranks on {address}: the UDP port is in use, perhaps by an earlier \
         run; end that run or give another port (0 takes any free one)"
    )]
    InUse {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// No interface of this host has the address.
    #[error(
        "cannot listen for other ranks on {address}: this host has no such address; give one of \
         its own addresses, or 0.0.0.0 for all of them"
    )]
    NotThisHost {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The system refused for another reason.
    #[error("cannot listen for other ranks on {address}: {source}; give another address or port")]
    Refused {
        /// The address that was asked for.
        address: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// This rank did not become part of a job.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The rank does not exist in a job of this size.
    #[error(
        "rank {rank} of world size {world_size} does not exist: ranks go from 0 to world size - 1, \
         and the world size from 1 to 65536"
    )]
    RankOutOfRange {
        /// This rank, as given.
        rank: Rank,
        /// World size, as given.
        world_size: u32,
    },
    /// Rank 0 was told to connect, or another rank to listen.
    #[error(
        "rank {rank} cannot take this role: rank 0 listens and every other rank connects to it; \
         give rank 0 a listener and the others its address"
    )]
    WrongRole {
        /// This rank, as given.
        rank: Rank,
    },
    /// Peers cannot send to an unspecified address.
    #[error(
        "data address {address} cannot be reached by other ranks: bind the data sockets to an \
         address of one interface and a port"
    )]
    UnreachableData {
        /// The data address, as given.
        address: Address,
    },
    /// Rank 0 gave an address that only its own host reaches.
    #[error(
        "rank 0 says that it is at {leader}, which is this host itself, but this rank takes data \
         at {address}: on the host of rank 0 set MASTER_ADDR to its address on that network, not \
         to localhost"
    )]
    LoopbackLeader {
        /// The address that rank 0 gave.
        leader: SocketAddr,
        /// This rank's first data address.
        address: SocketAddr,
    },
    /// Rank 0 decided that the job cannot form, or not with this rank.
    #[error(transparent)]
    Refused(#[from] JoinRefusal),
    /// The process that answered at rank 0's address did not prove the job token.
    #[error(
        "{leader} does not know the token of this job: it is not this job's rank 0, or another \
         process sits between; check the address of rank 0 and give every rank the same token"
    )]
    Impostor {
        /// The address this rank connected to.
        leader: SocketAddr,
    },
    /// No process that speaks this protocol answered in time.
    #[error(
        "rank 0 at {leader} did not answer within {waited:?} ({reason}): check that rank 0 runs, \
         that its address is right and that UDP to this port is not blocked"
    )]
    Unreachable {
        /// The address this rank connected to.
        leader: SocketAddr,
        /// How long this rank tried.
        waited: Duration,
        /// How the last attempt ended.
        reason: String,
    },
    /// The system or a library refused something that the control plane needs.
    #[error("the control plane cannot start: {what}: {reason}")]
    Setup {
        /// The step that failed.
        what: &'static str,
        /// The reason given.
        reason: String,
    },
    /// The control thread ended without a result.
    #[error("the control plane of this rank stopped before it joined: start this rank again")]
    Stopped,
}

/// A barrier was not passed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BarrierError {
    /// A peer died and can never arrive.
    #[error("the barrier cannot be passed: rank {rank} is lost ({reason}); start the job again")]
    PeerLost {
        /// The lost rank.
        rank: Rank,
        /// How it was noticed.
        reason: String,
    },
    /// A peer left and can never arrive.
    #[error(
        "the barrier cannot be passed: rank {rank} has left the job; let every rank pass the same \
         barriers before it leaves"
    )]
    PeerLeft {
        /// The rank that left.
        rank: Rank,
    },
    /// A rank aborted the job.
    #[error("the barrier cannot be passed: rank {rank} aborted the job: {reason}")]
    Aborted {
        /// The rank that aborted.
        rank: Rank,
        /// The reason it gave.
        reason: String,
    },
    /// Some ranks did not arrive in time.
    #[error(
        "the barrier timed out after {waited:?}: {missing} did not reach it; look there for the \
         cause, or allow more time"
    )]
    TimedOut {
        /// The timeout that was given.
        waited: Duration,
        /// The ranks that had not arrived; empty when rank 0 did not answer.
        missing: RankList,
    },
    /// The control plane of this rank has ended.
    #[error("the barrier cannot be passed: the control plane of this rank has ended")]
    Stopped,
}

/// A rank left before all others were ready to leave.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LeaveError {
    /// Other ranks still work.
    #[error(
        "{present} did not leave within {waited:?}: this rank leaves without them and cannot \
        answer their late retransmissions; allow more time if they still work"
    )]
    TimedOut {
        /// The timeout that was given.
        waited: Duration,
        /// The ranks that had not left.
        present: RankList,
    },
    /// Rank 0 is gone, and only rank 0 knows which other ranks have left.
    #[error(
        "rank 0 is gone ({reason}), so this rank leaves without knowing which other ranks have left"
    )]
    LeaderLost {
        /// How it was noticed.
        reason: String,
    },
    /// The control plane of this rank has ended.
    #[error("the control plane of this rank has ended already: there is nothing to leave")]
    Stopped,
}

/// Explains why a rank that did not run for longer than its peers wait ends itself. The words
/// follow the rank's name.
pub fn stall_reason(gap: Duration, limit: Duration) -> String {
    format!(
        "it did not run for {gap:.1?}, stopped or without processor time; after {limit:?} \
         (transport.peer_timeout) the other ranks count it as dead; start the job again, or \
         allow more"
    )
}

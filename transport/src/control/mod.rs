//! The control plane: how the processes of a job find each other, agree on the job, notice dead
//! ranks, and end together. It carries no tensors.
//!
//! Rank 0 listens. Every other rank connects to it once over QUIC and stays connected:
//!
//! ```text
//!   rank r                                  rank 0
//!   Prove{proof over this channel} ------->  wrong token: Refused, rank 0 goes on waiting
//!          <------------------------------- Prove{proof}
//!   Join{world size, addresses, job} ----->  enters the roster
//!          <------------------------------- Lifeline{port, key}: a TCP connection beside this one
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
//! - [`join`] blocks until all ranks agree on the job.
//! - From then on the thread `gradwire-control` keeps the connections alive and raises a
//!   [`ControlEvent`] when a peer leaves, aborts or dies.
//! - A peer whose process has ended is lost within a second (`lifeline`). One that gives no sign of
//!   life for `peer_timeout` is lost, too. Every rank hears of it half a second later.
//!
//! Start here: [`join`] and [`ControlPlane`]. Then read
//! - `hub` (rank 0's view of all ranks) and `participant` (one rank's view of the job), which have
//!   neither sockets nor clocks;
//! - `assembly`: which ranks may join; `identity`: which processes are trusted, by token or by
//!   `certificates`; `secrets`: the material of packet keys;
//! - `leader`, `greeting`, `member` and `link`, the only files with asynchronous code.
//!
//! Not here: packets of the data plane, and the reaction of a rank to a lost peer.

mod assembly;
mod certificates;
mod command;
mod error;
mod event;
mod greeting;
mod hub;
mod identity;
mod leader;
mod lifeline;
mod link;
mod member;
mod membership;
mod messages;
mod participant;
mod plane;
mod rank_list;
mod refusal;
mod secrets;
mod stall;
mod task;

use std::sync::mpsc;
use std::time::Duration;

use gradwire_protocol::units::Rank;

pub use certificates::{CertificateError, CertificateFiles, Certificates};
pub use error::{BarrierError, BindError, JoinError, LeaveError, stall_reason};
pub use event::{ControlEvent, OnEvent};
pub use membership::{JoinRole, Listener, MAX_WORLD_SIZE, Membership, RosterPeer};
pub use plane::{ControlPlane, ControlSender};
pub use rank_list::RankList;
pub use refusal::{CertificateHolder, JobDifference, JoinRefusal, RefusedJoins};
pub use secrets::PairSecrets;

use crate::address::Address;
use task::{ControlTask, GRACE};

/// Meets all other ranks and agrees with them on the job. Blocks until that is done or has
/// failed, at most `timeout` and a few seconds. Events may arrive before this returns.
///
/// # Errors
/// [`JoinError`] when rank 0 refuses this rank, does not answer, or the system refuses a socket.
pub fn join(
    role: JoinRole,
    membership: Membership,
    timeout: Duration,
    on_event: OnEvent,
) -> Result<ControlPlane, JoinError> {
    check(&role, &membership)?;
    let rank = membership.rank;
    let (joined, verdict) = mpsc::sync_channel(1);
    let (commands, task) = ControlTask::new(membership, timeout, on_event, joined);
    let waited = task.timeout + GRACE;
    let thread = std::thread::Builder::new()
        .name("gradwire-control".into())
        .spawn(move || run(task, role))
        .map_err(|error| identity::setup("starting its thread", &error))?;
    let admission = verdict
        .recv_timeout(waited)
        .unwrap_or(Err(JoinError::Stopped))?;
    Ok(ControlPlane::new(rank, admission, commands, thread))
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
    let data = || {
        membership
            .data_addresses
            .iter()
            .filter_map(|one| one.socket())
    };
    if let JoinRole::Member(leader) = role
        && leader.ip().is_loopback()
        && let Some(address) = data().find(|address| !address.ip().is_loopback())
    {
        let leader = *leader;
        return Err(JoinError::LoopbackLeader { leader, address });
    }
    let unreachable = |address: &&Address| !address.is_reachable();
    match membership.data_addresses.iter().find(unreachable) {
        Some(&address) => Err(JoinError::UnreachableData { address }),
        None => Ok(()),
    }
}

/// The body of the control thread, from joining to closing.
fn run(task: ControlTask, role: JoinRole) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(async {
            match role {
                JoinRole::Leader(listener) => leader::run(listener, task).await,
                JoinRole::Member(leader) => member::run(leader, task).await,
            }
        }),
        Err(error) => task
            .joined
            .answer(Err(identity::setup("starting its event loop", &error))),
    }
}

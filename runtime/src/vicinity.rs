//! The ranks of this host, and the memory shared with them.

use std::time::Duration;

use gradwire_protocol::job::{IdleMode, Job, WireChoice};
use gradwire_protocol::launch::LaunchFacts;
use gradwire_protocol::reach::MemoryPath;
use gradwire_protocol::units::{ByteCount, Rank, Span};
use gradwire_transport::control::{ControlPlane, RosterPeer};
use gradwire_transport::driver::DrivePace;
use gradwire_transport::interface::AUTO_MTU_MAX;
use gradwire_transport::lanes::AegisLanes;
use gradwire_transport::shm::{
    HostNeighbours, InboxNames, MemoryOffer, MemoryShortage, MemoryTerms, OwnInbox, RankLife,
};

use crate::error::RankJoinError;

/// Twice as long as waking a thread takes on a virtual machine.
const CALLER_SPIN: Span = Span::from_micros(200);

/// The ranks that share memory with this one.
#[derive(Debug, Default)]
pub(crate) struct HostVicinity {
    /// The names of this rank's files, which are needed until all ranks have entered.
    pub(crate) names: InboxNames,
    /// The handles that report which of the ranks' processes have ended.
    pub(crate) lives: Vec<(Rank, RankLife)>,
    /// The ranks that are reached through memory: those that found room for their rings.
    pub(crate) reached: Vec<Rank>,
    /// The sizes on the paths to them.
    pub(crate) path: Option<MemoryPath>,
    /// The rings, if they reach any rank.
    pub(crate) neighbours: Option<HostNeighbours>,
}

impl HostVicinity {
    fn of(terms: &MemoryTerms, mut neighbours: HostNeighbours) -> Self {
        let reached: Vec<Rank> = neighbours.reached().collect();
        Self {
            names: neighbours.take_names(),
            lives: neighbours.take_lives(),
            path: Some(terms.near()),
            neighbours: Some(neighbours).filter(|_| !reached.is_empty()),
            reached,
        }
    }
}

/// Lets the ranks of each host share memory.
///
/// # Errors
/// [`RankJoinError`] if the system refuses, or if the job demands memory but some ranks share none.
pub(crate) fn enter(
    job: &Job,
    control: &ControlPlane,
    (inbox, timeout): (Option<OwnInbox>, Duration),
) -> Result<HostVicinity, RankJoinError> {
    let offers = offers(control.roster());
    let terms = MemoryTerms::of(&offers, control.rank());
    let made = inbox.zip(terms).map(|(inbox, terms)| {
        let neighbours = HostNeighbours::new(inbox, &terms)?;
        Ok::<_, RankJoinError>((terms, neighbours))
    });
    let mut made = made.transpose()?;
    // All ranks must take part in the same number of barriers, also ranks without neighbours.
    if offers.iter().any(|(_, offer)| offer.is_some()) {
        control.barrier(timeout)?;
    }
    if let Some((terms, neighbours)) = &mut made {
        neighbours.attach(terms)?;
    }
    let shared = made.iter().flat_map(|(_, neighbours)| neighbours.reached());
    let (shared, world_size) = (shared.count() + 1, offers.len());
    let shortage = MemoryShortage::of(&offers, control.rank());
    if job.transport.wire == WireChoice::SharedMemory && shared < world_size {
        return Err(shortage.map_or(
            RankJoinError::NoMemory { shared, world_size },
            RankJoinError::NoRoom,
        ));
    }
    match (&made, shortage) {
        (None, Some(shortage)) if is_first_of_host(control) => {
            log::warn!("packets between the ranks of this host go by UDP, slower: {shortage}");
        }
        (Some((terms, _)), _) if shared <= terms.others().count() => log::warn!(
            "some packets between the ranks of this host go by UDP: /dev/shm has no room for all \
             rings; give it more (docker: --shm-size), or set transport.wire to \"udp\""
        ),
        _ => {}
    }
    let vicinity = made.map(|(terms, neighbours)| HostVicinity::of(&terms, neighbours));
    Ok(vicinity.unwrap_or_default())
}

/// Whether this rank speaks for its host.
fn is_first_of_host(control: &ControlPlane) -> bool {
    let hosts = hosts(control.roster());
    let me = usize::from(control.rank().0);
    !hosts[..me].contains(&hosts[me])
}

/// How `rank` waits when a job asks for `idle`. If ranks share cores, a rank that looks for packets
/// keeps their sender from running. So it sleeps at once, unless the job says otherwise. If every
/// rank has a core, callers look for longer than waking up takes.
pub(crate) fn pace(idle: IdleMode, roster: &[RosterPeer], rank: Rank) -> DrivePace {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    pace_on(cores, idle, ranks_of_host(roster, rank))
}

fn pace_on(cores: usize, idle: IdleMode, ranks_here: usize) -> DrivePace {
    let crowded = ranks_here > cores;
    DrivePace {
        idle: match idle {
            IdleMode::Adaptive if crowded => IdleMode::Block,
            asked => asked,
        },
        caller_spin: if crowded { Span::ZERO } else { CALLER_SPIN },
        ranks_here,
    }
}

/// The lanes in which the ranks compute AEGIS.
pub(crate) fn lanes(roster: &[RosterPeer]) -> AegisLanes {
    AegisLanes::among(roster.iter().map(|peer| peer.lanes))
}

/// How many ranks have the same host as `rank`, itself included.
fn ranks_of_host(roster: &[RosterPeer], rank: Rank) -> usize {
    let own = roster.iter().find(|peer| peer.rank == rank);
    let is_near = |peer: &&RosterPeer| own.is_some_and(|own| own.host == peer.host);
    roster.iter().filter(is_near).count()
}

fn offers(roster: &[RosterPeer]) -> Vec<(Rank, Option<MemoryOffer>)> {
    let offers = roster.iter().map(|peer| (peer.rank, peer.memory.clone()));
    offers.collect()
}

/// The host of each rank: a number that ranks have in common if they share memory.
pub(crate) fn hosts(roster: &[RosterPeer]) -> Vec<u16> {
    let place = |peer: &RosterPeer| peer.memory.as_ref().map(|offer| offer.place.clone());
    let first = |at: usize| {
        let mine = place(&roster[at]);
        let same = roster
            .iter()
            .position(|other| mine.is_some() && place(other) == mine);
        u16::try_from(same.unwrap_or(at)).expect("ranks are numbers of 16 bits")
    };
    (0..roster.len()).map(first).collect()
}

/// The facts that the job is fitted to.
pub(crate) fn launch_facts(roster: &[RosterPeer]) -> LaunchFacts {
    let hosts = hosts(roster);
    let of_host = |host| hosts.iter().filter(|other| **other == host).count();
    let near = hosts.iter().map(|&host| of_host(host)).min();
    let buffers = roster.iter().map(|peer| peer.receive_buffer);
    LaunchFacts {
        mtu: (roster.iter().map(|peer| peer.mtu)).fold(AUTO_MTU_MAX, u32::min),
        receive_buffer: ByteCount::new(buffers.min().unwrap_or(u64::MAX)),
        peers: (roster.len() - near.unwrap_or(0)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_host_are_no_peers_on_the_network() {
        let peer = |rank| RosterPeer {
            rank: Rank(rank),
            host: "here".to_owned(),
            data_addresses: Vec::new(),
            mtu: 1400 + u32::from(rank),
            receive_buffer: 1 << 20,
            lanes: AegisLanes::of_this_host(),
            memory: None,
            round_trip_us: 0,
        };
        let facts = launch_facts(&(0..3).map(peer).collect::<Vec<_>>());
        assert_eq!((facts.mtu, facts.peers), (1400, 2));
        assert_eq!(facts.receive_buffer, ByteCount::mib(1));
    }

    #[test]
    fn ranks_that_share_cores_sleep_by_default() {
        let idle = |cores, idle, ranks| pace_on(cores, idle, ranks).idle;
        assert_eq!(idle(2, IdleMode::Adaptive, 2), IdleMode::Adaptive);
        assert_eq!(idle(2, IdleMode::Adaptive, 3), IdleMode::Block);
        assert_eq!(idle(2, IdleMode::Busy, 3), IdleMode::Busy);
        assert_eq!(pace_on(2, IdleMode::Busy, 3).caller_spin, Span::ZERO);
        assert_eq!(pace_on(2, IdleMode::Block, 1).caller_spin, CALLER_SPIN);
    }
}

//! Decides which ranks may join: rank 0 compares each with itself. No sockets and no clock.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use gradwire_protocol::units::Rank;

use super::membership::{Membership, RosterPeer};
use super::messages::{JoinRequest, shortened};
use super::rank_list::RankList;
use super::refusal::{JobDifference, JoinRefusal, RefusedJoins};

/// The release that all ranks must have.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Differences that are spelled out; further ones are only counted.
const NAMED_DIFFERENCES: usize = 8;
/// Refusals that are spelled out in the error of a job that did not form.
const NAMED_REFUSALS: usize = 4;

/// A job that is forming.
pub(super) struct Assembly {
    world_size: u32,
    job: BTreeMap<String, String>,
    members: BTreeMap<Rank, JoinedRank>,
    turned_away: RefusedJoins,
}

struct JoinedRank {
    peer: RosterPeer,
    from: SocketAddr,
    differences: Vec<JobDifference>,
}

impl Assembly {
    /// A job that only rank 0, which listens at `here`, has joined.
    pub(super) fn new(leader: &Membership, here: SocketAddr) -> Self {
        let first = JoinedRank {
            peer: leader.peer(),
            from: here,
            differences: Vec::new(),
        };
        Self {
            world_size: leader.world_size,
            job: leader.job.clone(),
            members: BTreeMap::from([(leader.rank, first)]),
            turned_away: RefusedJoins::default(),
        }
    }

    /// Enters a rank. A rank whose job differs is entered too, so that all ranks hear of the
    /// difference.
    pub(super) fn admit(
        &mut self,
        hello: JoinRequest,
        from: SocketAddr,
    ) -> Result<(), JoinRefusal> {
        let rank = hello.peer.rank;
        if hello.world_size != self.world_size {
            return Err(JoinRefusal::WorldSize {
                rank,
                given: hello.world_size,
                leader: self.world_size,
            });
        }
        if u32::from(rank.0) >= self.world_size {
            return Err(JoinRefusal::RankOutOfRange {
                rank,
                world_size: self.world_size,
            });
        }
        if let Some(member) = self.members.get(&rank) {
            return Err(JoinRefusal::DuplicateRank {
                rank,
                first: member.from,
                second: from,
            });
        }
        let member = JoinedRank {
            differences: self.differences(rank, &hello.job),
            peer: hello.peer,
            from,
        };
        self.members.insert(rank, member);
        Ok(())
    }

    /// Removes a rank that went away before the job started; it may come again.
    pub(super) fn withdraw(&mut self, rank: Rank) {
        self.members.remove(&rank);
    }

    /// Remembers a refusal for the error of a job that does not form.
    pub(super) fn turn_away(&mut self, from: SocketAddr, refusal: &JoinRefusal) {
        match refusal {
            JoinRefusal::WrongToken => self.turned_away.wrong_tokens += 1,
            _ if self.turned_away.others.len() < NAMED_REFUSALS => {
                self.turned_away.others.push(format!("{from}: {refusal}"));
            }
            _ => {}
        }
    }

    /// The ranks that have not joined.
    pub(super) fn missing(&self) -> RankList {
        (0..self.world_size)
            .map(|rank| Rank(rank.try_into().expect("world size is at most 65536")))
            .filter(|rank| !self.members.contains_key(rank))
            .collect()
    }

    /// Whether every rank has joined, agreeing or not.
    pub(super) fn is_complete(&self) -> bool {
        self.members.len() == self.world_size as usize
    }

    /// The refusal for all ranks of a job that did not form in time.
    pub(super) fn incomplete(&self, waited: Duration) -> JoinRefusal {
        JoinRefusal::Incomplete {
            waited,
            world_size: self.world_size,
            missing: self.missing(),
            turned_away: self.turned_away.clone(),
        }
    }

    /// All ranks in order, or how their jobs differ.
    pub(super) fn agree(&self) -> Result<Vec<RosterPeer>, JoinRefusal> {
        let all = || self.members.values().flat_map(|member| &member.differences);
        let differences: Vec<JobDifference> = all().take(NAMED_DIFFERENCES).cloned().collect();
        if differences.is_empty() {
            self.check_addresses()?;
            let peer = |member: &JoinedRank| member.peer.clone();
            return Ok(self.members.values().map(peer).collect());
        }
        Err(JoinRefusal::JobDiffers {
            unnamed: all().count() - differences.len(),
            differences,
        })
    }

    /// Refuses loopback addresses in a job of several hosts.
    fn check_addresses(&self) -> Result<(), JoinRefusal> {
        let peers = || self.members.values().map(|member| &member.peer);
        let hidden = |peer: &&RosterPeer| {
            let socket = peer.data_addresses.first().and_then(|one| one.socket());
            socket.is_some_and(|address| address.ip().is_loopback())
        };
        let Some(peer) = peers().find(hidden) else {
            return Ok(());
        };
        let Some(other) = peers().find(|other| other.host != peer.host) else {
            return Ok(());
        };
        Err(JoinRefusal::Loopback {
            rank: peer.rank,
            host: shortened(&peer.host),
            address: peer.data_addresses[0].to_string(),
            other: other.rank,
            other_host: shortened(&other.host),
        })
    }

    fn differences(&self, rank: Rank, job: &BTreeMap<String, String>) -> Vec<JobDifference> {
        let mut keys: Vec<&String> = self.job.keys().chain(job.keys()).collect();
        keys.sort();
        keys.dedup();
        keys.into_iter()
            .map(|key| (key, self.job.get(key), job.get(key)))
            .filter(|(_, leader, value)| leader != value)
            .map(|(key, leader, value)| JobDifference {
                key: shortened(key),
                leader: leader.map(|value| shortened(value)),
                rank,
                value: value.map(|value| shortened(value)),
            })
            .collect()
    }
}

/// Refuses a rank of another release.
pub(super) fn check_version(rank: Rank, version: &str) -> Result<(), JoinRefusal> {
    if version == VERSION {
        return Ok(());
    }
    Err(JoinRefusal::Version {
        rank,
        version: version.into(),
        leader: VERSION.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::AegisLanes;

    fn membership(rank: u16, job: &[(&str, &str)]) -> Membership {
        Membership {
            rank: Rank(rank),
            world_size: 3,
            token: String::new(),
            certificates: None,
            job: job
                .iter()
                .map(|&(key, value)| (key.into(), value.into()))
                .collect(),
            data_addresses: Vec::new(),
            host: format!("host{rank}"),
            mtu: 1500,
            receive_buffer: 1 << 20,
            lanes: AegisLanes::of_this_host(),
            memory: None,
            peer_timeout: Duration::from_secs(3),
        }
    }

    fn hello(membership: &Membership) -> JoinRequest {
        JoinRequest::of(membership)
    }

    fn from(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn assembly() -> Assembly {
        Assembly::new(
            &membership(0, &[("name", "a"), ("tolerance", "0")]),
            from(1),
        )
    }

    #[test]
    fn ranks_that_agree_become_the_roster_in_order() {
        let mut assembly = assembly();
        for rank in [2, 1] {
            assert!(!assembly.is_complete());
            let hello = hello(&membership(rank, &[("tolerance", "0"), ("name", "a")]));
            assembly.admit(hello, from(rank)).expect("free and equal");
        }
        assert!(assembly.is_complete());
        let roster = assembly.agree().expect("equal jobs");
        let hosts: Vec<&str> = roster.iter().map(|peer| peer.host.as_str()).collect();
        assert_eq!(hosts, ["host0", "host1", "host2"]);
    }

    #[test]
    fn every_job_difference_is_named_to_all_ranks() {
        let mut assembly = assembly();
        let same = hello(&membership(1, &[("name", "a"), ("tolerance", "0")]));
        assembly.admit(same, from(2)).expect("equal");
        let other = hello(&membership(2, &[("name", "b"), ("window", "1MiB")]));
        assembly.admit(other, from(3)).expect("entered to be told");
        let Err(JoinRefusal::JobDiffers { differences, .. }) = assembly.agree() else {
            panic!("jobs differ");
        };
        let keys: Vec<&str> = differences.iter().map(|d| d.key.as_str()).collect();
        assert_eq!(keys, ["name", "tolerance", "window"]);
        assert!(differences.iter().all(|d| d.rank == Rank(2)));
    }

    #[test]
    fn loopback_serves_one_host_only() {
        let with_host = |rank: u16, host: &str| {
            let mut own = membership(rank, &[]);
            own.host = host.to_owned();
            own.data_addresses = vec![from(4000 + rank).into()];
            own
        };
        let agree = |last: &str| {
            let mut assembly = Assembly::new(&with_host(0, "a"), from(1));
            for (rank, host) in [(1, "a"), (2, last)] {
                let hello = hello(&with_host(rank, host));
                assembly.admit(hello, from(rank)).expect("free");
            }
            assembly.agree().map(|roster| roster.len())
        };
        assert_eq!(agree("a"), Ok(3));
        let refusal = agree("b").expect_err("two hosts").to_string();
        for word in [
            "rank 0 on host a",
            "127.0.0.1:4000",
            "rank 2 on host b",
            "MASTER_ADDR",
        ] {
            assert!(refusal.contains(word), "{refusal}");
        }
    }

    #[test]
    fn a_rank_is_entered_once_until_it_withdraws() {
        let mut assembly = assembly();
        let hello = || hello(&membership(1, &[]));
        assembly.admit(hello(), from(2)).expect("free");
        let refusal = assembly.admit(hello(), from(3)).expect_err("taken");
        assert_eq!(
            refusal,
            JoinRefusal::DuplicateRank {
                rank: Rank(1),
                first: from(2),
                second: from(3)
            }
        );
        assembly.withdraw(Rank(1));
        assembly.admit(hello(), from(3)).expect("free again");
    }

    #[test]
    fn ranks_of_another_world_are_refused() {
        let mut other = membership(1, &[]);
        other.world_size = 4;
        let refusal = assembly().admit(hello(&other), from(2));
        assert!(matches!(
            refusal,
            Err(JoinRefusal::WorldSize {
                given: 4,
                leader: 3,
                ..
            })
        ));
        let refusal = assembly().admit(hello(&membership(3, &[])), from(2));
        assert!(matches!(refusal, Err(JoinRefusal::RankOutOfRange { .. })));
    }

    #[test]
    fn another_release_is_refused_by_name() {
        assert_eq!(check_version(Rank(1), VERSION), Ok(()));
        let refusal = check_version(Rank(1), "0.0.7").expect_err("another release");
        assert!(refusal.to_string().contains("rank 1 runs gradwire 0.0.7"));
    }
}

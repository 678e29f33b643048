//! Rank 0's view of all ranks of a started job, itself included: which ranks are present, which
//! wait at a barrier, and which messages each receives. No sockets and no clock.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use gradwire_protocol::units::Rank;
use tokio::time::Instant;

use super::messages::{FromLeader, FromMember, shortened};
use super::rank_list::RankList;

/// Keeps track of all ranks and queues messages for them.
pub(super) struct Hub {
    ranks: BTreeMap<Rank, MemberState>,
    /// The deadline of each rank and barrier that is waited for.
    waiting: BTreeMap<(Rank, u64), Instant>,
    outgoing: VecDeque<(Rank, FromLeader)>,
}

struct MemberState {
    presence: RankPresence,
    /// How many barriers the rank has reached.
    reached: u64,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum RankPresence {
    Here,
    Left,
    Lost,
}

impl Hub {
    /// All ranks of the job are here.
    pub(super) fn new(ranks: impl Iterator<Item = Rank>) -> Self {
        let seen = || MemberState {
            presence: RankPresence::Here,
            reached: 0,
        };
        Self {
            ranks: ranks.map(|rank| (rank, seen())).collect(),
            waiting: BTreeMap::new(),
            outgoing: VecDeque::new(),
        }
    }

    /// Handles a message of `rank`.
    pub(super) fn handle(&mut self, rank: Rank, message: FromMember, now: Instant) {
        match message {
            FromMember::Barrier { index, timeout_ms } => {
                let deadline = now.checked_add(Duration::from_millis(timeout_ms));
                self.barrier(rank, index, deadline.unwrap_or(now));
            }
            FromMember::Abort { reason } => {
                let reason = shortened(&reason);
                self.tell_others(rank, || FromLeader::Aborted {
                    rank,
                    reason: reason.clone(),
                });
            }
            FromMember::Ask { question } => {
                let question = shortened(&question);
                self.tell_others(rank, || FromLeader::Asked {
                    rank,
                    question: question.clone(),
                });
            }
            FromMember::Answer { to, answer } => {
                let answer = shortened(&answer);
                self.outgoing
                    .push_back((to, FromLeader::Answered { rank, answer }));
            }
            FromMember::Lost { rank: gone, reason } => {
                if gone != rank {
                    self.lost(gone, &reason);
                }
            }
            FromMember::Leave => self.leave(rank),
            FromMember::Prove { .. } | FromMember::Join(_) => {
                self.lost(rank, "joined a second time over the same connection");
            }
        }
    }

    /// The connection to `rank` has ended.
    pub(super) fn lost(&mut self, rank: Rank, reason: &str) {
        if !self.change(rank, RankPresence::Lost) {
            return;
        }
        let reason = shortened(reason);
        self.tell_others(rank, || FromLeader::PeerLost {
            rank,
            reason: reason.clone(),
        });
        self.release();
    }

    /// When [`Hub::handle_timeout`] has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.values().min().copied()
    }

    /// Tells each rank whose barrier took too long which ranks are missing.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let late = self.waiting.extract_if(.., |_, deadline| *deadline <= now);
        for ((rank, index), _) in late {
            let absent = self.ranks.iter().filter(|(_, seen)| seen.reached < index);
            let missing: RankList = absent.map(|(rank, _)| *rank).collect();
            let message = FromLeader::BarrierTimedOut { index, missing };
            self.outgoing.push_back((rank, message));
        }
    }

    /// The next message, and the rank it goes to.
    pub(super) fn poll_outgoing(&mut self) -> Option<(Rank, FromLeader)> {
        self.outgoing.pop_front()
    }

    fn barrier(&mut self, rank: Rank, index: u64, deadline: Instant) {
        let Some(seen) = self.ranks.get_mut(&rank) else {
            return;
        };
        seen.reached = seen.reached.max(index);
        self.waiting.insert((rank, index), deadline);
        let passed = self.ranks.values().map(|seen| seen.reached).min();
        let passed = passed.unwrap_or(index);
        let through = self.waiting.extract_if(.., |key, _| key.1 <= passed);
        let told = through.map(|((rank, index), _)| (rank, FromLeader::BarrierPassed { index }));
        self.outgoing.extend(told);
    }

    fn leave(&mut self, rank: Rank) {
        if self.change(rank, RankPresence::Left) {
            self.tell_others(rank, || FromLeader::PeerLeft { rank });
            self.release();
        }
    }

    /// Records that `rank` left or is lost; returns whether it was present until now.
    fn change(&mut self, rank: Rank, presence: RankPresence) -> bool {
        match self.ranks.get_mut(&rank) {
            Some(seen) if seen.presence == RankPresence::Here => {
                seen.presence = presence;
                true
            }
            _ => false,
        }
    }

    fn tell_others(&mut self, rank: Rank, message: impl Fn() -> FromLeader) {
        let others = self
            .ranks
            .iter()
            .filter(|(other, seen)| **other != rank && seen.presence != RankPresence::Lost);
        self.outgoing
            .extend(others.map(|(other, _)| (*other, message())));
    }

    /// Releases all ranks once every rank has left or is lost.
    fn release(&mut self) {
        let here = |seen: &MemberState| seen.presence == RankPresence::Here;
        if self.ranks.values().any(here) {
            return;
        }
        let left = self.ranks.iter();
        let left = left.filter(|(_, seen)| seen.presence == RankPresence::Left);
        self.outgoing
            .extend(left.map(|(rank, _)| (*rank, FromLeader::Released)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1000;

    fn hub() -> Hub {
        Hub::new((0..3).map(Rank))
    }

    fn at_barrier(index: u64) -> FromMember {
        FromMember::Barrier {
            index,
            timeout_ms: SECOND,
        }
    }

    fn told(hub: &mut Hub) -> Vec<(u16, String)> {
        let name = |message| match message {
            FromLeader::BarrierPassed { index } => format!("passed {index}"),
            FromLeader::BarrierTimedOut { index, missing } => {
                format!("timed out {index}: {missing}")
            }
            FromLeader::PeerLost { rank, .. } => format!("lost {rank}"),
            FromLeader::PeerLeft { rank } => format!("left {rank}"),
            FromLeader::Aborted { rank, reason } => format!("aborted {rank}: {reason}"),
            FromLeader::Asked { rank, question } => format!("asked by {rank}: {question}"),
            FromLeader::Answered { rank, answer } => format!("answered by {rank}: {answer}"),
            FromLeader::Released => "released".into(),
            _ => "greeting".into(),
        };
        std::iter::from_fn(|| hub.poll_outgoing())
            .map(|(rank, message)| (rank.0, name(message)))
            .collect()
    }

    fn words(expected: &[(u16, &str)]) -> Vec<(u16, String)> {
        expected
            .iter()
            .map(|&(rank, word)| (rank, word.into()))
            .collect()
    }

    #[test]
    fn the_last_rank_opens_the_barrier() {
        let (mut hub, now) = (hub(), Instant::now());
        hub.handle(Rank(0), at_barrier(1), now);
        hub.handle(Rank(2), at_barrier(1), now);
        assert_eq!(told(&mut hub), words(&[]));
        hub.handle(Rank(1), at_barrier(1), now);
        let all = [(0, "passed 1"), (1, "passed 1"), (2, "passed 1")];
        assert_eq!(told(&mut hub), words(&all));
        assert_eq!(hub.poll_timeout(), None);
    }

    #[test]
    fn a_late_barrier_names_the_missing_ranks() {
        let (mut hub, now) = (hub(), Instant::now());
        hub.handle(Rank(0), at_barrier(1), now);
        let deadline = hub.poll_timeout().expect("rank 0 waits");
        assert_eq!(deadline - now, Duration::from_secs(1));
        hub.handle_timeout(deadline);
        assert_eq!(told(&mut hub), words(&[(0, "timed out 1: ranks 1 and 2")]));
        assert_eq!(hub.poll_timeout(), None);
    }

    #[test]
    fn release_follows_when_no_rank_works() {
        let (mut hub, now) = (hub(), Instant::now());
        hub.handle(Rank(1), FromMember::Leave, now);
        hub.lost(Rank(1), "a connection that ends after leaving is no loss");
        assert_eq!(told(&mut hub), words(&[(0, "left 1"), (2, "left 1")]));
        hub.lost(Rank(2), "killed");
        assert_eq!(told(&mut hub), words(&[(0, "lost 2"), (1, "lost 2")]));
        hub.handle(Rank(0), FromMember::Leave, now);
        let last = [(1, "left 0"), (0, "released"), (1, "released")];
        assert_eq!(told(&mut hub), words(&last));
    }

    #[test]
    fn a_reported_death_releases_the_others() {
        let (mut hub, now) = (hub(), Instant::now());
        let ended = || FromMember::Lost {
            rank: Rank(2),
            reason: "its process has ended".into(),
        };
        hub.handle(Rank(1), ended(), now);
        hub.handle(Rank(0), ended(), now);
        hub.handle(Rank(1), FromMember::Leave, now);
        hub.handle(Rank(0), FromMember::Leave, now);
        let all = [
            (0, "lost 2"),
            (1, "lost 2"),
            (0, "left 1"),
            (1, "left 0"),
            (0, "released"),
            (1, "released"),
        ];
        assert_eq!(told(&mut hub), words(&all));
    }

    #[test]
    fn answers_go_only_to_the_asking_rank() {
        let mut hub = hub();
        let question = "where are you?".into();
        hub.handle(Rank(1), FromMember::Ask { question }, Instant::now());
        let others = [
            (0, "asked by 1: where are you?"),
            (2, "asked by 1: where are you?"),
        ];
        assert_eq!(told(&mut hub), words(&others));
        let (to, answer) = (Rank(1), "here".into());
        hub.handle(Rank(2), FromMember::Answer { to, answer }, Instant::now());
        assert_eq!(told(&mut hub), words(&[(1, "answered by 2: here")]));
    }

    #[test]
    fn an_abort_is_told_to_all_others() {
        let mut hub = hub();
        let reason = "out of memory".into();
        hub.handle(Rank(1), FromMember::Abort { reason }, Instant::now());
        let others = [
            (0, "aborted 1: out of memory"),
            (2, "aborted 1: out of memory"),
        ];
        assert_eq!(told(&mut hub), words(&others));
    }
}

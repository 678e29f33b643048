//! What can go wrong between ranks before and around the data plane, in words for the person who
//! started them: what was given, what is allowed, what to do.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use gradwire_protocol::units::Rank;
use serde::{Deserialize, Serialize};

use crate::address::Address;

/// Why rank 0 cannot listen.
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

/// Why this rank is not part of a job.
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
    /// Rank 0 decided that the job cannot form, or not with this rank.
    #[error(transparent)]
    Refused(#[from] JoinRefusal),
    /// The process that answered at rank 0's address does not know the job token.
    #[error(
        "{leader} does not know the token of this job: it is not this job's rank 0, or somebody \
         sits between; check the address of rank 0 and give every rank the same token"
    )]
    Impostor {
        /// The address this rank connected to.
        leader: SocketAddr,
    },
    /// Nothing that speaks this protocol answered in time.
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
    /// The system refused something the control plane is made of.
    #[error("the control plane cannot start: {what}: {reason}")]
    Setup {
        /// What was tried.
        what: &'static str,
        /// The reason given.
        reason: String,
    },
    /// The thread of the control plane gave no verdict.
    #[error("the control plane of this rank stopped before it joined: start this rank again")]
    Stopped,
}

/// What rank 0 tells ranks that cannot be a job together.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
pub enum JoinRefusal {
    /// The proof of the token did not match.
    #[error(
        "the job token of this rank is not the token of rank 0: start every rank of the job with \
         the same token"
    )]
    WrongToken,
    /// One end of the connection does not trust the other's certificate.
    #[error(
        "the certificate of {holder} is refused: it {reason}; give every rank a certificate of \
         one authority that is valid now, with its key, and that authority"
    )]
    Certificate {
        /// Whose certificate it is.
        holder: CertificateHolder,
        /// What is wrong with it, in words that follow "it".
        reason: String,
    },
    /// Two releases do not form a job.
    #[error(
        "rank {rank} runs gradwire {version} but rank 0 runs {leader}: install the same version \
         on every host"
    )]
    Version {
        /// The rank that was refused.
        #[serde(with = "rank_number")]
        rank: Rank,
        /// Its version.
        version: String,
        /// The version of rank 0.
        leader: String,
    },
    /// The ranks were started for jobs of different size.
    #[error(
        "rank {rank} was started with world size {given} but rank 0 with {leader}: start every \
         rank with the same world size"
    )]
    WorldSize {
        /// The rank that was refused.
        #[serde(with = "rank_number")]
        rank: Rank,
        /// World size it was given.
        given: u32,
        /// World size that rank 0 was given.
        leader: u32,
    },
    /// The rank does not exist in this job.
    #[error("rank {rank} does not exist in a job of world size {world_size}: ranks start at 0")]
    RankOutOfRange {
        /// The rank that was refused.
        #[serde(with = "rank_number")]
        rank: Rank,
        /// World size of the job.
        world_size: u32,
    },
    /// Two processes claim one rank.
    #[error(
        "rank {rank} has joined already from {first}, and now a second time from {second}: give \
         every process its own rank"
    )]
    DuplicateRank {
        /// The rank claimed twice.
        #[serde(with = "rank_number")]
        rank: Rank,
        /// Where the rank that stays is.
        first: SocketAddr,
        /// Where the refused one is.
        second: SocketAddr,
    },
    /// The job is complete and running.
    #[error(
        "rank {rank} comes too late: the job has started already; end it and start all ranks again"
    )]
    AlreadyStarted {
        /// The rank that was refused.
        #[serde(with = "rank_number")]
        rank: Rank,
    },
    /// The resolved job parameters differ.
    #[error("the ranks do not run the same job: {}: give every rank the same job file",
        Differences(.differences, *.unnamed))]
    JobDiffers {
        /// The first differences, by rank and key.
        differences: Vec<JobDifference>,
        /// How many more there are.
        unnamed: usize,
    },
    /// A description exceeds what one message may hold.
    #[error(
        "the {what} takes {bytes} bytes on the control plane, at most {limit} are allowed: \
         shorten it (fewer data addresses per rank, shorter host names or job values)"
    )]
    TooLarge {
        /// What does not fit.
        what: String,
        /// Its encoded size.
        bytes: usize,
        /// The largest size allowed.
        limit: usize,
    },
    /// Not all ranks came in time.
    #[error(
        "after {waited:?} {missing} of {world_size} had not joined rank 0{turned_away}: start \
         the missing ranks with the address of rank 0, or wait longer"
    )]
    Incomplete {
        /// How long rank 0 waited.
        waited: Duration,
        /// World size of the job.
        world_size: u32,
        /// Who did not come.
        missing: RankList,
        /// Who came and was refused.
        turned_away: RefusedJoins,
    },
}

/// Whose certificate is refused.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum CertificateHolder {
    /// Rank 0.
    Leader,
    /// The rank that wanted to join.
    Member,
}

impl CertificateHolder {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Leader => Self::Member,
            Self::Member => Self::Leader,
        }
    }
}

impl fmt::Display for CertificateHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leader => "rank 0",
            Self::Member => "this rank",
        })
    }
}

/// Who was refused while rank 0 waited.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct RefusedJoins {
    /// How many came with a wrong token.
    pub wrong_tokens: u32,
    /// The first other refusals, in words.
    pub others: Vec<String>,
}

impl fmt::Display for RefusedJoins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wrong_tokens {
            0 => {}
            1 => write!(f, " (1 attempt with a wrong token was refused)")?,
            n => write!(f, " ({n} attempts with a wrong token were refused)")?,
        }
        self.others
            .iter()
            .try_for_each(|other| write!(f, " (refused: {other})"))
    }
}

/// One job parameter that is not the same on two ranks.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct JobDifference {
    /// The dotted key.
    pub key: String,
    /// Its value on rank 0; `None` when rank 0 does not have it.
    pub leader: Option<String>,
    /// The rank that differs from rank 0.
    #[serde(with = "rank_number")]
    pub rank: Rank,
    /// Its value there.
    pub value: Option<String>,
}

impl fmt::Display for JobDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leader = self.leader.as_deref().unwrap_or("not set");
        let value = self.value.as_deref().unwrap_or("not set");
        write!(
            f,
            "{} is {leader} on rank 0 but {value} on rank {}",
            self.key, self.rank
        )
    }
}

struct Differences<'a>(&'a [JobDifference], usize);

impl fmt::Display for Differences<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, difference) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{difference}")?;
        }
        match self.1 {
            0 => Ok(()),
            more => write!(f, "; and {more} more differences"),
        }
    }
}

/// Why a barrier was not passed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BarrierError {
    /// A peer died, so that it can never arrive.
    #[error("the barrier cannot be passed: rank {rank} is lost ({reason}); start the job again")]
    PeerLost {
        /// The lost rank.
        rank: Rank,
        /// How it was noticed.
        reason: String,
    },
    /// A peer left, so that it can never arrive.
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
        "the barrier timed out after {waited:?}: {missing} did not reach it; look there for what \
         holds them, or allow more time"
    )]
    TimedOut {
        /// The timeout that was given.
        waited: Duration,
        /// Who had not arrived; empty when rank 0 did not answer.
        missing: RankList,
    },
    /// The control plane of this rank has ended.
    #[error("the barrier cannot be passed: the control plane of this rank has ended")]
    Stopped,
}

/// Why a rank went before all others were ready to go.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LeaveError {
    /// Others still work.
    #[error(
        "{present} did not leave within {waited:?}: this rank goes without them and cannot answer \
         their late retransmissions; allow more time if they still work"
    )]
    TimedOut {
        /// The timeout that was given.
        waited: Duration,
        /// Who was still there.
        present: RankList,
    },
    /// Rank 0 is gone, so that nobody can tell who else has left.
    #[error("rank 0 is gone ({reason}), so this rank leaves without knowing who else has left")]
    LeaderLost {
        /// How it was noticed.
        reason: String,
    },
    /// The control plane of this rank has ended.
    #[error("the control plane of this rank has ended already: there is nothing to leave")]
    Stopped,
}

/// A list of ranks that reads "ranks 1, 2 and 5".
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "Vec<u16>", into = "Vec<u16>")]
pub struct RankList(Vec<Rank>);

impl RankList {
    /// How many are named before the rest is only counted.
    const NAMED: usize = 16;

    /// The ranks in the order in which they were collected.
    pub fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.0.iter().copied()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Rank> for RankList {
    fn from_iter<I: IntoIterator<Item = Rank>>(ranks: I) -> Self {
        Self(ranks.into_iter().collect())
    }
}

impl From<Vec<u16>> for RankList {
    fn from(numbers: Vec<u16>) -> Self {
        numbers.into_iter().map(Rank).collect()
    }
}

impl From<RankList> for Vec<u16> {
    fn from(ranks: RankList) -> Self {
        ranks.iter().map(|rank| rank.0).collect()
    }
}

impl fmt::Display for RankList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = &self.0[..self.0.len().min(Self::NAMED)];
        match named {
            [] => return f.write_str("ranks unknown here"),
            [one] => return write!(f, "rank {one}"),
            _ => f.write_str("ranks ")?,
        }
        let more = self.0.len() - named.len();
        for (index, rank) in named.iter().enumerate() {
            let separator = match index {
                0 => "",
                last if last + 1 == named.len() && more == 0 => " and ",
                _ => ", ",
            };
            write!(f, "{separator}{rank}")?;
        }
        match more {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// A rank as its number: how messages write it.
pub(super) mod rank_number {
    use gradwire_protocol::units::Rank;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::control) fn serialize<S: Serializer>(
        rank: &Rank,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u16(rank.0)
    }

    pub(in crate::control) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Rank, D::Error> {
        u16::deserialize(deserializer).map(Rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(range: std::ops::Range<u16>) -> RankList {
        range.map(Rank).collect()
    }

    #[test]
    fn lists_of_ranks_read_as_english() {
        assert_eq!(ranks(1..2).to_string(), "rank 1");
        assert_eq!(ranks(1..3).to_string(), "ranks 1 and 2");
        assert_eq!(ranks(1..4).to_string(), "ranks 1, 2 and 3");
        assert!(ranks(0..40).to_string().ends_with(", 15 and 24 more"));
    }

    #[test]
    fn a_difference_names_key_values_and_ranks() {
        let refusal = JoinRefusal::JobDiffers {
            differences: vec![JobDifference {
                key: "loss.tolerance".into(),
                leader: Some("10%".into()),
                rank: Rank(2),
                value: None,
            }],
            unnamed: 3,
        };
        assert_eq!(
            refusal.to_string(),
            "the ranks do not run the same job: loss.tolerance is 10% on rank 0 but not set \
             on rank 2; and 3 more differences: give every rank the same job file"
        );
    }
}

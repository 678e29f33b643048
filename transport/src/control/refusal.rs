//! The reasons for which rank 0 refuses ranks. They travel to the refused ranks as JSON, so that
//! each rank reports the same words.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use gradwire_protocol::units::Rank;
use serde::{Deserialize, Serialize};

use super::rank_list::{RankList, rank_number};

/// The reason that rank 0 gives to refused ranks.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
pub enum JoinRefusal {
    /// The proof of the token did not match.
    #[error(
        "the job token of this rank is not the token of rank 0: start every rank of the job with \
         the same token"
    )]
    WrongToken,
    /// One of two ranks has no token.
    #[error(
        "rank {rank} has no job token, and the other ranks have one: set GRADWIRE_TOKEN, or the \
         variable that names a file with it, on every rank or on none"
    )]
    TokenMissing {
        /// The rank without a token.
        #[serde(with = "rank_number")]
        rank: Rank,
    },
    /// One end of the connection does not trust the other's certificate.
    #[error(
        "the certificate of {holder} is refused: it {reason}; give every rank a certificate of \
         one authority that is valid now, with its key, and that authority"
    )]
    Certificate {
        /// The rank whose certificate it is.
        holder: CertificateHolder,
        /// The fault of the certificate, in words that follow "it".
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
    /// Ranks of several hosts, one of which is reached on its own host only.
    #[error(
        "rank {rank} on host {host} takes data at {address}, which rank {other} on host \
         {other_host} cannot reach: give rank {rank} an address of its host's network (MASTER_ADDR \
         of rank 0's host is not localhost; `gradwire rank --bind`)"
    )]
    Loopback {
        /// The rank with the loopback address.
        #[serde(with = "rank_number")]
        rank: Rank,
        /// Its host.
        host: String,
        /// Its first data address.
        address: String,
        /// A rank of another host.
        #[serde(with = "rank_number")]
        other: Rank,
        /// That host.
        other_host: String,
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
        /// The description that does not fit.
        what: String,
        /// Its encoded size.
        bytes: usize,
        /// The largest size allowed.
        limit: usize,
    },
    /// Not all ranks arrived in time.
    #[error(
        "after {waited:?} {missing} of {world_size} had not joined rank 0{turned_away}: start \
         the missing ranks with the address of rank 0, or wait longer"
    )]
    Incomplete {
        /// How long rank 0 waited.
        waited: Duration,
        /// World size of the job.
        world_size: u32,
        /// The ranks that did not arrive.
        missing: RankList,
        /// The processes that arrived and were refused.
        turned_away: RefusedJoins,
    },
}

/// The rank whose certificate is refused.
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

/// The processes that rank 0 refused while it waited.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct RefusedJoins {
    /// How many arrived with a wrong token.
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

/// One job parameter that differs between two ranks.
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

#[cfg(test)]
mod tests {
    use super::*;

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

//! Messages between rank 0 and the other ranks: JSON after a length of four bytes, on one stream
//! per rank.
//!
//! - Any bytes decode to a message or to a named failure.
//! - A reader never allocates more than the bound of the message it expects.

use std::collections::BTreeMap;
use std::sync::Arc;

use gradwire_protocol::units::Rank;
use quinn::{ConnectionError, ReadError, ReadExactError, RecvStream};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::lifeline::LifelineOffer;
use super::membership::{Membership, RosterPeer};
use super::rank_list::{RankList, rank_number};
use super::refusal::JoinRefusal;
use super::secrets::PairSecrets;

/// Largest message between ranks that trust each other.
pub(super) const MESSAGE_LIMIT: usize = 1 << 20;
/// Largest message from a process that has not proved the token.
pub(super) const GREETING_LIMIT: usize = 4 << 10;
/// Longest text that rank 0 passes on from one rank to another, in bytes; longer texts are cut.
const TEXT_LIMIT: usize = 4 << 10;

const LENGTH_BYTES: usize = 4;

/// From any rank to rank 0.
#[derive(Deserialize, Serialize)]
pub(super) enum FromMember {
    /// First message: proves knowledge of the token. The ALPN name fixes its form.
    Prove {
        #[serde(with = "rank_number")]
        rank: Rank,
        version: String,
        proof: Vec<u8>,
        /// Whether the rank has a token at all, as far as it says.
        #[serde(default)]
        has_token: Option<bool>,
    },
    /// Second message, to a rank 0 that has proved itself.
    Join(JoinRequest),
    /// This rank has reached its `index`th barrier, counted from 1, and waits `timeout_ms`.
    Barrier { index: u64, timeout_ms: u64 },
    /// The job is over.
    Abort { reason: String },
    /// A question to all other ranks.
    Ask { question: String },
    /// The answer to a question of that rank.
    Answer {
        #[serde(with = "rank_number")]
        to: Rank,
        answer: String,
    },
    /// The process of another rank has ended, as this rank knows from its host.
    Lost {
        #[serde(with = "rank_number")]
        rank: Rank,
        reason: String,
    },
    /// This rank sends nothing new; it still answers.
    Leave,
}

/// The second message: a process describes the rank it wants to be.
#[derive(Deserialize, Serialize)]
pub(super) struct JoinRequest {
    pub(super) world_size: u32,
    pub(super) peer: RosterPeer,
    pub(super) job: BTreeMap<String, String>,
}

impl JoinRequest {
    pub(super) fn of(membership: &Membership) -> Self {
        Self {
            world_size: membership.world_size,
            peer: membership.peer(),
            job: membership.job.clone(),
        }
    }
}

/// From rank 0 to any rank.
#[derive(Deserialize, Serialize)]
pub(super) enum FromLeader {
    /// Answer to a correct `Prove`.
    Prove { proof: Vec<u8> },
    /// The job cannot form, or not with this rank.
    Refused(JoinRefusal),
    /// Where this rank connects its lifeline.
    Lifeline(LifelineOffer),
    /// This rank has joined; these ranks have not.
    Waiting { missing: RankList },
    /// The secrets of this rank's pairs, sent to this rank alone. All ranks have joined and agree;
    /// `Start` follows.
    Secrets(PairSecrets),
    /// All ranks have joined and agree.
    Start(JobStart),
    /// Every rank has reached this barrier.
    BarrierPassed { index: u64 },
    /// The timeout that this rank gave its barrier has passed.
    BarrierTimedOut { index: u64, missing: RankList },
    /// A rank died.
    PeerLost {
        #[serde(with = "rank_number")]
        rank: Rank,
        reason: String,
    },
    /// A rank left properly.
    PeerLeft {
        #[serde(with = "rank_number")]
        rank: Rank,
    },
    /// A rank ended the job.
    Aborted {
        #[serde(with = "rank_number")]
        rank: Rank,
        reason: String,
    },
    /// A rank asks a question.
    Asked {
        #[serde(with = "rank_number")]
        rank: Rank,
        question: String,
    },
    /// A rank answers this rank's question.
    Answered {
        #[serde(with = "rank_number")]
        rank: Rank,
        answer: String,
    },
    /// All ranks have left or are lost: close.
    Released,
}

/// The facts that all ranks of a started job share.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct JobStart {
    pub(super) job_id: u32,
    pub(super) epoch: u16,
    /// In the order of ranks, rank 0 first.
    pub(super) roster: Vec<RosterPeer>,
}

/// A started job as one rank knows it.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    pub(super) start: JobStart,
    pub(super) secrets: PairSecrets,
}

/// An encoded message, shared by all links that send it.
pub(super) type Frame = Arc<[u8]>;

/// Encodes `message`.
///
/// # Errors
/// The size in bytes of the JSON, when it exceeds [`MESSAGE_LIMIT`].
pub(super) fn encode<M: Serialize>(message: &M) -> Result<Frame, usize> {
    let mut frame = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut frame, message)
        .expect("messages have string keys and no failing serializer");
    let length = frame.len() - LENGTH_BYTES;
    if length > MESSAGE_LIMIT {
        return Err(length);
    }
    let prefix = u32::try_from(length).expect("1 MiB fits in 32 bits");
    frame[..LENGTH_BYTES].copy_from_slice(&prefix.to_be_bytes());
    Ok(frame.into())
}

/// Why reading ended without a message.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadFailure {
    #[error("closed without leaving")]
    Ended,
    #[error("sent bytes that are not a message of this protocol: {0}")]
    Malformed(String),
    #[error("{}", describe(.0))]
    Lost(ConnectionError),
}

/// Reads the next message of at most `limit` bytes.
pub(super) async fn read<M: DeserializeOwned>(
    stream: &mut RecvStream,
    limit: usize,
) -> Result<M, ReadFailure> {
    let mut prefix = [0; LENGTH_BYTES];
    stream.read_exact(&mut prefix).await.map_err(failure)?;
    let length = u32::from_be_bytes(prefix) as usize;
    if length > limit {
        return Err(ReadFailure::Malformed(format!(
            "{length} bytes announced, at most {limit} are allowed"
        )));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.map_err(failure)?;
    serde_json::from_slice(&body).map_err(|error| ReadFailure::Malformed(error.to_string()))
}

fn failure(error: ReadExactError) -> ReadFailure {
    match error {
        ReadExactError::FinishedEarly(_) => ReadFailure::Ended,
        ReadExactError::ReadError(ReadError::ConnectionLost(lost)) => ReadFailure::Lost(lost),
        ReadExactError::ReadError(ReadError::Reset(_)) => ReadFailure::Ended,
        ReadExactError::ReadError(other) => ReadFailure::Malformed(other.to_string()),
    }
}

/// Describes the end of a connection in words that follow a rank's name.
pub(super) fn describe(error: &ConnectionError) -> String {
    match error {
        ConnectionError::TimedOut => {
            "no sign of life for as long as transport.peer_timeout allows".into()
        }
        ConnectionError::ApplicationClosed(_) => "closed without leaving".into(),
        ConnectionError::LocallyClosed => "its process has ended".into(),
        ConnectionError::Reset => "its process was replaced by another one".into(),
        other => format!("connection failed: {other}"),
    }
}

/// `text`, cut at a character to [`TEXT_LIMIT`] bytes.
pub(super) fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_LIMIT)].to_owned()
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::super::refusal::RefusedJoins;
    use super::*;

    #[test]
    fn a_frame_is_its_length_and_json() {
        let frame = encode(&FromMember::Leave).expect("small");
        assert_eq!(&frame[..], b"\0\0\0\x07\"Leave\"");
    }

    #[test]
    fn messages_above_the_bound_are_not_encoded() {
        let reason = "x".repeat(MESSAGE_LIMIT);
        let size = encode(&FromMember::Abort { reason }).expect_err("too large");
        assert!(size > MESSAGE_LIMIT);
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        let cut = shortened(&"ä".repeat(TEXT_LIMIT));
        assert_eq!(cut.len(), TEXT_LIMIT);
        assert_eq!(shortened(&format!("a{cut}")).len(), TEXT_LIMIT - 1);
    }

    #[test]
    fn damaged_messages_cause_no_panic() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let lost = FromLeader::PeerLost {
            rank: Rank(3),
            reason: "killed".into(),
        };
        let refused = FromLeader::Refused(JoinRefusal::Incomplete {
            waited: std::time::Duration::from_secs(5),
            world_size: 9,
            missing: (0..4).map(Rank).collect(),
            turned_away: RefusedJoins::default(),
        });
        let mut errors = 0;
        for message in [lost, refused] {
            let frame = encode(&message).expect("small");
            for _ in 0..2000 {
                let mut body = frame[LENGTH_BYTES..].to_vec();
                let place = random.next_u32() as usize % body.len();
                body[place] = random.next_u32().to_be_bytes()[0];
                body.truncate(1 + random.next_u32() as usize % (2 * body.len()));
                errors += usize::from(serde_json::from_slice::<FromLeader>(&body).is_err());
            }
        }
        assert!((1000..4000).contains(&errors), "{errors}");
    }
}

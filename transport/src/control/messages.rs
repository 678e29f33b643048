//! What ranks say to rank 0 and rank 0 to them: JSON behind a length of four bytes, on one stream
//! per rank. Any bytes are either a message or a named failure; nothing larger than its bound is
//! ever read into memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use gradwire_protocol::units::Rank;
use quinn::{ConnectionError, ReadError, ReadExactError, RecvStream};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::RosterPeer;
use super::error::{JoinRefusal, RankList, rank_number};
use super::secrets::PairSecrets;

/// Largest message between ranks that trust each other.
pub(super) const MESSAGE_LIMIT: usize = 1 << 20;
/// Largest message from somebody who has not proved the token.
pub(super) const GREETING_LIMIT: usize = 4 << 10;
/// Longest text that one rank passes on from another, in bytes; longer ones are cut.
const TEXT_LIMIT: usize = 4 << 10;

const LENGTH_BYTES: usize = 4;

/// From any rank to rank 0.
#[derive(Deserialize, Serialize)]
pub(super) enum FromMember {
    /// First message: knowledge of the token. Its shape is fixed by the ALPN name.
    Prove {
        #[serde(with = "rank_number")]
        rank: Rank,
        version: String,
        proof: Vec<u8>,
    },
    /// Second message, to a rank 0 that has proved itself.
    Join(JoinRequest),
    /// This rank has reached its `index`th barrier (from 1) and waits that long.
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
    /// This rank has nothing more to send; it still answers.
    Leave,
}

/// Who joins.
#[derive(Deserialize, Serialize)]
pub(super) struct JoinRequest {
    pub(super) world_size: u32,
    pub(super) peer: RosterPeer,
    pub(super) job: BTreeMap<String, String>,
}

/// From rank 0 to any rank.
#[derive(Deserialize, Serialize)]
pub(super) enum FromLeader {
    /// Answer to a right `Prove`.
    Prove { proof: Vec<u8> },
    /// There is no job, or none with this rank.
    Refused(JoinRefusal),
    /// This rank is in; these are awaited.
    Waiting { missing: RankList },
    /// All ranks are in and agree; the start follows. For the rank that it is sent to alone.
    Secrets(PairSecrets),
    /// All ranks are in and agree.
    Start(JobStart),
    /// Every rank has reached this barrier.
    BarrierPassed { index: u64 },
    /// The time this rank gave to its barrier is over.
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
    /// A rank asks.
    Asked {
        #[serde(with = "rank_number")]
        rank: Rank,
        question: String,
    },
    /// A rank answers what this one has asked.
    Answered {
        #[serde(with = "rank_number")]
        rank: Rank,
        answer: String,
    },
    /// All ranks have left or are lost: close.
    Released,
}

/// What all ranks of a started job share.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct JobStart {
    pub(super) job_id: u32,
    pub(super) epoch: u16,
    /// In the order of ranks, rank 0 first.
    pub(super) roster: Vec<RosterPeer>,
}

/// A started job as one rank has it.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    pub(super) start: JobStart,
    pub(super) secrets: PairSecrets,
}

/// An encoded message, shared between the ranks it goes to.
pub(super) type Frame = Arc<[u8]>;

/// `message` as it travels, or its size when that exceeds [`MESSAGE_LIMIT`].
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

/// Why no (further) message came.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadFailure {
    #[error("closed without leaving")]
    Ended,
    #[error("sent what is no message of this protocol: {0}")]
    Malformed(String),
    #[error("{}", describe(.0))]
    Lost(ConnectionError),
}

/// The next message of at most `limit` bytes.
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

/// The end of a connection in words that follow a rank's name.
pub(super) fn describe(error: &ConnectionError) -> String {
    match error {
        ConnectionError::TimedOut => {
            "no sign of life for as long as transport.peer_timeout allows".into()
        }
        ConnectionError::ApplicationClosed(_) => "closed without leaving".into(),
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

    use super::super::error::RefusedJoins;
    use super::*;

    #[test]
    fn a_frame_is_its_length_and_json() {
        let frame = encode(&FromMember::Leave).expect("small");
        assert_eq!(&frame[..], b"\0\0\0\x07\"Leave\"");
    }

    #[test]
    fn what_exceeds_the_bound_is_not_encoded() {
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
    fn damaged_messages_are_errors_or_messages_but_no_panic() {
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

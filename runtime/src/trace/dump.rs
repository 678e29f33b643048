//! A dump of a rank's flight recorder at one moment: plain data, written as JSON and read back.
//!
//! Times in microseconds count from the moment at which the rank joined its job and never jump;
//! times in Unix seconds are of the host's clock, which may differ from that of other hosts.

use serde::{Deserialize, Serialize};

/// The form of a dump. Another form has another number.
pub const VERSION: u32 = 2;

/// The recorder of one rank at one moment.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TraceDump {
    /// [`VERSION`]; distinguishes a dump from other JSON.
    pub gradwire_trace: u32,
    /// Name of the job.
    pub job: String,
    /// Number of this run of the job, equal on all ranks.
    pub job_id: u32,
    /// The rank.
    pub rank: u16,
    /// How many ranks the job has.
    pub world_size: u16,
    /// The host that it runs on.
    pub host: String,
    /// Its process.
    pub process: u32,
    /// The wire that carries its packets: "udp", "uring", "shm", or "shm+udp".
    pub wire: String,
    /// The failure that made the rank write this; empty if a caller asked for it.
    pub reason: Option<String>,
    /// When, in Unix seconds.
    pub at_unix_s: f64,
    /// When, in microseconds since the rank joined.
    pub at_us: u64,
    /// How many operations the recorder keeps.
    pub entries: u32,
    /// How many operations there have been.
    pub operations_total: u64,
    /// The ranks that are lost to this one.
    pub lost: Vec<LostRank>,
    /// Why no operation is accepted any more, if so.
    pub aborted: Option<String>,
    /// Why the needs of pending operations are unknown, if they are.
    pub incomplete: Option<String>,
    /// The groups of the operations.
    pub groups: Vec<GroupMembers>,
    /// The operations, in the order in which they were submitted.
    pub operations: Vec<TraceEntry>,
    /// How many messages it sends that have not ended: an operation may end a moment before them.
    #[serde(default)]
    pub sending: u64,
    /// The last messages that have ended, in that order.
    pub messages: Vec<TracedMessage>,
}

/// The end of a message that the rank has.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TracedSide {
    /// It sent the message.
    Sent,
    /// It received the message.
    Received,
}

/// A message, as this rank saw it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct TracedMessage {
    /// The end that this rank has.
    pub side: TracedSide,
    /// The rank at the other end.
    pub peer: u16,
    /// Group, sequence and part of its header, equal at both ends.
    pub group: u16,
    /// Number of its operation in the group.
    pub sequence: u32,
    /// Number among the messages of a pair in the operation.
    pub part: u16,
    /// Its length.
    pub bytes: u32,
    /// When its first packet left or arrived, in microseconds since the rank joined.
    pub first_us: f64,
    /// When all was acknowledged, or had arrived, likewise.
    pub last_us: f64,
}

/// A lost rank.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LostRank {
    /// Which one.
    pub rank: u16,
    /// How it was lost.
    pub reason: String,
}

/// The ranks of a group.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct GroupMembers {
    /// Number of the group, equal on all its ranks.
    pub id: u16,
    /// Its ranks, in its order.
    pub ranks: Vec<u16>,
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceState {
    /// The caller has submitted it; the driver has not taken it yet.
    Submitted,
    /// Its packets may be on their way.
    Started,
    /// It has succeeded.
    Completed,
    /// It was refused or has failed.
    Failed,
}

impl TraceState {
    /// Whether the operation has ended.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// One operation.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TraceEntry {
    /// Which operation of this rank, from 0.
    pub number: u64,
    /// Its group.
    pub group: u16,
    /// Its number in the group; meaningless for messages between two ranks.
    pub sequence: u32,
    /// Name of the collective: "all_reduce", "send", ...
    pub kind: String,
    /// The root of a collective that has one.
    pub root: Option<u16>,
    /// The other rank of a message between two ranks; `None` if it may come from any.
    pub peer: Option<u16>,
    /// The tag of a message between two ranks.
    pub tag: Option<u16>,
    /// The type of its elements.
    pub dtype: String,
    /// How its elements are reduced, if they are.
    pub reduction: Option<String>,
    /// Length of its tensor: of the longer one of input and output.
    pub bytes: u64,
    /// Where it stands.
    pub state: TraceState,
    /// When it was submitted, in Unix seconds.
    pub submitted_unix_s: f64,
    /// When it was submitted, in microseconds since the rank joined.
    pub submitted_us: u64,
    /// When it was started, likewise.
    pub started_us: Option<u64>,
    /// When it ended, likewise.
    pub ended_us: Option<u64>,
    /// Why it failed.
    pub error: Option<String>,
    /// The ranks and bytes that it waits for, or waited for when it failed.
    pub needs: Option<OperationNeeds>,
}

/// The ranks and bytes that an unfinished operation waits for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct OperationNeeds {
    /// Ranks that have not sent or not received everything.
    pub ranks: Vec<u16>,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes to receive.
    pub expected_bytes: u64,
}

impl TraceEntry {
    /// Whether it is a message between two ranks.
    pub fn is_message(&self) -> bool {
        self.tag.is_some()
    }

    /// How long it took, or has taken at `now_us`, from when it was submitted.
    pub fn took_us(&self, now_us: u64) -> u64 {
        let end = self.ended_us.unwrap_or(now_us);
        end.saturating_sub(self.submitted_us)
    }
}

/// Why a text is not a dump.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// It is not JSON, or ends too early.
    #[error("it is not a complete JSON object ({0}): was the process killed while it wrote?")]
    Json(serde_json::Error),
    /// It is something else.
    #[error("it is not a trace of gradwire: it lacks \"gradwire_trace\"")]
    Foreign,
    /// Another release has written it.
    #[error(
        "it has format version {0}, this release reads version {VERSION}: use the gradwire \
    that wrote it"
    )]
    Version(u64),
    /// A field is missing or of another type.
    #[error("it is not a trace of gradwire: {0}")]
    Fields(serde_json::Error),
}

impl TraceDump {
    /// Reads a dump back.
    ///
    /// # Errors
    /// [`ParseError`] if the text is not a dump of this version.
    pub fn from_json(text: &str) -> Result<Self, ParseError> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(ParseError::Json)?;
        let version = value.get("gradwire_trace").ok_or(ParseError::Foreign)?;
        match version.as_u64() {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) => return Err(ParseError::Version(version)),
            None => return Err(ParseError::Foreign),
        }
        serde_json::from_value(value).map_err(ParseError::Fields)
    }

    /// The dump as one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data with names as keys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        TraceDump::from_json(text).expect_err("no dump").to_string()
    }

    #[test]
    fn what_is_no_dump_is_told_apart() {
        assert!(refusal("{\"gradwire_trace\": 2, \"job\"").contains("not a complete JSON object"));
        assert!(refusal("[1, 2]").contains("lacks \"gradwire_trace\""));
        assert!(refusal("{\"gradwire_trace\": 7}").contains("format version 7"));
        assert!(refusal("{\"gradwire_trace\": 2}").contains("missing field"));
    }
}

//! The content of a rank's flight recorder at one moment: plain data that is written as JSON and
//! read back from it.
//!
//! Times in microseconds count from the rank's joining of its job and never jump; times in Unix
//! seconds come from the host's clock, which may differ from other hosts' clocks.

use serde::{Deserialize, Serialize};

/// Version of the dump's format.
pub const VERSION: u32 = 1;

/// The recorder of one rank at one moment.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TraceDump {
    /// [`VERSION`], which tells a dump from other JSON.
    pub gradwire_trace: u32,
    /// Name of the job.
    pub job: String,
    /// Number of this run of the job, equal on all ranks.
    pub job_id: u32,
    /// The rank.
    pub rank: u16,
    /// World size of the job.
    pub world_size: u16,
    /// Its host.
    pub host: String,
    /// Its process.
    pub process: u32,
    /// The wire: "udp", "uring", "shm", or "shm+udp".
    pub wire: String,
    /// The failure that made the rank write this; `None` when it was asked.
    pub reason: Option<String>,
    /// Time of the dump, in Unix seconds.
    pub at_unix_s: f64,
    /// Time of the dump, in microseconds since the rank had joined.
    pub at_us: u64,
    /// Number of operations that the recorder keeps.
    pub entries: u32,
    /// Number of operations so far.
    pub operations_total: u64,
    /// The ranks that are lost to this one.
    pub lost: Vec<LostRank>,
    /// The reason why the rank takes no more operations, if so.
    pub aborted: Option<String>,
    /// The reason why the dump lacks the ranks for which operations wait, if so.
    pub incomplete: Option<String>,
    /// The groups of the operations.
    pub groups: Vec<GroupMembers>,
    /// The operations, in the order in which they were submitted.
    pub operations: Vec<TraceEntry>,
}

/// A lost rank.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LostRank {
    /// Its number.
    pub rank: u16,
    /// The reason of its loss.
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

/// The state of an operation.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceState {
    /// The caller has submitted it; the driving thread has not taken it yet.
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
    /// Number of the operation on this rank, from 0.
    pub number: u64,
    /// Its group.
    pub group: u16,
    /// Its number in the group; without meaning for messages between two ranks.
    pub sequence: u32,
    /// Its kind: "all_reduce", "send", ...
    pub kind: String,
    /// The root of a collective that has one.
    pub root: Option<u16>,
    /// The other rank of a message between two ranks; `None` where it may be any.
    pub peer: Option<u16>,
    /// The tag of a message between two ranks.
    pub tag: Option<u16>,
    /// The type of its elements.
    pub dtype: String,
    /// The reduction, if there is one.
    pub reduction: Option<String>,
    /// Length of its tensor: of the longer one of input and output.
    pub bytes: u64,
    /// Its state.
    pub state: TraceState,
    /// When it was submitted, in Unix seconds.
    pub submitted_unix_s: f64,
    /// When it was submitted, in microseconds since the rank had joined.
    pub submitted_us: u64,
    /// When it was started, likewise.
    pub started_us: Option<u64>,
    /// When it ended, likewise.
    pub ended_us: Option<u64>,
    /// The reason of its failure.
    pub error: Option<String>,
    /// The ranks and bytes for which it waits, or waited when it failed.
    pub needs: Option<OperationNeeds>,
}

/// The ranks and bytes for which a pending operation waits.
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

    /// Returns its duration since it was submitted, up to its end or to `now_us`.
    pub fn took_us(&self, now_us: u64) -> u64 {
        let end = self.ended_us.unwrap_or(now_us);
        end.saturating_sub(self.submitted_us)
    }
}

/// Reasons why a text is no dump.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// It is no JSON, or ends too early.
    #[error("it is no whole JSON object ({0}): was the process killed while it wrote?")]
    Json(serde_json::Error),
    /// It is something else.
    #[error("it is no trace of gradwire: it lacks \"gradwire_trace\"")]
    Foreign,
    /// Another release has written it.
    #[error("its form is number {0}, this release reads {VERSION}: use the gradwire that wrote it")]
    Version(u64),
    /// A field is missing or of another type.
    #[error("it is no trace of gradwire: {0}")]
    Fields(serde_json::Error),
}

impl TraceDump {
    /// Reads a dump back.
    ///
    /// # Errors
    /// [`ParseError`] says why the text is no dump.
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

    /// Writes the dump as one line of JSON.
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
        assert!(refusal("{\"gradwire_trace\": 1, \"job\"").contains("no whole JSON object"));
        assert!(refusal("[1, 2]").contains("lacks \"gradwire_trace\""));
        assert!(refusal("{\"gradwire_trace\": 7}").contains("number 7"));
        assert!(refusal("{\"gradwire_trace\": 1}").contains("missing field"));
    }
}

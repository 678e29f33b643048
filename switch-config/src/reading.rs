//! What a configuration says, platform apart: what a dialect reads out of its text.
//!
//! [`crate::lint`] compares it with the plan. What a platform's own schema would refuse, or what
//! leads nowhere, is found while reading and stands in [`Reading::findings`].

use std::collections::BTreeMap;

use crate::lint::Finding;
use gradwire_fabric::policy::DSCPS;

/// A text that is not what the platform exports.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what}{}: {message}", .line.map_or_else(String::new, |line| format!(", line {line}")))]
pub struct ReadError {
    /// What should have been read: `CONFIG_DB in JSON`.
    pub what: &'static str,
    /// Line of the text, from 1, where there is one.
    pub line: Option<usize>,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// What a configuration says of the ports that the plan is for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// By name of the port.
    pub ports: BTreeMap<String, PortReading>,
    /// What the schema forbids, what leads nowhere, what contradicts itself.
    pub findings: Vec<Finding>,
}

impl Reading {
    /// What is said of ports, by name, and what was found while reading, each mistake once.
    pub fn new(ports: BTreeMap<String, PortReading>, found: Vec<Finding>) -> Self {
        let mut findings: Vec<Finding> = Vec::new();
        for finding in found {
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
        Self { ports, findings }
    }
}

/// What a configuration says of one port.
#[derive(Clone, Debug, PartialEq)]
pub struct PortReading {
    /// By DSCP: where its packets go; `None` where nothing is said.
    pub landings: [Option<Landing>; DSCPS],
    /// By number of the queue: what it does.
    pub queues: BTreeMap<u8, QueueReading>,
    /// Classes of PFC that are on.
    pub pauses: Vec<u8>,
}

impl Default for PortReading {
    fn default() -> Self {
        Self {
            landings: [None; DSCPS],
            queues: BTreeMap::new(),
            pauses: Vec::new(),
        }
    }
}

/// Where packets of a DSCP go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Landing {
    /// The queue, as the platform numbers it.
    pub queue: u8,
    /// Whether they have the drop precedence that goes first.
    pub drops_first: bool,
}

/// What a queue does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueReading {
    /// How it is served.
    pub service: Service,
    /// When it marks and drops; `None`: only when it is full.
    pub marking: Option<Marking>,
    /// Its dynamic threshold as an exponent of two, where one is written.
    pub alpha: Option<i8>,
}

/// How a queue is served.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Service {
    /// Nothing is said.
    #[default]
    Unsaid,
    /// Before all queues of a lower rank.
    Strict {
        /// The larger, the earlier.
        rank: u16,
    },
    /// In turn with others.
    Weighted,
}

/// When a queue marks and drops early.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marking {
    /// Depth in bytes above which it begins.
    pub low: u64,
    /// Depth in bytes above which it is done to every packet, or to `percent` of them.
    pub high: u64,
    /// Share of packets at `high`, in percent.
    pub percent: u8,
    /// Whether ECT packets are marked.
    pub marks_ect: bool,
    /// Whether not-ECT packets, or those of the drop precedence that goes first, are dropped.
    pub drops_droppable: bool,
}

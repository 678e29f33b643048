//! The meaning of a configuration, the same for every platform: a dialect reads it from its text.
//!
//! [`crate::lint`] compares it with the plan. Values that the platform's own schema would refuse,
//! and names that lead nowhere, are found while reading and stand in [`Reading::findings`].

use std::collections::BTreeMap;

use crate::lint::{Finding, Rule};
use crate::plan::{Plan, SwitchPort};
use gradwire_fabric::policy::DSCPS;

/// A text that the platform did not export.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what}{}: {message}", .line.map_or_else(String::new, |line| format!(", line {line}")))]
pub struct ReadError {
    /// The expected text: `CONFIG_DB in JSON`.
    pub what: &'static str,
    /// Line of the text, from 1, where there is one.
    pub line: Option<usize>,
    /// The mistake, and how to mend it.
    pub message: String,
}

impl ReadError {
    /// A mistake of the whole text.
    pub fn new(what: &'static str, message: impl Into<String>) -> Self {
        Self {
            what,
            line: None,
            message: message.into(),
        }
    }

    /// A mistake in a line, from 1.
    pub fn at(what: &'static str, line: usize, message: impl Into<String>) -> Self {
        Self {
            line: Some(line),
            ..Self::new(what, message)
        }
    }
}

/// The configuration of the plan's ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// By name of the port.
    pub ports: BTreeMap<String, PortReading>,
    /// Values that the schema forbids, names that lead nowhere, and contradictions.
    pub findings: Vec<Finding>,
}

impl Reading {
    /// A reading of ports, by name, and of the mistakes found while reading, each once.
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

/// A platform's reader of the plan's ports, which notes the mistakes that it finds on the way.
pub(crate) trait ConfigReader {
    /// The mistakes found so far.
    fn findings(&mut self) -> &mut Vec<Finding>;

    /// The configuration of a port, where there is any.
    fn port(&mut self, port: &SwitchPort) -> Option<PortReading>;

    /// The configuration of every port of a plan, by name.
    fn ports(&mut self, plan: &Plan) -> BTreeMap<String, PortReading> {
        let ports = plan.site.ports.iter();
        let read = ports.filter_map(|port| Some((port.name.clone(), self.port(port)?)));
        read.collect()
    }

    /// Notes a mistake.
    fn find(&mut self, rule: Rule, place: impl Into<String>, text: impl Into<String>) {
        self.findings().push(Finding::new(rule, place, text));
    }

    /// A value that should be there; where it is not, that is a mistake.
    fn wanted<T>(
        &mut self,
        value: Option<T>,
        rule: Rule,
        place: impl Into<String>,
        text: impl Into<String>,
    ) -> Option<T> {
        if value.is_none() {
            self.find(rule, place, text);
        }
        value
    }
}

/// The configuration of one port.
#[derive(Clone, Debug, PartialEq)]
pub struct PortReading {
    /// By DSCP: where its packets go; `None` where the configuration does not say.
    pub landings: [Option<Landing>; DSCPS],
    /// By number of the queue: its service and thresholds.
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

/// The service and the thresholds of a queue.
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
    /// The configuration does not say.
    #[default]
    Unsaid,
    /// Before all queues of a lower rank.
    Strict {
        /// The larger, the earlier.
        rank: u16,
    },
    /// In turn with others, by weight.
    Weighted {
        /// Its weight, where one is said, or that of the queues with which it shares one.
        weight: Option<u32>,
        /// Its rank among the queues that share its weight: the larger, the earlier.
        rank: u16,
    },
}

impl Service {
    /// In turn with all others, with this weight.
    pub fn weighted(weight: impl Into<Option<u32>>) -> Self {
        let (weight, rank) = (weight.into(), 0);
        Self::Weighted { weight, rank }
    }
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

//! Connection matrices of htsim (`.cm`).
//!
//! Format, as read by `ConnectionMatrix::load` of htsim (`sim/datacenter/connection_matrix.cpp`,
//! commit 841d9e7) and its triggers (`sim/trigger.cpp`). A header of `Nodes N`, `Connections C`
//! and, where there are any, `Triggers T` and `Failures F`; then lines in any order:
//!
//! ```text
//! src->dst [id I] start PICOSECONDS | trigger J size BYTES
//!          [send_done_trigger J] [recv_done_trigger J] [prio P]
//! trigger id J oneshot | multishot | barrier count K
//! failure switch_type TOR|AGG|CORE switch_id S link_id L
//! ```
//!
//! Ids are from 1. A `oneshot` trigger starts all of its connections when it is first told, a
//! `multishot` one starts the next of them each time, a `barrier` all of them when it was told K
//! times. `prio` is the order in which an NDP receiver pulls; the reader skips it. Failed links
//! belong to the fabric: the reader returns them as [`FailedUplink`]s.

mod values;

use std::collections::BTreeMap;

use gradwire_protocol::units::ByteCount;

use crate::words::{NumberedLine, did_you_mean, lines};
use crate::workload::{Flow, Start, Trigger, TriggerId, Workload};
use values::MatrixWords;

/// The content of a connection matrix.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConnectionMatrix {
    /// Number of its hosts (`Nodes`).
    pub hosts: u32,
    /// Its connections and triggers.
    pub workload: Workload,
    /// Links that it takes out of the fabric.
    pub failures: Vec<FailedUplink>,
}

/// A link that is down for the whole run: the uplink `link` of a switch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FailedUplink {
    /// Tier of the switch: 0 for `TOR`, 1 for `AGG`, 2 for `CORE`.
    pub tier: u8,
    /// Number of the switch in its tier.
    pub switch: u32,
    /// Number of the uplink of that switch.
    pub link: u32,
}

/// Errors of a connection matrix.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MatrixError {
    /// The line is of no known kind.
    #[error(
        "line {line}: `{given}`{nearest}: a line is Nodes, Connections, Triggers or Failures with \
         a count, `src->dst ...`, `trigger ...` or `failure ...`"
    )]
    Line {
        /// Number of the line.
        line: usize,
        /// Its first word.
        given: String,
        /// A suggestion, or an empty text.
        nearest: String,
    },
    /// The word is unknown.
    #[error("line {line}: `{given}`{nearest}: allowed here are {allowed}")]
    Word {
        /// Number of the line.
        line: usize,
        /// The word.
        given: String,
        /// A suggestion, or an empty text.
        nearest: String,
        /// The known words.
        allowed: &'static str,
    },
    /// A value is missing or cannot be read.
    #[error("line {line}: {key} `{given}`: allowed is {allowed}")]
    Value {
        /// Number of the line.
        line: usize,
        /// The key of the value.
        key: &'static str,
        /// The value; empty when it is missing.
        given: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// The line lacks a word, or has it twice.
    #[error("line {line}: {rule}")]
    Rule {
        /// Number of the line.
        line: usize,
        /// The broken rule.
        rule: &'static str,
    },
    /// The header does not allow this host.
    #[error("line {line}: host {host}; `Nodes {hosts}` allows 0 to {}", hosts.saturating_sub(1))]
    Host {
        /// Number of the line.
        line: usize,
        /// The host.
        host: u32,
        /// Their number.
        hosts: u32,
    },
    /// The trigger has no line.
    #[error("line {line}: trigger {trigger} has no `trigger id {trigger} ...` line")]
    NoTrigger {
        /// Number of the line that names it.
        line: usize,
        /// Its id.
        trigger: u32,
    },
    /// The header disagrees with the lines.
    #[error("the header says `{key} {said}`, the file has {found}: correct the one or the other")]
    Count {
        /// The word of the header.
        key: &'static str,
        /// The announced number.
        said: u32,
        /// Their number.
        found: usize,
    },
}

const CONNECTION_WORDS: &str =
    "start, trigger, size, id, send_done_trigger, recv_done_trigger and prio";
const TRIGGER_WORDS: &str = "id, oneshot, multishot, barrier and count";
const FAILURE_WORDS: &str = "switch_type, switch_id and link_id";
const WHOLE: &str = "a whole number from 0";

impl ConnectionMatrix {
    /// Reads a connection matrix.
    ///
    /// # Errors
    /// [`MatrixError`] names the first faulty line.
    pub fn parse(text: &str) -> Result<Self, MatrixError> {
        let mut reader = Reader::default();
        for line in lines(text) {
            reader.line(&line)?;
        }
        reader.finish()
    }
}

/// The lines read so far; triggers by their ids in the file.
#[derive(Default)]
struct Reader {
    hosts: Option<u32>,
    connections: u32,
    trigger_count: u32,
    failure_count: u32,
    flows: Vec<(usize, Flow)>,
    triggers: BTreeMap<u32, Trigger>,
    failures: Vec<FailedUplink>,
}

impl Reader {
    fn line(&mut self, line: &NumberedLine<'_>) -> Result<(), MatrixError> {
        let first = line.words[0];
        if first.contains("->") {
            return self.connection(line);
        }
        let count = |key| MatrixWords::after_first(line).number(key, WHOLE);
        match first {
            "Nodes" => self.hosts = Some(count("Nodes")?),
            "Connections" => self.connections = count("Connections")?,
            "Triggers" => self.trigger_count = count("Triggers")?,
            "Failures" => self.failure_count = count("Failures")?,
            "trigger" => self.trigger(line)?,
            "failure" => self.failure(line)?,
            _ => {
                let known = [
                    "Nodes",
                    "Connections",
                    "Triggers",
                    "Failures",
                    "trigger",
                    "failure",
                ];
                return Err(MatrixError::Line {
                    line: line.number,
                    given: first.to_owned(),
                    nearest: did_you_mean(first, known),
                });
            }
        }
        Ok(())
    }

    fn connection(&mut self, line: &NumberedLine<'_>) -> Result<(), MatrixError> {
        let (source, destination) = self.ends(line)?;
        let mut flow = Flow::new(source, destination, ByteCount::new(0));
        let mut start = None;
        let mut words = MatrixWords::after_first(line);
        while let Some(word) = words.next() {
            match word {
                "start" => words.start(&mut start)?,
                "trigger" => words.wait_for(&mut start)?,
                "size" => flow.bytes = ByteCount::new(words.number_from_one("size")?),
                "send_done_trigger" => {
                    flow.when_sent = Some(words.trigger("send_done_trigger")?);
                }
                "recv_done_trigger" => {
                    flow.when_received = Some(words.trigger("recv_done_trigger")?);
                }
                "id" => {
                    words.number_from_one::<u32>("id")?;
                }
                "prio" => {
                    words.number::<i64>("prio", "a whole number")?;
                }
                _ => return Err(words.unknown(word, CONNECTION_WORDS)),
            }
        }
        let rule = |rule| MatrixError::Rule {
            line: line.number,
            rule,
        };
        flow.start = start.ok_or_else(|| rule("a connection needs `start` or `trigger`"))?;
        if flow.bytes.get() == 0 {
            return Err(rule("a connection needs `size` and its bytes"));
        }
        self.flows.push((line.number, flow));
        Ok(())
    }

    fn ends(&self, line: &NumberedLine<'_>) -> Result<(u32, u32), MatrixError> {
        let (from, to) = line.words[0].split_once("->").unwrap_or_default();
        let end = |given: &str| {
            given.parse::<u32>().map_err(|_| MatrixError::Value {
                line: line.number,
                key: "connection",
                given: line.words[0].to_owned(),
                allowed: "`src->dst` with two host numbers from 0",
            })
        };
        let (from, to) = (end(from)?, end(to)?);
        if from == to {
            return Err(MatrixError::Rule {
                line: line.number,
                rule: "a connection goes to another host, not to its own",
            });
        }
        Ok((from, to))
    }

    fn trigger(&mut self, line: &NumberedLine<'_>) -> Result<(), MatrixError> {
        let rule = |rule| MatrixError::Rule {
            line: line.number,
            rule,
        };
        let (mut id, mut kind, mut count) = (None, None, None);
        let mut words = MatrixWords::after_first(line);
        while let Some(word) = words.next() {
            match word {
                "id" => id = Some(words.number_from_one("id")?),
                "count" => count = Some(words.number_from_one("count")?),
                "oneshot" | "multishot" | "barrier" if kind.is_some() => {
                    return Err(rule("a trigger is one of oneshot, multishot and barrier"));
                }
                "oneshot" => kind = Some(Trigger::Once),
                "multishot" => kind = Some(Trigger::Each),
                "barrier" => kind = Some(Trigger::Barrier(0)),
                _ => return Err(words.unknown(word, TRIGGER_WORDS)),
            }
        }
        let id = id.ok_or_else(|| rule("a trigger needs `id` and a number from 1"))?;
        let kind = match (kind, count) {
            (Some(Trigger::Barrier(_)), Some(count)) => Trigger::Barrier(count),
            (Some(Trigger::Barrier(_)), None) => return Err(rule("a barrier needs `count`")),
            (Some(kind), _) => kind,
            (None, _) => return Err(rule("a trigger needs oneshot, multishot or barrier")),
        };
        match self.triggers.insert(id, kind) {
            None => Ok(()),
            Some(_) => Err(rule("this trigger id has a line already")),
        }
    }

    fn failure(&mut self, line: &NumberedLine<'_>) -> Result<(), MatrixError> {
        let (mut tier, mut switch, mut link) = (None, None, None);
        let mut words = MatrixWords::after_first(line);
        while let Some(word) = words.next() {
            match word {
                "switch_type" => tier = Some(words.tier()?),
                "switch_id" => switch = Some(words.number("switch_id", WHOLE)?),
                "link_id" => link = Some(words.number("link_id", WHOLE)?),
                _ => return Err(words.unknown(word, FAILURE_WORDS)),
            }
        }
        let (Some(tier), Some(switch), Some(link)) = (tier, switch, link) else {
            return Err(MatrixError::Rule {
                line: line.number,
                rule: "a failure needs `switch_type`, `switch_id` and `link_id`",
            });
        };
        self.failures.push(FailedUplink { tier, switch, link });
        Ok(())
    }

    fn finish(self) -> Result<ConnectionMatrix, MatrixError> {
        let counts = [
            ("Connections", self.connections, self.flows.len()),
            ("Triggers", self.trigger_count, self.triggers.len()),
            ("Failures", self.failure_count, self.failures.len()),
        ];
        let wrong = counts
            .into_iter()
            .find(|&(_, said, found)| said as usize != found);
        if let Some((key, said, found)) = wrong {
            return Err(MatrixError::Count { key, said, found });
        }
        let Some(hosts) = self.hosts else {
            return Err(MatrixError::Rule {
                line: 1,
                rule: "a connection matrix begins with `Nodes` and how many hosts there are",
            });
        };
        let places: BTreeMap<u32, u32> = self.triggers.keys().copied().zip(0..).collect();
        let mut flows = Vec::with_capacity(self.flows.len());
        for (line, flow) in self.flows {
            flows.push(settled(line, flow, hosts, &places)?);
        }
        let workload = Workload {
            flows,
            triggers: self.triggers.into_values().collect(),
            ..Workload::default()
        };
        Ok(ConnectionMatrix {
            hosts,
            workload,
            failures: self.failures,
        })
    }
}

/// Returns the flow with trigger indices in place of ids.
fn settled(
    line: usize,
    flow: Flow,
    hosts: u32,
    places: &BTreeMap<u32, u32>,
) -> Result<Flow, MatrixError> {
    let wrong = [flow.source, flow.destination]
        .into_iter()
        .find(|&host| host >= hosts);
    if let Some(host) = wrong {
        return Err(MatrixError::Host { line, host, hosts });
    }
    let place = |TriggerId(trigger)| {
        let place = places.get(&trigger).copied().map(TriggerId);
        place.ok_or(MatrixError::NoTrigger { line, trigger })
    };
    let start = match flow.start {
        Start::At(at) => Start::At(at),
        Start::On(trigger) => Start::On(place(trigger)?),
    };
    Ok(Flow {
        start,
        when_sent: flow.when_sent.map(place).transpose()?,
        when_received: flow.when_received.map(place).transpose()?,
        ..flow
    })
}

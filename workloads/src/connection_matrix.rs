//! Connection matrices of htsim (`.cm`).
//!
//! Format, as read by `ConnectionMatrix::load` of htsim (`sim/datacenter/connection_matrix.cpp`,
//! commit 841d9e7) and its triggers (`sim/trigger.cpp`). A header of `Nodes N`, `Connections C`
//! and, where there are any, `Triggers T` and `Failures F`; then lines in any order:
//!
//! ```text
//! src->dst [id I] [msg M] start PICOSECONDS | trigger J size BYTES
//!          [send_done_trigger J] [recv_done_trigger J] [prio P]
//! trigger id J oneshot | multishot | barrier count K
//! failure switch_type TOR|AGG|CORE switch_id S link_id L
//! ```
//!
//! Ids are from 1. A `oneshot` trigger starts all of its connections when it is first told, a
//! `multishot` one starts the next of them each time, a `barrier` all of them when it was told K
//! times. `prio` is the order in which an NDP receiver pulls; the reader skips it. Lines with the
//! same `id` and a `msg` each are messages of one connection (ultraethernet/uet-htsim): each is a
//! flow here. Failed links belong to the fabric: the reader returns them as [`FailedUplink`]s.

mod values;

use std::collections::BTreeMap;

use gradwire_protocol::units::ByteCount;

use crate::fault::TextError;
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

const LINES: &str = "a line is Nodes, Connections, Triggers or Failures with a count, \
                     `src->dst ...`, `trigger ...` or `failure ...`";
const CONNECTION_WORDS: &str =
    "start, trigger, size, id, msg, send_done_trigger, recv_done_trigger and prio";
const TRIGGER_WORDS: &str = "id, oneshot, multishot, barrier and count";
const FAILURE_WORDS: &str = "switch_type, switch_id and link_id";
const WHOLE: &str = "a whole number from 0";

impl ConnectionMatrix {
    /// Reads a connection matrix.
    ///
    /// # Errors
    /// [`TextError`] names the first faulty line.
    pub fn parse(text: &str) -> Result<Self, TextError> {
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
    fn line(&mut self, line: &NumberedLine<'_>) -> Result<(), TextError> {
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
                let nearest = did_you_mean(first, known);
                let rule = format!("`{first}`{nearest}: {LINES}");
                return Err(TextError::line(line.number, rule));
            }
        }
        Ok(())
    }

    fn connection(&mut self, line: &NumberedLine<'_>) -> Result<(), TextError> {
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
                "id" | "msg" => {
                    words.number_from_one::<u32>(word)?;
                }
                "prio" => {
                    words.number::<i64>("prio", "a whole number")?;
                }
                _ => return Err(words.unknown(word, CONNECTION_WORDS)),
            }
        }
        let rule = |rule| TextError::line(line.number, rule);
        flow.start = start.ok_or_else(|| rule("a connection needs `start` or `trigger`"))?;
        if flow.bytes.get() == 0 {
            return Err(rule("a connection needs `size` and its bytes"));
        }
        self.flows.push((line.number, flow));
        Ok(())
    }

    fn ends(&self, line: &NumberedLine<'_>) -> Result<(u32, u32), TextError> {
        let (from, to) = line.words[0].split_once("->").unwrap_or_default();
        let end = |given: &str| {
            given.parse::<u32>().map_err(|_| {
                let allowed = "`src->dst` with two host numbers from 0";
                TextError::value(line.number, "connection", line.words[0], allowed)
            })
        };
        let (from, to) = (end(from)?, end(to)?);
        if from == to {
            let rule = "a connection goes to another host, not to its own";
            return Err(TextError::line(line.number, rule));
        }
        Ok((from, to))
    }

    fn trigger(&mut self, line: &NumberedLine<'_>) -> Result<(), TextError> {
        let rule = |rule| TextError::line(line.number, rule);
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

    fn failure(&mut self, line: &NumberedLine<'_>) -> Result<(), TextError> {
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
            let rule = "a failure needs `switch_type`, `switch_id` and `link_id`";
            return Err(TextError::line(line.number, rule));
        };
        self.failures.push(FailedUplink { tier, switch, link });
        Ok(())
    }

    fn finish(self) -> Result<ConnectionMatrix, TextError> {
        let counts = [
            ("Connections", self.connections, self.flows.len()),
            ("Triggers", self.trigger_count, self.triggers.len()),
            ("Failures", self.failure_count, self.failures.len()),
        ];
        let wrong = counts
            .into_iter()
            .find(|&(_, said, found)| said as usize != found);
        if let Some((key, said, found)) = wrong {
            return Err(TextError::Whole(format!(
                "the header says `{key} {said}`, the file has {found}: correct one of them"
            )));
        }
        let Some(hosts) = self.hosts else {
            let rule = "a connection matrix begins with `Nodes` and how many hosts there are";
            return Err(TextError::line(1, rule));
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
) -> Result<Flow, TextError> {
    let wrong = [flow.source, flow.destination]
        .into_iter()
        .find(|&host| host >= hosts);
    if let Some(host) = wrong {
        let last = hosts.saturating_sub(1);
        let rule = format!("host {host}; `Nodes {hosts}` allows 0 to {last}");
        return Err(TextError::line(line, rule));
    }
    let place = |TriggerId(trigger)| {
        let place = places.get(&trigger).copied().map(TriggerId);
        place.ok_or_else(|| {
            let rule = format!("trigger {trigger} has no `trigger id {trigger} ...` line");
            TextError::line(line, rule)
        })
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

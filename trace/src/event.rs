//! The event format: a Chrome trace (an object with `traceEvents`) whose events have dPRO's names.
//!
//! - A name is `CATEGORY.WHAT`, of communication `Comm.WHAT.SUB`: `FW.conv1`, `BW.fc`,
//!   `UPDATE.all`, `Comm.bucket 0.ALL_REDUCE`, `Comm.bucket 0.SEND~>0_7_2`.
//! - `pid` is `hostX.rankY`; `ts` and `dur` are microseconds of the clock of that host.
//! - `tid` is `compute`, `comm`, or `comm_detail` for single messages, with a number behind it
//!   where events overlap, since a lane of a viewer holds only events that do not.
//! - A message carries the group, sequence and part of its header, which are equal at both ends.
//!
//! Fields beside `traceEvents` are [`TraceHead`]; viewers ignore them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The form of a trace. Another form has another number.
pub const VERSION: u32 = 1;

/// Ranks, groups and layers have numbers of 16 bits.
const NUMBERS: usize = 1 << 16;
/// The longest tensor of a collective: more than the memory of any device.
const TENSOR_BYTES_MAX: u64 = 1 << 40;
/// The fastest link, in Gb/s.
const GBPS_MAX: f64 = 1e6;
/// Times are microseconds: of a clock that counts from any begin, and of one event at most 12 days.
const TS_US_MAX: f64 = 1e17;
const DUR_US_MAX: f64 = 1e12;

/// The events of some or all ranks of a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Trace {
    /// What the events are of.
    pub gradwire: TraceHead,
    /// The events, in any order.
    #[serde(rename = "traceEvents")]
    pub events: Vec<TraceEvent>,
}

/// The run that a trace is of.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct TraceHead {
    /// [`VERSION`]; distinguishes a trace from other JSON.
    pub events: u32,
    /// Name of the job.
    pub job: String,
    /// Number of this run of the job, equal on all ranks.
    pub run: u32,
    /// How many ranks the run has.
    pub world_size: u32,
    /// The ranks whose events the file has, each with its host.
    pub ranks: BTreeMap<u32, String>,
    /// The ranks of each group, in its order.
    pub groups: BTreeMap<u32, Vec<u32>>,
    /// Layers of the model from front to back; empty where unknown.
    #[serde(default)]
    pub layers: Vec<String>,
    /// Keys of the job that decide about messages, in the notation of `job.toml`.
    #[serde(default)]
    pub keys: BTreeMap<String, String>,
    /// Rate of a host's link in Gb/s, if it is known.
    #[serde(default)]
    pub gbps: Option<f64>,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Category {
    /// Forward.
    #[serde(rename = "FW")]
    Forward,
    /// Backward.
    #[serde(rename = "BW")]
    Backward,
    /// The optimizer.
    #[serde(rename = "UPDATE")]
    Update,
    /// A collective, or a message of one.
    Comm,
}

/// One event: something that took time.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TraceEvent {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub cat: Category,
    /// Always "X", a complete event.
    pub ph: String,
    /// When it began, in microseconds.
    pub ts: f64,
    /// How long it took, in microseconds.
    pub dur: f64,
    /// Host and rank.
    pub pid: String,
    /// The lane of a viewer.
    pub tid: String,
    /// Everything else.
    pub args: EventArgs,
}

/// The arguments of an event.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct EventArgs {
    /// The rank.
    pub rank: u32,
    /// The training step, from 0.
    pub step: u32,
    /// Number of the task in the rank's program; absent where a writer does not know the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// Tasks that ended before it began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u32>,
    /// Tasks that began before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_start: Vec<u32>,
    /// Of a collective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationArgs>,
    /// Of a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageArgs>,
}

/// A collective.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct OperationArgs {
    /// "all_reduce", "reduce", "broadcast", ...
    pub kind: String,
    /// Its group.
    pub group: u32,
    /// Bytes of its tensor.
    pub bytes: u64,
    /// Position of the root in the group, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<u32>,
    /// The first byte of each layer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<(u64, u16)>,
}

/// A message, as its header names it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct MessageArgs {
    /// The group.
    pub group: u16,
    /// Number of the operation in the group.
    pub sequence: u32,
    /// Number among the messages of a pair in the operation.
    pub part: u16,
    /// The rank that sends.
    pub from: u32,
    /// The rank that receives.
    pub to: u32,
    /// Its length.
    pub bytes: u32,
}

/// Why a text is not a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It is not JSON, or ends too early.
    #[error("it is not a complete JSON object ({0}): was the process killed while it wrote?")]
    Json(serde_json::Error),
    /// It is something else.
    #[error(
        "it has no events of gradwire: give files that gradwire.events or `sim run --trace` wrote"
    )]
    Foreign,
    /// Another release has written it.
    #[error(
        "its events have version {0}, this release reads version {VERSION}: use the gradwire that \
         wrote it, or record again"
    )]
    Version(u64),
    /// A field is missing or of another type.
    #[error("it is no trace of gradwire: {0}")]
    Fields(serde_json::Error),
    /// An event whose rank the head does not name.
    #[error("event {name:?} is of rank {rank}, which the file does not list: record again")]
    Rank {
        /// The event.
        name: String,
        /// Its rank.
        rank: u32,
    },
    /// A number in the head that no run has.
    #[error(
        "its head has {what}, which no run of gradwire has: the file was changed, record again"
    )]
    Head {
        /// The number and its meaning.
        what: String,
    },
    /// A tensor of a length that no collective has, or whose layers do not lie in it one after the
    /// other.
    #[error(
        "event {name:?} is of a tensor of {bytes} bytes whose layers begin at {layers:?}: a tensor \
         has at most 2^40 bytes, and its layers begin inside it one after the other; record again"
    )]
    Tensor {
        /// The event.
        name: String,
        /// Its bytes.
        bytes: u64,
        /// The first byte of each layer.
        layers: Vec<u64>,
    },
    /// A time that is no time.
    #[error(
        "event {name:?} begins at {ts} us and takes {dur} us: an event may begin up to 1e17 us \
         from zero, and take from 0 to 1e12 us; record again"
    )]
    Time {
        /// The event.
        name: String,
        /// Its begin.
        ts: f64,
        /// Its duration.
        dur: f64,
    },
}

impl Trace {
    /// Reads a trace back.
    ///
    /// # Errors
    /// [`TraceError`] if the text is not a trace of this version, or contradicts itself.
    pub fn from_json(text: &str) -> Result<Self, TraceError> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(TraceError::Json)?;
        let version = value.get("gradwire").and_then(|head| head.get("events"));
        match version.and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) => return Err(TraceError::Version(version)),
            None => return Err(TraceError::Foreign),
        }
        let trace: Self = serde_json::from_value(value).map_err(TraceError::Fields)?;
        trace.gradwire.check()?;
        for event in &trace.events {
            event.check(&trace.gradwire)?;
        }
        Ok(trace)
    }

    /// The trace as one line of JSON, its overlapping events in lanes of their own.
    pub fn to_json(&self) -> String {
        let mut trace = self.clone();
        trace
            .events
            .sort_by(|one, other| one.ts.total_cmp(&other.ts));
        let mut lanes: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
        for event in &mut trace.events {
            let ends = lanes
                .entry((event.pid.clone(), event.tid.clone()))
                .or_default();
            let free = ends.iter().position(|end| *end <= event.ts);
            let lane = free.unwrap_or_else(|| {
                ends.push(f64::MIN);
                ends.len() - 1
            });
            ends[lane] = event.ts + event.dur;
            if lane > 0 {
                event.tid = format!("{} {lane}", event.tid);
            }
        }
        serde_json::to_string(&trace).expect("plain data with names as keys")
    }
}

impl TraceHead {
    fn check(&self) -> Result<(), TraceError> {
        let group = self.groups.keys().find(|&&group| group as usize >= NUMBERS);
        let rate = self.gbps.filter(|rate| !(*rate > 0.0 && *rate <= GBPS_MAX));
        let wrong = [
            (self.world_size as usize > NUMBERS).then(|| format!("{} ranks", self.world_size)),
            group.map(|group| format!("group {group}")),
            (self.layers.len() >= NUMBERS).then(|| format!("{} layers", self.layers.len())),
            rate.map(|rate| format!("a link of {rate} Gb/s")),
        ];
        let first = wrong.into_iter().flatten().next();
        first.map_or(Ok(()), |what| Err(TraceError::Head { what }))
    }
}

impl OperationArgs {
    /// Whether its length is possible, and its layers lie in it one after the other.
    fn is_possible(&self) -> bool {
        let starts = self.layers.iter().map(|(at, _)| *at);
        let inside = starts.clone().all(|at| at < self.bytes.max(1));
        self.bytes <= TENSOR_BYTES_MAX && inside && starts.is_sorted_by(|one, next| one < next)
    }
}

impl TraceEvent {
    /// A complete event of a rank; `name` is without its category.
    pub fn new(cat: Category, name: &str, times: (f64, f64), args: EventArgs) -> Self {
        let (word, tid) = match (cat, &args.message) {
            (Category::Forward, _) => ("FW", "compute"),
            (Category::Backward, _) => ("BW", "compute"),
            (Category::Update, _) => ("UPDATE", "compute"),
            (Category::Comm, None) => ("Comm", "comm"),
            (Category::Comm, Some(_)) => ("Comm", "comm_detail"),
        };
        Self {
            name: format!("{word}.{name}"),
            cat,
            ph: "X".to_owned(),
            ts: times.0,
            dur: (times.1 - times.0).max(0.0),
            pid: String::new(),
            tid: tid.to_owned(),
            args,
        }
    }

    /// When it ended.
    pub fn end(&self) -> f64 {
        self.ts + self.dur
    }

    /// Its name without the category.
    pub fn subject(&self) -> &str {
        self.name
            .split_once('.')
            .map_or(&*self.name, |(_, rest)| rest)
    }

    /// Whether it is computing.
    pub fn computes(&self) -> bool {
        self.cat != Category::Comm
    }

    fn check(&self, head: &TraceHead) -> Result<(), TraceError> {
        let (name, rank) = (self.name.clone(), self.args.rank);
        if !head.ranks.contains_key(&rank) {
            return Err(TraceError::Rank { name, rank });
        }
        if let Some(operation) = self
            .args
            .operation
            .as_ref()
            .filter(|one| !one.is_possible())
        {
            let layers = operation.layers.iter().map(|(at, _)| *at).collect();
            let bytes = operation.bytes;
            return Err(TraceError::Tensor {
                name,
                bytes,
                layers,
            });
        }
        let (ts, dur) = (self.ts, self.dur);
        match ts.abs() <= TS_US_MAX && (0.0..=DUR_US_MAX).contains(&dur) {
            true => Ok(()),
            false => Err(TraceError::Time { name, ts, dur }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Trace::from_json(text).expect_err("no trace").to_string()
    }

    fn trace(times: &[(f64, f64)]) -> Trace {
        let events = times.iter().map(|&times| TraceEvent {
            pid: "host0.rank0".to_owned(),
            ..TraceEvent::new(
                Category::Comm,
                "bucket 0.ALL_REDUCE",
                times,
                EventArgs::default(),
            )
        });
        Trace {
            gradwire: TraceHead {
                events: VERSION,
                world_size: 1,
                ranks: BTreeMap::from([(0, "host0".to_owned())]),
                ..TraceHead::default()
            },
            events: events.collect(),
        }
    }

    #[test]
    fn what_is_no_trace_is_told_apart() {
        let text = trace(&[(0.0, 1.0)]).to_json();
        assert!(refusal(&text[..text.len() / 2]).contains("not a complete JSON object"));
        assert!(refusal("{\"traceEvents\": []}").contains("no events of gradwire"));
        assert!(refusal("{\"gradwire\": {\"events\": 9}}").contains("version 9"));
        assert!(refusal("{\"gradwire\": {\"events\": 1}}").contains("missing field"));
        let foreign = text.replace("\"rank\":0", "\"rank\":4");
        assert!(refusal(&foreign).contains("rank 4"));
        let negative = text.replace("\"dur\":1.0", "\"dur\":-1.0");
        assert!(refusal(&negative).contains("takes -1 us"));
    }

    #[test]
    fn overlapping_events_get_lanes_of_their_own() {
        let text = trace(&[(0.0, 4.0), (1.0, 2.0), (3.0, 5.0), (4.0, 6.0)]).to_json();
        let back = Trace::from_json(&text).expect("it was just written");
        let lanes: Vec<&str> = back.events.iter().map(|event| &*event.tid).collect();
        assert_eq!(lanes, ["comm", "comm 1", "comm 1", "comm"]);
        assert_eq!(back.events[0].name, "Comm.bucket 0.ALL_REDUCE");
    }
}

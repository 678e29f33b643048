//! The events of a communicator as NCCL tells them, and a rank's file of them: a Chrome trace in
//! the form of `trace/src/event.rs`.
//!
//! - A collective lasts until the last message of it has ended: NCCL ends its own event as soon as
//!   the work is queued.
//! - A message is a step of one of NCCL's proxy operations: on its way out from when it was given
//!   to the net plugin until the plugin is done with it, on its way in from when its memory was
//!   posted until it has arrived.
//! - Sequence, channel and step name a message at both of its ends.
//!
//! NCCL knows neither layers nor steps of training: all events are of step 0.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};

/// The form of the events, as `trace/src/event.rs` has it.
const VERSION: u32 = 1;
/// Later events are left out, so that a job of days does not fill its memory.
const EVENTS_MAX: usize = 1 << 20;
/// Steps of a channel whose messages have names.
const STEPS_NAMED: u32 = 1 << 10;
/// Channels whose messages have names.
const CHANNELS_NAMED: u32 = 1 << 6;

/// The direction of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MessageWay {
    /// From this rank.
    Out,
    /// To it.
    In,
}

/// The subject of an event.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ProfiledWork {
    /// A collective.
    Collective {
        /// Its number in the communicator.
        sequence: u64,
        /// Its name, as `trace` spells it.
        kind: &'static str,
        /// Bytes of the whole tensor.
        bytes: u64,
        /// The root, if it has one.
        root: Option<i32>,
    },
    /// The part of a collective that is exchanged with one rank over one channel.
    Operation {
        /// The channel.
        channel: u8,
        /// The other rank.
        peer: i32,
        /// Where messages go.
        way: MessageWay,
    },
    /// A message of an operation.
    Message {
        /// Its number.
        step: i32,
        /// Its length, as far as it is known.
        bytes: u64,
    },
}

/// How far a message is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MessageProgress {
    /// It was given to the net plugin, or its memory was posted.
    Begun,
    /// It has arrived.
    Arrived,
}

/// Something that has begun.
#[derive(Clone, Debug)]
struct ProfiledEvent {
    work: ProfiledWork,
    /// Number of the event that it is a part of.
    parent: Option<usize>,
    begun: f64,
    ended: f64,
    /// Whether its end is known; a later one does not count.
    has_ended: bool,
}

/// The communicator that is recorded, as one of its ranks sees it. Times are microseconds of the
/// host's clock.
#[derive(Debug)]
pub(super) struct NcclProfile {
    /// Where the file will be.
    pub(super) folder: PathBuf,
    /// The name of this host.
    pub(super) host: String,
    /// This rank.
    pub(super) rank: i32,
    /// How many there are.
    pub(super) world_size: i32,
    /// A number that all ranks of the run share.
    pub(super) run: u32,
    events: Vec<ProfiledEvent>,
}

impl NcclProfile {
    /// A communicator without events.
    pub(super) fn new(folder: PathBuf, host: String, (rank, world_size): (i32, i32)) -> Self {
        Self {
            folder,
            host,
            rank,
            world_size,
            run: 0,
            events: Vec::new(),
        }
    }

    /// Something has begun, as a part of the event with number `parent`; gives its number, from 1.
    pub(super) fn begin(&mut self, work: ProfiledWork, parent: usize, now: f64) -> Option<usize> {
        let parent = self.place(parent);
        if self.events.len() >= EVENTS_MAX {
            return None;
        }
        self.events.push(ProfiledEvent {
            work,
            parent,
            begun: now,
            ended: now,
            has_ended: false,
        });
        Some(self.events.len())
    }

    /// A message has progressed; its length is told with that, or before.
    pub(super) fn progress(&mut self, number: usize, progress: MessageProgress, told: (u64, f64)) {
        let (length, now) = told;
        let Some(place) = self.place(number) else {
            return;
        };
        let event = &mut self.events[place];
        if let ProfiledWork::Message { bytes, .. } = &mut event.work {
            *bytes = length.max(*bytes);
        }
        match progress {
            MessageProgress::Begun => event.begun = now,
            MessageProgress::Arrived => {
                (event.ended, event.has_ended) = (now, true);
            }
        }
    }

    /// An event has ended, and the events that it is a part of have not ended before.
    pub(super) fn end(&mut self, number: usize, now: f64) {
        let mut place = self.place(number);
        if let Some(own) = place.filter(|&own| !self.events[own].has_ended) {
            (self.events[own].ended, self.events[own].has_ended) = (now, true);
        }
        while let Some(parent) = place.and_then(|place| self.events[place].parent) {
            let event = &mut self.events[parent];
            event.ended = event.ended.max(now);
            place = Some(parent);
        }
    }

    fn place(&self, number: usize) -> Option<usize> {
        number.checked_sub(1).filter(|&at| at < self.events.len())
    }

    /// Writes the rank's file, whole or not at all, and gives its path.
    ///
    /// # Errors
    /// When the folder cannot be made or the file not be written.
    pub(super) fn write(&self) -> std::io::Result<PathBuf> {
        std::fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(format!("events-rank{}.json", self.rank));
        let partial = path.with_extension("json.part");
        std::fs::write(&partial, self.to_json().to_string())?;
        std::fs::rename(&partial, &path)?;
        Ok(path)
    }

    fn to_json(&self) -> Value {
        let ranks: Vec<i32> = (0..self.world_size).collect();
        let mut events: Vec<Value> = self
            .events
            .iter()
            .filter_map(|event| self.event(event))
            .collect();
        into_lanes(&mut events);
        json!({
            "gradwire": {
                "events": VERSION,
                "job": "nccl",
                "run": self.run,
                "world_size": self.world_size,
                "ranks": { self.rank.to_string(): self.host },
                "groups": { "0": ranks },
                "layers": [],
                "keys": {},
            },
            "traceEvents": events,
        })
    }

    /// An event as the trace has it; `None` for one that it leaves out.
    fn event(&self, event: &ProfiledEvent) -> Option<Value> {
        let (name, tid, key, args) = match event.work {
            ProfiledWork::Collective {
                sequence,
                kind,
                bytes,
                root,
            } => {
                let name = format!("{}.{}", named(kind, sequence), kind.to_uppercase());
                let mut args = json!({ "kind": kind, "group": 0, "bytes": bytes });
                if let Some(root) = root {
                    args["root"] = json!(root);
                }
                (name, "comm", "operation", args)
            }
            ProfiledWork::Message { step, bytes } => {
                let (name, args) = self.message(event, (step, bytes))?;
                (name, "comm_detail", "message", args)
            }
            ProfiledWork::Operation { .. } => return None,
        };
        Some(json!({
            "name": format!("Comm.{name}"),
            "cat": "Comm",
            "ph": "X",
            "ts": event.begun,
            "dur": (event.ended - event.begun).max(0.0),
            "pid": format!("{}.rank{}", self.host, self.rank),
            "tid": tid,
            "args": { "rank": self.rank, "step": 0, key: args },
        }))
    }

    /// Name and arguments of a message whose collective is known.
    fn message(&self, event: &ProfiledEvent, told: (i32, u64)) -> Option<(String, Value)> {
        let (step, bytes) = (u32::try_from(told.0).ok()?, told.1);
        let operation = &self.events[event.parent?];
        let collective = &self.events[operation.parent?];
        let ProfiledWork::Operation { channel, peer, way } = operation.work else {
            return None;
        };
        let ProfiledWork::Collective { sequence, kind, .. } = collective.work else {
            return None;
        };
        let channel = u32::from(channel);
        if step >= STEPS_NAMED || channel >= CHANNELS_NAMED {
            return None;
        }
        let part = channel * STEPS_NAMED + step;
        let (word, from, to) = match way {
            MessageWay::Out => ("SEND", self.rank, peer),
            MessageWay::In => ("RECV", peer, self.rank),
        };
        let args = json!({
            "group": 0,
            "sequence": sequence as u32,
            "part": part,
            "from": from,
            "to": to,
            "bytes": u32::try_from(bytes).unwrap_or(u32::MAX),
        });
        let name = format!("{}.{word}~>{from}_{to}_{part}", named(kind, sequence));
        Some((name, args))
    }
}

fn named(kind: &str, sequence: u64) -> String {
    format!("{} {sequence}", kind.replace('_', "-"))
}

/// Numbers the lanes in which no two events overlap, since viewers draw no others.
fn into_lanes(events: &mut [Value]) {
    let time = |event: &Value, key: &str| event[key].as_f64().unwrap_or_default();
    events.sort_by(|one, other| time(one, "ts").total_cmp(&time(other, "ts")));
    let mut lanes: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for event in events {
        let (begun, took) = (time(event, "ts"), time(event, "dur"));
        let tid = event["tid"].as_str().unwrap_or_default().to_owned();
        let ends = lanes.entry(tid.clone()).or_default();
        let free = ends.iter().position(|&end| end <= begun);
        let lane = free.unwrap_or_else(|| {
            ends.push(f64::MIN);
            ends.len() - 1
        });
        ends[lane] = begun + took;
        if lane > 0 {
            event["tid"] = json!(format!("{tid} {lane}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collective_ends_with_its_last_message() {
        let mut profile = NcclProfile::new(PathBuf::new(), "here".to_owned(), (0, 2));
        let collective = ProfiledWork::Collective {
            sequence: 3,
            kind: "all_reduce",
            bytes: 64,
            root: None,
        };
        let operation = ProfiledWork::Operation {
            channel: 1,
            peer: 1,
            way: MessageWay::Out,
        };
        let message = ProfiledWork::Message { step: 2, bytes: 0 };
        let outer = profile.begin(collective, 0, 10.0).expect("there is room");
        profile.end(outer, 11.0);
        let middle = profile
            .begin(operation, outer, 12.0)
            .expect("there is room");
        let inner = profile.begin(message, middle, 13.0).expect("there is room");
        profile.progress(inner, MessageProgress::Begun, (32, 14.0));
        profile.end(inner, 20.0);
        profile.end(middle, 21.0);
        let events = profile.to_json()["traceEvents"].clone();
        let seen = |at: usize, key: &str| events[at][key].clone();
        assert_eq!(seen(0, "name"), "Comm.all-reduce 3.ALL_REDUCE");
        assert_eq!((seen(0, "ts"), seen(0, "dur")), (json!(10.0), json!(11.0)));
        assert_eq!(seen(1, "name"), "Comm.all-reduce 3.SEND~>0_1_1026");
        assert_eq!((seen(1, "ts"), seen(1, "dur")), (json!(14.0), json!(6.0)));
        let args = json!({
            "group": 0, "sequence": 3, "part": 1026, "from": 0, "to": 1, "bytes": 32
        });
        assert_eq!(events[1]["args"]["message"], args);
        assert_eq!(events.as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn numbers_of_other_events_are_no_events() {
        let mut profile = NcclProfile::new(PathBuf::new(), "here".to_owned(), (0, 2));
        profile.end(7, 1.0);
        profile.progress(0, MessageProgress::Arrived, (1, 1.0));
        let message = ProfiledWork::Message { step: 0, bytes: 0 };
        assert_eq!(profile.begin(message, 7, 2.0), Some(1));
        assert_eq!(profile.to_json()["traceEvents"], json!([]));
    }
}

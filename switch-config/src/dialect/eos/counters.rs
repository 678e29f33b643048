//! Counters in three forms of `| json` whose keys are known.
//!
//! `show qos interfaces ecn counters queue` has `intfQueueCounters`; `show interfaces counters
//! queue detail` has `egressQueueCounters` on Trident and Tomahawk, where each drop precedence is
//! counted, and `show interfaces counters queue drops` has `interfaces` on Jericho, where they are
//! not. The keys are those that the tests of anta 1.10.0 read (`tests/interfaces.py`). Several
//! outputs may stand one behind the other. For other forms, give the neutral one.

use serde_json::{Map, Value};

use super::maps::FIRST_TO_DROP;
use crate::counters::{QueueCount, QueueCounts, counted, number_of};
use crate::notation::json;
use crate::reading::ReadError;

const WHAT: &str = "counters of EOS in JSON";

/// The counters of one or several outputs.
pub(super) fn read(text: &str) -> Result<Vec<QueueCount>, ReadError> {
    let mut counts = QueueCounts::new();
    let give = "give the output of a show command with `| json`";
    for value in json::outputs(WHAT, text, give)? {
        let found = [
            marks(&value, &mut counts),
            trident(&value, &mut counts),
            sand(&value, &mut counts),
        ];
        if found.iter().all(Option::is_none) {
            return Err(foreign());
        }
    }
    match counts.is_empty() {
        true => Err(foreign()),
        false => Ok(counts.into_values().collect()),
    }
}

fn foreign() -> ReadError {
    let text = "no queues under `intfQueueCounters`, `egressQueueCounters` or `interfaces`; give \
                `show interfaces counters queue detail | json` (on Jericho: `drops` for `detail`)";
    ReadError::new(WHAT, text)
}

/// `intfQueueCounters.PORT.queueCounters.QUEUE`: packets marked, `-` where none are counted.
fn marks(value: &Value, counts: &mut QueueCounts) -> Option<()> {
    for (port, found) in object(value, "intfQueueCounters")? {
        for (name, marked) in object(found, "queueCounters").into_iter().flatten() {
            if let (Some(queue), Some(marked)) = (queue(name), number_of(marked)) {
                counted(counts, port, queue).marked = Some(marked);
            }
        }
    }
    Some(())
}

/// `egressQueueCounters.interfaces.PORT.ucastQueues.trafficClasses.TC.dropPrecedences.DP`.
fn trident(value: &Value, counts: &mut QueueCounts) -> Option<()> {
    let ports = object(value.get("egressQueueCounters")?, "interfaces")?;
    for (port, found) in ports {
        let queues = found.get("ucastQueues");
        let classes = queues.and_then(|queues| object(queues, "trafficClasses"));
        for (name, class) in classes.into_iter().flatten() {
            let Some(queue) = queue(name) else { continue };
            let row = counted(counts, port, queue);
            for (name, packets) in object(class, "dropPrecedences").into_iter().flatten() {
                add_precedence(row, self::queue(name), packets);
            }
        }
    }
    Some(())
}

fn add_precedence(row: &mut QueueCount, precedence: Option<u8>, packets: &Value) {
    let of = |key| packets.get(key).and_then(number_of).unwrap_or(0);
    row.sent = row.sent.saturating_add(of("enqueuedPackets"));
    let early = row.early.get_or_insert(0);
    let slot = match precedence == Some(FIRST_TO_DROP) {
        true => early,
        false => &mut row.full,
    };
    *slot = slot.saturating_add(of("droppedPackets"));
}

/// `interfaces.PORT.trafficClasses.TC.{ingressVoqCounters,egressQueueCounters}.countersSum`: early
/// drops are not told from others.
fn sand(value: &Value, counts: &mut QueueCounts) -> Option<()> {
    for (port, found) in object(value, "interfaces")? {
        for (name, class) in object(found, "trafficClasses").into_iter().flatten() {
            let Some(queue) = queue(name) else { continue };
            let row = counted(counts, port, queue);
            let of = |side: &str, key: &str| {
                let sum = class.get(side).and_then(|side| side.get("countersSum"));
                let packets = sum.and_then(|sum| sum.get(key)).and_then(number_of);
                packets.unwrap_or(0)
            };
            let (voq, egress) = ("ingressVoqCounters", "egressQueueCounters");
            row.sent = row.sent.saturating_add(of(egress, "enqueuedPackets"));
            let full = of(voq, "droppedPackets").saturating_add(of(egress, "droppedPackets"));
            row.full = row.full.saturating_add(full);
        }
    }
    Some(())
}

fn object<'a>(value: &'a Value, key: &str) -> Option<&'a Map<String, Value>> {
    value.get(key)?.as_object()
}

/// The number at the end of a name: 3 of `TC3`, `UC3` and `3`.
fn queue(name: &str) -> Option<u8> {
    let start = name
        .trim_end_matches(|letter: char| letter.is_ascii_digit())
        .len();
    name[start..].parse().ok()
}

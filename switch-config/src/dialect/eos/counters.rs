//! Commands for people, and the counters that they print: three forms of `| json` whose keys are
//! known.
//!
//! `show qos interfaces ecn counters queue` has `intfQueueCounters`; `show interfaces counters
//! queue detail` has `egressQueueCounters` on Trident and Tomahawk, where each drop precedence is
//! counted, and `show interfaces counters queue drops` has `interfaces` on Jericho, where they are
//! not. The keys are those that the tests of anta 1.10.0 read (`tests/interfaces.py`). Several
//! outputs may stand one behind the other. For other forms, give the neutral one.

use std::collections::BTreeMap;

use serde_json::{Deserializer, Map, Value};

use super::chip::Chip;
use super::maps::FIRST_TO_DROP;
use super::render;
use crate::counters::{QueueCount, number_of};
use crate::dialect::contract::{Look, steps};
use crate::plan::Plan;
use crate::reading::ReadError;

const WHAT: &str = "counters of EOS in JSON";

/// Commands that load a change, try it without effect, and roll it back, each with its result.
pub(super) const PROCEDURE: &str = r#"
configure checkpoint save before-gradwire
    the running configuration is kept under that name
configure session gradwire
    a session: what is typed in it has no effect yet; paste the change
show session-config diffs
    only lines of the change, `+` and `-`; nothing of other sections
abort
    instead of committing: the session is gone, nothing was changed
commit timer 00:10:00
    it is in effect, and goes back by itself after ten minutes
configure session gradwire commit
    within the ten minutes, after the looks below: it stays
configure checkpoint restore before-gradwire
    to go back later, or paste the inverse change into a session of its own
write memory
    it outlives a reload
"#;

/// Steps after loading, in order.
const MAPS: &str = "
show qos maps
    every DSCP of the plan leads to its traffic class, droppable ones with drop precedence 2, and
    every traffic class to the queue of its number
show qos profile summary
    each profile of the plan lists its ports
";
const PORT: &str = "
show qos interfaces {port}
    trusts DSCP, has profile {profile}, all queues of the plan are strict
";
const PAUSES: &str = "
show priority-flow-control status
    off on every port of the plan
";
const MEMORY: &str = "
show platform trident mmu queue profile
    profile gradwire is in use
";
const DROPS: &str = "
show interfaces counters queue {form} | json
    drops in data queues only, and of drop precedence 2 first
";

/// Commands after loading, in order.
pub(super) fn looks(plan: &Plan) -> Vec<Look> {
    let chip = Chip::of(plan.target.version);
    let mut text = MAPS.to_owned();
    for port in &plan.site.ports {
        let profile = render::profile_name(port.rate);
        text.push_str(
            &PORT
                .replace("{port}", &port.name)
                .replace("{profile}", &profile),
        );
    }
    text.push_str(PAUSES);
    if plan.alpha.is_some() && chip == Chip::Trident {
        text.push_str(MEMORY);
    }
    let form = match chip {
        Chip::Sand => "drops",
        Chip::Trident => "detail",
    };
    text.push_str(&DROPS.replace("{form}", form));
    steps(&text)
}

/// Counts by port and queue.
type Counts = BTreeMap<(String, u8), QueueCount>;

/// The counters of one or several outputs.
pub(super) fn read(text: &str) -> Result<Vec<QueueCount>, ReadError> {
    let mut counts = Counts::new();
    for value in Deserializer::from_str(text).into_iter::<Value>() {
        let value = value.map_err(|error| {
            let text = format!("{error}; give the output of a show command with `| json`");
            ReadError::at(WHAT, error.line(), text)
        })?;
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

fn count<'a>(counts: &'a mut Counts, port: &str, queue: u8) -> &'a mut QueueCount {
    let entry = counts.entry((port.to_owned(), queue));
    entry.or_insert_with(|| QueueCount {
        port: port.to_owned(),
        queue,
        ..QueueCount::default()
    })
}

/// `intfQueueCounters.PORT.queueCounters.QUEUE`: packets marked, `-` where none are counted.
fn marks(value: &Value, counts: &mut Counts) -> Option<()> {
    for (port, found) in object(value, "intfQueueCounters")? {
        for (name, marked) in object(found, "queueCounters").into_iter().flatten() {
            if let (Some(queue), Some(marked)) = (queue(name), number_of(marked)) {
                count(counts, port, queue).marked = Some(marked);
            }
        }
    }
    Some(())
}

/// `egressQueueCounters.interfaces.PORT.ucastQueues.trafficClasses.TC.dropPrecedences.DP`.
fn trident(value: &Value, counts: &mut Counts) -> Option<()> {
    let ports = object(value.get("egressQueueCounters")?, "interfaces")?;
    for (port, found) in ports {
        let queues = found.get("ucastQueues");
        let classes = queues.and_then(|queues| object(queues, "trafficClasses"));
        for (name, class) in classes.into_iter().flatten() {
            let Some(queue) = queue(name) else { continue };
            let row = count(counts, port, queue);
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
fn sand(value: &Value, counts: &mut Counts) -> Option<()> {
    for (port, found) in object(value, "interfaces")? {
        for (name, class) in object(found, "trafficClasses").into_iter().flatten() {
            let Some(queue) = queue(name) else { continue };
            let row = count(counts, port, queue);
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

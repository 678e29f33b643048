//! The counters of `nv show interface PORT counters qos -o json`.
//!
//! By queue, `egress-queue-stats` has `tx-frames`, `wred-discards`, in newer releases
//! `ecn-marked-frames`, and `tx-uc-buffer-discards`, which older ones count in bytes (NVUE
//! reference, "counters qos egress-queue-stats"). Bytes are no packets: they are told as one
//! packet, so that losses are seen, not sized. The output names no port: one of several ports is
//! given with each, as `{"swp1": {...}, "swp2": {...}}`.

use serde_json::{Map, Value};

use crate::counters::{QueueCount, number_of};
use crate::plan::Plan;
use crate::reading::ReadError;

const WHAT: &str = "counters of NVUE in JSON";
const STATS: &str = "egress-queue-stats";

/// The counters of one port, or of several by their names.
pub(super) fn read(plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let text = "give the output of `nv show interface PORT counters qos -o json`";
        ReadError::at(WHAT, error.line(), format!("{error}; {text}"))
    })?;
    if let Some(stats) = stats(&value) {
        let [port] = &plan.site.ports[..] else {
            let text =
                "the output names no port and the plan has several: give `{\"swp1\": OUTPUT, ...}`";
            return Err(ReadError::new(WHAT, text));
        };
        return Ok(counts(&port.name, stats));
    }
    let ports = value.as_object().into_iter().flatten();
    let counted = ports.filter_map(|(port, value)| Some(counts(port, stats(value)?)));
    let counted: Vec<QueueCount> = counted.flatten().collect();
    match counted.is_empty() {
        true => Err(ReadError::new(
            WHAT,
            "no `egress-queue-stats`; give the output of `nv show interface PORT counters qos -o \
             json`",
        )),
        false => Ok(counted),
    }
}

/// The queues of an output: of all counters, or of those of queues alone.
fn stats(value: &Value) -> Option<&Map<String, Value>> {
    let inner = value.get(STATS).unwrap_or(value);
    let inner = inner.get("traffic-class").unwrap_or(inner).as_object()?;
    let is_queue = |row: (&String, &Value)| row.0.parse::<u8>().is_ok() && row.1.is_object();
    (!inner.is_empty() && inner.iter().all(is_queue)).then_some(inner)
}

fn counts(port: &str, stats: &Map<String, Value>) -> Vec<QueueCount> {
    let rows = stats.iter().filter_map(|(number, row)| {
        let frames = |key: &str| row.get(key).and_then(number_of);
        let full = row.get("tx-uc-buffer-discards");
        Some(QueueCount {
            port: port.to_owned(),
            queue: number.parse().ok()?,
            sent: frames("tx-frames").unwrap_or(0),
            marked: frames("ecn-marked-frames"),
            early: frames("wred-discards"),
            full: full.map_or(0, without_room),
        })
    });
    rows.collect()
}

/// Packets without room; `12 KB` counts as one.
fn without_room(value: &Value) -> u64 {
    number_of(value).unwrap_or_else(|| {
        let text = value.as_str().unwrap_or("");
        u64::from(text.starts_with(|first: char| ('1'..='9').contains(&first)))
    })
}

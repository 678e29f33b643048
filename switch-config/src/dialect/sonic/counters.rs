//! Counters of queues, as SONiC exports them.
//!
//! Read are the outputs of `show queue counters --json` and `show queue wredcounters --json`, one
//! behind the other: objects by port and queue (`UC3`), as `scripts/queuestat` and
//! `scripts/wredstat` of sonic-net/sonic-utilities (commit 056d9d4c) write them. Numbers are
//! strings, with commas where counters were cleared before, `N/A` where nobody counts.

use std::collections::BTreeMap;

use serde_json::{Deserializer, Value};

use super::config;
use crate::counters::{QueueCount, neutral};
use crate::reading::ReadError;

const WHAT: &str = "counters of queues in JSON";

/// The counters of an export, by port and queue.
pub(super) fn read(text: &str) -> Result<Vec<QueueCount>, ReadError> {
    if let Some(counts) = neutral::read(text) {
        return counts;
    }
    let mut seen = BTreeMap::new();
    let outputs = Deserializer::from_str(text).into_iter::<Value>();
    for output in outputs {
        let output = output.map_err(|error| ReadError {
            what: WHAT,
            line: Some(error.line()),
            message: format!("not the output of `show queue counters --json`: {error}"),
        })?;
        add(&output, &mut seen);
    }
    if !seen.values().any(|count| count.packets.is_some()) {
        return Err(ReadError {
            what: WHAT,
            line: None,
            message: "has no packets of queues (`totalpacket`): export `show queue counters \
                      --json`, with the output of `show queue wredcounters --json` behind it"
                .to_owned(),
        });
    }
    let counts = seen.into_iter().map(|((port, queue), count)| {
        let dropped = count.dropped.unwrap_or(0);
        QueueCount {
            port,
            queue,
            sent: count.packets.unwrap_or(0),
            marked: count.marked,
            early: count.early,
            // SAI counts every dropped packet of a queue in one, those of WRED in another, too.
            full: dropped.saturating_sub(count.early.unwrap_or(0)),
        }
    });
    Ok(counts.collect())
}

/// What the outputs say of a queue.
#[derive(Default)]
struct Count {
    packets: Option<u64>,
    dropped: Option<u64>,
    marked: Option<u64>,
    early: Option<u64>,
}

fn add(output: &Value, seen: &mut BTreeMap<(String, u8), Count>) {
    let ports = output.as_object().into_iter().flatten();
    for (port, queues) in ports {
        for (name, fields) in queues.as_object().into_iter().flatten() {
            let Some(queue) = unicast(name) else {
                continue;
            };
            let number = |field: &str| number(fields.get(field)?);
            let count = seen.entry((port.clone(), queue)).or_default();
            count.packets = number("totalpacket").or(count.packets);
            count.dropped = number("droppacket").or(count.dropped);
            count.marked = number("ecnmarkedpacket").or(count.marked);
            count.early = number("wreddroppacket").or(count.early);
        }
    }
}

/// The number of `UC3`, or of `ALL3` where a switch has one kind of queue for all packets.
fn unicast(name: &str) -> Option<u8> {
    let digits = name
        .strip_prefix("UC")
        .or_else(|| name.strip_prefix("ALL"))?;
    digits.parse().ok()
}

fn number(value: &Value) -> Option<u64> {
    config::text(value)?.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: &str = r#"{"Ethernet0": {"time": "2026-11-21", "UC1": {"totalpacket": "1,234",
        "totalbytes": "9", "droppacket": "50", "dropbytes": "N/A"}, "MC8": {"totalpacket": "7"}}}"#;
    const EARLY: &str = r#"{"Ethernet0": {"UC1": {"ecnmarkedbytes": "N/A",
        "ecnmarkedpacket": "33", "wreddropbytes": "1", "wreddroppacket": "40"}}}"#;

    #[test]
    fn two_outputs_one_behind_the_other_are_one_row_per_unicast_queue() {
        let count = QueueCount {
            port: "Ethernet0".to_owned(),
            queue: 1,
            sent: 1234,
            marked: Some(33),
            early: Some(40),
            full: 10,
        };
        assert_eq!(read(&format!("{PACKETS}\n{EARLY}")), Ok(vec![count]));
    }

    #[test]
    fn queues_without_counted_marks_are_read_and_an_export_without_packets_is_refused() {
        let counts = read(PACKETS).expect("packets are there");
        assert_eq!(
            (counts[0].marked, counts[0].early, counts[0].full),
            (None, None, 50)
        );
        let error = read(EARLY).expect_err("no packets").to_string();
        assert!(error.contains("`totalpacket`"), "{error}");
        let error = read("Port TxQ").expect_err("no JSON").to_string();
        assert!(
            error.starts_with("counters of queues in JSON, line 1: "),
            "{error}"
        );
    }
}

//! The counters of queues.
//!
//! Read are the outputs of `show queue counters --json` and `show queue wredcounters --json`, one
//! behind the other: objects by port and queue (`UC3`), as `scripts/queuestat` and
//! `scripts/wredstat` of sonic-net/sonic-utilities (commit 056d9d4c) write them. Numbers are
//! strings, with commas where counters were cleared before, `N/A` where a switch does not count.

use serde_json::Value;

use super::read::config;
use crate::counters::{QueueCount, QueueCounts, counted};
use crate::notation::json;
use crate::reading::ReadError;

const WHAT: &str = "counters of queues in JSON";

/// The counters of an export, by port and queue.
pub(super) fn read(text: &str) -> Result<Vec<QueueCount>, ReadError> {
    let give = "give the output of `show queue counters --json`";
    let mut counts = QueueCounts::new();
    let mut has_packets = false;
    for output in json::outputs(WHAT, text, give)? {
        for (port, queues) in output.as_object().into_iter().flatten() {
            has_packets |= add_port(&mut counts, port, queues);
        }
    }
    if !has_packets {
        let text = "has no packets of queues (`totalpacket`): export `show queue counters \
                    --json`, with the output of `show queue wredcounters --json` behind it";
        return Err(ReadError::new(WHAT, text));
    }
    // SAI counts every dropped packet of a queue in one, those of WRED in another, too.
    for count in counts.values_mut() {
        count.full = count.full.saturating_sub(count.early.unwrap_or(0));
    }
    Ok(counts.into_values().collect())
}

/// Adds the counters of a port. Whether packets are among them.
fn add_port(counts: &mut QueueCounts, port: &str, queues: &Value) -> bool {
    let mut has_packets = false;
    for (name, fields) in queues.as_object().into_iter().flatten() {
        let Some(queue) = unicast(name) else {
            continue;
        };
        let number = |field: &str| number(fields.get(field)?);
        let count = counted(counts, port, queue);
        has_packets |= number("totalpacket").is_some();
        count.sent = number("totalpacket").unwrap_or(count.sent);
        count.full = number("droppacket").unwrap_or(count.full);
        count.marked = number("ecnmarkedpacket").or(count.marked);
        count.early = number("wreddroppacket").or(count.early);
    }
    has_packets
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

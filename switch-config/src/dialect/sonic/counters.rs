//! Commands for people, and the counters of queues that they export.
//!
//! Sources of the commands: sonic-net/SONiC, `doc/config-generic-update-rollback/` (checkpoint, dry
//! run, rollback), `doc/qos/ECN_and_WRED_statistics_HLD.md` (counters of marks and early drops) and
//! `doc/packet_trimming/packet-trimming-design.md`; sonic-net/sonic-utilities,
//! `generic_config_updater/gcu_field_operation_validators.conf.json` (fields that a patch may not
//! change).
//!
//! Read are the outputs of `show queue counters --json` and `show queue wredcounters --json`, one
//! behind the other: objects by port and queue (`UC3`), as `scripts/queuestat` and
//! `scripts/wredstat` of sonic-net/sonic-utilities (commit 056d9d4c) write them. Numbers are
//! strings, with commas where counters were cleared before, `N/A` where a switch does not count.

use std::collections::BTreeMap;

use serde_json::{Deserializer, Value};

use super::read::config::{self, OURS};
use crate::counters::{QueueCount, neutral};
use crate::dialect::contract::{Look, steps};
use crate::plan::Plan;
use crate::reading::ReadError;

const WHAT: &str = "counters of queues in JSON";

/// Commands that load a change, try it without effect, and roll it back, each with its result.
const PROCEDURE: &str = r#"
show runningconfiguration all > running.json
    the export that `gradwire switch diff` makes the patch for
sudo config checkpoint gradwire
    `Checkpoint created successfully.`
sudo config apply-patch --dry-run gradwire.json-patch
    `Patch applied successfully.`; nothing was changed. `Modification of WRED_PROFILE table is
    illegal`: this release takes no new profile as a patch (those before sonic-utilities' pull
    request 4219 of 2026 do not); load the whole, see below
sudo config apply-patch gradwire.json-patch
    `Patch applied successfully.`
sudo config rollback gradwire
    only to go back: the configuration of the checkpoint; `gradwire switch undo` makes the
    inverse patch, which keeps what others changed since
jsonpatch running.json gradwire.json-patch > whole.json && sudo config reload whole.json -y
    only where the patch is refused: the services of the switch start anew, and links are down
    meanwhile; `sudo config reload running.json -y` goes back
sudo config save -y
    only when it works: until then a reboot goes back, too
"#;

const UNTRIM: &str = "
show switch-trimming global
    SONiC cannot take fields of SWITCH_TRIMMING away while it runs: after going back, queues do not
    trim any more, and the rest goes with the next reload
";
const MAPS: &str = "
redis-cli -n 4 HGETALL 'PORT_QOS_MAP|{port}'
    `dscp_to_tc_map` GRADWIRE, `pfc_enable` empty
redis-cli -n 4 HGETALL 'DSCP_TO_TC_MAP|GRADWIRE'
    {dscps}
show ecn
    {thresholds}
show pfc priority
    no class for {port}
";
const MEMORY: &str = "
show buffer configuration
    profile GRADWIRE_DATA, and the queues of data with it
";
const TRIMS: &str = "
show switch-trimming global
    size, DSCP and queue as the plan has them
";
const COUNTERS: &str = "
show switch-hash global
    L4_SRC_PORT among the fields of ECMP
sudo counterpoll queue enable && sudo counterpoll wredqueue enable
    nothing; marks and early drops are not counted before
sudo sonic-clear queuecounters && sudo sonic-clear queue wredcounters
    `Clear and update saved counters`
show queue counters --json > counters.json
    under load: packets in the queues of classes, no drops in the control queue
show queue wredcounters --json >> counters.json
    under load: marks and early drops in data queues only; `gradwire switch verify --counters
    counters.json` judges both
";

/// How the patch is loaded, tried without effect, and rolled back.
pub(super) fn procedure(plan: &Plan) -> Vec<Look> {
    let untrim = plan.trims_to.map_or("", |_| UNTRIM);
    steps(&[PROCEDURE, untrim].concat())
}

/// Commands after loading, in order.
pub(super) fn looks(plan: &Plan) -> Vec<Look> {
    let port = plan.site.ports.first();
    let port = port.map_or("Ethernet0", |port| port.name.as_str());
    let maps = MAPS.replace("{port}", port);
    let maps = maps.replace("{dscps}", &dscps(plan));
    let maps = maps.replace("{thresholds}", &thresholds(plan));
    let has_profile = plan.alpha.is_some() || plan.trims_to.is_some();
    let memory = if has_profile { MEMORY } else { "" };
    let trims = plan.trims_to.map_or("", |_| TRIMS);
    steps(&[&maps, memory, trims, COUNTERS].concat())
}

fn dscps(plan: &Plan) -> String {
    let rows = plan.queues.iter().map(|queue| {
        let dscps: Vec<String> = queue.dscps.iter().map(ToString::to_string).collect();
        format!(
            "{} -> {} ({})",
            dscps.join(", "),
            queue.number,
            queue.name()
        )
    });
    let rows: Vec<String> = rows.collect();
    let last = plan.queues.last().map_or(0, |queue| queue.number);
    format!("{}; all others -> {last}", rows.join("; "))
}

fn thresholds(plan: &Plan) -> String {
    let rows = plan.profiles.iter().map(|profile| {
        let threshold = &profile.threshold;
        let (low, high) = (threshold.low_bytes(), threshold.high_bytes());
        format!("{OURS}_{}: `ecn_all`, {low} to {high} bytes", profile.name)
    });
    let mut rows: Vec<String> = rows.collect();
    let control = plan.control().number;
    rows.push(format!("nothing for queue {control} (control)"));
    rows.join("; ")
}

/// The counters of an export, by port and queue.
pub(super) fn read(text: &str) -> Result<Vec<QueueCount>, ReadError> {
    if let Some(counts) = neutral::read(text) {
        return counts;
    }
    let mut seen = BTreeMap::new();
    let outputs = Deserializer::from_str(text).into_iter::<Value>();
    for output in outputs {
        let output = output.map_err(|error| {
            let text = format!("not the output of `show queue counters --json`: {error}");
            ReadError::at(WHAT, error.line(), text)
        })?;
        add(&output, &mut seen);
    }
    if !seen.values().any(|count| count.packets.is_some()) {
        let text = "has no packets of queues (`totalpacket`): export `show queue counters \
                    --json`, with the output of `show queue wredcounters --json` behind it";
        return Err(ReadError::new(WHAT, text));
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

/// The outputs' counts of a queue.
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

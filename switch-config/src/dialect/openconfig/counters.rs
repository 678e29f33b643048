//! The counters in a switch's answer.

use std::collections::BTreeMap;

use serde_json::Value;

use super::paths::key_of;
use super::render::{ROOT, name_of};
use crate::counters::QueueCount;
use crate::notation::json::at;
use crate::plan::Plan;
use crate::reading::ReadError;

/// Counters of the state of output queues.
pub(super) fn counters(plan: &Plan, root: &Value) -> Result<Vec<QueueCount>, ReadError> {
    let broken = |message: &str| ReadError::new("state of openconfig-qos in JSON", message);
    let qos = root.get(ROOT).unwrap_or(root);
    let interfaces = [
        &["interfaces", "interface"][..],
        &["openconfig-qos:interfaces", "interface"],
        &["openconfig-qos:interface"],
    ];
    let mut found = interfaces.iter().filter_map(|path| at(qos, path));
    let interfaces = found.next().and_then(Value::as_array).ok_or_else(|| {
        broken("has no interfaces: expected qos/interfaces/interface[]/output/queues/queue[]/state")
    })?;
    let numbers = numbers(plan, qos);
    let mut counts = Vec::new();
    for interface in interfaces {
        let port = key_of(interface, "interface-id")
            .ok_or_else(|| broken("an interface without interface-id"))?;
        let queues = at(interface, &["output", "queues", "queue"]);
        for queue in queues.and_then(Value::as_array).into_iter().flatten() {
            let number = key_of(queue, "name").and_then(|name| numbers.get(&name).copied());
            let (Some(queue_number), Some(state)) = (number, queue.get("state")) else {
                continue;
            };
            let count = |name: &str| key_of(state, name).and_then(|text| text.parse().ok());
            let marked: Option<u64> = count("ecn-marked-pkts");
            let selected: Option<u64> = count("ecn-selected-pkts");
            let dropped: u64 = count("dropped-pkts").unwrap_or(0);
            let early = selected.zip(marked);
            let early = early.map(|(selected, marked)| selected.saturating_sub(marked));
            counts.push(QueueCount {
                port: port.clone(),
                queue: queue_number,
                sent: count("transmit-pkts").unwrap_or(0),
                marked,
                early: early.map(|early| early.min(dropped)),
                full: dropped.saturating_sub(early.unwrap_or(0)),
            });
        }
    }
    match counts.is_empty() {
        false => Ok(counts),
        true => Err(broken("has no state of output queues that the plan names")),
    }
}

/// Numbers of queues by name: as the plan has them, or as the export says.
fn numbers(plan: &Plan, qos: &Value) -> BTreeMap<String, u8> {
    let said = at(qos, &["queues", "queue"]).and_then(Value::as_array);
    let said = said.into_iter().flatten().filter_map(|queue| {
        let number = at(queue, &["config", "queue-id"])?.as_u64()?;
        Some((key_of(queue, "name")?, u8::try_from(number).ok()?))
    });
    let ours = plan.queues.iter();
    let ours = ours.map(|queue| (name_of(queue), queue.number));
    said.chain(ours).collect()
}

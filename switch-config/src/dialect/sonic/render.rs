//! A plan as tables of CONFIG_DB.
//!
//! Everything that is ours is named GRADWIRE, or GRADWIRE_ and more. The name also tells where
//! it comes from: JSON has no comments, and a table or field that SONiC does not know would be
//! refused by its models. Traffic classes of the switch are numbered as its queues.

use gradwire_protocol::units::Dscp;
use serde_json::{Value, json};

use super::read::config::{BAR, OURS};
use super::read::models::QUEUES;
use super::read::ranges;
use crate::plan::{Plan, PlanQueue, SwitchPort, ThresholdProfile};
use gradwire_fabric::policy::{Balance, DSCPS, RESERVED, SwitchBuffer};

/// Name of the strict scheduler.
pub(super) const STRICT: &str = "GRADWIRE_STRICT";
/// Name of the buffer profile of data queues.
pub(super) const DATA: &str = "GRADWIRE_DATA";
/// The pool of packets that leave, as SONiC's own templates name it.
pub(super) const POOL: &str = "egress_lossy_pool";
/// Fields that choose the path: senders spray by the UDP source port.
pub(super) const HASHED: [&str; 5] = [
    "SRC_IP",
    "DST_IP",
    "IP_PROTOCOL",
    "L4_SRC_PORT",
    "L4_DST_PORT",
];

/// The plan as a whole configuration.
pub(super) fn render(plan: &Plan) -> Value {
    let mut root = json!({
        "DSCP_TO_TC_MAP": {OURS: dscps(plan)},
        "TC_TO_QUEUE_MAP": {OURS: classes(|class| class)},
        "TC_TO_PRIORITY_GROUP_MAP": {OURS: classes(|_| 0)},
        "SCHEDULER": {STRICT: {"type": "STRICT"}},
    });
    for percent in plan.queues.iter().filter_map(PlanQueue::percent) {
        let row = json!({"type": "DWRR", "weight": percent.to_string()});
        root["SCHEDULER"][scheduler_name(Some(percent))] = row;
    }
    for port in &plan.site.ports {
        queues(plan, port, &mut root);
        root["PORT_QOS_MAP"][&port.name] = json!({
            "dscp_to_tc_map": OURS,
            "tc_to_queue_map": OURS,
            "tc_to_pg_map": OURS,
            "pfc_enable": "",
        });
    }
    if plan.balance_to_set() == Some(Balance::Ecmp) {
        root["SWITCH_HASH"] = json!({"GLOBAL": {"ecmp_hash": HASHED}});
    }
    buffers(plan, &mut root);
    trimming(plan, &mut root);
    root
}

/// Name of the row by which a queue of this weight is served, or a strict one.
fn scheduler_name(percent: Option<u8>) -> String {
    percent.map_or_else(
        || STRICT.to_owned(),
        |percent| format!("{OURS}_WEIGHT_{percent}"),
    )
}

/// Name of the row of a queue's profile.
fn profile_name(profile: &ThresholdProfile, queue: &PlanQueue) -> String {
    match queue.has_gradients() {
        true => format!("{OURS}_{}", profile.name),
        false => format!("{OURS}_{}_OTHERS", profile.name),
    }
}

fn dscps(plan: &Plan) -> Value {
    let dscps = 0..DSCPS as u8;
    let pairs = dscps.map(|dscp| {
        let queue = plan.queue_of_dscp(Dscp(dscp)).number;
        (dscp.to_string(), Value::from(queue.to_string()))
    });
    Value::Object(pairs.collect())
}

fn classes(to: impl Fn(u8) -> u8) -> Value {
    let pairs = (0..QUEUES).map(|class| (class.to_string(), Value::from(to(class).to_string())));
    Value::Object(pairs.collect())
}

/// Nothing colours packets here, so that all are green; the other colours do as green does.
fn wred(profile: &ThresholdProfile, queue: &PlanQueue) -> Value {
    let threshold = profile.threshold;
    let mut row = json!({"ecn": "ecn_all"});
    for colour in ["green", "yellow", "red"] {
        row[format!("wred_{colour}_enable")] = json!(queue.has_gradients().to_string());
        row[format!("{colour}_min_threshold")] = json!(threshold.low_bytes().to_string());
        row[format!("{colour}_max_threshold")] = json!(threshold.high_bytes().to_string());
        row[format!("{colour}_drop_probability")] = json!("100");
    }
    row
}

fn queues(plan: &Plan, port: &SwitchPort, root: &mut Value) {
    for queue in &plan.queues {
        let mut row = json!({"scheduler": scheduler_name(queue.percent())});
        if let Some(profile) = plan.profile(queue, port) {
            let name = profile_name(profile, queue);
            root["WRED_PROFILE"][&name] = wred(profile, queue);
            row["wred_profile"] = Value::from(name);
        }
        root["QUEUE"][format!("{}{BAR}{}", port.name, queue.number)] = row;
    }
}

fn buffers(plan: &Plan, root: &mut Value) {
    let data = plan.queues.iter().filter(|queue| queue.has_gradients());
    let numbers = data.map(|queue| queue.number);
    let ends = numbers.clone().min().zip(numbers.max());
    let (Some((first, last)), true) = (ends, plan.alpha.is_some() || plan.trims_to.is_some())
    else {
        return;
    };
    let ports = plan.site.ports.len() as u64;
    let bytes = match plan.site.buffer {
        SwitchBuffer::PerPort(bytes) | SwitchBuffer::Divided { bytes, .. } => bytes.get() * ports,
        SwitchBuffer::Shared { bytes, .. } => bytes.get(),
    };
    let pool = json!({"type": "egress", "mode": "dynamic", "size": bytes.to_string()});
    let mut profile = json!({"pool": POOL, "size": "0"});
    match plan.alpha {
        Some(alpha) => profile["dynamic_th"] = Value::from(alpha.to_string()),
        None => {
            let bytes = plan.site.buffer.port_bytes().get();
            profile["static_th"] = Value::from(bytes.to_string());
        }
    }
    if plan.trims_to.is_some() {
        profile["packet_discard_action"] = Value::from("trim");
    }
    root["BUFFER_POOL"] = json!({POOL: pool});
    root["BUFFER_PROFILE"] = json!({DATA: profile});
    for port in &plan.site.ports {
        let key = format!("{}{BAR}{}", port.name, ranges::write(&(first..=last)));
        root["BUFFER_QUEUE"][key] = json!({"profile": DATA});
    }
}

/// Trimmed packets go where control packets do.
fn trimming(plan: &Plan, root: &mut Value) {
    let Some(bytes) = plan.trims_to else {
        return;
    };
    let control = plan.control();
    let own = control.dscps.iter().find(|dscp| !RESERVED.contains(dscp));
    let own = own
        .or_else(|| control.dscps.first())
        .copied()
        .unwrap_or_default();
    root["SWITCH_TRIMMING"] = json!({"GLOBAL": {
        "size": bytes.get().to_string(),
        "dscp_value": own.to_string(),
        "queue_index": control.number.to_string(),
    }});
}

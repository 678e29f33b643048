//! The plan as one tree of `openconfig-qos`, in JSON as RFC 7951 writes it.

use gradwire_protocol::units::Dscp;
use serde_json::{Value, json};

use crate::plan::{OURS, Plan, PlanQueue, SwitchPort, ThresholdProfile};
use gradwire_fabric::policy::DSCPS;

/// The tree's name, with its module.
pub(super) const ROOT: &str = "openconfig-qos:qos";

/// The whole tree.
pub(super) fn tree(plan: &Plan) -> Value {
    let queues = || plan.queues.iter();
    let terms: Vec<Value> = queues().map(|queue| term(plan, queue)).collect();
    let groups = queues().map(|queue| {
        let name = name_of(queue);
        json!({"name": name, "config": {"name": name, "output-queue": name}})
    });
    let numbered = queues().map(|queue| {
        let name = name_of(queue);
        json!({"name": name, "config": {"name": name, "queue-id": queue.number}})
    });
    let mut qos = json!({
        "classifiers": {"classifier": [{
            "name": OURS,
            "config": {"name": OURS, "type": "IPV4"},
            "terms": {"term": terms},
        }]},
        "forwarding-groups": {"forwarding-group": groups.collect::<Vec<_>>()},
        "queues": {"queue": numbered.collect::<Vec<_>>()},
        "scheduler-policies": {"scheduler-policy": [{
            "name": OURS,
            "config": {"name": OURS},
            "schedulers": {"scheduler": schedulers(plan)},
        }]},
        "interfaces": {
            "interface": plan.site.ports.iter().map(|port| interface(plan, port))
                .collect::<Vec<_>>()
        },
    });
    if !plan.profiles.is_empty() {
        qos["queue-management-profiles"] = json!({"queue-management-profile": profiles(plan)});
    }
    if let Some(alpha) = plan.alpha {
        qos["buffer-allocation-profiles"] =
            json!({"buffer-allocation-profile": [memory(plan, alpha)]});
    }
    json!({ROOT: qos})
}

/// The name of a queue and of the forwarding group that leads to it.
pub(super) fn name_of(queue: &PlanQueue) -> String {
    format!("{OURS}-{}", queue.name())
}

fn term(plan: &Plan, queue: &PlanQueue) -> Value {
    let dscps = (0..DSCPS as u8).map(Dscp);
    let led = dscps.filter(|dscp| plan.queue_of_dscp(*dscp) == queue);
    let dscps: Vec<u8> = led.map(|dscp| dscp.0).collect();
    let id = queue.name();
    json!({
        "id": id,
        "config": {"id": id},
        "conditions": {"ipv4": {"config": {"dscp-set": dscps}}},
        "actions": {"config": {"target-group": name_of(queue)}},
    })
}

/// Strict queues have a scheduler each, those with a weight one together.
fn schedulers(plan: &Plan) -> Vec<Value> {
    let (weighted, strict): (Vec<&PlanQueue>, Vec<&PlanQueue>) = plan
        .queues
        .iter()
        .partition(|queue| queue.percent().is_some());
    let rows = strict.iter().enumerate().map(|(sequence, queue)| {
        let config = json!({"sequence": sequence, "priority": "STRICT"});
        scheduler(config, &[queue])
    });
    let mut rows: Vec<Value> = rows.collect();
    if !weighted.is_empty() {
        rows.push(scheduler(json!({"sequence": rows.len()}), &weighted));
    }
    rows
}

fn scheduler(config: Value, queues: &[&PlanQueue]) -> Value {
    let inputs = queues.iter().map(|queue| {
        let name = name_of(queue);
        let mut config = json!({"id": name, "input-type": "QUEUE", "queue": name});
        if let Some(percent) = queue.percent() {
            config["weight"] = json!(percent.to_string());
        }
        json!({"id": name, "config": config})
    });
    json!({
        "sequence": config["sequence"],
        "config": config,
        "inputs": {"input": inputs.collect::<Vec<_>>()},
        "output": {"config": {"output-type": "INTERFACE"}},
    })
}

/// Name of the profile of a queue's thresholds.
fn profile_name(profile: &ThresholdProfile, queue: &PlanQueue) -> String {
    match queue.has_gradients() {
        true => format!("{OURS}-{}", profile.name),
        false => format!("{OURS}-{}-others", profile.name),
    }
}

/// The profiles of the plan: for gradients, for others, or for both.
fn profiles(plan: &Plan) -> Vec<Value> {
    let mut rows: Vec<Value> = Vec::new();
    for profile in &plan.profiles {
        let share = Some(profile.share);
        for queue in plan
            .queues
            .iter()
            .filter(|queue| queue.marks_above == share)
        {
            let row = wred(profile, queue);
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
    }
    rows
}

fn wred(profile: &ThresholdProfile, queue: &PlanQueue) -> Value {
    let name = profile_name(profile, queue);
    json!({
        "name": name,
        "config": {"name": name},
        "wred": {"uniform": {"config": {
            "min-threshold": profile.threshold.low.to_string(),
            "max-threshold": profile.threshold.high.to_string(),
            "enable-ecn": true,
            "drop": queue.has_gradients(),
            "weight": 0,
            "max-drop-probability-percent": 100,
        }}},
    })
}

fn memory(plan: &Plan, alpha: i8) -> Value {
    let data = plan.queues.iter().filter(|queue| queue.has_gradients());
    let queues = data.map(|queue| {
        let name = name_of(queue);
        json!({"name": name, "config": {
            "name": name,
            "use-shared-buffer": true,
            "shared-buffer-limit-type": "openconfig-qos:DYNAMIC_BASED_ON_SCALING_FACTOR",
            "dynamic-limit-scaling-factor": alpha,
        }})
    });
    json!({
        "name": OURS,
        "config": {"name": OURS},
        "queues": {"queue": queues.collect::<Vec<_>>()},
    })
}

fn interface(plan: &Plan, port: &SwitchPort) -> Value {
    let queues = plan.queues.iter().map(|queue| {
        let name = name_of(queue);
        let mut config = json!({"name": name});
        if let Some(profile) = plan.profile(queue, port) {
            config["queue-management-profile"] = json!(profile_name(profile, queue));
        }
        json!({"name": name, "config": config})
    });
    let mut output = json!({
        "queues": {"queue": queues.collect::<Vec<_>>()},
        "scheduler-policy": {"config": {"name": OURS}},
    });
    if plan.alpha.is_some() {
        output["config"] = json!({"buffer-allocation-profile": OURS});
    }
    json!({
        "interface-id": port.name,
        "config": {"interface-id": port.name},
        "interface-ref": {"config": {"interface": port.name}},
        "input": {"classifiers": {"classifier": [
            {"type": "IPV4", "config": {"type": "IPV4", "name": OURS}},
        ]}},
        "output": output,
    })
}

//! The plan as one tree of `openconfig-qos`, in JSON as RFC 7951 writes it.

use gradwire_protocol::units::Dscp;
use serde_json::{Value, json};

use crate::plan::{OURS, Plan, PlanQueue, Purpose, SwitchPort};
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

fn schedulers(plan: &Plan) -> Vec<Value> {
    let rows = plan.queues.iter().enumerate().map(|(sequence, queue)| {
        let name = name_of(queue);
        json!({
            "sequence": sequence,
            "config": {"sequence": sequence, "priority": "STRICT"},
            "inputs": {"input": [{
                "id": name,
                "config": {"id": name, "input-type": "QUEUE", "queue": name},
            }]},
            "output": {"config": {"output-type": "INTERFACE"}},
        })
    });
    rows.collect()
}

fn profiles(plan: &Plan) -> Vec<Value> {
    let rows = plan.profiles.iter().map(|profile| {
        let name = format!("{OURS}-{}", profile.name);
        json!({
            "name": name,
            "config": {"name": name},
            "wred": {"uniform": {"config": {
                "min-threshold": profile.threshold.low.to_string(),
                "max-threshold": profile.threshold.high.to_string(),
                "enable-ecn": true,
                "drop": true,
                "weight": 0,
                "max-drop-probability-percent": 100,
            }}},
        })
    });
    rows.collect()
}

fn memory(plan: &Plan, alpha: i8) -> Value {
    let is_data = |queue: &&PlanQueue| matches!(queue.purpose, Purpose::Data(_));
    let queues = plan.queues.iter().filter(is_data).map(|queue| {
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
            config["queue-management-profile"] = json!(format!("{OURS}-{}", profile.name));
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

//! What people type: how a change is loaded, tried and taken back, and what to look at then.

use super::render;
use crate::dialect::contract::{Look, look};
use crate::plan::Plan;
use crate::policy::Balance;

/// How a change is loaded, tried without effect, and rolled back.
pub(super) fn procedure() -> Vec<Look> {
    vec![
        look(
            "nv config history",
            "note the newest revision: that is where to go back to",
        ),
        look(
            "nv config patch $PWD/forward.yaml",
            "a pending revision; it has no effect yet (give the whole path)",
        ),
        look(
            "nv config diff",
            "only what the change says; nothing of other features",
        ),
        look(
            "nv config detach",
            "instead of applying: the pending revision is put aside",
        ),
        look(
            "nv config apply --confirm 10m",
            "it is in effect, and goes back by itself after ten minutes",
        ),
        look(
            "nv config apply --confirm-yes",
            "within the ten minutes, after the looks below: it stays",
        ),
        look(
            "nv config apply REVISION",
            "to go back later, with the revision noted first; or patch with the inverse change",
        ),
        look("nv config save", "it outlives a reboot"),
    ]
}

/// What to look at after loading.
pub(super) fn looks(plan: &Plan) -> Vec<Look> {
    let mut looks = vec![
        look(
            format!("nv show qos mapping {} dscp", render::PROFILE),
            "every DSCP of the plan leads to the switch priority of its queue",
        ),
        look(
            format!("nv show qos egress-queue-mapping {}", render::GLOBAL),
            "switch priorities of the plan lead to queues of the same number",
        ),
        look(
            format!("nv show qos egress-scheduler {}", render::PROFILE),
            "every queue of the plan is strict",
        ),
    ];
    for port in &plan.site.ports {
        looks.push(look(
            format!("nv show interface {} qos congestion-control", port.name),
            format!(
                "profile {}: ecn and red enabled in data queues, not in others",
                render::thresholds_name(port.rate)
            ),
        ));
        looks.push(look(
            format!("nv show interface {} qos pfc", port.name),
            "nothing is sent or obeyed",
        ));
    }
    if plan.balance == Balance::Adaptive {
        looks.push(look("nv show router adaptive-routing", "it is on"));
    }
    if plan.trims_to.is_some() {
        looks.push(look(
            "nv show system forwarding packet-trim",
            "it is enabled",
        ));
    }
    for port in &plan.site.ports {
        looks.push(look(
            format!("nv show interface {} counters qos -o json", port.name),
            "marks and WRED discards in data queues under load, none in control queues",
        ));
    }
    looks
}

//! Commands for people.

use crate::dialect::contract::{Look, look};
use crate::plan::Plan;

/// How a change is loaded, tried and rolled back.
pub(super) fn procedure() -> Vec<Look> {
    vec![
        look(
            "checkpoint before-gradwire",
            "the state to go back to; `show checkpoint summary` lists it",
        ),
        look(
            "show running-config | include forward-nonecn",
            "nothing: with that command droppable packets are not dropped early",
        ),
        look(
            "configure terminal",
            "paste the change; every line is taken without an error (nothing offline could check \
             them)",
        ),
        look(
            "show diff rollback-patch checkpoint before-gradwire running-config",
            "only class-maps and policy-maps that begin with gradwire, and ports of the plan",
        ),
        look(
            "rollback running-config checkpoint before-gradwire atomic",
            "the way back; or paste the inverse",
        ),
        look(
            "copy running-config startup-config",
            "keeps it over a restart, once the looks below are right",
        ),
    ]
}

/// What to look at after loading.
pub(super) fn looks(plan: &Plan) -> Vec<Look> {
    let mut looks = vec![look(
        "show policy-map type qos gradwire",
        "each class with its qos-group; class-default has 0",
    )];
    for port in &plan.site.ports {
        let name = &port.name;
        looks.push(look(
            format!("show queuing interface {name}"),
            "PrioLevel 1 for the highest queue and so on; WRED drops in data queues only",
        ));
        looks.push(look(
            format!("show interface {name} priority-flow-control"),
            "mode off, no pause frames",
        ));
    }
    looks
}

//! What people type: how a change is loaded, tried and taken back, and what to look at then.

use super::limits::Chip;
use super::render;
use crate::dialect::contract::{Look, look};
use crate::plan::Plan;

/// How a change is loaded, tried without effect, and rolled back.
pub(super) fn procedure() -> Vec<Look> {
    vec![
        look(
            "configure checkpoint save before-gradwire",
            "the running configuration is kept under that name",
        ),
        look(
            "configure session gradwire",
            "a session: what is typed in it has no effect yet; paste the change",
        ),
        look(
            "show session-config diffs",
            "only lines of the change, `+` and `-`; nothing of other sections",
        ),
        look(
            "abort",
            "instead of committing: the session is gone, nothing was changed",
        ),
        look(
            "commit timer 00:10:00",
            "it is in effect, and goes back by itself after ten minutes",
        ),
        look(
            "configure session gradwire commit",
            "within the ten minutes, after the looks below: it stays",
        ),
        look(
            "configure checkpoint restore before-gradwire",
            "to go back later, or paste the inverse change into a session of its own",
        ),
        look("write memory", "it outlives a reload"),
    ]
}

/// What to look at after loading.
pub(super) fn looks(plan: &Plan) -> Vec<Look> {
    let mut looks = vec![
        look(
            "show qos maps",
            "every DSCP of the plan leads to its traffic class, droppable ones with drop \
             precedence 2, and every traffic class to the queue of its number",
        ),
        look(
            "show qos profile summary",
            "each profile of the plan lists its ports",
        ),
    ];
    for port in &plan.site.ports {
        let name = render::profile_name(port.rate);
        looks.push(look(
            format!("show qos interfaces {}", port.name),
            format!("trusts DSCP, has profile {name}, all queues of the plan are strict"),
        ));
    }
    looks.push(look(
        "show priority-flow-control status",
        "off on every port of the plan",
    ));
    if plan.alpha.is_some() && Chip::of(plan.target.version) == Chip::Trident {
        looks.push(look(
            "show platform trident mmu queue profile",
            format!("profile {} is in use", render::MEMORY),
        ));
    }
    let command = match Chip::of(plan.target.version) {
        Chip::Sand => "show interfaces counters queue drops | json",
        Chip::Trident => "show interfaces counters queue detail | json",
    };
    looks.push(look(
        command,
        "drops in data queues only, and of drop precedence 2 first",
    ));
    looks
}

//! Commands for people, and counters: only those of the neutral form are read.

use crate::counters::{QueueCount, neutral};
use crate::dialect::contract::{Look, steps};
use crate::plan::Plan;
use crate::reading::ReadError;

/// Commands that load a change, try it without effect, and roll it back, each with its result.
pub(super) const PROCEDURE: &str = r#"
checkpoint before-gradwire
    the state to go back to; `show checkpoint summary` lists it
show running-config | include forward-nonecn
    nothing: with that command droppable packets are not dropped early
configure terminal
    paste the change; every line is taken without an error (nothing offline could check them)
show diff rollback-patch checkpoint before-gradwire running-config
    only class-maps and policy-maps that begin with gradwire, and ports of the plan
rollback running-config checkpoint before-gradwire atomic
    the way back; or paste the inverse
copy running-config startup-config
    keeps it over a restart, once the looks below are right
"#;

const POLICY: &str = "
show policy-map type qos gradwire
    each class with its qos-group; class-default has 0
";
const PORT: &str = "
show queuing interface {port}
    PrioLevel 1 for the highest queue and so on; WRED drops in data queues only
show interface {port} priority-flow-control
    mode off, no pause frames
";

/// Commands after loading, in order.
pub(super) fn looks(plan: &Plan) -> Vec<Look> {
    let ports = plan.site.ports.iter();
    let ports = ports.map(|port| PORT.replace("{port}", &port.name));
    steps(&(POLICY.to_owned() + &ports.collect::<String>()))
}

/// Counters of the neutral form.
pub(super) fn read(text: &str) -> Result<Vec<QueueCount>, ReadError> {
    neutral::read(text).unwrap_or_else(|| {
        let text = "no form of NX-OS tells early drops from late ones: give the neutral JSON form";
        Err(ReadError::new("counters", text))
    })
}

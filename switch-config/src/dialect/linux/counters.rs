//! Counters of an export: how many packets each queue sent, marked and dropped.

use super::form::{BANDS, LinuxForm};
use super::program::{EARLY_AT, MARKED_AT};
use super::state::{Qdisc, TcPort, TcState};
use crate::counters::QueueCount;
use crate::plan::{Plan, PlanQueue};

/// The counters of the plan's ports. A queue without counters in the export is left out.
pub(super) fn counts(plan: &Plan, switch: &TcState) -> Vec<QueueCount> {
    let mut counts = Vec::new();
    for port in &plan.site.ports {
        let Some(state) = switch.port(&port.name) else {
            continue;
        };
        let queues = plan.queues.iter();
        counts.extend(queues.filter_map(|queue| count(plan, queue, state)));
    }
    counts
}

fn count(plan: &Plan, queue: &PlanQueue, state: &TcPort) -> Option<QueueCount> {
    let form = LinuxForm::of(plan);
    let leaf = state.leaf(&form.class(queue.number))?;
    let counted = |name: &str| leaf.counts.get(name).copied();
    let band = usize::from(BANDS - 1 - queue.number);
    let numbers = |at: usize| state.numbers.get(at + band).copied();
    let (marked, early) = match form {
        LinuxForm::Bpf => (numbers(MARKED_AT), numbers(EARLY_AT)),
        _ => (counted("marked"), counted("early")),
    };
    Some(QueueCount {
        port: state.name.clone(),
        queue: queue.number,
        sent: counted("packets")?,
        marked,
        early,
        full: full(leaf)?,
    })
}

/// Packets that found no room. RED counts its early drops among all drops, so its own counters
/// of full queues are used instead.
fn full(leaf: &Qdisc) -> Option<u64> {
    let counted = |name: &str| leaf.counts.get(name).copied();
    match leaf.kind.as_str() {
        "red" => Some(counted("pdrop")? + counted("other").unwrap_or(0)),
        _ => counted("drops"),
    }
}

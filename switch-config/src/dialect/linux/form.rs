//! The forms of a plan on Linux: which queueing disciplines stand where.
//!
//! Class and handle numbers are hexadecimal, as in tc. Queue `n` of a plan is always band or class
//! `8 - n`: band 1 is served first.

use crate::plan::{Plan, PlanQueue};

/// Bands of a port; queue 7 is the first, queue 0 the last.
pub(super) const BANDS: u8 = 8;

/// Which queueing disciplines a port has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LinuxForm {
    /// `prio` at the root, `red` in data queues: ports that have a rate.
    Switch,
    /// The same below HTB, which makes the rate.
    Lab,
    /// HTB with one class per queue, and an eBPF program that marks and drops.
    Bpf,
    /// `prio` at the root and no `red`: a sending host.
    Host,
    /// HTB with one class per queue, of which the last has a rate, and `red` in data queues.
    Shared,
    /// The same without `red`: a sending host.
    SharedHost,
}

impl LinuxForm {
    /// The form of a plan; [`crate::target`] admits no other version of the target `linux`.
    pub(super) fn of(plan: &Plan) -> Self {
        let shares = plan.queues.iter().any(|queue| queue.percent().is_some());
        match (plan.target.version, shares) {
            ("bpf", _) => Self::Bpf,
            ("host", false) => Self::Host,
            ("host", true) => Self::SharedHost,
            (_, true) => Self::Shared,
            ("lab", false) => Self::Lab,
            (_, false) => Self::Switch,
        }
    }

    /// The handle of the discipline whose classes are the queues.
    pub(super) fn queues_at(self) -> &'static str {
        match self {
            Self::Lab => "2:",
            _ => "1:",
        }
    }

    /// Whether the queues are classes of HTB.
    pub(super) fn has_classes(self) -> bool {
        matches!(self, Self::Bpf | Self::Shared | Self::SharedHost)
    }

    /// The class of a queue: `1:3`.
    pub(super) fn class(self, queue: u8) -> String {
        let band = BANDS - queue;
        match self.has_classes() {
            true => format!("1:1{band}"),
            false => format!("{}{band}", self.queues_at()),
        }
    }

    /// The handle of the discipline that holds the packets of a queue.
    pub(super) fn leaf(queue: &PlanQueue) -> String {
        format!("1{}:", BANDS - queue.number)
    }
}

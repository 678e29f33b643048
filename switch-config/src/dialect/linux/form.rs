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
}

impl LinuxForm {
    /// The form of a version of the target `linux`; [`crate::target`] admits no other version.
    pub(super) fn of_version(version: &str) -> Self {
        match version {
            "host" => Self::Host,
            "bpf" => Self::Bpf,
            "lab" => Self::Lab,
            _ => Self::Switch,
        }
    }

    /// The form of a plan.
    pub(super) fn of(plan: &Plan) -> Self {
        Self::of_version(plan.target.version)
    }

    /// The handle of the discipline whose classes are the queues.
    pub(super) fn queues_at(self) -> &'static str {
        match self {
            Self::Switch | Self::Bpf | Self::Host => "1:",
            Self::Lab => "2:",
        }
    }

    /// The class of a queue: `1:3`.
    pub(super) fn class(self, queue: u8) -> String {
        let band = BANDS - queue;
        match self {
            Self::Bpf => format!("1:1{band}"),
            Self::Switch | Self::Lab | Self::Host => format!("{}{band}", self.queues_at()),
        }
    }

    /// The handle of the discipline that holds the packets of a queue.
    pub(super) fn leaf(queue: &PlanQueue) -> String {
        format!("1{}:", BANDS - queue.number)
    }
}

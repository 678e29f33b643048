//! The ways in which Linux does what a plan says: which queueing disciplines stand where.
//!
//! HtbClass and handle numbers are hexadecimal, as in tc. The queue that a plan numbers `n` is always
//! band or class `8 - n`, counted from the first to be served.

use crate::plan::{Plan, PlanQueue};

/// Bands of a port; queue 7 is the first, queue 0 the last.
pub(super) const BANDS: u8 = 8;

/// Which queueing disciplines are used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LinuxForm {
    /// `prio` at the root, `red` in data queues: ports that have a rate.
    Switch,
    /// The same below HTB, which makes the rate.
    Lab,
    /// HTB with classes, an eBPF program for marks and drops.
    Bpf,
    /// `prio` at the root and nothing else: a sending host.
    Host,
}

impl LinuxForm {
    /// The form of a version of the target `linux`; all versions are known here.
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

    /// Handle of the discipline whose classes are the queues.
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

    /// Handle of what keeps the packets of a queue.
    pub(super) fn leaf(queue: &PlanQueue) -> String {
        format!("1{}:", BANDS - queue.number)
    }
}

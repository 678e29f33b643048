//! The leaves of a plan.

use super::release::Release;
use crate::notation::words::power_of_two;
use crate::notation::yaml::{self, EMPTY, Leaves, path};
use crate::plan::{OURS, Plan, SwitchPort};
use gradwire_fabric::policy::{Balance, DSCPS};
use gradwire_protocol::units::{Dscp, Rate};

/// Name of the profiles that switch pauses off, where a port has others.
pub(super) const OFF: &str = "gradwire-off";
/// The only profile of some features.
pub(super) const GLOBAL: &str = "default-global";

/// Name of the thresholds of ports of a rate.
pub(super) fn thresholds_name(rate: Rate) -> String {
    format!("{OURS}-{rate}")
}

/// The plan as a whole configuration.
pub(super) fn whole(plan: &Plan) -> String {
    format!(
        "# gradwire {} from {}\n- header:\n    nvue-api-version: nvue_v1\n    rev-id: 1.0\n    \
         version: Cumulus Linux {}.0\n- set:\n{}",
        plan.target,
        plan.site.origin,
        plan.target.version,
        yaml::block(&yaml::tree(&leaves_of(plan)), 4)
    )
}

/// The leaves of a plan.
pub(super) fn leaves_of(plan: &Plan) -> Leaves {
    let mut leaves = PlanLeaves {
        plan,
        release: Release::of(plan.target.version),
        leaves: Leaves::new(),
    };
    leaves.add_mapping();
    leaves.add_queues();
    for port in &plan.site.ports {
        leaves.add_thresholds(port);
        leaves.add_port(port);
    }
    leaves.add_balance();
    leaves.add_trims();
    leaves.leaves
}

/// Collects the leaves of a plan.
struct PlanLeaves<'a> {
    plan: &'a Plan,
    release: Release,
    leaves: Leaves,
}

impl PlanLeaves<'_> {
    /// Adds a leaf: its keys with blanks between them, and its value.
    fn add(&mut self, keys: impl AsRef<str>, value: impl ToString) {
        let keys: Vec<&str> = keys.as_ref().split(' ').collect();
        self.leaves.push((path(&keys), value.to_string()));
    }

    fn add_mapping(&mut self) {
        let root = format!("qos mapping {OURS}");
        for dscp in 0..DSCPS as u8 {
            let queue = self.plan.queue_of_dscp(Dscp(dscp)).number;
            self.add(format!("{root} dscp {dscp} switch-priority"), queue);
        }
        self.add(format!("{root} port-default-sp"), 0);
        self.add(format!("{root} trust"), "l3");
    }

    fn add_queues(&mut self) {
        let mapping = format!("qos egress-queue-mapping {GLOBAL} switch-priority");
        let service = format!("qos egress-scheduler {OURS} traffic-class");
        let memory =
            format!("qos advance-buffer-config {GLOBAL} egress-lossy-buffer traffic-class");
        for queue in &self.plan.queues {
            let number = queue.number;
            self.add(format!("{mapping} {number} traffic-class"), number);
            match queue.percent() {
                None => self.add(format!("{service} {number} mode"), "strict"),
                Some(percent) => {
                    self.add(format!("{service} {number} bw-percent"), percent);
                    self.add(format!("{service} {number} mode"), "dwrr");
                }
            }
            if let Some(exponent) = self.plan.alpha {
                let alpha = format!("alpha_{}", power_of_two(exponent, "1_"));
                self.add(format!("{memory} {number} shared-alpha"), alpha);
            }
        }
    }

    fn add_thresholds(&mut self, port: &SwitchPort) {
        let root = format!(
            "qos congestion-control {} traffic-class",
            thresholds_name(port.rate)
        );
        for queue in &self.plan.queues {
            let Some(profile) = self.plan.profile(queue, port) else {
                continue;
            };
            let root = format!("{root} {}", queue.number);
            self.add(format!("{root} ecn"), "enable");
            self.add(
                format!("{root} max-threshold"),
                profile.threshold.high_bytes(),
            );
            self.add(
                format!("{root} min-threshold"),
                profile.threshold.low_bytes(),
            );
            if self.release.has_relative_thresholds() {
                self.add(format!("{root} mode"), "absolute");
            }
            self.add(format!("{root} probability"), 100);
            let red = match queue.has_gradients() {
                true => "enable",
                false => "disable",
            };
            self.add(format!("{root} red"), red);
        }
    }

    fn add_port(&mut self, port: &SwitchPort) {
        let root = format!("interface {}", port.name);
        if self
            .plan
            .queues
            .iter()
            .any(|queue| queue.marks_above.is_some())
        {
            let name = thresholds_name(port.rate);
            self.add(format!("{root} qos congestion-control profile"), name);
        }
        self.add(format!("{root} qos egress-scheduler profile"), OURS);
        self.add(format!("{root} qos mapping profile"), OURS);
        if port.name.starts_with("swp") {
            self.add(format!("{root} type"), "swp");
        }
        if self.plan.balance == Balance::Adaptive {
            self.add_adaptive(&format!("{root} router"));
        }
        if self.plan.trims_to.is_none() {
            return;
        }
        for queue in &self.plan.queues {
            if queue.has_gradients() {
                let keys = "packet-trim egress-eligibility traffic-class";
                self.add(format!("{root} {keys} {}", queue.number), EMPTY);
            }
        }
    }

    fn add_adaptive(&mut self, root: &str) {
        let on = yaml::quoted(self.release.on());
        self.add(
            format!("{root} adaptive-routing {}", self.release.switch()),
            on,
        );
    }

    fn add_balance(&mut self) {
        if self.plan.balance_to_set().is_none() {
            return;
        }
        let on = yaml::quoted(self.release.on());
        self.add("system forwarding ecmp-hash source-port", &on);
        self.add("system forwarding lag-hash source-port", &on);
        if self.plan.balance == Balance::Adaptive {
            self.add_adaptive("router");
        }
    }

    /// Trimmed packets go to the queue of control packets, and say so by their DSCP.
    fn add_trims(&mut self) {
        let Some(bytes) = self.plan.trims_to else {
            return;
        };
        let control = self.plan.control();
        let root = "system forwarding packet-trim";
        if let Some(dscp) = control.dscps.first() {
            self.add(format!("{root} remark dscp"), dscp.0);
        }
        self.add(format!("{root} size"), trimmed_size(bytes.get()));
        self.add(format!("{root} state"), "enabled");
        self.add(format!("{root} switch-priority"), control.number);
    }
}

/// The size that is written: a multiple of 4, rounded down.
pub(super) fn trimmed_size(bytes: u64) -> u64 {
    bytes - bytes % 4
}

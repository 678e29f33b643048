//! The leaves of a plan.

use super::release::Release;
use crate::notation::indented::IndentedText;
use crate::notation::words::power_of_two;
use crate::notation::yaml::{self, EMPTY, Leaves, path};
use crate::plan::{Plan, Purpose, SwitchPort, ThresholdProfile};
use gradwire_fabric::policy::{Balance, DSCPS};
use gradwire_protocol::units::{Dscp, Rate};

/// Name of the plan's profiles that are the same for all ports.
pub(super) const PROFILE: &str = "gradwire";
/// Name of the profiles that switch pauses off, where a port has others.
pub(super) const OFF: &str = "gradwire-off";
/// The only profile of some features.
pub(super) const GLOBAL: &str = "default-global";

/// Name of the thresholds of ports of a rate.
pub(super) fn thresholds_name(rate: Rate) -> String {
    format!("{PROFILE}-{rate}")
}

/// The plan as a whole configuration.
pub(super) fn whole(plan: &Plan) -> IndentedText {
    let version = format!("Cumulus Linux {}.0", plan.target.version);
    let title = format!("# gradwire {} from {}", plan.target, plan.site.origin);
    let header = [
        ("nvue-api-version", "nvue_v1"),
        ("rev-id", "1.0"),
        ("version", &version),
    ];
    let rows = header.map(|(key, value)| format!("    {key}: {value}\n"));
    let mut tree = yaml::read_lines(&format!("{title}\n- header:\n{}", rows.concat()));
    yaml::put(&mut tree, "set", &leaves_of(plan));
    tree
}

/// The leaves of a plan.
pub(super) fn leaves_of(plan: &Plan) -> Leaves {
    let release = Release::of(plan.target.version);
    let mut leaves = Leaves::new();
    add_mapping(plan, &mut leaves);
    add_queues(plan, &mut leaves);
    for port in &plan.site.ports {
        add_thresholds(plan, port, &mut leaves);
        add_port(plan, port, &mut leaves);
    }
    add_balance(plan, release, &mut leaves);
    add_trims(plan, &mut leaves);
    leaves
}

/// Adds a leaf.
fn add(leaves: &mut Leaves, keys: &[&str], value: impl ToString) {
    leaves.push((path(keys), value.to_string()));
}

fn add_mapping(plan: &Plan, leaves: &mut Leaves) {
    let root = ["qos", "mapping", PROFILE];
    for dscp in 0..DSCPS as u8 {
        let queue = plan.queue_of_dscp(Dscp(dscp)).number;
        let number = dscp.to_string();
        let keys = ["dscp", &number, "switch-priority"];
        add(leaves, &[&root[..], &keys].concat(), queue);
    }
    add(leaves, &[&root[..], &["port-default-sp"]].concat(), 0);
    add(leaves, &[&root[..], &["trust"]].concat(), "l3");
}

fn add_queues(plan: &Plan, leaves: &mut Leaves) {
    for queue in &plan.queues {
        let number = queue.number.to_string();
        let to_queue = [
            "qos",
            "egress-queue-mapping",
            GLOBAL,
            "switch-priority",
            &number,
        ];
        add(
            leaves,
            &[&to_queue[..], &["traffic-class"]].concat(),
            &number,
        );
        let service = ["qos", "egress-scheduler", PROFILE, "traffic-class", &number];
        add(leaves, &[&service[..], &["mode"]].concat(), "strict");
        if let Some(exponent) = plan.alpha {
            let memory = [
                "qos",
                "advance-buffer-config",
                GLOBAL,
                "egress-lossy-buffer",
            ];
            let keys = [&memory[..], &["traffic-class", &number, "shared-alpha"]].concat();
            add(
                leaves,
                &keys,
                format!("alpha_{}", power_of_two(exponent, "1_")),
            );
        }
    }
}

fn add_thresholds(plan: &Plan, port: &SwitchPort, leaves: &mut Leaves) {
    let release = Release::of(plan.target.version);
    let name = thresholds_name(port.rate);
    for queue in &plan.queues {
        let Some(ThresholdProfile { threshold, .. }) = plan.profile(queue, port) else {
            continue;
        };
        let number = queue.number.to_string();
        let root = ["qos", "congestion-control", &name, "traffic-class", &number];
        let mut leaf = |key: &str, value: String| add(leaves, &[&root[..], &[key]].concat(), value);
        leaf("ecn", "enable".to_owned());
        leaf("max-threshold", threshold.high_bytes().to_string());
        leaf("min-threshold", threshold.low_bytes().to_string());
        if release.has_relative_thresholds() {
            leaf("mode", "absolute".to_owned());
        }
        leaf("probability", "100".to_owned());
        leaf("red", "enable".to_owned());
    }
}

fn add_port(plan: &Plan, port: &SwitchPort, leaves: &mut Leaves) {
    let root = ["interface", &port.name];
    let marks = plan.queues.iter().any(|queue| queue.marks_above.is_some());
    let thresholds = thresholds_name(port.rate);
    let features = [
        ("congestion-control", marks.then_some(thresholds.as_str())),
        ("egress-scheduler", Some(PROFILE)),
        ("mapping", Some(PROFILE)),
    ];
    for (feature, name) in features {
        let keys = [&root[..], &["qos", feature, "profile"]].concat();
        if let Some(name) = name {
            add(leaves, &keys, name);
        }
    }
    if port.name.starts_with("swp") {
        add(leaves, &[&root[..], &["type"]].concat(), "swp");
    }
    if plan.balance == Balance::Adaptive {
        let release = Release::of(plan.target.version);
        let keys = ["router", "adaptive-routing", release.switch()];
        let on = yaml::quoted(release.on());
        add(leaves, &[&root[..], &keys].concat(), on);
    }
    for queue in &plan.queues {
        let is_data = matches!(queue.purpose, Purpose::Data(_));
        if is_data && plan.trims_to.is_some() {
            let keys = ["packet-trim", "egress-eligibility", "traffic-class"];
            let number = queue.number.to_string();
            add(leaves, &[&root[..], &keys, &[&number]].concat(), EMPTY);
        }
    }
}

fn add_balance(plan: &Plan, release: Release, leaves: &mut Leaves) {
    let on = yaml::quoted(release.on());
    for hash in ["ecmp-hash", "lag-hash"] {
        add(leaves, &["system", "forwarding", hash, "source-port"], &on);
    }
    if plan.balance == Balance::Adaptive {
        add(
            leaves,
            &["router", "adaptive-routing", release.switch()],
            &on,
        );
    }
}

/// Trimmed packets go to the queue of control packets, and say so by their DSCP.
fn add_trims(plan: &Plan, leaves: &mut Leaves) {
    let Some(bytes) = plan.trims_to else {
        return;
    };
    let control = plan.control();
    let root = ["system", "forwarding", "packet-trim"];
    if let Some(dscp) = control.dscps.first() {
        add(leaves, &[&root[..], &["remark", "dscp"]].concat(), dscp.0);
    }
    add(
        leaves,
        &[&root[..], &["size"]].concat(),
        trimmed_size(bytes.get()),
    );
    add(leaves, &[&root[..], &["state"]].concat(), "enabled");
    add(
        leaves,
        &[&root[..], &["switch-priority"]].concat(),
        control.number,
    );
}

/// The size that is written: a multiple of 4, rounded down.
pub(super) fn trimmed_size(bytes: u64) -> u64 {
    bytes - bytes % 4
}

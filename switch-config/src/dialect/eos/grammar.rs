//! Which slot a command of EOS fills, and where it stands.
//!
//! The order of sections and of the commands of a port is that of pyavd's templates, which follow
//! `show running-config`; what is not listed keeps its place.

use super::maps;
use super::render::{DYNAMIC, MMU};
use crate::lines::Line;
use crate::lines::grammar::{Fence, Grammar};

/// The words of EOS.
#[derive(Debug)]
pub(super) struct Eos;

/// Stands for the command that takes a profile of dynamic thresholds into use.
const APPLY: &str = "apply";

/// Sections from the first to the last.
const SECTIONS: [&str; 23] = [
    MMU,
    "hostname",
    "qos profile",
    "platform",
    "snmp-server",
    "spanning-tree",
    "vlan",
    "vrf",
    "management",
    "interface Port-Channel",
    "interface Ethernet",
    "interface Loopback",
    "interface Management",
    "interface Vlan",
    "ip routing",
    DYNAMIC,
    "ip route",
    "qos map",
    "class-map",
    "policy-map",
    "router",
    APPLY,
    "end",
];

/// Commands of a port from the first to the last.
const PORT: [&str; 24] = [
    "description",
    "shutdown",
    "load-interval",
    "mtu",
    "speed",
    "error-correction",
    "switchport",
    "flow",
    "vrf",
    "ip address",
    "ipv6",
    "channel-group",
    "lacp",
    "ip ospf",
    "pim",
    "ptp",
    "service-profile",
    "qos trust",
    "qos cos",
    "qos dscp",
    "shape",
    "priority-flow-control",
    "tx-queue",
    "uc-tx-queue",
];

/// Commands of a profile from the first to the last.
const PROFILE: [&str; 9] = [
    "qos trust",
    "qos cos",
    "qos dscp",
    "shape",
    "priority-flow-control",
    "service-policy",
    "tx-queue",
    "mc-tx-queue",
    "uc-tx-queue",
];

/// Commands of a queue from the first to the last.
const QUEUE: [&str; 6] = [
    "priority",
    "bandwidth",
    "shape",
    "random-detect ecn minimum-threshold",
    "random-detect drop",
    "random-detect ecn count",
];

impl Grammar for Eos {
    fn slot<'a>(&self, section: &str, command: &'a str) -> &'a str {
        let words = match section {
            "" => words_at_top(command),
            _ if is_queue(section) => words_of_queue(command),
            _ if section.starts_with("platform trident") => words_of_memory(command),
            _ => words_of_port(command),
        };
        first_words(command, words)
    }

    fn rank(&self, section: &str, command: &str) -> Option<usize> {
        let order: &[&str] = match section {
            "" => &SECTIONS,
            _ if is_queue(section) => &QUEUE,
            _ if section.starts_with("interface") => &PORT,
            _ if section.starts_with("qos profile") => &PROFILE,
            _ => &["egress"],
        };
        let bare = command.strip_prefix("no ").unwrap_or(command);
        let bare = match section.is_empty() && is_apply(bare) {
            true => APPLY,
            false => bare,
        };
        order.iter().position(|words| bare.starts_with(words))
    }

    fn is_ours(&self, section: &str) -> bool {
        let profile = Line::leaf(section);
        let profile = profile.after("qos profile").or_else(|| profile.after(MMU));
        profile.is_some_and(|name| name.starts_with("gradwire")) || is_queue(section)
    }

    fn fence(&self, section: &str, command: &str) -> Fence {
        match section {
            "" => Fence::Behind,
            _ if is_queue(command) => Fence::Before,
            _ => Fence::None,
        }
    }

    fn takes_away<'a>(&self, section: &str, command: &'a str) -> Option<&'a str> {
        // These are printed: they are values beside others, not the absence of any.
        if command == "no qos trust" || (is_queue(section) && command == "no priority") {
            return None;
        }
        let rest = command.strip_prefix("no ");
        rest.or_else(|| command.strip_prefix("default "))
    }

    fn removal(&self, section: &str, command: &str) -> String {
        let word = match (section, command.starts_with("interface")) {
            ("", true) => "default",
            _ if command.starts_with("qos trust") => "default",
            _ => "no",
        };
        let slot = self.slot(section, command);
        match section.is_empty() && slot == MMU {
            true => format!("{word} {command}"),
            false => format!("{word} {slot}"),
        }
    }

    fn spaces(&self) -> usize {
        3
    }
}

fn is_queue(line: &str) -> bool {
    let line = Line::leaf(line);
    let mut words = ["tx-queue", "uc-tx-queue", "mc-tx-queue"].into_iter();
    words.any(|word| line.after(word).is_some())
}

/// The first `count` words of a command, or all of it.
fn first_words(command: &str, count: usize) -> &str {
    let ends = command.match_indices(' ').map(|(at, _)| at);
    let end = ends.take(count).nth(count.saturating_sub(1));
    &command[..end.unwrap_or(command.len())]
}

/// More words than a command has.
const ALL: usize = 99;

/// How many words of a command say which slot it fills.
fn words_at_top(command: &str) -> usize {
    let is_map = [maps::DSCP, "qos map traffic-class", "qos map cos"];
    if is_map.iter().any(|words| command.starts_with(words)) {
        return 4;
    }
    match is_apply(command) {
        true => 5,
        false => ALL,
    }
}

fn is_apply(command: &str) -> bool {
    command.starts_with(MMU) && command.ends_with(" apply")
}

fn words_of_port(command: &str) -> usize {
    match command {
        _ if is_queue(command) => 2,
        _ if command.starts_with("priority-flow-control priority") => 3,
        _ if command.starts_with("priority-flow-control pause") => ALL,
        _ if command.starts_with("qos ") => 2,
        _ => 1,
    }
}

fn words_of_queue(command: &str) -> usize {
    match command {
        "random-detect ecn count" => 3,
        _ if command.starts_with("random-detect drop drop-precedence") => 4,
        _ if command.starts_with("random-detect") => 2,
        _ => 1,
    }
}

fn words_of_memory(command: &str) -> usize {
    // egress unicast queue 3 threshold
    match command.starts_with("egress") {
        true => 5,
        false => ALL,
    }
}

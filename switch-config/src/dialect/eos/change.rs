//! Which slot a command of EOS fills, and where it stands.
//!
//! The order of sections and of the commands of a port is that of pyavd's templates, which follow
//! `show running-config`; a command that is not listed keeps its place.

use super::maps;
use super::render::{DYNAMIC, MMU};
use crate::notation::indented::{ALL, CommandRules, first_words, is_before, last};
use crate::tree::ConfigEntry;
use crate::tree::rules::{Fence, Owner, TreeRules};

/// The words of EOS.
#[derive(Debug)]
pub(super) struct EosRules;

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

impl TreeRules for EosRules {
    fn owner(&self, section: &[&str], _entry: &ConfigEntry) -> Owner {
        let section = last(section);
        let title = ConfigEntry::leaf(section);
        let profile = title.after("qos profile").or_else(|| title.after(MMU));
        match profile.is_some_and(|name| name.starts_with("gradwire")) || is_queue(section) {
            true => Owner::Plan,
            false => Owner::Others,
        }
    }

    fn is_before(&self, section: &[&str], new: &ConfigEntry, other: &ConfigEntry) -> bool {
        is_before(rank, section, new, other)
    }

    fn spaces(&self, _parent: Option<&ConfigEntry>) -> usize {
        3
    }

    fn fence(&self, section: &[&str], entry: Option<&ConfigEntry>) -> Fence {
        match entry {
            _ if section.is_empty() => Fence::Behind,
            Some(entry) if is_queue(entry.text()) => Fence::Before,
            _ => Fence::None,
        }
    }

    fn is_one_group(&self, section: &[&str], one: &ConfigEntry, other: &ConfigEntry) -> bool {
        let ranks = [one, other].map(|entry| rank(last(section), entry.text()));
        ranks[0].is_some() && ranks[0] == ranks[1]
    }
}

impl CommandRules for EosRules {
    fn name<'a>(&self, section: &str, command: &'a str) -> &'a str {
        let words = match section {
            "" => words_at_top(command),
            _ if is_queue(section) => words_of_queue(command),
            _ if section.starts_with("platform trident") => words_of_memory(command),
            _ => words_of_port(command),
        };
        first_words(command, words)
    }

    fn takes_away(&self, section: &str, command: &str) -> bool {
        // These are printed: they are values beside others, not the absence of any.
        let is_value = command == "no qos trust" || is_queue(section) && command == "no priority";
        !is_value && (command.starts_with("no ") || command.starts_with("default "))
    }

    fn removal(&self, section: &str, entry: &ConfigEntry) -> String {
        let command = entry.text();
        let word = match (section, command.starts_with("interface")) {
            ("", true) => "default",
            _ if command.starts_with("qos trust") => "default",
            _ => "no",
        };
        match section.is_empty() && entry.name == MMU {
            true => format!("{word} {command}"),
            false => format!("{word} {}", entry.name),
        }
    }
}

/// Place of a command among those of its section.
fn rank(section: &str, command: &str) -> Option<usize> {
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

fn is_queue(line: &str) -> bool {
    let line = ConfigEntry::leaf(line);
    let mut words = ["tx-queue", "uc-tx-queue", "mc-tx-queue"].into_iter();
    words.any(|word| line.after(word).is_some())
}

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

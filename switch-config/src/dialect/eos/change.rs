//! Which slot a command of EOS fills, and which sections are the plan's.

use super::maps;
use super::render::MMU;
use crate::notation::indented::{CommandRules, NameWords, last, name_of};
use crate::plan::is_our_name;
use crate::tree::ConfigEntry;
use crate::tree::rules::{Owner, TreeRules};

/// The words of EOS.
#[derive(Debug)]
pub(super) struct EosRules;

/// How many words of a command say which slot it fills.
const NAMES: [NameWords; 16] = [
    ("top", maps::DSCP, Some(4)),
    ("top", "qos map traffic-class", Some(4)),
    ("top", "qos map cos", Some(4)),
    ("apply", MMU, Some(5)),
    ("memory", "egress unicast queue", Some(5)),
    ("queue", "random-detect ecn count", Some(3)),
    ("queue", "random-detect drop drop-precedence", Some(4)),
    ("queue", "random-detect", Some(2)),
    ("queue", "", Some(1)),
    ("port", "tx-queue", Some(2)),
    ("port", "uc-tx-queue", Some(2)),
    ("port", "mc-tx-queue", Some(2)),
    ("port", "priority-flow-control priority", Some(3)),
    ("port", "priority-flow-control pause", None),
    ("port", "qos ", Some(2)),
    ("port", "", Some(1)),
];

impl TreeRules for EosRules {
    fn owner(&self, section: &[&str], _entry: &ConfigEntry) -> Owner {
        let section = last(section);
        let title = ConfigEntry::leaf(section);
        let profile = title.after("qos profile").or_else(|| title.after(MMU));
        match profile.is_some_and(is_our_name) || is_queue(section) {
            true => Owner::Plan,
            false => Owner::Others,
        }
    }

    fn is_before(&self, section: &[&str], _: &ConfigEntry, other: &ConfigEntry) -> bool {
        section.is_empty() && other.text() == "end"
    }
}

impl CommandRules for EosRules {
    fn spaces(&self) -> usize {
        3
    }

    fn name<'a>(&self, section: &str, command: &'a str) -> &'a str {
        let kind = match section {
            "" if is_apply(command) => "apply",
            "" => "top",
            _ if is_queue(section) => "queue",
            _ if section.starts_with("platform trident") => "memory",
            _ => "port",
        };
        name_of(&NAMES, kind, command)
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

    fn gather(&self, commands: &mut Vec<ConfigEntry>) {
        maps::gather(commands);
    }
}

fn is_queue(line: &str) -> bool {
    let line = ConfigEntry::leaf(line);
    let mut words = ["tx-queue", "uc-tx-queue", "mc-tx-queue"].into_iter();
    words.any(|word| line.after(word).is_some())
}

fn is_apply(command: &str) -> bool {
    command.starts_with(MMU) && command.ends_with(" apply")
}

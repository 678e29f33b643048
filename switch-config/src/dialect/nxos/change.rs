//! Which slot a command of NX-OS fills, and which sections are the plan's.

use crate::notation::indented::{CommandRules, NameWords, last, name_of};
use crate::plan::is_our_name;
use crate::tree::ConfigEntry;
use crate::tree::rules::{Owner, TreeRules};

/// The words of NX-OS.
#[derive(Debug)]
pub(super) struct NxosRules;

/// Sections of classes by DSCP.
pub(super) const CLASS: &str = "class-map type qos match-any";
/// Sections of policies that send classes to queues.
pub(super) const INPUT: &str = "policy-map type qos";
/// Sections of policies of queues.
pub(super) const OUTPUT: &str = "policy-map type queuing";
/// One queue in such a policy.
pub(super) const QUEUE: &str = "class type queuing";

/// How many words of a command say which slot it fills.
const NAMES: [NameWords; 4] = [
    ("interface", "service-policy", Some(4)),
    ("interface", "priority-flow", Some(2)),
    (QUEUE, "", Some(1)),
    ("class", "", Some(2)),
];

impl TreeRules for NxosRules {
    fn owner(&self, section: &[&str], _entry: &ConfigEntry) -> Owner {
        let section = ConfigEntry::leaf(last(section));
        let policy = [CLASS, INPUT, OUTPUT];
        let mut names = policy.iter().filter_map(|words| section.after(words));
        match names.any(is_our_name) || section.text().starts_with("class ") {
            true => Owner::Plan,
            false => Owner::Others,
        }
    }

    fn is_before(&self, _section: &[&str], _new: &ConfigEntry, other: &ConfigEntry) -> bool {
        other.text() == "class class-default"
    }
}

impl CommandRules for NxosRules {
    fn spaces(&self) -> usize {
        2
    }

    fn name<'a>(&self, section: &str, command: &'a str) -> &'a str {
        let mut kinds = ["interface", QUEUE, "class"].into_iter();
        let kind = kinds.find(|kind| section.starts_with(kind));
        name_of(&NAMES, kind.unwrap_or_default(), command)
    }

    fn removal(&self, section: &str, entry: &ConfigEntry) -> String {
        match section.is_empty() && entry.text().starts_with("interface") {
            true => format!("default {}", entry.text()),
            false => format!("no {}", entry.name),
        }
    }
}

/// The number of a queue by the name of its class.
pub(super) fn queue_of(class: &str) -> Option<u8> {
    let name = class.strip_prefix("c-out-8q-q")?;
    match name {
        "-default" => Some(0),
        _ => name.parse().ok().filter(|number| (1..=7).contains(number)),
    }
}

/// The class of a queue.
pub(super) fn class_of(queue: u8) -> String {
    match queue {
        0 => "c-out-8q-q-default".to_owned(),
        number => format!("c-out-8q-q{number}"),
    }
}

//! Which slot a command of NX-OS fills, and where it stands.

use crate::lines::Line;
use crate::lines::grammar::{Fence, Grammar};

/// The words of NX-OS.
#[derive(Debug)]
pub(super) struct Nxos;

/// What all names of ours begin with.
pub(super) const OURS: &str = "gradwire";
/// Sections of classes by DSCP.
pub(super) const CLASS: &str = "class-map type qos match-any";
/// Sections of policies that send classes to queues.
pub(super) const INPUT: &str = "policy-map type qos";
/// Sections of policies of queues.
pub(super) const OUTPUT: &str = "policy-map type queuing";
/// One queue in such a policy.
pub(super) const QUEUE: &str = "class type queuing";

/// Sections from the first to the last, as far as the order is known.
const SECTIONS: [&str; 9] = [
    "hostname",
    "class-map type qos",
    "policy-map type qos",
    "policy-map type queuing",
    "policy-map type network-qos",
    "system qos",
    "vlan",
    "interface Vlan",
    "interface Ethernet",
];

/// Commands of a port from the first to the last.
const PORT: [&str; 9] = [
    "description",
    "no switchport",
    "switchport",
    "priority-flow-control",
    "mtu",
    "service-policy type qos input",
    "service-policy type queuing output",
    "ip",
    "no shutdown",
];

/// Commands of a queue from the first to the last.
const IN_QUEUE: [&str; 4] = ["priority", "bandwidth", "random-detect", "queue-limit"];

impl Grammar for Nxos {
    fn slot<'a>(&self, section: &str, command: &'a str) -> &'a str {
        let words = match section {
            "" => usize::MAX,
            _ if section.starts_with("interface") && command.starts_with("service-policy") => 4,
            _ if section.starts_with("interface") && command.starts_with("priority-flow") => 2,
            _ if section.starts_with(QUEUE) => 1,
            _ if section.starts_with("class") => 2,
            _ => usize::MAX,
        };
        let ends = command.match_indices(' ').map(|(at, _)| at);
        let end = ends.enumerate().find(|(word, _)| word + 1 == words);
        &command[..end.map_or(command.len(), |(_, end)| end)]
    }

    fn rank(&self, section: &str, command: &str) -> Option<usize> {
        let order: &[&str] = match section {
            "" => &SECTIONS,
            _ if section.starts_with("interface") => &PORT,
            _ if section.starts_with(QUEUE) => &IN_QUEUE,
            _ if section.starts_with(OUTPUT) => return queue_rank(command),
            _ if section.starts_with(INPUT) => {
                return Some(usize::from(command == "class class-default"));
            }
            _ => return None,
        };
        order.iter().position(|words| command.starts_with(words))
    }

    fn is_ours(&self, section: &str) -> bool {
        let section = Line::leaf(section);
        let policy = [CLASS, INPUT, OUTPUT];
        let mut names = policy.iter().filter_map(|words| section.after(words));
        names.any(is_our_name) || section.text.starts_with("class ")
    }

    fn fence(&self, _section: &str, _command: &str) -> Fence {
        Fence::None
    }

    fn removal(&self, section: &str, command: &str) -> String {
        match section.is_empty() && command.starts_with("interface") {
            true => format!("default {command}"),
            false => format!("no {}", self.slot(section, command)),
        }
    }

    fn spaces(&self) -> usize {
        2
    }
}

/// Whether a name is one of ours.
pub(super) fn is_our_name(name: &str) -> bool {
    let rest = name.strip_prefix(OURS);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Queues are listed from 7 to the default one.
fn queue_rank(command: &str) -> Option<usize> {
    let class = command.rsplit(' ').next()?;
    queue_of(class).map(|queue| 7 - usize::from(queue))
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

//! Reads the plan's ports from a configuration.
//!
//! One default of Cumulus Linux is safe to assume: switch priorities lead to queues of the same
//! number. All else must be said.

use super::ports::{covers, covers_with_others, names};
use super::release::Release;
use super::render::{GLOBAL, trimmed_size};
use crate::lint::{Finding, Rule};
use crate::notation::words::exponent;
use crate::notation::yaml::{self, EMPTY, LIST, rows_at, text_at};
use crate::plan::{Plan, SwitchPort};
use crate::ports::{SeenPorts, speed};
use crate::reading::{ConfigReader, Landing, PortReading, ReadError, Reading};
use crate::tree::ConfigEntry;
use gradwire_fabric::policy::DSCPS;

mod profiles;

/// The expected text, in the words of an error.
pub(super) const WHAT: &str = "NVUE configuration in YAML";
/// Queues, and switch priorities.
const QUEUES: u8 = 8;

/// The settings of the items of a file: all its `- set:`, merged.
pub(super) fn settings(items: ConfigEntry) -> Result<ConfigEntry, ReadError> {
    if items.value != LIST {
        let text = "expected a list, `- header:` and `- set:`; give the output of `nv config show \
                    -o yaml`";
        return Err(ReadError::at(WHAT, 1, text));
    }
    let mut set: Option<ConfigEntry> = None;
    for item in items.below.into_iter().filter(|item| item.value == EMPTY) {
        for entry in item.below {
            match entry.name.as_str() {
                "set" => match &mut set {
                    None => set = Some(entry),
                    Some(set) => yaml::merge(set, entry),
                },
                "header" | "unset" => {}
                other => {
                    let text = "is no operation of NVUE; expected `- header:`, `- set:`";
                    return Err(ReadError::at(WHAT, 1, format!("`- {other}:` {text}")));
                }
            }
        }
    }
    let text = "nothing is set: `- set:` is missing; give the output of `nv config show -o yaml`";
    set.ok_or_else(|| ReadError::at(WHAT, 1, text))
}

/// Reads the plan's ports.
pub(super) fn reading(plan: &Plan, set: &ConfigEntry) -> Reading {
    let mut reader = NvueReader {
        plan,
        set,
        findings: Vec::new(),
    };
    let ports = reader.ports(plan);
    reader.presets();
    reader.trims();
    Reading::new(ports, reader.findings)
}

/// The interfaces that have settings, and those of their speeds that are said.
pub(super) fn ports(set: &ConfigEntry) -> SeenPorts {
    let rows = rows_at(set, &["interface"]).iter();
    SeenPorts::some(rows.flat_map(|row| {
        let rate = text_at(row, &["link", "speed"]).and_then(speed);
        names(&row.name).into_iter().map(move |name| (name, rate))
    }))
}

struct NvueReader<'a> {
    plan: &'a Plan,
    set: &'a ConfigEntry,
    findings: Vec<Finding>,
}

impl ConfigReader for NvueReader<'_> {
    fn findings(&mut self) -> &mut Vec<Finding> {
        &mut self.findings
    }

    fn port(&mut self, port: &SwitchPort) -> Option<PortReading> {
        let rows = rows_at(self.set, &["interface"]);
        rows.iter().find(|row| covers(&row.name, &port.name))?;
        let mut said = PortReading::default();
        self.add_mapping(port, &mut said);
        self.add_service(port, &mut said);
        self.add_marking(port, &mut said);
        self.add_memory(&mut said);
        self.add_pauses(port, &mut said);
        Some(said)
    }
}

impl<'a> NvueReader<'a> {
    /// A text below an interface: of the port itself, or of a range that it is in.
    fn said(&self, port: &str, path: &[&str]) -> Option<&'a str> {
        let rows = rows_at(self.set, &["interface"]);
        let own = rows.iter().filter(|row| row.name == port);
        let ranges = rows.iter();
        let ranges = ranges.filter(|row| covers_with_others(&row.name, port));
        own.chain(ranges).find_map(|row| text_at(row, path))
    }

    /// The profile of a feature that a port has, with its place.
    fn profile(&mut self, port: &SwitchPort, feature: &str) -> (String, Option<&'a ConfigEntry>) {
        let name = self.said(&port.name, &["qos", feature, "profile"]);
        let name = name.unwrap_or(GLOBAL);
        let mut found = self.set.at(&["qos", feature, name]);
        if name != GLOBAL {
            let place = format!("interface.{}.qos.{feature}.profile", port.name);
            let text = format!("`{name}` is defined nowhere under qos.{feature}");
            found = self.wanted(found, Rule::Dangling, place, text);
        }
        (format!("qos.{feature}.{name}"), found)
    }

    fn add_mapping(&mut self, port: &SwitchPort, said: &mut PortReading) {
        let (place, Some(profile)) = self.profile(port, "mapping") else {
            return;
        };
        let trust = text_at(profile, &["trust"]).unwrap_or("unset");
        if !["l3", "both"].contains(&trust) {
            let text = format!("`{trust}`: DSCPs are not trusted; `l3` is needed");
            self.find(Rule::DscpQueue, format!("{place}.trust"), text);
        }
        let rows = rows_at(profile, &["dscp"]);
        if rows.is_empty() {
            let text = "no DSCP is mapped; the plan maps all";
            self.find(Rule::DscpMapEmpty, format!("{place}.dscp"), text);
        }
        let queues = self.queues_of_priorities();
        for value in rows {
            let keys = &value.name;
            let place = format!("{place}.dscp.{keys}");
            let class = text_at(value, &["switch-priority"]);
            let class = class.and_then(|class| class.parse().ok());
            let class = class.filter(|class: &u8| *class < QUEUES);
            let text = "wants a switch-priority of 0 to 7";
            let Some(class) = self.wanted(class, Rule::Schema, &place, text) else {
                continue;
            };
            let landing = queues[usize::from(class)].map(|queue| Landing {
                queue,
                drops_first: false,
            });
            for dscp in self.numbers(keys, DSCPS as u8, &place, Rule::Schema) {
                said.landings[usize::from(dscp)] = landing;
            }
        }
    }

    /// The queue of each switch priority.
    fn queues_of_priorities(&mut self) -> [Option<u8>; QUEUES as usize] {
        let mut queues = std::array::from_fn(|class| Some(class as u8));
        let root = ["qos", "egress-queue-mapping", GLOBAL, "switch-priority"];
        for value in rows_at(self.set, &root) {
            let keys = &value.name;
            let place = format!("{}.{keys}", root.join("."));
            let queue = text_at(value, &["traffic-class"]);
            let queue: Option<u8> = queue.and_then(|queue| queue.parse().ok());
            let queue = queue.filter(|queue| *queue < QUEUES);
            let text = "wants a traffic-class of 0 to 7";
            let queue = self.wanted(queue, Rule::QueueRange, &place, text);
            for class in self.numbers(keys, QUEUES, &place, Rule::NoQueue) {
                queues[usize::from(class)] = queue;
            }
        }
        queues
    }

    /// The numbers of a key, `3`, `0-7` or `10,21,36`, below `end`.
    fn numbers(&mut self, keys: &str, end: u8, place: &str, rule: Rule) -> Vec<u8> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u8 = first.trim().parse().ok()?;
            let last: u8 = last.trim().parse().ok()?;
            (last < end).then_some(first..=last)
        };
        let mut numbers = Vec::new();
        for part in keys.split(',') {
            let text = format!("`{part}`: allowed are 0 to {}", end - 1);
            let range = self.wanted(range(part), rule, place, text);
            numbers.extend(range.into_iter().flatten());
        }
        numbers
    }

    fn add_memory(&mut self, said: &mut PortReading) {
        let root = [
            "qos",
            "advance-buffer-config",
            GLOBAL,
            "egress-lossy-buffer",
            "traffic-class",
        ];
        for value in rows_at(self.set, &root) {
            let keys = &value.name;
            let place = format!("{}.{keys}", root.join("."));
            let Some(name) = text_at(value, &["shared-alpha"]) else {
                continue;
            };
            if text_at(value, &["shared-bytes"]).is_some() {
                let text = "has shared-alpha and shared-bytes; keep one";
                self.find(Rule::TwoThresholds, &place, text);
            }
            let alpha = name.strip_prefix("alpha_");
            let alpha = alpha.and_then(|alpha| exponent(alpha, "1_", 6));
            if alpha.is_none() && !["alpha_0", "alpha_infinity"].contains(&name) {
                let text = format!("shared-alpha `{name}`: allowed are alpha_1_128 to alpha_64");
                self.find(Rule::Schema, &place, text);
            }
            for number in self.numbers(keys, QUEUES, &place, Rule::QueueRange) {
                said.queues.entry(number).or_default().alpha = alpha;
            }
        }
    }

    /// RoCE presets must be off: they map, schedule and pause for all ports.
    fn presets(&mut self) {
        let switch = ["enable", "state"];
        let is_on = |key: &&str| {
            let text = text_at(self.set, &["qos", "roce", key]);
            text.is_some_and(|text| ["on", "enabled"].contains(&text))
        };
        if switch.iter().any(is_on) {
            let text =
                "its preset maps, schedules and pauses for all ports: `nv unset qos roce` first";
            self.find(Rule::PauseOn, "qos.roce", text);
        }
    }

    fn trims(&mut self) {
        let Some(bytes) = self.plan.trims_to else {
            return;
        };
        let release = Release::of(self.plan.target.version);
        let root = "system.forwarding.packet-trim";
        let wanted = [
            ("state", "enabled".to_owned()),
            ("size", trimmed_size(bytes.get()).to_string()),
            ("switch-priority", self.plan.control().number.to_string()),
        ];
        for (key, wanted) in wanted {
            let found = text_at(self.set, &["system", "forwarding", "packet-trim", key]);
            if found != Some(&wanted) {
                let found = found.unwrap_or("unset");
                let text = format!("`{found}`; the plan has {wanted} ({release:?})");
                self.find(Rule::TrimTarget, format!("{root}.{key}"), text);
            }
        }
        for port in &self.plan.site.ports {
            self.eligible(port);
        }
    }

    fn eligible(&mut self, port: &SwitchPort) {
        let keys = ["packet-trim", "egress-eligibility", "traffic-class"];
        let rows = rows_at(self.set, &["interface"]);
        let own = rows.iter().filter(|row| covers(&row.name, &port.name));
        let classes = own.flat_map(|row| rows_at(row, &keys));
        let classes: Vec<&String> = classes.map(|class| &class.name).collect();
        let place = format!("interface.{}.{}", port.name, keys.join("."));
        let mut eligible = Vec::new();
        for keys in &classes {
            eligible.extend(self.numbers(keys, QUEUES, &place, Rule::QueueRange));
        }
        for queue in &self.plan.queues {
            if queue.has_gradients() && !eligible.contains(&queue.number) {
                let text = format!("queue {} is not eligible; the plan trims it", queue.number);
                self.find(Rule::TrimTarget, &place, text);
            }
        }
    }
}

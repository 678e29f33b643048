//! Reads the plan's ports from lines, and finds names that lead nowhere.

use super::change::{INPUT, OUTPUT, QUEUE, queue_of};
use crate::code_points;
use crate::lint::{Finding, Rule};
use crate::notation::indented;
use crate::notation::words::{behind, bytes_behind};
use crate::plan::{Plan, SwitchPort};
use crate::reading::{ConfigReader, Landing, Marking, PortReading, QueueReading, Reading, Service};
use crate::tree::ConfigEntry;
use gradwire_fabric::policy::DSCPS;

/// The global command that lets packets pass that are not ECN-capable.
const FORWARD: &str = "congestion-control random-detect forward-nonecn";

/// Reads a configuration.
pub(super) fn reading(plan: &Plan, text: &[ConfigEntry]) -> Reading {
    let mut reader = NxosReader {
        text,
        findings: Vec::new(),
    };
    let ports = reader.ports(plan);
    Reading::new(ports, reader.findings)
}

struct NxosReader<'a> {
    text: &'a [ConfigEntry],
    findings: Vec<Finding>,
}

impl ConfigReader for NxosReader<'_> {
    fn findings(&mut self) -> &mut Vec<Finding> {
        &mut self.findings
    }

    fn port(&mut self, port: &SwitchPort) -> Option<PortReading> {
        let interface = indented::section(self.text, &format!("interface {}", port.name))?;
        let mut said = PortReading::default();
        if let Some(name) = self.bound(interface, "service-policy type qos input")
            && let Some(policy) = self.policy(INPUT, name, &port.name)
        {
            self.landings(name, policy, &mut said);
        }
        if let Some(name) = self.bound(interface, "service-policy type queuing output")
            && let Some(policy) = self.policy(OUTPUT, name, &port.name)
        {
            self.queues(name, policy, &mut said);
        }
        said.pauses = self.pauses(interface);
        Some(said)
    }
}

impl<'a> NxosReader<'a> {
    /// The policy of these words and this name; a finding where there is none.
    fn policy(&mut self, words: &str, name: &str, place: &str) -> Option<&'a ConfigEntry> {
        let title = format!("{words} {name}");
        let text = format!("{place} refers to it, and it is not defined");
        self.wanted(
            indented::section(self.text, &title),
            Rule::Dangling,
            title,
            text,
        )
    }

    /// The policy that a port has, or else the whole switch.
    fn bound(&self, interface: &'a ConfigEntry, words: &str) -> Option<&'a str> {
        let system = || indented::section(self.text, "system qos")?.command(words);
        interface.command(words).or_else(system)
    }

    fn landings(&mut self, policy: &str, section: &'a ConfigEntry, said: &mut PortReading) {
        for class in section.facts() {
            let Some(name) = class.after("class") else {
                continue;
            };
            let name = name.strip_prefix("type qos ").unwrap_or(name);
            let place = format!("{INPUT} {policy}, class {name}");
            let Some(queue) = self.group(&place, class) else {
                continue;
            };
            let landing = Landing {
                queue,
                drops_first: false,
            };
            for dscp in self.dscps(name, &place) {
                said.landings[usize::from(dscp)].get_or_insert(landing);
            }
        }
    }

    /// The queue that a class is sent to.
    fn group(&mut self, place: &str, class: &'a ConfigEntry) -> Option<u8> {
        let group = class.command("set qos-group");
        let group = self.wanted(group, Rule::NoQueue, place, "has no `set qos-group`")?;
        let text = format!("qos-group `{group}` is no number from 0 to 7");
        let queue: u8 = self.wanted(group.parse().ok(), Rule::Schema, place, text)?;
        let text = format!("qos-group {queue}: queues are 0 to 7");
        self.wanted((queue < 8).then_some(queue), Rule::QueueRange, place, text)
    }

    /// The DSCPs of a class; all of them for the class of the others.
    fn dscps(&mut self, class: &str, place: &str) -> Vec<u8> {
        if class == "class-default" {
            return (0..DSCPS as u8).collect();
        }
        let mut kinds = ["match-any", "match-all"].into_iter();
        let map = kinds.find_map(|kind| {
            indented::section(self.text, &format!("class-map type qos {kind} {class}"))
        });
        let text = format!("class-map {class} is not defined");
        let Some(map) = self.wanted(map, Rule::Dangling, place, text) else {
            return Vec::new();
        };
        let mut dscps = Vec::new();
        let matches = map.facts().filter_map(|line| line.after("match dscp"));
        for given in matches.flat_map(|list| list.split(',')) {
            let text = format!("`{given}` is no DSCP from 0 to 63");
            let range = self.wanted(range(given.trim()), Rule::Schema, map.text(), text);
            dscps.extend(range.into_iter().flatten());
        }
        if map.facts().next().is_none() {
            self.find(Rule::DscpMapEmpty, map.text(), "matches nothing");
        }
        dscps
    }

    fn queues(&mut self, policy: &str, section: &'a ConfigEntry, said: &mut PortReading) {
        let mut shared: Vec<(u8, u64)> = Vec::new();
        for class in section.facts() {
            let Some(name) = class.after(QUEUE) else {
                continue;
            };
            let place = format!("{OUTPUT} {policy}, class {name}");
            let text = "is no queue: they are c-out-8q-q1 to c-out-8q-q7 and -q-default";
            let number = self.wanted(queue_of(name), Rule::QueueRange, &place, text);
            let Some(number) = number else {
                continue;
            };
            let first = |words: [&str; 2]| words.iter().find_map(|words| class.command(words));
            let level = first(["priority level", "priority"]);
            let share = first(["bandwidth remaining percent", "bandwidth percent"]);
            if level.is_some() && class.command("bandwidth").is_some() {
                self.find(Rule::StrictWeight, &place, "has a priority and a bandwidth");
            }
            let service = match (level, share) {
                (Some(level), _) => self.level(&place, level),
                (None, Some(share)) => {
                    shared.push((number, share.parse().unwrap_or(1)));
                    Service::weighted(share.parse().ok())
                }
                (None, None) => Service::Unsaid,
            };
            let curve = class.command("random-detect");
            let marking = curve.and_then(|curve| self.marking(&place, curve));
            let queue = QueueReading {
                service,
                marking,
                alpha: None,
            };
            said.queues.insert(number, queue);
        }
        // A single queue that takes the rest of the strict ones is the last of them.
        shared.retain(|(_, share)| *share > 0);
        if let [(number, _)] = shared.as_slice() {
            said.queues.entry(*number).or_default().service = Service::Strict { rank: 0 };
        }
    }

    fn level(&mut self, place: &str, level: &str) -> Service {
        let number = match level {
            "" => Some(1),
            level => level.parse::<u16>().ok(),
        };
        let number = number.filter(|level| (1..=8).contains(level));
        let text = format!("priority level `{level}`; levels are 1 to 8");
        let number = self.wanted(number, Rule::Schema, place, text);
        number.map_or(Service::Unsaid, |level| Service::Strict {
            rank: 100 - level,
        })
    }

    fn marking(&mut self, place: &str, curve: &str) -> Option<Marking> {
        let words: Vec<&str> = curve.split_whitespace().collect();
        let low = bytes_behind(&words, "minimum-threshold");
        let ends = low.zip(bytes_behind(&words, "maximum-threshold"));
        let text = format!(
            "`random-detect {curve}`: give minimum-threshold and maximum-threshold in kbytes"
        );
        let (low, high) = self.wanted(ends, Rule::Threshold, place, text)?;
        let percent = behind(&words, "drop-probability").and_then(|percent| percent.parse().ok());
        let percent = percent.filter(|percent| *percent <= 100);
        let text = format!("`random-detect {curve}`: drop-probability must be 0 to 100");
        let percent = self.wanted(percent, Rule::Schema, place, text);
        let passes = indented::section(self.text, FORWARD).is_some();
        if passes {
            let text = "the whole switch lets packets pass that are not ECN-capable: no droppable \
                        packet is dropped early; ask who needs it";
            self.find(Rule::EarlyDropOff, FORWARD, text);
        }
        Some(Marking {
            low,
            high,
            percent: percent.unwrap_or(100),
            marks_ect: words.contains(&"ecn"),
            drops_droppable: !passes,
        })
    }

    /// Classes that are paused, unless the port has PFC off.
    fn pauses(&self, interface: &ConfigEntry) -> Vec<u8> {
        let mode = interface.command("priority-flow-control mode");
        if mode.is_some_and(|mode| mode.starts_with("off")) {
            return Vec::new();
        }
        let system = indented::section(self.text, "system qos");
        let bound = system.and_then(|system| system.command("service-policy type network-qos"));
        let policy = bound.and_then(|name| {
            indented::section(self.text, &format!("policy-map type network-qos {name}"))
        });
        let classes = policy.into_iter().flat_map(ConfigEntry::facts);
        let lines = classes.flat_map(ConfigEntry::facts);
        let paused = lines.filter_map(|line| line.after("pause pfc-cos"));
        let numbers = paused.flat_map(|list| list.split(','));
        numbers
            .filter_map(|number| number.trim().parse().ok())
            .collect()
    }
}

/// One DSCP by number or name, or a range of them.
fn range(given: &str) -> Option<std::ops::RangeInclusive<u8>> {
    let one = |text: &str| {
        let named = match text {
            "default" => Some(0),
            _ => code_points::named(text).map(|dscp| dscp.0),
        };
        let number = named.or_else(|| text.parse().ok());
        number.filter(|dscp: &u8| usize::from(*dscp) < DSCPS)
    };
    match given.split_once('-') {
        None => one(given).map(|dscp| dscp..=dscp),
        Some((first, last)) => Some(one(first)?..=one(last)?),
    }
}

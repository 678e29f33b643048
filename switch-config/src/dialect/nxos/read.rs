//! Reads the plan's ports from lines, and finds names that lead nowhere.

use std::collections::BTreeMap;

use super::change::{INPUT, OUTPUT, QUEUE, queue_of};
use crate::code_points;
use crate::lint::{Finding, Rule};
use crate::notation::indented::IndentedText;
use crate::plan::Plan;
use crate::reading::{Landing, Marking, PortReading, QueueReading, Reading, Service};
use crate::tree::{ConfigEntry, facts};
use gradwire_fabric::policy::DSCPS;

/// The global command that lets packets pass that are not ECN-capable.
const FORWARD: &str = "congestion-control random-detect forward-nonecn";

/// Reads a configuration.
pub(super) fn reading(plan: &Plan, lines: &IndentedText) -> Reading {
    let mut reader = Reader {
        top: &lines.below,
        findings: Vec::new(),
    };
    let mut ports = BTreeMap::new();
    for port in &plan.site.ports {
        if let Some(said) = reader.port(&port.name) {
            ports.insert(port.name.clone(), said);
        }
    }
    Reading::new(ports, reader.findings)
}

struct Reader<'a> {
    top: &'a [ConfigEntry],
    findings: Vec<Finding>,
}

impl<'a> Reader<'a> {
    fn find(&mut self, rule: Rule, place: &str, text: impl Into<String>) {
        self.findings.push(Finding::new(rule, place, text));
    }

    fn section(&self, name: &str) -> Option<&'a ConfigEntry> {
        facts(self.top).find(|line| line.text() == name)
    }

    /// The policy of these words and this name; a finding where there is none.
    fn policy(&mut self, words: &str, name: &str, place: &str) -> Option<&'a ConfigEntry> {
        let found = self.section(&format!("{words} {name}"));
        if found.is_none() {
            let text = format!("{place} refers to it, and it is not defined");
            self.find(Rule::Dangling, &format!("{words} {name}"), text);
        }
        found
    }

    fn port(&mut self, port: &str) -> Option<PortReading> {
        let interface = self.section(&format!("interface {port}"))?;
        let mut said = PortReading::default();
        if let Some(name) = self.bound(interface, "service-policy type qos input")
            && let Some(policy) = self.policy(INPUT, name, port)
        {
            self.landings(name, policy, &mut said);
        }
        if let Some(name) = self.bound(interface, "service-policy type queuing output")
            && let Some(policy) = self.policy(OUTPUT, name, port)
        {
            self.queues(name, policy, &mut said);
        }
        self.pauses(interface, &mut said);
        Some(said)
    }

    /// The policy that a port has, or else the whole switch.
    fn bound(&self, interface: &'a ConfigEntry, words: &str) -> Option<&'a str> {
        let system = self.section("system qos");
        let sections = [Some(interface), system].into_iter().flatten();
        let mut lines = sections.flat_map(ConfigEntry::facts);
        lines.find_map(|line| line.after(words))
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
        let Some(group) = class.facts().find_map(|line| line.after("set qos-group")) else {
            self.find(Rule::NoQueue, place, "has no `set qos-group`");
            return None;
        };
        match group.parse::<u8>() {
            Ok(queue) if queue < 8 => Some(queue),
            Ok(queue) => {
                let text = format!("qos-group {queue}: queues are 0 to 7");
                self.find(Rule::QueueRange, place, text);
                None
            }
            Err(_) => {
                let text = format!("qos-group `{group}` is no number from 0 to 7");
                self.find(Rule::Schema, place, text);
                None
            }
        }
    }

    /// The DSCPs of a class; all of them for the class of the others.
    fn dscps(&mut self, class: &str, place: &str) -> Vec<u8> {
        if class == "class-default" {
            return (0..DSCPS as u8).collect();
        }
        let kinds = ["match-any", "match-all"];
        let mut names = kinds
            .iter()
            .map(|kind| format!("class-map type qos {kind} {class}"));
        let Some(map) = names.find_map(|name| self.section(&name)) else {
            let text = format!("class-map {class} is not defined");
            self.find(Rule::Dangling, place, text);
            return Vec::new();
        };
        let mut dscps = Vec::new();
        let matches = map.facts().filter_map(|line| line.after("match dscp"));
        for given in matches.flat_map(|list| list.split(',')) {
            match range(given.trim()) {
                Some(range) => dscps.extend(range),
                None => {
                    let text = format!("`{given}` is no DSCP from 0 to 63");
                    self.find(Rule::Schema, map.text(), text);
                }
            }
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
            let Some(number) = queue_of(name) else {
                let text = "is no queue: they are c-out-8q-q1 to c-out-8q-q7 and -q-default";
                self.find(Rule::QueueRange, &place, text);
                continue;
            };
            let command = |words: &str| class.facts().find_map(|line| line.after(words));
            let level = command("priority level").or_else(|| command("priority"));
            let share =
                command("bandwidth remaining percent").or_else(|| command("bandwidth percent"));
            if level.is_some() && command("bandwidth").is_some() {
                self.find(Rule::StrictWeight, &place, "has a priority and a bandwidth");
            }
            let service = match (level, share) {
                (Some(level), _) => self.level(&place, level),
                (None, Some(share)) => {
                    shared.push((number, share.parse().unwrap_or(1)));
                    Service::Weighted
                }
                (None, None) => Service::Unsaid,
            };
            let curve = command("random-detect");
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
        let number = if level.is_empty() {
            Some(1)
        } else {
            level.parse::<u16>().ok()
        };
        match number.filter(|level| (1..=8).contains(level)) {
            Some(level) => Service::Strict { rank: 100 - level },
            None => {
                let text = format!("priority level `{level}`; levels are 1 to 8");
                self.find(Rule::Schema, place, text);
                Service::Unsaid
            }
        }
    }

    fn marking(&mut self, place: &str, curve: &str) -> Option<Marking> {
        let words: Vec<&str> = curve.split_whitespace().collect();
        let behind = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1..)
        };
        let bytes = |name: &str| match behind(name)? {
            [number, unit, ..] => in_bytes(number, unit),
            _ => None,
        };
        let ends = (bytes("minimum-threshold"), bytes("maximum-threshold"));
        let (Some(low), Some(high)) = ends else {
            let text = format!(
                "`random-detect {curve}`: give minimum-threshold and maximum-threshold in kbytes"
            );
            self.find(Rule::Threshold, place, text);
            return None;
        };
        let percent = behind("drop-probability").and_then(|rest| rest.first()?.parse().ok());
        let percent = percent.filter(|percent| *percent <= 100);
        if percent.is_none() {
            let text = format!("`random-detect {curve}`: drop-probability must be 0 to 100");
            self.find(Rule::Schema, place, text);
        }
        let passes = self.section(FORWARD).is_some();
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
    fn pauses(&mut self, interface: &'a ConfigEntry, said: &mut PortReading) {
        let mode = interface
            .facts()
            .find_map(|line| line.after("priority-flow-control mode"));
        if mode.is_some_and(|mode| mode.starts_with("off")) {
            return;
        }
        let Some(system) = self.section("system qos") else {
            return;
        };
        let mut lines = system.facts();
        let bound = lines.find_map(|line| line.after("service-policy type network-qos"));
        let policy =
            bound.and_then(|name| self.section(&format!("policy-map type network-qos {name}")));
        let classes = policy.into_iter().flat_map(ConfigEntry::facts);
        let paused = classes
            .flat_map(ConfigEntry::facts)
            .filter_map(|line| line.after("pause pfc-cos"));
        let numbers = paused.flat_map(|list| list.split(','));
        said.pauses
            .extend(numbers.filter_map(|number| number.trim().parse::<u8>().ok()));
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

fn in_bytes(number: &str, unit: &str) -> Option<u64> {
    let number: u64 = number.parse().ok()?;
    let size = match unit {
        "bytes" => 1,
        "kbytes" => 1_000,
        "mbytes" => 1_000_000,
        _ => return None,
    };
    number.checked_mul(size)
}

//! Reads the plan's ports from a tree, and finds names that lead nowhere.

mod profiles;

use std::cmp::Reverse;

use serde_json::Value;

use super::change::OWNED;
use super::paths::key_of;
use super::render::ROOT;
use crate::lint::{Finding, Rule};
use crate::notation::json::at;
use crate::plan::{Plan, SwitchPort};
use crate::ports::{SeenPorts, speed};
use crate::reading::{ConfigReader, Landing, PortReading, Reading, Service};
use gradwire_fabric::policy::DSCPS;

/// Reads a tree.
pub(super) fn reading(plan: &Plan, root: &Value) -> Reading {
    let most = plan.queues.iter().map(|queue| queue.number).max();
    let mut reader = OpenConfigReader {
        qos: root.get(ROOT).unwrap_or(&Value::Null),
        most: most.unwrap_or(7).max(7),
        findings: Vec::new(),
    };
    reader.keys();
    let ports = reader.ports(plan);
    Reading::new(ports, reader.findings)
}

/// The interfaces of the device, and those of their speeds that are said.
pub(super) fn ports(root: &Value) -> SeenPorts {
    let known = list(root, &["openconfig-interfaces:interfaces", "interface"]);
    let ethernet = ["ethernet", "openconfig-if-ethernet:ethernet"];
    SeenPorts::all(known.filter_map(|entry| {
        let rate = |name| text(entry, &[name, "config", "port-speed"]).and_then(speed);
        Some((key_of(entry, "name")?, ethernet.into_iter().find_map(rate)))
    }))
}

struct OpenConfigReader<'a> {
    qos: &'a Value,
    /// The highest queue.
    most: u8,
    findings: Vec<Finding>,
}

/// The entries of a list below a value.
fn list<'a>(value: &'a Value, path: &[&str]) -> std::slice::Iter<'a, Value> {
    let list = at(value, path).and_then(Value::as_array);
    list.map_or(&[][..], Vec::as_slice).iter()
}

/// A text below a value.
fn text<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    at(value, path).and_then(Value::as_str)
}

impl ConfigReader for OpenConfigReader<'_> {
    fn findings(&mut self) -> &mut Vec<Finding> {
        &mut self.findings
    }

    fn port(&mut self, port: &SwitchPort) -> Option<PortReading> {
        let name = port.name.as_str();
        let mut interfaces = list(self.qos, &["interfaces", "interface"]);
        let id = |entry: &&Value| key_of(entry, "interface-id").as_deref() == Some(name);
        let interface = interfaces.find(id)?;
        let mut said = PortReading::default();
        self.landings(name, interface, &mut said);
        self.services(name, interface, &mut said);
        self.markings(name, interface, &mut said);
        Some(said)
    }
}

impl<'a> OpenConfigReader<'a> {
    /// Keys must be there once, and be those of `config`.
    fn keys(&mut self) {
        for (container, name) in OWNED {
            self.keys_of(list(self.qos, &[container, name]), name, "name");
        }
        let interfaces = list(self.qos, &["interfaces", "interface"]);
        self.keys_of(interfaces, "interface", "interface-id");
    }

    fn keys_of(&mut self, entries: impl Iterator<Item = &'a Value>, list: &str, key: &str) {
        let mut seen: Vec<String> = Vec::new();
        for entry in entries {
            let value = key_of(entry, key);
            let text = format!("an entry has no {key}");
            let Some(value) = self.wanted(value, Rule::Schema, list, text) else {
                continue;
            };
            let place = format!("{list} {value}");
            if self::text(entry, &["config", key]) != Some(value.as_str()) {
                let text = format!("config/{key} must be there, and be the same");
                self.find(Rule::Schema, &place, text);
            }
            if seen.contains(&value) {
                self.find(Rule::Schema, &place, "is there twice");
            }
            seen.push(value);
        }
    }

    /// The entry of a name; a finding at `place` where there is none.
    fn named(&mut self, path: [&str; 2], name: &str, place: &str) -> Option<&'a Value> {
        let mut entries = list(self.qos, &path);
        let found = entries.find(|entry| key_of(entry, "name").as_deref() == Some(name));
        let text = format!("refers to {} {name}, which is not defined", path[1]);
        self.wanted(found, Rule::Dangling, place, text)
    }

    fn landings(&mut self, port: &str, interface: &'a Value, said: &mut PortReading) {
        let mut bound = list(interface, &["input", "classifiers", "classifier"]);
        let ipv4 = bound.find(|entry| key_of(entry, "type").as_deref() == Some("IPV4"));
        let Some(name) = ipv4.and_then(|entry| text(entry, &["config", "name"])) else {
            return;
        };
        let Some(classifier) = self.named(["classifiers", "classifier"], name, port) else {
            return;
        };
        let place = format!("classifier {name}");
        if text(classifier, &["config", "type"]) != Some("IPV4") {
            let text = "its type must be IPV4: that is what it is bound as";
            self.find(Rule::Schema, &place, text);
        }
        let mut any = false;
        for term in list(classifier, &["terms", "term"]) {
            any = true;
            self.term(&place, term, said);
        }
        if !any {
            self.find(Rule::DscpMapEmpty, &place, "has no terms");
        }
    }

    fn term(&mut self, classifier: &str, term: &'a Value, said: &mut PortReading) {
        let id = key_of(term, "id").unwrap_or_default();
        let place = format!("{classifier}, term {id}");
        let one = at(term, &["conditions", "ipv4", "config", "dscp"]);
        let set = at(term, &["conditions", "ipv4", "config", "dscp-set"]);
        let set = set.and_then(Value::as_array);
        if one.is_some() && set.is_some() {
            self.find(Rule::Schema, &place, "has both dscp and dscp-set");
        }
        if set.is_some_and(Vec::is_empty) {
            let text = "its dscp-set is empty: it takes everything";
            self.find(Rule::DscpMapEmpty, &place, text);
        }
        let Some(queue) = self.target(&place, term) else {
            return;
        };
        let landing = Landing {
            queue,
            drops_first: false,
        };
        for value in set.into_iter().flatten().chain(one) {
            let dscp = value.as_u64().filter(|dscp| *dscp < DSCPS as u64);
            let text = format!("`{value}` is no DSCP from 0 to 63");
            if let Some(dscp) = self.wanted(dscp, Rule::Schema, &place, text) {
                said.landings[dscp as usize].get_or_insert(landing);
            }
        }
    }

    /// The queue that a term leads to.
    fn target(&mut self, place: &str, term: &'a Value) -> Option<u8> {
        let group = text(term, &["actions", "config", "target-group"]);
        let group = self.wanted(group, Rule::NoQueue, place, "has no target-group")?;
        let kind = ["forwarding-groups", "forwarding-group"];
        let entry = self.named(kind, group, place)?;
        let mut names = ["output-queue", "unicast-output-queue"].into_iter();
        let queue = names.find_map(|name| text(entry, &["config", name]));
        let place = format!("forwarding-group {group}");
        let queue = self.wanted(queue, Rule::NoQueue, &place, "has no output-queue")?;
        self.number(queue, &place)
    }

    /// The number of a queue.
    fn number(&mut self, queue: &str, place: &str) -> Option<u8> {
        let entry = self.named(["queues", "queue"], queue, place)?;
        let place = format!("queue {queue}");
        let id = at(entry, &["config", "queue-id"]);
        let id = self.wanted(id, Rule::NoQueue, &place, "has no queue-id")?;
        let number = id.as_u64().and_then(|id| u8::try_from(id).ok());
        let text = format!("queue-id `{id}` is no number from 0 to 255");
        let number = self.wanted(number, Rule::Schema, &place, text)?;
        if number > self.most {
            let text = format!(
                "queue-id {number}: the plan is for queues 0 to {}",
                self.most
            );
            self.find(Rule::QueueRange, &place, text);
        }
        Some(number)
    }

    /// Strict schedulers are served by sequence, their inputs by weight.
    fn services(&mut self, port: &str, interface: &'a Value, said: &mut PortReading) {
        let at_port = ["output", "scheduler-policy", "config", "name"];
        let Some(name) = text(interface, &at_port) else {
            return;
        };
        let kind = ["scheduler-policies", "scheduler-policy"];
        let Some(policy) = self.named(kind, name, port) else {
            return;
        };
        let mut strict: Vec<((u64, Reverse<u64>), u8)> = Vec::new();
        for scheduler in list(policy, &["schedulers", "scheduler"]) {
            let sequence = key_of(scheduler, "sequence").unwrap_or_default();
            let place = format!("scheduler-policy {name}, scheduler {sequence}");
            let text = format!("sequence `{sequence}` is no number");
            let number = self.wanted(sequence.parse::<u32>().ok(), Rule::Schema, &place, text);
            let priority = at(scheduler, &["config", "priority"]);
            let is_strict = priority.and_then(Value::as_str) == Some("STRICT");
            if let (Some(given), false) = (priority, is_strict) {
                let text = format!("priority `{given}`; STRICT is the only one");
                self.find(Rule::Schema, &place, text);
            }
            for input in list(scheduler, &["inputs", "input"]) {
                let queue = self::text(input, &["config", "queue"]);
                let Some(queue) = queue.and_then(|queue| self.number(queue, &place)) else {
                    continue;
                };
                let weight = at(input, &["config", "weight"]);
                let weight = weight.and_then(|weight| self.uint64(weight, &place));
                if is_strict {
                    let rank = (u64::from(number.unwrap_or(0)), Reverse(weight.unwrap_or(0)));
                    strict.push((rank, queue));
                } else {
                    said.queues.entry(queue).or_default().service =
                        Service::weighted(weight.and_then(|weight| weight.try_into().ok()));
                }
            }
        }
        let mut ranks: Vec<_> = strict.iter().map(|(rank, _)| *rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        for (rank, queue) in strict {
            let later = ranks.iter().filter(|other| **other > rank).count();
            said.queues.entry(queue).or_default().service = Service::Strict {
                rank: later as u16 + 1,
            };
        }
    }

    /// A number of 64 bits, which JSON carries as text (RFC 7951, 6.1).
    fn uint64(&mut self, value: &Value, place: &str) -> Option<u64> {
        let number = value.as_str().and_then(|text| text.parse().ok());
        let text = format!("{value} must be a number of 64 bits as text: \"150000\"");
        self.wanted(number, Rule::Schema, place, text)
    }
}

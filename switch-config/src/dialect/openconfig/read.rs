//! Reads the plan's ports from a tree, and finds names that lead nowhere.

mod profiles;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::Value;

use super::paths::{at, children, key_of};
use super::render::ROOT;
use crate::lint::{Finding, Rule};
use crate::plan::Plan;
use crate::reading::{Landing, PortReading, Reading, Service};
use gradwire_fabric::policy::DSCPS;

/// Lists of names: the container, the list.
const NAMED: [(&str, &str); 6] = [
    ("classifiers", "classifier"),
    ("forwarding-groups", "forwarding-group"),
    ("queues", "queue"),
    ("queue-management-profiles", "queue-management-profile"),
    ("buffer-allocation-profiles", "buffer-allocation-profile"),
    ("scheduler-policies", "scheduler-policy"),
];

/// Reads a tree.
pub(super) fn reading(plan: &Plan, root: &Value) -> Reading {
    let empty = Value::Null;
    let mut reader = Reader {
        qos: root.get(ROOT).unwrap_or(&empty),
        most: plan.queues.iter().map(|queue| queue.number).max(),
        findings: Vec::new(),
    };
    reader.keys();
    let mut ports = BTreeMap::new();
    for port in &plan.site.ports {
        if let Some(said) = reader.port(&port.name) {
            ports.insert(port.name.clone(), said);
        }
    }
    Reading::new(ports, reader.findings)
}

struct Reader<'a> {
    qos: &'a Value,
    /// The highest queue of the plan.
    most: Option<u8>,
    findings: Vec<Finding>,
}

/// The entries of a list below a value.
fn list<'a>(value: &'a Value, path: &[&str]) -> std::slice::Iter<'a, Value> {
    let list = at(value, &children(path)).and_then(Value::as_array);
    list.map_or(&[][..], Vec::as_slice).iter()
}

/// A text below a value.
fn text<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    at(value, &children(path)).and_then(Value::as_str)
}

impl<'a> Reader<'a> {
    fn find(&mut self, rule: Rule, place: &str, text: impl Into<String>) {
        self.findings.push(Finding::new(rule, place, text));
    }

    /// Keys must be there once, and be those of `config`.
    fn keys(&mut self) {
        for (container, name) in NAMED {
            self.keys_of(list(self.qos, &[container, name]), name, "name");
        }
        let interfaces = list(self.qos, &["interfaces", "interface"]);
        self.keys_of(interfaces, "interface", "interface-id");
    }

    fn keys_of(&mut self, entries: impl Iterator<Item = &'a Value>, list: &str, key: &str) {
        let mut seen: Vec<String> = Vec::new();
        for entry in entries {
            let Some(value) = key_of(entry, key) else {
                self.find(Rule::Schema, list, format!("an entry has no {key}"));
                continue;
            };
            let place = format!("{list} {value}");
            if text(entry, &["config", key]) != Some(value.as_str()) {
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
    fn named(
        &mut self,
        [container, kind]: [&str; 2],
        name: &str,
        place: &str,
    ) -> Option<&'a Value> {
        let mut entries = list(self.qos, &[container, kind]);
        let found = entries.find(|entry| key_of(entry, "name").as_deref() == Some(name));
        if found.is_none() {
            let text = format!("refers to {kind} {name}, which is not defined");
            self.find(Rule::Dangling, place, text);
        }
        found
    }

    fn port(&mut self, port: &str) -> Option<PortReading> {
        let mut interfaces = list(self.qos, &["interfaces", "interface"]);
        let id = |entry: &&Value| key_of(entry, "interface-id").as_deref() == Some(port);
        let interface = interfaces.find(id)?;
        let mut said = PortReading::default();
        self.landings(port, interface, &mut said);
        self.services(port, interface, &mut said);
        self.markings(port, interface, &mut said);
        Some(said)
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
        let conditions = ["conditions", "ipv4", "config"];
        let conditions = at(term, &children(&conditions)).unwrap_or(&Value::Null);
        let one = conditions.get("dscp");
        let set: Option<Vec<&Value>> = conditions
            .get("dscp-set")
            .and_then(Value::as_array)
            .map(|set| set.iter().collect());
        if one.is_some() && set.is_some() {
            self.find(Rule::Schema, &place, "has both dscp and dscp-set");
        }
        if set.as_ref().is_some_and(Vec::is_empty) {
            self.find(
                Rule::DscpMapEmpty,
                &place,
                "its dscp-set is empty: it takes everything",
            );
        }
        let Some(queue) = self.target(&place, term) else {
            return;
        };
        let given = set.unwrap_or_default().into_iter().chain(one);
        for value in given {
            match value.as_u64().filter(|dscp| *dscp < DSCPS as u64) {
                Some(dscp) => {
                    said.landings[dscp as usize].get_or_insert(Landing {
                        queue,
                        drops_first: false,
                    });
                }
                None => {
                    let text = format!("`{value}` is no DSCP from 0 to 63");
                    self.find(Rule::Schema, &place, text);
                }
            }
        }
    }

    /// The queue that a term leads to.
    fn target(&mut self, place: &str, term: &'a Value) -> Option<u8> {
        let Some(group) = text(term, &["actions", "config", "target-group"]) else {
            self.find(Rule::NoQueue, place, "has no target-group");
            return None;
        };
        let kind = ["forwarding-groups", "forwarding-group"];
        let entry = self.named(kind, group, place)?;
        let config = entry.get("config").unwrap_or(&Value::Null);
        let queue =
            text(config, &["output-queue"]).or_else(|| text(config, &["unicast-output-queue"]));
        let Some(queue) = queue else {
            let text = "has no output-queue";
            self.find(Rule::NoQueue, &format!("forwarding-group {group}"), text);
            return None;
        };
        self.number(queue, &format!("forwarding-group {group}"))
    }

    /// The number of a queue.
    fn number(&mut self, queue: &str, place: &str) -> Option<u8> {
        let entry = self.named(["queues", "queue"], queue, place)?;
        let place = format!("queue {queue}");
        let Some(id) = at(entry, &children(&["config", "queue-id"])) else {
            self.find(Rule::NoQueue, &place, "has no queue-id");
            return None;
        };
        let Some(number) = id.as_u64().and_then(|id| u8::try_from(id).ok()) else {
            let text = format!("queue-id `{id}` is no number from 0 to 255");
            self.find(Rule::Schema, &place, text);
            return None;
        };
        let most = self.most.unwrap_or(7).max(7);
        if number > most {
            let text = format!("queue-id {number}: the plan is for queues 0 to {most}");
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
            let number = sequence.parse::<u32>().ok();
            if number.is_none() {
                let text = format!("sequence `{sequence}` is no number");
                self.find(Rule::Schema, &place, text);
            }
            let priority = at(scheduler, &children(&["config", "priority"]));
            let is_strict = priority.and_then(Value::as_str) == Some("STRICT");
            if let (Some(given), false) = (priority, is_strict) {
                let text = format!("priority `{given}`; STRICT is the only one");
                self.find(Rule::Schema, &place, text);
            }
            for input in list(scheduler, &["inputs", "input"]) {
                let Some(queue) = text(input, &["config", "queue"]) else {
                    continue;
                };
                let Some(queue) = self.number(queue, &place) else {
                    continue;
                };
                let weight = at(input, &children(&["config", "weight"]));
                let weight = weight.and_then(|weight| self.uint64(weight, &place));
                match is_strict {
                    true => {
                        let rank = (u64::from(number.unwrap_or(0)), Reverse(weight.unwrap_or(0)));
                        strict.push((rank, queue));
                    }
                    false => {
                        said.queues.entry(queue).or_default().service = Service::Weighted;
                    }
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
        if number.is_none() {
            let text = format!("{value} must be a number of 64 bits as text: \"150000\"");
            self.find(Rule::Schema, place, text);
        }
        number
    }
}

//! Queues of a port: their thresholds, and their share of memory.

use serde_json::Value;

use super::{Reader, list, text};
use crate::dialect::openconfig::paths::{at, children, key_of};
use crate::lint::Rule;
use crate::reading::{Marking, PortReading};

impl<'a> Reader<'a> {
    /// Thresholds by queue, and dynamic thresholds.
    pub(super) fn markings(&mut self, port: &str, interface: &'a Value, said: &mut PortReading) {
        for queue in list(interface, &["output", "queues", "queue"]) {
            let Some(name) = key_of(queue, "name") else {
                continue;
            };
            let place = format!("{port}, queue {name}");
            let profile = text(queue, &["config", "queue-management-profile"]);
            let Some(profile) = profile else { continue };
            let kind = ["queue-management-profiles", "queue-management-profile"];
            let Some(entry) = self.named(kind, profile, &place) else {
                continue;
            };
            let Some(number) = self.number(&name, &place) else {
                continue;
            };
            let marking = self.marking(profile, entry);
            said.queues.entry(number).or_default().marking = marking;
        }
        let memory = ["output", "config", "buffer-allocation-profile"];
        if let Some(name) = text(interface, &memory) {
            self.memory(port, name, said);
        }
    }

    fn marking(&mut self, profile: &str, entry: &'a Value) -> Option<Marking> {
        let place = format!("queue-management-profile {profile}");
        let wred = ["wred", "uniform", "config"];
        let Some(config) = at(entry, &children(&wred)) else {
            self.find(Rule::EarlyDropOff, &place, "has no wred/uniform/config");
            return None;
        };
        let percent_there = config.get("min-threshold-percent").is_some()
            || config.get("max-threshold-percent").is_some();
        let mut bytes = |name: &str| {
            let value = config.get(name)?;
            self.uint64(value, &place)
        };
        let (low, high) = (bytes("min-threshold"), bytes("max-threshold"));
        let (Some(low), Some(high)) = (low, high) else {
            let text = "needs min-threshold and max-threshold, in bytes";
            self.find(Rule::Threshold, &place, text);
            return None;
        };
        if percent_there {
            let text = "has thresholds in bytes and in percent: one of both";
            self.find(Rule::TwoThresholds, &place, text);
        }
        let percent = self.percent(config, &place);
        Some(Marking {
            low,
            high,
            percent,
            marks_ect: self.flag(config, "enable-ecn", &place),
            drops_droppable: self.flag(config, "drop", &place),
        })
    }

    /// A leaf that is off unless it is there and true.
    fn flag(&mut self, config: &Value, name: &str, place: &str) -> bool {
        match config.get(name) {
            None => false,
            Some(Value::Bool(on)) => *on,
            Some(other) => {
                let text = format!("{name} is {other}; it must be true or false");
                self.find(Rule::Schema, place, text);
                false
            }
        }
    }

    fn percent(&mut self, config: &Value, place: &str) -> u8 {
        let Some(value) = config.get("max-drop-probability-percent") else {
            let text = "max-drop-probability-percent is not said; it must be 100";
            self.find(Rule::Probability, place, text);
            return 100;
        };
        let percent = value.as_u64().filter(|percent| *percent <= 100);
        if percent.is_none() {
            let text = format!("max-drop-probability-percent {value} is not 0 to 100");
            self.find(Rule::Schema, place, text);
        }
        percent.unwrap_or(100) as u8
    }

    fn memory(&mut self, port: &str, name: &str, said: &mut PortReading) {
        let kind = ["buffer-allocation-profiles", "buffer-allocation-profile"];
        let Some(profile) = self.named(kind, name, port) else {
            return;
        };
        let place = format!("buffer-allocation-profile {name}");
        for queue in list(profile, &["queues", "queue"]) {
            let Some(queue_name) = key_of(queue, "name") else {
                continue;
            };
            let Some(number) = self.number(&queue_name, &place) else {
                continue;
            };
            let config = queue.get("config").unwrap_or(&Value::Null);
            let dynamic = config.get("dynamic-limit-scaling-factor");
            if dynamic.is_some() && config.get("static-shared-buffer-limit").is_some() {
                let text = format!("queue {queue_name} has a static and a dynamic limit");
                self.find(Rule::TwoThresholds, &place, text);
            }
            let alpha = dynamic.and_then(Value::as_i64);
            let alpha = alpha.and_then(|alpha| i8::try_from(alpha).ok());
            said.queues.entry(number).or_default().alpha = alpha;
        }
    }
}

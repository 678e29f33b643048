//! Queues of a port: their thresholds, and their share of memory.

use serde_json::Value;

use super::{OpenConfigReader, list, text};
use crate::dialect::openconfig::paths::key_of;
use crate::lint::Rule;
use crate::notation::json::at;
use crate::reading::{ConfigReader, Marking, PortReading};

impl<'a> OpenConfigReader<'a> {
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
        let config = at(entry, &["wred", "uniform", "config"]);
        let text = "has no wred/uniform/config";
        let config = self.wanted(config, Rule::EarlyDropOff, &place, text)?;
        let percent_there = config.get("min-threshold-percent").is_some()
            || config.get("max-threshold-percent").is_some();
        let mut bytes = |name: &str| {
            let value = config.get(name)?;
            self.uint64(value, &place)
        };
        let low = bytes("min-threshold");
        let ends = bytes("max-threshold").and_then(|high| Some((low?, high)));
        let text = "needs min-threshold and max-threshold, in bytes";
        let (low, high) = self.wanted(ends, Rule::Threshold, &place, text)?;
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
        let value = config.get("max-drop-probability-percent");
        let text = "max-drop-probability-percent is not said; it must be 100";
        let value = self.wanted(value, Rule::Probability, place, text);
        let percent = value.and_then(|value| {
            let percent = value.as_u64().filter(|percent| *percent <= 100);
            let text = format!("max-drop-probability-percent {value} is not 0 to 100");
            self.wanted(percent, Rule::Schema, place, text)
        });
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

//! Mistakes that SONiC's models let through, though a switch does not do them as meant.
//!
//! Only rows that the ports of the plan lead to are looked at: how others queue is their business.

use super::super::render::HASHED;
use super::SonicReader;
use super::config::ConfigRow;
use super::models::QUEUES;
use super::ranges;
use crate::lint::Rule;
use crate::plan::{PlanQueue, SwitchPort};
use crate::reading::ConfigReader;
use gradwire_fabric::policy::{Balance, SwitchBuffer};

impl<'a> SonicReader<'a> {
    /// Mistakes in the rows of a port.
    pub(super) fn meaning(&mut self, port: &SwitchPort) {
        self.keys(port, "QUEUE", Rule::QueueRange);
        self.keys(port, "BUFFER_QUEUE", Rule::BufferRange);
        if let Some(bindings) = self.config.row("PORT_QOS_MAP", &port.name) {
            self.maps(bindings);
        }
        for queue in &self.plan.queues {
            self.queue(port, queue);
            self.buffer(port, queue);
        }
    }

    /// Queues that are not there, and ranges that are empty or overlap.
    fn keys(&mut self, port: &SwitchPort, table: &'static str, rule: Rule) {
        let mut before: Vec<(ConfigRow<'_>, _)> = Vec::new();
        for row in self.config.rows(table) {
            let Some(text) = row.queues_of(&port.name) else {
                continue;
            };
            let mistake = format!("`{text}` is neither a queue nor an ascending range");
            let Some(range) = self.wanted(ranges::read(text), rule, row.place(), mistake) else {
                continue;
            };
            if *range.end() >= QUEUES {
                let text = format!("the port has queues 0 to {}", QUEUES - 1);
                self.find(Rule::QueueRange, row.place(), text);
            }
            let mut others = before.iter();
            if let Some((other, _)) = others.find(|(_, other)| ranges::overlap(other, &range)) {
                let text = format!("has queues that {} has, too", other.place());
                self.find(Rule::BufferRange, row.place(), text);
            }
            before.push((row, range));
        }
    }

    fn maps(&mut self, bindings: ConfigRow<'a>) {
        if let Some(name) = bindings.text("tc_to_dscp_map") {
            let text =
                format!("`tc_to_dscp_map` {name} rewrites DSCPs on their way out: remove it");
            self.find(Rule::DscpQueue, bindings.place(), text);
        }
        let named = |table, field| self.config.named(table, bindings, field);
        let queues = named("TC_TO_QUEUE_MAP", "tc_to_queue_map");
        let Some(classes) = named("DSCP_TO_TC_MAP", "dscp_to_tc_map") else {
            return;
        };
        if classes.fields.is_empty() || classes.fields.contains_key("") {
            let text = "is empty, or has an entry for an empty DSCP; it must have DSCPs 0 to 63";
            self.find(Rule::DscpMapEmpty, classes.place(), text);
        }
        if let Some(queues) = queues {
            self.queues_of_classes(classes, queues);
        }
    }

    /// Classes that no queue takes, or one that is not there.
    fn queues_of_classes(&mut self, classes: ConfigRow<'_>, queues: ConfigRow<'_>) {
        let keys = classes.fields.keys();
        let mut used: Vec<String> = keys.filter_map(|key| classes.text(key)).collect();
        used.sort_unstable();
        used.dedup();
        for class in used {
            if queues.text(&class).is_none_or(|queue| queue.is_empty()) {
                let text = format!("class {class} of {} has no queue", classes.place());
                self.find(Rule::NoQueue, queues.place(), text);
            }
        }
        for class in queues.fields.keys() {
            let queue = queues.number(class);
            if let Some(queue) = queue.filter(|queue: &u8| *queue >= QUEUES) {
                let most = QUEUES - 1;
                let text = format!("class {class} leads to queue {queue}; ports have 0 to {most}");
                self.find(Rule::QueueRange, queues.place(), text);
            }
        }
    }

    fn queue(&mut self, port: &SwitchPort, queue: &PlanQueue) {
        let row = self.config.of_queue("QUEUE", &port.name, queue.number);
        let Some(row) = row else {
            return;
        };
        let scheduler = self.config.named("SCHEDULER", row, "scheduler");
        let strict = scheduler.filter(|row| row.text("type").as_deref() == Some("STRICT"));
        if let Some((scheduler, weight)) = strict.and_then(|row| Some((row, row.text("weight")?))) {
            let text = format!("is strict, and has the weight {weight}: remove one of them");
            self.find(Rule::StrictWeight, scheduler.place(), text);
        }
        if let Some(profile) = self.config.named("WRED_PROFILE", row, "wred_profile") {
            self.colours(profile);
        }
    }

    /// Thresholds of colours that contradict each other.
    fn colours(&mut self, profile: ConfigRow<'_>) {
        let [green, yellow, red] = ["green", "yellow", "red"].map(|colour| {
            let low: Option<u64> = profile.number(&format!("{colour}_min_threshold"));
            let high: Option<u64> = profile.number(&format!("{colour}_max_threshold"));
            (low, high)
        });
        if green.0.is_none() || green.1.is_none() {
            let text =
                "has no `green_min_threshold`, or no `green_max_threshold`; packets are green";
            return self.find(Rule::Threshold, profile.place(), text);
        }
        for (colour, other) in [("yellow", yellow), ("red", red)] {
            if ![green, (None, None)].contains(&other) {
                let text = format!("{colour} packets have other thresholds than green ones");
                self.find(Rule::Threshold, profile.place(), text);
            }
        }
    }

    fn buffer(&mut self, port: &SwitchPort, queue: &PlanQueue) {
        let row = self
            .config
            .of_queue("BUFFER_QUEUE", &port.name, queue.number);
        let named = row.and_then(|row| self.config.named("BUFFER_PROFILE", row, "profile"));
        let is_data = queue.has_gradients();
        let Some(profile) = named else {
            if is_data && self.plan.trims_to.is_some() {
                let place = format!("BUFFER_QUEUE|{}|{}", port.name, queue.number);
                let text = "is not there; the plan has a buffer profile that trims for data queues";
                self.find(Rule::TrimTarget, place, text);
            }
            return;
        };
        if profile.text("static_th").is_some() && profile.text("dynamic_th").is_some() {
            let text = "has `static_th` and `dynamic_th`: remove one of them";
            self.find(Rule::TwoThresholds, profile.place(), text);
        }
        if is_data {
            self.data_profile(profile);
        }
        let Some(pool) = self.config.named("BUFFER_POOL", profile, "pool") else {
            return;
        };
        if pool.text("type").as_deref() == Some("ingress") {
            let text = format!(
                "has memory of {}, which is for packets that come in",
                pool.place()
            );
            self.find(Rule::PoolDirection, profile.place(), text);
        }
        let size: Option<u64> = pool.number("size");
        if let (SwitchBuffer::Shared { bytes, .. }, Some(size)) = (self.plan.site.buffer, size)
            && size > bytes.get()
        {
            let text = format!("has {size} bytes; the switch has {}", bytes.get());
            self.find(Rule::PoolSize, pool.place(), text);
        }
    }

    fn data_profile(&mut self, profile: ConfigRow<'_>) {
        let trims = profile.text("packet_discard_action").as_deref() == Some("trim");
        if self.plan.trims_to.is_some() && !trims {
            let text = "`packet_discard_action` must be `trim`: the plan trims packets";
            self.find(Rule::TrimTarget, profile.place(), text);
        }
    }

    /// Mistakes in how the whole switch trims packets.
    pub(super) fn trimming(&mut self) {
        let place = "SWITCH_TRIMMING|GLOBAL";
        let bytes = self.plan.trims_to.map(|bytes| bytes.get());
        let Some(row) = self.config.row("SWITCH_TRIMMING", "GLOBAL") else {
            if let Some(bytes) = bytes {
                let text = format!("is not there; the plan trims packets to {bytes} bytes");
                self.find(Rule::TrimTarget, place, text);
            }
            return;
        };
        if row.text("dscp_value").as_deref() == Some("from-tc") && row.text("tc_value").is_none() {
            let text = "`dscp_value` is `from-tc`, and there is no `tc_value`";
            self.find(Rule::TrimTarget, place, text);
        }
        let queue: Option<u8> = row.number("queue_index");
        if let Some(queue) = queue.filter(|queue| *queue >= QUEUES) {
            let text = format!(
                "`queue_index` is {queue}; ports have queues 0 to {}",
                QUEUES - 1
            );
            self.find(Rule::TrimTarget, place, text);
        }
        let (Some(bytes), size) = (bytes, row.text("size")) else {
            return;
        };
        if size.as_deref() != Some(&bytes.to_string()) {
            let is = size.unwrap_or_else(|| "not said".to_owned());
            let text = format!("`size` is {is}; the plan has {bytes} bytes");
            self.find(Rule::TrimTarget, place, text);
        }
        let control = self.plan.control().number;
        if queue.is_some_and(|queue| queue < QUEUES && queue != control) {
            let text = "`queue_index` is not the queue of control packets";
            self.find(Rule::TrimTarget, place, text);
        }
    }

    /// Fields that choose the path, and are absent.
    pub(super) fn hashing(&mut self) {
        let row = self.config.row("SWITCH_HASH", "GLOBAL");
        let said = row.and_then(|row| row.fields.get("ecmp_hash")?.as_array());
        let is_said = |name: &&str| said.is_some_and(|said| said.iter().any(|one| one == *name));
        let absent: Vec<&str> = HASHED.into_iter().filter(|name| !is_said(name)).collect();
        if self.plan.balance_to_set() == Some(Balance::Ecmp) && !absent.is_empty() {
            let text = format!(
                "`ecmp_hash` has no {}: packets of one pair of hosts would share one path",
                absent.join(", ")
            );
            self.find(Rule::HashFields, "SWITCH_HASH|GLOBAL", text);
        }
    }
}

//! Mistakes that SONiC's models let through, though a switch does not do them as meant.
//!
//! Only rows that the ports of the plan lead to are looked at: how others queue is their business.

use super::super::render::HASHED;
use super::config::{Config, ConfigRow};
use super::models::QUEUES;
use super::ranges;
use crate::lint::{Finding, Rule};
use crate::plan::{Plan, PlanQueue, Purpose, SwitchPort};
use gradwire_fabric::policy::{Balance, SwitchBuffer};

/// Everything of that kind, each mistake once.
pub(crate) fn findings(config: Config<'_>, plan: &Plan) -> Vec<Finding> {
    let mut found = Vec::new();
    for port in &plan.site.ports {
        let meaning = Meaning { config, plan, port };
        found.extend(meaning.keys());
        if let Some(bindings) = config.row("PORT_QOS_MAP", &port.name) {
            found.extend(meaning.maps(bindings));
        }
        for queue in &plan.queues {
            found.extend(meaning.queue(queue));
            found.extend(meaning.buffer(queue));
        }
    }
    found.extend(trimming(config, plan));
    found.extend(hashing(config, plan));
    let mut once: Vec<Finding> = Vec::new();
    for finding in found {
        if !once.contains(&finding) {
            once.push(finding);
        }
    }
    once
}

/// A port of the plan before the configuration.
struct Meaning<'a> {
    config: Config<'a>,
    plan: &'a Plan,
    port: &'a SwitchPort,
}

impl<'a> Meaning<'a> {
    /// Queues that are not there, and ranges that are empty or overlap.
    fn keys(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for (table, rule) in [
            ("QUEUE", Rule::QueueRange),
            ("BUFFER_QUEUE", Rule::BufferRange),
        ] {
            let mut before: Vec<(ConfigRow<'_>, _)> = Vec::new();
            for row in self.config.rows(table) {
                let Some(text) = row.queues_of(&self.port.name) else {
                    continue;
                };
                let Some(range) = ranges::read(text) else {
                    let text = format!("`{text}` is neither a queue nor an ascending range");
                    found.push(Finding::new(rule, row.place(), text));
                    continue;
                };
                if *range.end() >= QUEUES {
                    let text = format!("the port has queues 0 to {}", QUEUES - 1);
                    found.push(Finding::new(Rule::QueueRange, row.place(), text));
                }
                let same = before
                    .iter()
                    .find(|(_, other)| ranges::overlap(other, &range));
                if let Some((other, _)) = same {
                    let text = format!("has queues that {} has, too", other.place());
                    found.push(Finding::new(Rule::BufferRange, row.place(), text));
                }
                before.push((row, range));
            }
        }
        found
    }

    fn maps(&self, bindings: ConfigRow<'a>) -> Vec<Finding> {
        let mut found = Vec::new();
        if let Some(name) = bindings.text("tc_to_dscp_map") {
            let text =
                format!("`tc_to_dscp_map` {name} rewrites DSCPs on their way out: remove it");
            found.push(Finding::new(Rule::DscpQueue, bindings.place(), text));
        }
        let Some(classes) = self
            .config
            .named("DSCP_TO_TC_MAP", bindings, "dscp_to_tc_map")
        else {
            return found;
        };
        if classes.fields.is_empty() || classes.fields.contains_key("") {
            let text = "is empty, or has an entry for an empty DSCP; it must have DSCPs 0 to 63";
            found.push(Finding::new(Rule::DscpMapEmpty, classes.place(), text));
        }
        let queues = self
            .config
            .named("TC_TO_QUEUE_MAP", bindings, "tc_to_queue_map");
        if let Some(queues) = queues {
            found.extend(queues_of_classes(classes, queues));
        }
        found
    }

    fn queue(&self, queue: &PlanQueue) -> Vec<Finding> {
        let row = self.config.of_queue("QUEUE", &self.port.name, queue.number);
        let Some(row) = row else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let scheduler = self.config.named("SCHEDULER", row, "scheduler");
        if let Some(scheduler) = scheduler {
            let strict = scheduler.text("type").as_deref() == Some("STRICT");
            if let (true, Some(weight)) = (strict, scheduler.text("weight")) {
                let text = format!("is strict, and has the weight {weight}: remove one of them");
                found.push(Finding::new(Rule::StrictWeight, scheduler.place(), text));
            }
        }
        if let Some(profile) = self.config.named("WRED_PROFILE", row, "wred_profile") {
            found.extend(colours(profile));
        }
        found
    }

    fn buffer(&self, queue: &PlanQueue) -> Vec<Finding> {
        let named = self
            .config
            .of_queue("BUFFER_QUEUE", &self.port.name, queue.number)
            .and_then(|row| self.config.named("BUFFER_PROFILE", row, "profile"));
        let is_data = matches!(queue.purpose, Purpose::Data(_));
        let Some(profile) = named else {
            let wanted = is_data && (self.plan.alpha.is_some() || self.plan.trims_to.is_some());
            let place = format!("BUFFER_QUEUE|{}|{}", self.port.name, queue.number);
            let text = "is not there; the plan has a buffer profile for data queues";
            return Vec::from_iter(wanted.then(|| Finding::new(Rule::Threshold, place, text)));
        };
        let mut found = Vec::new();
        if profile.text("static_th").is_some() && profile.text("dynamic_th").is_some() {
            let text = "has `static_th` and `dynamic_th`: remove one of them";
            found.push(Finding::new(Rule::TwoThresholds, profile.place(), text));
        }
        if is_data {
            found.extend(self.data_profile(profile));
        }
        let Some(pool) = self.config.named("BUFFER_POOL", profile, "pool") else {
            return found;
        };
        if pool.text("type").as_deref() == Some("ingress") {
            let text = format!(
                "has memory of {}, which is for packets that come in",
                pool.place()
            );
            found.push(Finding::new(Rule::PoolDirection, profile.place(), text));
        }
        let size: Option<u64> = pool.number("size");
        if let (SwitchBuffer::Shared { bytes, .. }, Some(size)) = (self.plan.site.buffer, size)
            && size > bytes.get()
        {
            let text = format!("has {size} bytes; the switch has {}", bytes.get());
            found.push(Finding::new(Rule::PoolSize, pool.place(), text));
        }
        found
    }

    fn data_profile(&self, profile: ConfigRow<'_>) -> Vec<Finding> {
        let mut found = Vec::new();
        let alpha = profile.text("dynamic_th");
        let wanted = self.plan.alpha.map(|alpha| alpha.to_string());
        if let Some(wanted) = wanted.filter(|wanted| alpha.as_ref() != Some(wanted)) {
            let is = alpha.map_or_else(|| "not said".to_owned(), |alpha| format!("`{alpha}`"));
            let text = format!("`dynamic_th` is {is}; the plan has `{wanted}`");
            found.push(Finding::new(Rule::Threshold, profile.place(), text));
        }
        let trims = profile.text("packet_discard_action").as_deref() == Some("trim");
        if self.plan.trims_to.is_some() && !trims {
            let text = "`packet_discard_action` must be `trim`: the plan trims packets";
            found.push(Finding::new(Rule::TrimTarget, profile.place(), text));
        }
        found
    }
}

/// Classes that no queue takes, or one that is not there.
fn queues_of_classes(classes: ConfigRow<'_>, queues: ConfigRow<'_>) -> Vec<Finding> {
    let mut used: Vec<String> = classes
        .fields
        .keys()
        .filter_map(|key| classes.text(key))
        .collect();
    used.sort_unstable();
    used.dedup();
    let absent = used.into_iter().filter(|class| {
        let queue = queues.text(class);
        queue.is_none_or(|queue| queue.is_empty())
    });
    let absent = absent.map(|class| {
        let text = format!("class {class} of {} has no queue", classes.place());
        Finding::new(Rule::NoQueue, queues.place(), text)
    });
    let beyond = queues.fields.keys().filter_map(|class| {
        let queue: u8 = queues.number(class)?;
        let text = format!(
            "class {class} leads to queue {queue}; ports have 0 to {}",
            QUEUES - 1
        );
        (queue >= QUEUES).then(|| Finding::new(Rule::QueueRange, queues.place(), text))
    });
    absent.chain(beyond).collect()
}

/// Thresholds of colours that contradict each other.
fn colours(profile: ConfigRow<'_>) -> Vec<Finding> {
    let thresholds = |colour: &str| {
        let low: Option<u64> = profile.number(&format!("{colour}_min_threshold"));
        let high: Option<u64> = profile.number(&format!("{colour}_max_threshold"));
        (low, high)
    };
    let wrong = |text: String| Finding::new(Rule::Threshold, profile.place(), text);
    let green = thresholds("green");
    if green.0.is_none() || green.1.is_none() {
        let text = "has no `green_min_threshold`, or no `green_max_threshold`; packets are green";
        return vec![wrong(text.to_owned())];
    }
    let others = ["yellow", "red"].into_iter();
    let others = others.filter(|colour| ![green, (None, None)].contains(&thresholds(colour)));
    others
        .map(|colour| {
            wrong(format!(
                "{colour} packets have other thresholds than green ones"
            ))
        })
        .collect()
}

fn trimming(config: Config<'_>, plan: &Plan) -> Vec<Finding> {
    let place = "SWITCH_TRIMMING|GLOBAL";
    let wrong = |text: String| Finding::new(Rule::TrimTarget, place, text);
    let Some(row) = config.row("SWITCH_TRIMMING", "GLOBAL") else {
        let wanted = plan.trims_to.map(|bytes| {
            wrong(format!(
                "is not there; the plan trims packets to {} bytes",
                bytes.get()
            ))
        });
        return Vec::from_iter(wanted);
    };
    let mut found = Vec::new();
    if row.text("dscp_value").as_deref() == Some("from-tc") && row.text("tc_value").is_none() {
        found.push(wrong(
            "`dscp_value` is `from-tc`, and there is no `tc_value`".to_owned(),
        ));
    }
    let queue: Option<u8> = row.number("queue_index");
    if let Some(queue) = queue.filter(|queue| *queue >= QUEUES) {
        let text = format!(
            "`queue_index` is {queue}; ports have queues 0 to {}",
            QUEUES - 1
        );
        found.push(wrong(text));
    }
    let (Some(bytes), size) = (plan.trims_to, row.text("size")) else {
        return found;
    };
    if size.as_deref() != Some(bytes.get().to_string().as_str()) {
        let is = size.unwrap_or_else(|| "not said".to_owned());
        found.push(wrong(format!(
            "`size` is {is}; the plan has {} bytes",
            bytes.get()
        )));
    }
    let control = plan.control().number;
    if queue.is_some_and(|queue| queue < QUEUES && queue != control) {
        found.push(wrong(
            "`queue_index` is not the queue of control packets".to_owned(),
        ));
    }
    found
}

fn hashing(config: Config<'_>, plan: &Plan) -> Option<Finding> {
    if plan.balance != Balance::Ecmp {
        return None;
    }
    let said = config
        .row("SWITCH_HASH", "GLOBAL")
        .and_then(|row| row.fields.get("ecmp_hash")?.as_array());
    let is_said = |name: &&str| said.is_some_and(|said| said.iter().any(|one| one == *name));
    let absent: Vec<&str> = HASHED.into_iter().filter(|name| !is_said(name)).collect();
    let text = format!(
        "`ecmp_hash` has no {}: packets of one pair of hosts would share one path",
        absent.join(", ")
    );
    (!absent.is_empty()).then(|| Finding::new(Rule::HashFields, "SWITCH_HASH|GLOBAL", text))
}

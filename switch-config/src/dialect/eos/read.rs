//! Reads the plan's ports from the lines of a configuration.
//!
//! A port has the settings of its profile, and over them those of the port itself.

use std::collections::BTreeSet;

use super::limits::Chip;
use super::maps::{self, FIRST_TO_DROP};
use super::render::MMU;
use crate::lint::{Finding, Rule};
use crate::notation::indented::IndentedText;
use crate::plan::Plan;
use crate::reading::{Landing, PortReading, Reading};
use crate::tree::{ConfigEntry, facts};
use gradwire_fabric::policy::DSCPS;

mod queue;

/// Traffic classes and queues there are.
const QUEUES: u8 = 8;

/// Reads the plan's ports.
pub(super) fn reading(plan: &Plan, tree: &IndentedText) -> Reading {
    let chip = Chip::of(plan.target.version);
    let mut sheet = Sheet {
        tree,
        word: chip.queue(),
        findings: BTreeSet::new(),
        told: Vec::new(),
    };
    let map = sheet.map(plan);
    let alphas = sheet.alphas();
    let mut reading = Reading::default();
    for port in &plan.site.ports {
        let title = format!("interface {}", port.name);
        let found = facts(&tree.below).find(|line| line.text() == title);
        let Some(found) = found else { continue };
        let mut said = PortReading {
            landings: map,
            ..PortReading::default()
        };
        sheet.port(found, &mut said);
        for (number, alpha) in &alphas {
            let queue = said.queues.entry(*number).or_default();
            queue.alpha = Some(*alpha);
        }
        reading.ports.insert(port.name.clone(), said);
    }
    sheet.allows_not_ect();
    reading.findings = sheet.told;
    reading
}

/// A configuration, and the mistakes found in it.
struct Sheet<'a> {
    tree: &'a IndentedText,
    /// The word for a unicast queue.
    word: &'static str,
    /// Places and texts of the mistakes found so far.
    findings: BTreeSet<(String, String)>,
    told: Vec<Finding>,
}

impl Sheet<'_> {
    fn find(&mut self, rule: Rule, place: impl Into<String>, text: impl Into<String>) {
        let finding = Finding::new(rule, place, text);
        if self
            .findings
            .insert((finding.place.clone(), finding.text.clone()))
        {
            self.told.push(finding);
        }
    }

    /// Where every DSCP leads: by its traffic class to the queue of that.
    fn map(&mut self, plan: &Plan) -> [Option<Landing>; DSCPS] {
        let queues = self.queues_of_classes();
        let mut map = [None; DSCPS];
        let mut is_empty = true;
        for line in facts(&self.tree.below) {
            if line.after(maps::DSCP).is_none() {
                continue;
            }
            let Some((dscps, class, drops_first)) = self.row(line) else {
                continue;
            };
            is_empty = false;
            for dscp in dscps {
                map[usize::from(dscp)] =
                    queues[usize::from(class)].map(|queue| Landing { queue, drops_first });
            }
        }
        if is_empty {
            self.find(
                Rule::DscpMapEmpty,
                maps::DSCP,
                "no DSCP is mapped; the plan maps all",
            );
        }
        for queue in &plan.queues {
            if queues[usize::from(queue.number)].is_none() {
                self.find(
                    Rule::NoQueue,
                    format!("qos map traffic-class {}", queue.number),
                    format!(
                        "leads to no {}; its default differs from chip to chip",
                        self.word
                    ),
                );
            }
        }
        map
    }

    /// DSCPs, traffic class, and whether the drop precedence is the one that goes first.
    fn row(&mut self, line: &ConfigEntry) -> Option<(Vec<u8>, u8, bool)> {
        let Some((dscps, target)) = maps::split(line) else {
            self.find(
                Rule::Schema,
                line.text(),
                "is no map of DSCPs 0 to 63 to a traffic class",
            );
            return None;
        };
        if let Some(dscp) = dscps.iter().find(|dscp| usize::from(**dscp) >= DSCPS) {
            self.find(
                Rule::Schema,
                line.text(),
                format!("DSCP {dscp}: they end at 63"),
            );
            return None;
        }
        let words: Vec<&str> = target.split_whitespace().collect();
        let (class, precedence) = match words[..] {
            ["traffic-class", class] => (class, "0"),
            ["traffic-class", class, "drop-precedence", precedence] => (class, precedence),
            _ => ("", ""),
        };
        let class = class.parse().ok().filter(|class| *class < QUEUES);
        let precedence: Option<u8> = precedence.parse().ok().filter(|one| *one <= FIRST_TO_DROP);
        let (Some(class), Some(precedence)) = (class, precedence) else {
            self.find(
                Rule::Schema,
                line.text(),
                "wants a traffic class of 0 to 7 and a drop precedence of 0 to 2",
            );
            return None;
        };
        Some((dscps, class, precedence == FIRST_TO_DROP))
    }

    fn queues_of_classes(&mut self) -> [Option<u8>; QUEUES as usize] {
        let mut queues = [None; QUEUES as usize];
        for line in facts(&self.tree.below) {
            let Some(rest) = line.after("qos map traffic-class") else {
                continue;
            };
            let Some((classes, queue)) = rest.split_once(&format!(" to {} ", self.word)) else {
                continue;
            };
            let queue: Option<u8> = queue.trim().parse().ok().filter(|queue| *queue < QUEUES);
            if queue.is_none() {
                self.find(Rule::QueueRange, line.text(), "queues are 0 to 7");
            }
            for class in classes.split_whitespace() {
                match class
                    .parse::<usize>()
                    .ok()
                    .and_then(|at| queues.get_mut(at))
                {
                    Some(slot) => *slot = queue,
                    None => self.find(Rule::Schema, line.text(), "traffic classes are 0 to 7"),
                }
            }
        }
        queues
    }

    /// Dynamic thresholds of the profile in use, as exponents of two.
    fn alphas(&mut self) -> Vec<(u8, i8)> {
        let used = facts(&self.tree.below).find_map(|line| {
            let rest = line.after(MMU)?;
            rest.strip_suffix(" apply")
        });
        let Some(used) = used else { return Vec::new() };
        let title = format!("{MMU} {used}");
        let Some(profile) = facts(&self.tree.below).find(|line| line.text() == title) else {
            self.find(
                Rule::Dangling,
                format!("{title} apply"),
                format!("profile `{used}` is defined nowhere"),
            );
            return Vec::new();
        };
        let mut alphas = Vec::new();
        for line in profile.facts() {
            let Some(rest) = line.after("egress unicast queue") else {
                continue;
            };
            let words: Vec<&str> = rest.split_whitespace().collect();
            let [number, "threshold", threshold] = words[..] else {
                continue;
            };
            let number = number.parse().ok().filter(|number| *number < QUEUES);
            match (number, exponent(threshold)) {
                (Some(number), Some(exponent)) => alphas.push((number, exponent)),
                (None, _) => self.find(Rule::QueueRange, line.text(), "queues are 0 to 7"),
                (_, None) => self.find(
                    Rule::Schema,
                    line.text(),
                    "thresholds are 1/128 to 8, powers of two",
                ),
            }
        }
        alphas
    }

    fn port(&mut self, line: &ConfigEntry, said: &mut PortReading) {
        let place = line.text();
        let name = line.facts().find_map(|line| line.after("service-profile"));
        let profile = name.and_then(|name| {
            let title = format!("qos profile {name}");
            facts(&self.tree.below).find(|line| line.text() == title)
        });
        match (name, profile) {
            (None, _) => self.find(
                Rule::ServiceOrder,
                place,
                "has no `service-profile`: queues are served and marked as by default",
            ),
            (Some(name), None) => self.find(
                Rule::Dangling,
                format!("{place}, service-profile"),
                format!("`qos profile {name}` is defined nowhere"),
            ),
            _ => {}
        }
        let mut trusts = false;
        for section in profile.into_iter().chain([line]) {
            self.section(section, said);
            trusts = trust(section).unwrap_or(trusts);
        }
        if profile.is_some() && !trusts {
            self.find(
                Rule::DscpQueue,
                place,
                "does not trust DSCPs: packets are classified by other fields; `qos trust dscp`",
            );
        }
    }

    /// Reads a profile, or the settings of the port itself.
    fn section(&mut self, section: &ConfigEntry, said: &mut PortReading) {
        pauses(section, &mut said.pauses);
        for line in section.facts() {
            let place = format!("{}, {}", section.text(), line.text());
            let mut known = ["tx-queue", "uc-tx-queue"].into_iter();
            let found = known.find_map(|word| Some((word, line.after(word)?)));
            let Some((word, number)) = found else {
                continue;
            };
            if word != self.word {
                let text = format!("unicast queues of this chip are `{}`", self.word);
                self.find(Rule::Schema, &place, text);
                continue;
            }
            let Some(number) = number.parse().ok().filter(|number| *number < QUEUES) else {
                self.find(Rule::QueueRange, &place, "queues are 0 to 7");
                continue;
            };
            let rank = u16::from(number);
            let queue = said.queues.entry(number).or_default();
            let lines = queue::QueueLines::of(line);
            if let Some(service) = lines.service(rank) {
                queue.service = service;
            }
            if lines.speaks() {
                queue.marking = lines.marking();
            }
            for (rule, text) in lines.mistakes() {
                self.find(rule, &place, text);
            }
        }
    }

    fn allows_not_ect(&mut self) {
        let words = "qos random-detect ecn allow non-ect";
        if facts(&self.tree.below).any(|line| line.after(words).is_some()) {
            self.find(
                Rule::EarlyDropOff,
                words,
                "lets packets pass that are not ECT, where droppable ones are to be dropped",
            );
        }
    }
}

/// Whether a section trusts DSCPs; `None` when it does not say.
fn trust(section: &ConfigEntry) -> Option<bool> {
    section.facts().find_map(|line| match line.text() {
        "no qos trust" => Some(false),
        _ => line.after("qos trust").map(|field| field == "dscp"),
    })
}

/// Classes of PFC that a section switches on; all, where it names none.
fn pauses(section: &ConfigEntry, pauses: &mut Vec<u8>) {
    let says = |text: &str| section.facts().any(|line| line.text() == text);
    if says("no priority-flow-control") {
        pauses.clear();
    }
    if !says("priority-flow-control on") && !says("priority-flow-control mode on") {
        return;
    }
    let named = section.facts().filter_map(|line| {
        let rest = line.after("priority-flow-control priority")?;
        rest.strip_suffix(" no-drop")?.parse().ok()
    });
    *pauses = named.collect();
    if pauses.is_empty() {
        *pauses = (0..QUEUES).collect();
    }
}

/// The exponent of `1/8`, `1` or `4`.
fn exponent(threshold: &str) -> Option<i8> {
    let power = |text: &str| -> Option<i8> {
        let number: u32 = text.parse().ok()?;
        let exponent = number.checked_ilog2()? as i8;
        number.is_power_of_two().then_some(exponent)
    };
    let exponent = match threshold.strip_prefix("1/") {
        Some(part) => -power(part)?,
        None => power(threshold)?,
    };
    (-7..=3).contains(&exponent).then_some(exponent)
}

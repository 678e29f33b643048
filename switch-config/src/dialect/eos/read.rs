//! Reads the plan's ports from the lines of a configuration.
//!
//! A port has the settings of its profile, and over them those of the port itself.

use super::chip::Chip;
use super::maps::{self, FIRST_TO_DROP};
use super::render::MMU;
use crate::lint::{Finding, Rule};
use crate::notation::indented;
use crate::notation::words::exponent;
use crate::plan::{Plan, SwitchPort};
use crate::reading::{ConfigReader, Landing, PortReading, Reading};
use crate::tree::ConfigEntry;
use gradwire_fabric::policy::DSCPS;

mod queue;

/// Traffic classes and queues there are.
const QUEUES: u8 = 8;

/// Reads the plan's ports.
pub(super) fn reading(plan: &Plan, tree: &[ConfigEntry]) -> Reading {
    let mut reader = EosReader {
        tree,
        word: Chip::of(plan.target.version).queue(),
        map: [None; DSCPS],
        alphas: Vec::new(),
        findings: Vec::new(),
    };
    reader.map = reader.map(plan);
    reader.alphas = reader.alphas();
    let ports = reader.ports(plan);
    reader.allows_not_ect();
    Reading::new(ports, reader.findings)
}

struct EosReader<'a> {
    tree: &'a [ConfigEntry],
    /// The word for a unicast queue.
    word: &'static str,
    /// Where every DSCP leads.
    map: [Option<Landing>; DSCPS],
    /// Dynamic thresholds of queues, as exponents of two.
    alphas: Vec<(u8, i8)>,
    findings: Vec<Finding>,
}

impl ConfigReader for EosReader<'_> {
    fn findings(&mut self) -> &mut Vec<Finding> {
        &mut self.findings
    }

    fn port(&mut self, port: &SwitchPort) -> Option<PortReading> {
        let interface = indented::section(self.tree, &format!("interface {}", port.name))?;
        let place = interface.text();
        let mut said = PortReading {
            landings: self.map,
            ..PortReading::default()
        };
        let text = "has no `service-profile`: queues are served and marked as by default";
        let name = interface.command("service-profile");
        let name = self.wanted(name, Rule::ServiceOrder, place, text);
        let profile = name.and_then(|name| {
            let profile = indented::section(self.tree, &format!("qos profile {name}"));
            let place = format!("{place}, service-profile");
            let text = format!("`qos profile {name}` is defined nowhere");
            self.wanted(profile, Rule::Dangling, place, text)
        });
        let mut trusts = false;
        for section in profile.into_iter().chain([interface]) {
            self.settings(section, &mut said);
            trusts = trust(section).unwrap_or(trusts);
        }
        if profile.is_some() && !trusts {
            let text =
                "does not trust DSCPs: packets are classified by other fields; `qos trust dscp`";
            self.find(Rule::DscpQueue, place, text);
        }
        for (number, alpha) in &self.alphas {
            said.queues.entry(*number).or_default().alpha = Some(*alpha);
        }
        Some(said)
    }
}

impl EosReader<'_> {
    /// Where every DSCP leads: by its traffic class to the queue of that.
    fn map(&mut self, plan: &Plan) -> [Option<Landing>; DSCPS] {
        let queues = self.queues_of_classes();
        let mut map = [None; DSCPS];
        let lines = self
            .tree
            .iter()
            .filter(|line| line.after(maps::DSCP).is_some());
        let rows: Vec<_> = lines.filter_map(|line| self.row(line)).collect();
        if rows.is_empty() {
            let text = "no DSCP is mapped; the plan maps all";
            self.find(Rule::DscpMapEmpty, maps::DSCP, text);
        }
        for (dscps, class, drops_first) in rows {
            let queue = queues[usize::from(class)];
            let landing = queue.map(|queue| Landing { queue, drops_first });
            dscps
                .iter()
                .for_each(|dscp| map[usize::from(*dscp)] = landing);
        }
        for queue in &plan.queues {
            let place = format!("qos map traffic-class {}", queue.number);
            let word = self.word;
            let text = format!("leads to no {word}; its default differs from chip to chip");
            self.wanted(
                queues[usize::from(queue.number)],
                Rule::NoQueue,
                place,
                text,
            );
        }
        map
    }

    /// DSCPs, traffic class, and whether the drop precedence is the one that goes first.
    fn row(&mut self, line: &ConfigEntry) -> Option<(Vec<u8>, u8, bool)> {
        let text = "is no map of DSCPs 0 to 63 to a traffic class";
        let (dscps, target) = self.wanted(maps::split(line), Rule::Schema, line.text(), text)?;
        if let Some(dscp) = dscps.iter().find(|dscp| usize::from(**dscp) >= DSCPS) {
            let text = format!("DSCP {dscp}: they end at 63");
            self.find(Rule::Schema, line.text(), text);
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
        let text = "wants a traffic class of 0 to 7 and a drop precedence of 0 to 2";
        let target = self.wanted(class.zip(precedence), Rule::Schema, line.text(), text);
        target.map(|(class, precedence)| (dscps, class, precedence == FIRST_TO_DROP))
    }

    fn queues_of_classes(&mut self) -> [Option<u8>; QUEUES as usize] {
        let mut queues = [None; QUEUES as usize];
        let to = format!(" to {} ", self.word);
        for line in self.tree {
            let rest = line.after("qos map traffic-class");
            let Some((classes, queue)) = rest.and_then(|rest| rest.split_once(&to)) else {
                continue;
            };
            let queue = self.queue(queue.trim(), line.text());
            for class in classes.split_whitespace() {
                let slot = class.parse().ok().and_then(|at: usize| queues.get_mut(at));
                let text = "traffic classes are 0 to 7";
                if let Some(slot) = self.wanted(slot, Rule::Schema, line.text(), text) {
                    *slot = queue;
                }
            }
        }
        queues
    }

    fn queue(&mut self, number: &str, place: &str) -> Option<u8> {
        let number = number.parse().ok().filter(|number| *number < QUEUES);
        self.wanted(number, Rule::QueueRange, place, "queues are 0 to 7")
    }

    /// Dynamic thresholds of the profile in use, as exponents of two.
    fn alphas(&mut self) -> Vec<(u8, i8)> {
        let mut lines = self.tree.iter();
        let used = lines.find_map(|line| line.after(MMU)?.strip_suffix(" apply"));
        let profile = used.and_then(|used| {
            let profile = indented::section(self.tree, &format!("{MMU} {used}"));
            let text = format!("profile `{used}` is defined nowhere");
            self.wanted(profile, Rule::Dangling, format!("{MMU} {used} apply"), text)
        });
        let mut alphas = Vec::new();
        for line in profile.into_iter().flat_map(ConfigEntry::facts) {
            let rest = line.after("egress unicast queue").unwrap_or_default();
            let words: Vec<&str> = rest.split_whitespace().collect();
            let [number, "threshold", threshold] = words[..] else {
                continue;
            };
            if let Some(number) = self.queue(number, line.text()) {
                let text = "thresholds are 1/128 to 8, powers of two";
                let alpha = exponent(threshold, "1/", 3);
                let alpha = self.wanted(alpha, Rule::Schema, line.text(), text);
                alphas.extend(alpha.map(|alpha| (number, alpha)));
            }
        }
        alphas
    }

    /// Reads a profile, or the settings of the port itself.
    fn settings(&mut self, section: &ConfigEntry, said: &mut PortReading) {
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
            let Some(number) = self.queue(number, &place) else {
                continue;
            };
            let queue = said.queues.entry(number).or_default();
            let lines = queue::QueueLines::of(line);
            queue.service = lines.service(number.into()).unwrap_or(queue.service);
            queue.marking = lines.marking().or(queue.marking);
            for (rule, text) in lines.mistakes() {
                self.find(rule, &place, text);
            }
        }
    }

    fn allows_not_ect(&mut self) {
        let words = "qos random-detect ecn allow non-ect";
        if self.tree.iter().any(|line| line.after(words).is_some()) {
            let text = "lets packets pass that are not ECT, where droppable ones are to be dropped";
            self.find(Rule::EarlyDropOff, words, text);
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

//! Reads the plan's ports from a configuration, and finds names that lead nowhere.

use std::collections::BTreeMap;

use gradwire_protocol::units::{Dscp, Rate};

use super::scheduling::{LEVELS, Scheduling, scheduling};
use crate::code_points;
use crate::lint::{Finding, Rule};
use crate::notation::set_lines;
use crate::plan::{OURS, Plan, Selection, SwitchPort};
use crate::ports::{SeenPorts, speed};
use crate::reading::{ConfigReader, Landing, Marking, PortReading, QueueReading, Reading, Service};
use crate::tree::ConfigEntry;
use gradwire_fabric::policy::DSCPS;

/// Classes that Junos has by itself, and their queues (QFX).
const DEFAULT_CLASSES: [(&str, u8); 5] = [
    ("best-effort", 0),
    ("fcoe", 3),
    ("no-loss", 4),
    ("network-control", 7),
    ("mcast", 8),
];

/// Loss priorities; the first is kept longest.
const LOSSES: [&str; 4] = ["low", "medium-low", "medium-high", "high"];

/// Reads a configuration.
pub(super) fn reading(plan: &Plan, statements: &[ConfigEntry]) -> Reading {
    let all = set_lines::in_force(statements);
    let cos = all.iter().filter_map(|words| words.split_first());
    let cos = cos.filter(|(first, _)| *first == "class-of-service");
    let mut reader = JunosReader {
        plan,
        cos: cos.map(|(_, words)| words).collect(),
        classes: BTreeMap::new(),
        findings: Vec::new(),
    };
    reader.classes();
    let ports = reader.ports(plan);
    Reading::new(ports, reader.findings)
}

/// The interfaces that have settings, and those of their speeds that are said.
pub(super) fn ports(statements: &[ConfigEntry]) -> SeenPorts {
    let mut rates: BTreeMap<String, Option<Rate>> = BTreeMap::new();
    for words in set_lines::in_force(statements) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ["interfaces", name, rest @ ..] = &words[..] else {
            continue;
        };
        let rate = rates.entry((*name).to_owned()).or_default();
        if let ["speed", said] | [_, "speed", said] = rest {
            *rate = speed(said);
        }
    }
    SeenPorts::some(rates)
}

struct JunosReader<'a> {
    plan: &'a Plan,
    /// Statements below `class-of-service`.
    cos: Vec<&'a [String]>,
    /// Queue of each forwarding class; `None` where it has none.
    classes: BTreeMap<String, Option<u8>>,
    findings: Vec<Finding>,
}

impl ConfigReader for JunosReader<'_> {
    fn findings(&mut self) -> &mut Vec<Finding> {
        &mut self.findings
    }

    fn port(&mut self, port: &SwitchPort) -> Option<PortReading> {
        let name = self.binding_of(&port.name)?;
        let mut said = PortReading::default();
        self.landings(&name, &mut said);
        for map in self.maps_of(&name) {
            self.queues(&map, &mut said);
        }
        if scheduling(self.plan.target.version) == Scheduling::Levels {
            self.share_levels(&mut said);
        }
        self.pauses(&name, &mut said);
        Some(said)
    }
}

impl<'a> JunosReader<'a> {
    /// The words behind these, line by line.
    fn behind(&self, prefix: &[&str]) -> Vec<&'a [String]> {
        let cos = self.cos.iter().copied();
        let fits = cos.filter(|words| {
            let mut pairs = words.iter().zip(prefix);
            words.len() >= prefix.len() && pairs.all(|(word, wanted)| word == wanted)
        });
        fits.map(|words| &words[prefix.len()..]).collect()
    }

    /// The word behind these, of the last line that has one.
    fn value(&self, prefix: &[&str]) -> Option<&'a str> {
        let behind = self.behind(prefix);
        let first = behind.iter().rev().find_map(|rest| rest.first());
        first.map(String::as_str)
    }

    fn is_there(&self, prefix: &[&str]) -> bool {
        !self.behind(prefix).is_empty()
    }

    /// The statements of a name that a port refers to; a finding where there are none.
    fn defined(&mut self, path: &[&str], port: &str) -> Option<Vec<&'a [String]>> {
        let found = Some(self.behind(path)).filter(|found| !found.is_empty());
        let text = format!("{port} refers to it, and it is not defined");
        self.wanted(found, Rule::Dangling, path.join(" "), text)
    }

    fn classes(&mut self) {
        for (name, queue) in DEFAULT_CLASSES {
            self.classes.insert(name.to_owned(), Some(queue));
        }
        for rest in self.behind(&["forwarding-classes", "queue"]) {
            if let [queue, class, ..] = rest {
                self.class(class, Some(queue));
            }
        }
        for rest in self.behind(&["forwarding-classes", "class"]) {
            match rest {
                [class, word, queue, ..] if word == "queue-num" => self.class(class, Some(queue)),
                [class] => self.class(class, None),
                _ => {}
            }
        }
    }

    fn class(&mut self, class: &str, queue: Option<&str>) {
        let place = format!("forwarding-classes class {class}");
        let number = queue.and_then(|queue| {
            let text = format!("queue-num `{queue}` is no number from 0 to 7");
            self.wanted(queue.parse().ok(), Rule::Schema, &place, text)
        });
        if let Some(number) = number.filter(|number| *number > 7) {
            let text = format!("queue {number} is no unicast queue; they are 0 to 7");
            self.find(Rule::QueueRange, &place, text);
        }
        self.classes.insert(class.to_owned(), number);
    }

    /// The name under which a port is configured: its own, else a wildcard that fits.
    fn binding_of(&self, port: &str) -> Option<String> {
        let names = self.behind(&["interfaces"]);
        let mut names = names.iter().filter_map(|rest| rest.first());
        if names.clone().any(|name| name == port) {
            return Some(port.to_owned());
        }
        names.find(|name| fits(name, port)).cloned()
    }

    fn landings(&mut self, port: &str, said: &mut PortReading) {
        let at = ["interfaces", port, "unit", "0", "classifiers", "dscp"];
        let Some(name) = self.value(&at) else { return };
        let place = format!("classifiers dscp {name}");
        let Some(rows) = self.defined(&["classifiers", "dscp", name], port) else {
            return;
        };
        let mut any = false;
        for row in rows {
            let [_, class, _, loss, _, code, ..] = row else {
                continue;
            };
            any = true;
            let Some(dscp) = self.code_point(&place, code) else {
                continue;
            };
            if !LOSSES.contains(&loss.as_str()) {
                let text = format!("loss-priority `{loss}`; there are {}", LOSSES.join(", "));
                self.find(Rule::Schema, &place, text);
            }
            let landing = self.queue_of(class, &place).map(|queue| Landing {
                queue,
                drops_first: loss != LOSSES[0],
            });
            let slot = &mut said.landings[usize::from(dscp.0)];
            *slot = landing.or(*slot);
        }
        if !any {
            let text = "has no code points: all packets go to best-effort";
            self.find(Rule::DscpMapEmpty, &place, text);
        }
    }

    fn queue_of(&mut self, class: &str, place: &str) -> Option<u8> {
        let text = format!("forwarding class {class} is not defined");
        let queue = self.classes.get(class).copied();
        let queue = self.wanted(queue, Rule::Dangling, place, text)?;
        let text = format!("forwarding class {class} has no queue: give it a queue-num");
        self.wanted(queue, Rule::NoQueue, place, text)
    }

    fn code_point(&mut self, place: &str, code: &str) -> Option<Dscp> {
        let alias = match code {
            "be" => Some(Dscp(0)),
            "nc1" => Some(Dscp(48)),
            "nc2" => Some(Dscp(56)),
            _ => code_points::named(code),
        };
        let own = self.value(&["code-point-aliases", "dscp", code]);
        let bits = own.unwrap_or(code);
        let is_binary = bits.len() == 6 && bits.bytes().all(|bit| bit == b'0' || bit == b'1');
        let dscp = match is_binary {
            true => u8::from_str_radix(bits, 2).ok().map(Dscp),
            false => alias,
        };
        let text = format!("code point `{code}` is neither six bits nor a known alias");
        self.wanted(dscp, Rule::Schema, place, text)
    }

    /// The scheduler maps of a port: its own, or those of its traffic control profiles.
    fn maps_of(&mut self, port: &str) -> Vec<String> {
        let direct = || self.value(&["interfaces", port, "scheduler-map"]);
        let of_unit = || self.value(&["interfaces", port, "unit", "0", "scheduler-map"]);
        let bound = direct().or_else(of_unit).map(str::to_owned);
        let mut maps = match scheduling(self.plan.target.version) {
            Scheduling::Levels => Vec::new(),
            Scheduling::StrictSet => self.maps_of_sets(port),
        };
        if maps.is_empty() {
            maps.extend(bound);
        }
        maps.retain(|map| self.defined(&["scheduler-maps", map], port).is_some());
        maps
    }

    /// The scheduler maps of the forwarding class sets of a port.
    fn maps_of_sets(&mut self, port: &str) -> Vec<String> {
        let sets = self.behind(&["interfaces", port, "forwarding-class-set"]);
        let sets = sets.iter().filter_map(|rest| match rest {
            [set, word, profile, ..] if word == "output-traffic-control-profile" => {
                Some((set.clone(), profile.clone()))
            }
            _ => None,
        });
        let sets: Vec<(String, String)> = sets.collect();
        for (set, _) in &sets {
            self.defined(&["forwarding-class-sets", set], port);
        }
        if let Some((set, _)) = sets.first() {
            self.served_classes(set, &sets);
        }
        let maps = sets.iter().filter_map(|(_, profile)| {
            let place = format!("traffic-control-profiles {profile}");
            let map = self.value(&["traffic-control-profiles", profile, "scheduler-map"]);
            let text = format!("{port} refers to it, and it has no scheduler-map");
            let map = self.wanted(map, Rule::Dangling, place, text);
            map.map(str::to_owned)
        });
        maps.collect()
    }

    /// Each class of ours must be in one of the sets of a port.
    fn served_classes(&mut self, first: &str, sets: &[(String, String)]) {
        for queue in &self.plan.queues {
            let class = format!("{}-{}", OURS, queue.name());
            let is_in = |(set, _): &(String, String)| {
                self.is_there(&["forwarding-class-sets", set, "class", &class])
            };
            if self.is_there(&["forwarding-classes", "class", &class]) && !sets.iter().any(is_in) {
                let text = format!("forwarding class {class} is not in it: nothing serves it");
                let place = format!("forwarding-class-sets {first}");
                self.find(Rule::NoQueue, &place, text);
            }
        }
    }

    /// Where each queue has a level and the last one a transmit rate, that is its share, and the
    /// levels of gradients are an order within the rest.
    fn share_levels(&self, said: &mut PortReading) {
        let plan = &self.plan.queues;
        let others = said.queues.values().find_map(|queue| match queue.service {
            Service::Weighted { weight, .. } => weight,
            _ => None,
        });
        let Some(others) = others.filter(|percent| *percent <= 100) else {
            return;
        };
        for queue in plan.iter().filter(|queue| queue.percent().is_some()) {
            let read = said.queues.entry(queue.number).or_default();
            if let Service::Strict { rank } = read.service {
                let weight = Some(100 - others);
                read.service = Service::Weighted { weight, rank };
            }
        }
    }

    fn queues(&mut self, map: &str, said: &mut PortReading) {
        let place = format!("scheduler-maps {map}");
        for row in self.behind(&["scheduler-maps", map, "forwarding-class"]) {
            let [class, _, scheduler, ..] = row else {
                continue;
            };
            let Some(queue) = self.queue_of(class, &place) else {
                continue;
            };
            if !self.is_there(&["schedulers", scheduler]) {
                let text = format!("scheduler {scheduler} is not defined");
                self.find(Rule::Dangling, &place, text);
                continue;
            }
            let read = QueueReading {
                service: self.service(scheduler, queue),
                marking: self.marking(scheduler),
                alpha: None,
            };
            said.queues.insert(queue, read);
        }
    }

    fn service(&mut self, scheduler: &str, queue: u8) -> Service {
        let place = format!("schedulers {scheduler}");
        let priority = self.value(&["schedulers", scheduler, "priority"]);
        let Some(priority) = priority else {
            return Service::Unsaid;
        };
        let model = scheduling(self.plan.target.version);
        let level = LEVELS.iter().position(|known| *known == priority);
        let text = format!("priority `{priority}`; there are {}", LEVELS.join(", "));
        let Some(level) = self.wanted(level, Rule::Schema, &place, text) else {
            return Service::Unsaid;
        };
        let share = self.value(&["schedulers", scheduler, "transmit-rate", "percent"]);
        let share = share.and_then(|percent| percent.parse().ok());
        match (model, level) {
            (Scheduling::Levels, 1..) if share.is_some() => Service::weighted(share),
            (Scheduling::Levels, level) => Service::Strict {
                rank: (LEVELS.len() - level) as u16,
            },
            (Scheduling::StrictSet, 0) => {
                if self.is_there(&["schedulers", scheduler, "transmit-rate"]) {
                    let text = "is strict-high and has a transmit-rate: one of both";
                    self.find(Rule::StrictWeight, &place, text);
                }
                Service::Strict {
                    rank: u16::from(queue) + 1,
                }
            }
            (Scheduling::StrictSet, _) => {
                if priority != "low" {
                    let text = format!("priority `{priority}`; this model has strict-high and low");
                    self.find(Rule::Schema, &place, text);
                }
                Service::weighted(share)
            }
        }
    }

    fn marking(&mut self, scheduler: &str) -> Option<Marking> {
        let place = format!("schedulers {scheduler}");
        let ecn = self.is_there(&["schedulers", scheduler, "explicit-congestion-notification"]);
        let by_precedence = self.plan.selection == Selection::Precedence;
        let mut profiles: BTreeMap<&str, &str> = BTreeMap::new();
        for row in self.behind(&["schedulers", scheduler, "drop-profile-map"]) {
            match row {
                [_, loss, _, _, _, profile, ..] => profiles.insert(loss, profile),
                _ => continue,
            };
        }
        let any = profiles.get("any").copied();
        let low = profiles.get("low").copied().or(any);
        let wanted = match by_precedence {
            true => profiles.get("high").copied().or(any),
            false => low,
        };
        if by_precedence && !ecn && low.is_some() {
            let text = "loss-priority low has a drop profile: packets to be kept are dropped early";
            self.find(Rule::DropPrecedence, &place, text);
        }
        let Some(profile) = wanted.or(low) else {
            if ecn {
                let text = "has explicit-congestion-notification and no drop profile to mark by";
                self.find(Rule::Dangling, &place, text);
            }
            return None;
        };
        let curve = self.curve(profile, &place)?;
        Some(Marking {
            marks_ect: ecn,
            drops_droppable: wanted.is_some() && (!by_precedence || !ecn),
            ..curve
        })
    }

    /// The thresholds of a drop profile.
    fn curve(&mut self, profile: &str, place: &str) -> Option<Marking> {
        if !self.is_there(&["drop-profiles", profile]) {
            let text = format!("drop profile {profile} is not defined");
            self.find(Rule::Dangling, place, text);
            return None;
        }
        let place = format!("drop-profiles {profile}");
        let levels = self.percents(profile, "fill-level", &place);
        let shares = self.percents(profile, "drop-probability", &place);
        let (Some(low), Some(high), Some(percent)) = (levels.first(), levels.last(), shares.last())
        else {
            let text = "needs fill levels and drop probabilities from 0 to 100";
            self.find(Rule::Schema, &place, text);
            return None;
        };
        if levels.len() != shares.len() || levels.len() < 2 {
            let text = format!(
                "has {} fill levels and {} drop probabilities: give as many of each, two at least",
                levels.len(),
                shares.len()
            );
            self.find(Rule::Schema, &place, text);
        }
        let memory = self.plan.site.buffer.port_bytes().get();
        let bytes = |percent: u8| memory * u64::from(percent) / 100;
        Some(Marking {
            low: bytes(*low),
            high: bytes(*high),
            percent: *percent,
            marks_ect: false,
            drops_droppable: false,
        })
    }

    fn percents(&mut self, profile: &str, what: &str, place: &str) -> Vec<u8> {
        let rows = self.behind(&["drop-profiles", profile, "interpolate", what]);
        let mut percents = Vec::new();
        for given in rows.iter().filter_map(|row| row.first()) {
            let percent = given.parse().ok().filter(|percent: &u8| *percent <= 100);
            let text = format!("{what} `{given}` is no percentage from 0 to 100");
            percents.extend(self.wanted(percent, Rule::Schema, place, text));
        }
        percents
    }

    fn pauses(&mut self, port: &str, said: &mut PortReading) {
        let at = ["interfaces", port, "congestion-notification-profile"];
        let Some(profile) = self.value(&at) else {
            return;
        };
        let path = ["congestion-notification-profile", profile];
        if self.defined(&path, port).is_none() {
            return;
        }
        for row in self.behind(&[path[0], profile, "input"]) {
            let [_, _, code, word, ..] = row else {
                continue;
            };
            let bits = u8::from_str_radix(code, 2);
            let on = word == "pfc" && code.len() <= 6;
            if let (true, Ok(bits)) = (on, bits) {
                let class = if code.len() > 3 { bits >> 3 } else { bits };
                said.pauses.push(class.min((DSCPS / 8) as u8 - 1));
            }
        }
        said.pauses.sort_unstable();
        said.pauses.dedup();
    }
}

/// Whether a name with `*` in it fits a port.
fn fits(pattern: &str, port: &str) -> bool {
    let Some((start, end)) = pattern.split_once('*') else {
        return false;
    };
    port.len() >= start.len() + end.len() && port.starts_with(start) && port.ends_with(end)
}

//! A plan as Junos statements, and their order.

use std::cmp::Ordering;

use super::limits::{LEVELS, Scheduling, scheduling};
use crate::notation::set_lines::{self, StatementRules, Words};
use crate::plan::{Plan, PlanQueue, Port, Selection};
use crate::tree::ConfigNode;
use crate::tree::load::load;
use crate::tree::order::natural;
use crate::tree::rules::{Owner, TreeRules};

/// Statements in the order in which the models of Junos name them, where that is not the order of
/// the alphabet (Juniper/yang 24.4R1, junos-qfx-conf-class-of-service).
const ORDER: [&str; 23] = [
    "classifiers",
    "code-point-aliases",
    "host-outbound-traffic",
    "drop-profiles",
    "forwarding-classes",
    "traffic-control-profiles",
    "forwarding-class-sets",
    "forwarding-class-set",
    "congestion-notification-profile",
    "interfaces",
    "routing-instances",
    "rewrite-rules",
    "scheduler-maps",
    "scheduler-map",
    "schedulers",
    "transmit-rate",
    "shaping-rate",
    "buffer-size",
    "priority",
    "drop-profile-map",
    "explicit-congestion-notification",
    "fill-level",
    "drop-probability",
];

/// Statements that have one value: `*` stands for any word, the last word is the value.
const SINGLE: [&str; 8] = [
    "class-of-service forwarding-classes class * queue-num *",
    "class-of-service scheduler-maps * forwarding-class * scheduler *",
    "class-of-service schedulers * priority *",
    "class-of-service schedulers * drop-profile-map loss-priority * protocol * drop-profile *",
    "class-of-service traffic-control-profiles * scheduler-map *",
    "class-of-service interfaces * scheduler-map *",
    "class-of-service interfaces * congestion-notification-profile *",
    "class-of-service interfaces * forwarding-class-set * output-traffic-control-profile *",
];

/// Statements of a port that the plan decides: those that are there and not the plan's go.
const PORT_SLOTS: [&str; 6] = [
    "scheduler-map",
    "forwarding-class-set",
    "congestion-notification-profile",
    "output-traffic-control-profile",
    "unit 0 classifiers dscp",
    "unit 0 scheduler-map",
];

/// What all names of ours begin with.
pub(super) const OURS: &str = "gradwire";
/// The class of the switch's own routing packets; Junos has it by default.
pub(super) const HOST_CLASS: &str = "network-control";

/// All statements of the plan, in the order of Junos.
pub(super) fn statements(plan: &Plan) -> Vec<ConfigNode> {
    let mut writer = StatementWriter {
        plan,
        rules: JunosRules { plan: Some(plan) },
        statements: Vec::new(),
    };
    writer.classes();
    writer.drop_profiles();
    let mut rates: Vec<&Port> = plan.site.ports.iter().collect();
    rates.sort_by_key(|port| port.rate);
    rates.dedup_by_key(|port| port.rate);
    for port in rates {
        writer.schedulers(port);
    }
    for port in &plan.site.ports {
        writer.port(port);
    }
    writer.statements
}

/// The forwarding class of a queue.
fn class_name(queue: &PlanQueue) -> String {
    format!("{OURS}-{}", queue.name())
}

/// The facts of Junos, and the plan whose statements are to be told from others.
#[derive(Debug)]
pub(super) struct JunosRules<'a> {
    /// `None` where nothing is compared with a plan.
    pub(super) plan: Option<&'a Plan>,
}

impl TreeRules for JunosRules<'_> {
    fn owner(&self, section: &[&str], node: &ConfigNode) -> Owner {
        let path = [section, &[node.name.as_str()]].concat();
        let word = |at: usize| path.get(at).copied().unwrap_or_default();
        let by_name = |at: usize| match path.len() > at {
            true if is_our_name(word(at)) => Owner::Plan,
            true => Owner::Others,
            false => Owner::Mixed,
        };
        match (word(0), word(1)) {
            ("class-of-service", "") => Owner::Mixed,
            ("class-of-service", "classifiers" | "forwarding-classes") => by_name(3),
            (
                "class-of-service",
                "drop-profiles"
                | "schedulers"
                | "scheduler-maps"
                | "forwarding-class-sets"
                | "traffic-control-profiles",
            ) => by_name(2),
            ("class-of-service", "interfaces") => self.owner_of_port(&path[2..]),
            _ => Owner::Others,
        }
    }

    fn is_before(&self, section: &[&str], new: &ConfigNode, other: &ConfigNode) -> bool {
        !section.is_empty() && order(&other.name, &new.name) == Ordering::Greater
    }

    fn spaces(&self, _parent: Option<&ConfigNode>) -> usize {
        0
    }
}

impl JunosRules<'_> {
    /// Who decides about a node of `class-of-service interfaces`.
    fn owner_of_port(&self, path: &[&str]) -> Owner {
        let Some((name, rest)) = path.split_first() else {
            return Owner::Mixed;
        };
        let mut ports = self.plan.into_iter().flat_map(|plan| &plan.site.ports);
        if !ports.any(|port| port.name == *name) {
            return Owner::Others;
        }
        let rest = rest.join(" ");
        let is_in = |slot: &&str| rest == **slot || rest.starts_with(&format!("{slot} "));
        let has = |slot: &&str| rest.is_empty() || slot.starts_with(&format!("{rest} "));
        match (PORT_SLOTS.iter().any(is_in), PORT_SLOTS.iter().any(has)) {
            (true, _) => Owner::Plan,
            (false, true) => Owner::Mixed,
            (false, false) => Owner::Others,
        }
    }
}

impl StatementRules for JunosRules<'_> {
    fn single(&self) -> &[&str] {
        &SINGLE
    }

    fn entry_words(&self, path: &[&str]) -> usize {
        match path.get(1) {
            Some(&("classifiers" | "forwarding-classes")) => 4,
            _ => 3,
        }
    }
}

fn is_our_name(name: &str) -> bool {
    name == OURS || name.starts_with(&format!("{OURS}-"))
}

/// Which of two words, at the same place, is shown first.
fn order(one: &str, other: &str) -> Ordering {
    let rank = |word: &str| ORDER.iter().position(|known| *known == word);
    match (rank(one), rank(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => natural(one, other),
    }
}

/// Words of a text that has no quotes.
fn words(text: &str) -> Words {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Writes the statements of a plan one by one, each where Junos would show it.
struct StatementWriter<'a> {
    plan: &'a Plan,
    rules: JunosRules<'a>,
    statements: Vec<ConfigNode>,
}

impl StatementWriter<'_> {
    fn set(&mut self, text: &str) {
        self.put(words(text));
    }

    fn put(&mut self, mut words: Words) {
        words.insert(0, "class-of-service".to_owned());
        let node = set_lines::statement(&self.rules, &words);
        load(&self.rules, &mut self.statements, &[node]);
    }

    fn classes(&mut self) {
        let plan = self.plan;
        let strict_set = scheduling(plan.target.version) == Scheduling::StrictSet;
        for queue in &plan.queues {
            let class = class_name(queue);
            self.set(&format!(
                "forwarding-classes class {class} queue-num {}",
                queue.number
            ));
            let droppable = match plan.selection {
                Selection::Ecn => "low",
                Selection::Precedence => "high",
            };
            let kept = queue.dscps.iter().map(|dscp| (dscp, "low"));
            let dropped = queue.droppable.iter().map(|dscp| (dscp, droppable));
            for (dscp, loss) in kept.chain(dropped) {
                self.set(&format!(
                    "classifiers dscp {OURS} forwarding-class {class} loss-priority {loss} \
                     code-points {:06b}",
                    dscp.0
                ));
            }
            if strict_set {
                self.set(&format!("forwarding-class-sets {OURS} class {class}"));
            }
        }
        if strict_set {
            self.set(&format!("forwarding-class-sets {OURS} class {HOST_CLASS}"));
        }
    }

    fn drop_profiles(&mut self) {
        for profile in &self.plan.profiles {
            let at = format!("drop-profiles {OURS}-{} interpolate", profile.name);
            self.set(&format!("{at} fill-level {}", profile.threshold.low));
            self.set(&format!("{at} fill-level {}", profile.threshold.high));
            self.set(&format!("{at} drop-probability 0"));
            self.set(&format!("{at} drop-probability 100"));
        }
    }

    /// Schedulers and their map for ports of one rate.
    fn schedulers(&mut self, port: &Port) {
        let plan = self.plan;
        let map = format!("{OURS}-{}", port.rate);
        let model = scheduling(plan.target.version);
        if model == Scheduling::StrictSet {
            self.set(&format!(
                "traffic-control-profiles {map} scheduler-map {map}"
            ));
        }
        for (at, queue) in plan.queues.iter().enumerate() {
            let profile = plan.profile(queue, port);
            let scheduler = match profile {
                Some(_) => format!("{}-{}", class_name(queue), port.rate),
                None => class_name(queue),
            };
            let mut classes = vec![class_name(queue)];
            if at == 0 {
                classes.push(HOST_CLASS.to_owned());
            }
            for class in classes {
                self.set(&format!(
                    "scheduler-maps {map} forwarding-class {class} scheduler {scheduler}"
                ));
            }
            let priority = match model {
                Scheduling::StrictSet => LEVELS[0],
                Scheduling::Levels => LEVELS[at],
            };
            self.set(&format!("schedulers {scheduler} priority {priority}"));
            let Some(profile) = profile else { continue };
            let loss = match plan.selection {
                Selection::Ecn => "low",
                Selection::Precedence => "high",
            };
            self.set(&format!(
                "schedulers {scheduler} drop-profile-map loss-priority {loss} protocol any \
                 drop-profile {OURS}-{}",
                profile.name
            ));
            if plan.selection != Selection::Precedence {
                self.set(&format!(
                    "schedulers {scheduler} explicit-congestion-notification"
                ));
            }
        }
    }

    fn port(&mut self, port: &Port) {
        let model = scheduling(self.plan.target.version);
        let map = format!("{OURS}-{}", port.rate);
        let binding = match model {
            Scheduling::StrictSet => {
                format!("forwarding-class-set {OURS} output-traffic-control-profile {map}")
            }
            Scheduling::Levels => format!("scheduler-map {map}"),
        };
        for text in [binding, format!("unit 0 classifiers dscp {OURS}")] {
            let mut line = vec!["interfaces".to_owned(), port.name.clone()];
            line.extend(words(&text));
            self.put(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_taken_out_and_put_back_has_its_place_again() {
        let text = "set class-of-service interfaces et-0/0/2 scheduler-map a\n\
                    set class-of-service interfaces et-0/0/10 congestion-notification-profile p\n\
                    set class-of-service interfaces et-0/0/10 scheduler-map a\n\
                    set class-of-service interfaces et-0/0/10 unit 0 classifiers dscp a\n\
                    set class-of-service scheduler-maps a forwarding-class b scheduler c\n";
        let rules = JunosRules { plan: None };
        for line in text.lines() {
            let mut nodes = set_lines::read(&rules, text).expect("set lines");
            let gone = line.replacen("set", "delete", 1);
            set_lines::apply(&rules, &mut nodes, &gone).expect("a change");
            assert_ne!(set_lines::write(&nodes), text);
            set_lines::apply(&rules, &mut nodes, line).expect("a change");
            assert_eq!(set_lines::write(&nodes), text);
        }
    }

    #[test]
    fn quotes_and_lists_are_understood() {
        let rules = JunosRules { plan: None };
        let written =
            |text: &str| set_lines::read(&rules, text).map(|nodes| set_lines::write(&nodes));
        let text = "set system login message \"a \\\"b\\\" c\"\n";
        assert_eq!(written(text).as_deref(), Ok(text));
        let listed = written("set a fill-level [ 5 6 ]\n");
        assert_eq!(
            listed.as_deref(),
            Ok("set a fill-level 5\nset a fill-level 6\n")
        );
    }
}

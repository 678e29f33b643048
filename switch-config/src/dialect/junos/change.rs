//! The order of statements, and those that a plan decides.

use std::cmp::Ordering;

use crate::notation::set_lines::StatementRules;
use crate::plan::{Plan, is_our_name};
use crate::tree::ConfigEntry;
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
const SINGLE: [&str; 10] = [
    "class-of-service forwarding-classes class * queue-num *",
    "class-of-service scheduler-maps * forwarding-class * scheduler *",
    "class-of-service schedulers * priority *",
    "class-of-service schedulers * transmit-rate percent *",
    "class-of-service schedulers * drop-profile-map loss-priority * protocol * drop-profile *",
    "class-of-service traffic-control-profiles * scheduler-map *",
    "class-of-service traffic-control-profiles * guaranteed-rate percent *",
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

/// The facts of Junos, and the plan whose statements are to be told from others.
#[derive(Debug)]
pub(super) struct JunosRules<'a> {
    /// `None` where no plan is compared.
    pub(super) plan: Option<&'a Plan>,
}

impl TreeRules for JunosRules<'_> {
    fn owner(&self, section: &[&str], entry: &ConfigEntry) -> Owner {
        let path = [section, &[entry.name.as_str()]].concat();
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

    fn is_before(&self, section: &[&str], new: &ConfigEntry, other: &ConfigEntry) -> bool {
        !section.is_empty() && order(&other.name, &new.name) == Ordering::Greater
    }
}

impl JunosRules<'_> {
    /// Who decides about an entry of `class-of-service interfaces`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::set_lines;

    #[test]
    fn a_statement_taken_out_and_put_back_has_its_place_again() {
        let text = "set class-of-service interfaces et-0/0/2 scheduler-map a\n\
                    set class-of-service interfaces et-0/0/10 congestion-notification-profile p\n\
                    set class-of-service interfaces et-0/0/10 scheduler-map a\n\
                    set class-of-service interfaces et-0/0/10 unit 0 classifiers dscp a\n\
                    set class-of-service scheduler-maps a forwarding-class b scheduler c\n";
        let rules = JunosRules { plan: None };
        for line in text.lines() {
            let mut entries = set_lines::read(&rules, text).expect("set lines");
            let gone = line.replacen("set", "delete", 1);
            set_lines::apply(&rules, &mut entries, &gone).expect("a change");
            assert_ne!(set_lines::write(&entries), text);
            set_lines::apply(&rules, &mut entries, line).expect("a change");
            assert_eq!(set_lines::write(&entries), text);
        }
    }

    #[test]
    fn quotes_and_lists_are_understood() {
        let rules = JunosRules { plan: None };
        let written =
            |text: &str| set_lines::read(&rules, text).map(|entries| set_lines::write(&entries));
        let text = "set system login message \"a \\\"b\\\" c\"\n";
        assert_eq!(written(text).as_deref(), Ok(text));
        let listed = written("set a fill-level [ 5 6 ]\n");
        assert_eq!(
            listed.as_deref(),
            Ok("set a fill-level 5\nset a fill-level 6\n")
        );
    }
}

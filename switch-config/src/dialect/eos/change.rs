//! Which slot a command of EOS fills, and which sections are the plan's.

use super::maps;
use super::render::MMU;
use crate::notation::indented::{ALL, CommandRules, first_words, last};
use crate::tree::ConfigEntry;
use crate::tree::rules::{Owner, TreeRules};

/// The words of EOS.
#[derive(Debug)]
pub(super) struct EosRules;

impl TreeRules for EosRules {
    fn owner(&self, section: &[&str], _entry: &ConfigEntry) -> Owner {
        let section = last(section);
        let title = ConfigEntry::leaf(section);
        let profile = title.after("qos profile").or_else(|| title.after(MMU));
        match profile.is_some_and(|name| name.starts_with("gradwire")) || is_queue(section) {
            true => Owner::Plan,
            false => Owner::Others,
        }
    }

    fn spaces(&self, _parent: Option<&ConfigEntry>) -> usize {
        3
    }
}

impl CommandRules for EosRules {
    fn name<'a>(&self, section: &str, command: &'a str) -> &'a str {
        let words = match section {
            "" => words_at_top(command),
            _ if is_queue(section) => words_of_queue(command),
            _ if section.starts_with("platform trident") => words_of_memory(command),
            _ => words_of_port(command),
        };
        first_words(command, words)
    }

    fn takes_away(&self, section: &str, command: &str) -> bool {
        // These are printed: they are values beside others, not the absence of any.
        let is_value = command == "no qos trust" || is_queue(section) && command == "no priority";
        !is_value && (command.starts_with("no ") || command.starts_with("default "))
    }

    fn removal(&self, section: &str, entry: &ConfigEntry) -> String {
        let command = entry.text();
        let word = match (section, command.starts_with("interface")) {
            ("", true) => "default",
            _ if command.starts_with("qos trust") => "default",
            _ => "no",
        };
        match section.is_empty() && entry.name == MMU {
            true => format!("{word} {command}"),
            false => format!("{word} {}", entry.name),
        }
    }
}

fn is_queue(line: &str) -> bool {
    let line = ConfigEntry::leaf(line);
    let mut words = ["tx-queue", "uc-tx-queue", "mc-tx-queue"].into_iter();
    words.any(|word| line.after(word).is_some())
}

/// How many words of a command say which slot it fills.
fn words_at_top(command: &str) -> usize {
    let is_map = [maps::DSCP, "qos map traffic-class", "qos map cos"];
    if is_map.iter().any(|words| command.starts_with(words)) {
        return 4;
    }
    match is_apply(command) {
        true => 5,
        false => ALL,
    }
}

fn is_apply(command: &str) -> bool {
    command.starts_with(MMU) && command.ends_with(" apply")
}

fn words_of_port(command: &str) -> usize {
    match command {
        _ if is_queue(command) => 2,
        _ if command.starts_with("priority-flow-control priority") => 3,
        _ if command.starts_with("priority-flow-control pause") => ALL,
        _ if command.starts_with("qos ") => 2,
        _ => 1,
    }
}

fn words_of_queue(command: &str) -> usize {
    match command {
        "random-detect ecn count" => 3,
        _ if command.starts_with("random-detect drop drop-precedence") => 4,
        _ if command.starts_with("random-detect") => 2,
        _ => 1,
    }
}

fn words_of_memory(command: &str) -> usize {
    // egress unicast queue 3 threshold
    match command.starts_with("egress") {
        true => 5,
        false => ALL,
    }
}

//! Changes of a small configuration, there and back.

use super::*;
use crate::tree::rules::Owner;

/// A platform of `menu`s with a drink, and tables that have one.
struct Menus;

impl TreeRules for Menus {
    fn owner(&self, section: &[&str], _entry: &ConfigEntry) -> Owner {
        match last(section).starts_with("menu our") {
            true => Owner::Plan,
            false => Owner::Others,
        }
    }
}

impl CommandRules for Menus {
    fn spaces(&self) -> usize {
        3
    }

    fn name<'a>(&self, section: &str, command: &'a str) -> &'a str {
        match command.split_once(' ') {
            Some((word, _)) if section.starts_with("table") => word,
            _ => command,
        }
    }

    fn removal(&self, _section: &str, entry: &ConfigEntry) -> String {
        format!("no {}", entry.name)
    }
}

const RUNNING: &str = "! made today\n!\nlamp 1\n!\nmenu theirs\n   tea\n!\ntable 1\n   \
                       cloth red\n   menu theirs\n!\ntable 10\n!\nend\n";
const WANTED: &str = "lamp 2\nmenu ours\n   milk\n   water\ntable 1\n   menu ours\n   no candle\n\
                      table 10\n   menu ours\n";

fn there_and_back(running: &str, wanted: &str) -> (ConfigChange, String) {
    let (running, wanted) = (read(running), read(wanted));
    let change = change(&running, &wanted, &Menus);
    let there = apply(&running, &read(&change.forward), &Menus);
    let back = apply(&there, &read(&change.inverse), &Menus);
    assert_eq!(text(&sorted(&back), 3), text(&sorted(&running), 3));
    assert_eq!(super::change(&there, &wanted, &Menus).forward, "");
    (change, text(&there, 3))
}

/// Each section in the order of the alphabet.
fn sorted(entries: &[ConfigEntry]) -> Vec<ConfigEntry> {
    let mut entries = entries.to_vec();
    for entry in &mut entries {
        entry.below = sorted(&entry.below);
    }
    entries.sort_by(|one, other| one.text().cmp(other.text()));
    entries
}

#[test]
fn only_slots_that_are_wanted_are_touched_and_all_come_back() {
    let (change, there) = there_and_back(RUNNING, WANTED);
    assert_eq!(
        change.forward,
        "lamp 2\nmenu ours\n   milk\n   water\ntable 1\n   menu ours\ntable 10\n   menu ours\n"
    );
    assert_eq!(
        change.inverse,
        "table 10\n   no menu\ntable 1\n   menu theirs\nno menu ours\nno lamp 2\n"
    );
    assert_eq!(
        there,
        "lamp 1\nmenu theirs\n   tea\ntable 1\n   cloth red\n   menu ours\ntable 10\n   \
         menu ours\nend\nlamp 2\nmenu ours\n   milk\n   water\n"
    );
}

#[test]
fn what_the_plan_does_not_have_leaves_its_own_sections_only() {
    let running = "menu ours\n   beer\n   milk\n!\nmenu theirs\n   beer\n!\ntable 1\n   \
                   candle\n   menu ours\n!\n";
    let (change, _) = there_and_back(running, WANTED.split_once("table 10").expect("it").0);
    assert_eq!(
        change.forward,
        "lamp 2\nmenu ours\n   water\n   no beer\ntable 1\n   no candle\n"
    );
}

#[test]
fn nothing_is_changed_where_everything_is_as_wanted() {
    let wanted = read(WANTED);
    let change = change(&wanted, &wanted, &Menus);
    assert_eq!((change.forward, change.inverse), Default::default());
}

#[test]
fn deep_lines_stay_at_the_last_level() {
    let deep: String = (0..200)
        .map(|depth| " ".repeat(depth) + "deeper\n")
        .collect();
    let text = text(&read(&deep), 1);
    assert_eq!(text.lines().count(), 200);
    assert!(text.ends_with(&format!("\n{}deeper\n", " ".repeat(DEEPEST))));
}

#[test]
fn a_line_belongs_to_the_one_that_is_indented_less() {
    let tree = read("a\n   !\n   b\r\n      c\n   d\n!\ne\n");
    let texts = |lines: &[ConfigEntry]| {
        let texts = lines.iter().map(|line| line.text().to_owned());
        texts.collect::<Vec<_>>()
    };
    assert_eq!(texts(&tree), ["a", "e"]);
    assert_eq!(texts(&tree[0].below), ["b", "d"]);
    assert_eq!(texts(&tree[0].below[0].below), ["c"]);
}

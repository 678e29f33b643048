//! Changes of a small configuration, there and back.

use super::*;

/// A platform of `menu`s with a drink, and tables that have one.
struct Menus;

impl Grammar for Menus {
    fn slot<'a>(&self, section: &str, command: &'a str) -> &'a str {
        match command.split_once(' ') {
            Some((word, _)) if section.starts_with("table") => word,
            _ => command,
        }
    }

    fn rank(&self, section: &str, command: &str) -> Option<usize> {
        let order = ["lamp", "menu", "table"];
        let word = command.split(' ').next()?;
        match section {
            "" => order.iter().position(|known| *known == word),
            _ => Some(0),
        }
    }

    fn is_ours(&self, section: &str) -> bool {
        section.starts_with("menu our")
    }

    fn fence(&self, section: &str, _command: &str) -> Fence {
        match section {
            "" => Fence::Behind,
            _ => Fence::None,
        }
    }

    fn spaces(&self) -> usize {
        3
    }
}

const RUNNING: &str = "! made today\n!\nlamp 1\n!\nmenu theirs\n   tea\n!\ntable 1\n   \
                       cloth red\n   menu theirs\n!\ntable 10\n!\nend\n";
const WANTED: &str = "lamp 2\nmenu ours\n   milk\n   water\ntable 1\n   menu ours\n   no candle\n\
                      table 10\n   menu ours\n";

fn there_and_back(running: &str, wanted: &str) -> (Change, String) {
    let (running, wanted) = (Lines::read(running), Lines::read(wanted));
    let change = change(&running, &wanted, &Menus);
    let there = apply(&running, &Lines::read(&change.forward), &Menus);
    let back = apply(&there, &Lines::read(&change.inverse), &Menus);
    assert_eq!(back, running, "{back}");
    assert_eq!(super::change(&there, &wanted, &Menus).forward, "");
    (change, there.to_string())
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
        "! made today\n!\nlamp 1\nlamp 2\n!\nmenu ours\n   milk\n   water\n!\nmenu theirs\n   \
         tea\n!\ntable 1\n   cloth red\n   menu ours\n!\ntable 10\n   menu ours\n!\nend\n"
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
    let wanted = Lines::read(WANTED);
    let change = change(&wanted, &wanted, &Menus);
    assert_eq!((change.forward, change.inverse), Default::default());
}

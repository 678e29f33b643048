//! Loads a change into a running tree, as a switch does.

use super::rules::{Fence, TreeRules};
use super::{ConfigEntry, Sign, facts};

/// Loads entries into the entries of a section. [`Sign::Put`] gives an entry of that name the
/// loaded value, or makes it where the rules place it; [`Sign::Take`] takes the last entry of its
/// path away. An entry without a line of its own goes with the last one below it.
pub fn load(rules: &dyn TreeRules, entries: &mut Vec<ConfigEntry>, loaded: &[ConfigEntry]) {
    let top = Level {
        rules,
        section: &[],
        head: "",
    };
    top.load(entries, loaded);
}

/// The entries of one section, and the white space before their lines.
struct Level<'a> {
    rules: &'a dyn TreeRules,
    section: &'a [&'a str],
    head: &'a str,
}

impl Level<'_> {
    fn load(&self, entries: &mut Vec<ConfigEntry>, loaded: &[ConfigEntry]) {
        for entry in facts(loaded) {
            let at = entries.iter().position(|other| other.name == entry.name);
            match (at, entry.sign) {
                (None, Sign::Take) => {}
                (Some(at), Sign::Take) if entry.below.is_empty() => self.take(entries, at),
                (Some(at), _) => {
                    self.enter(&mut entries[at], entry);
                    if entries[at].line.is_none() && entries[at].below.is_empty() {
                        entries.remove(at);
                    }
                }
                (None, Sign::Put) => self.insert(entries, entry),
            }
        }
    }

    /// Loads an entry into the one of its name.
    fn enter(&self, entry: &mut ConfigEntry, loaded: &ConfigEntry) {
        if loaded.sign == Sign::Put && loaded.line.is_some() {
            self.rules.replace(entry, loaded);
        }
        if loaded.below.is_empty() {
            return;
        }
        if entry.below.is_empty() {
            self.rules.open(entry);
        }
        let head = match entry.facts().next() {
            Some(first) => first.head.clone(),
            None => format!(
                "{}{}",
                entry.head,
                " ".repeat(self.rules.spaces(Some(entry)))
            ),
        };
        let section: Vec<&str> = [self.section, &[&loaded.name]].concat();
        let inner = Level {
            rules: self.rules,
            section: &section,
            head: &head,
        };
        inner.load(&mut entry.below, &loaded.below);
    }

    /// Makes an entry where the rules place it.
    fn insert(&self, entries: &mut Vec<ConfigEntry>, loaded: &ConfigEntry) {
        let mut entry = ConfigEntry {
            below: Vec::new(),
            head: self.head.to_owned(),
            tail: String::new(),
            ..loaded.clone()
        };
        self.enter(&mut entry, loaded);
        let follows = |other: &ConfigEntry| {
            !other.is_remark() && self.rules.is_before(self.section, &entry, other)
        };
        let anchor = entries.iter().position(follows);
        let mut at = anchor.unwrap_or_else(|| self.end(entries));
        match self.rules.fence(self.section, Some(&entry)) {
            Fence::None => entries.insert(at, entry),
            Fence::Before => {
                while at > 0 && entries[at - 1].is_remark() && anchor.is_some() {
                    at -= 1;
                }
                entries.splice(at..at, [self.bar(), entry]);
            }
            Fence::Behind => {
                let joins = |other: Option<&ConfigEntry>| {
                    other.is_some_and(|other| self.is_one_group(other, &entry))
                };
                let before = at.checked_sub(1).and_then(|at| entries.get(at));
                if joins(entries.get(at)) || joins(before) {
                    entries.insert(at, entry);
                } else if at >= 2 && joins(entries.get(at - 2)) && is_bar(&entries[at - 1]) {
                    entries.insert(at - 1, entry);
                } else {
                    entries.splice(at..at, [entry, self.bar()]);
                }
            }
        }
    }

    /// Takes an entry away, and the fence that came with it.
    fn take(&self, entries: &mut Vec<ConfigEntry>, at: usize) {
        let entry = entries.remove(at);
        let bar_at = |at: Option<usize>| at.and_then(|at| entries.get(at)).is_some_and(is_bar);
        match self.rules.fence(self.section, Some(&entry)) {
            Fence::Before if bar_at(at.checked_sub(1)) => {
                entries.remove(at - 1);
            }
            Fence::Behind if bar_at(Some(at)) => {
                let before = at.checked_sub(1).and_then(|at| entries.get(at));
                if !before.is_some_and(|before| self.is_one_group(before, &entry)) {
                    entries.remove(at);
                }
            }
            Fence::None | Fence::Before | Fence::Behind => {}
        }
    }

    /// Place of an entry that stands before no other: behind the last that says something.
    fn end(&self, entries: &[ConfigEntry]) -> usize {
        let last = entries.iter().rposition(|entry| !entry.is_remark());
        match self.rules.fence(self.section, None) {
            Fence::Behind => entries.len(),
            _ => last.map_or(entries.len(), |last| last + 1),
        }
    }

    fn bar(&self) -> ConfigEntry {
        let mut bar = ConfigEntry::remark("!");
        bar.head = self.head.to_owned();
        bar
    }

    fn is_one_group(&self, one: &ConfigEntry, other: &ConfigEntry) -> bool {
        let is_leaf = |entry: &ConfigEntry| entry.below.is_empty() && !entry.is_remark();
        is_leaf(one) && is_leaf(other) && self.rules.is_one_group(self.section, one, other)
    }
}

fn is_bar(entry: &ConfigEntry) -> bool {
    entry.text() == "!"
}

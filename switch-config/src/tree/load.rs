//! Loads a change into a running tree, as a switch does.

use super::rules::TreeRules;
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
                (Some(at), Sign::Take) if entry.below.is_empty() => {
                    entries.remove(at);
                }
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
        let last = entries.iter().rposition(|entry| !entry.is_remark());
        let end = last.map_or(entries.len(), |last| last + 1);
        entries.insert(entries.iter().position(follows).unwrap_or(end), entry);
    }
}

//! Loads a change into a running tree, as a switch does.

use super::rules::TreeRules;
use super::{ConfigEntry, Sign, facts};

/// Loads entries into a tree. [`Sign::Put`] gives an entry of that name the loaded value, or makes
/// it where the rules place it; [`Sign::Take`] takes the last entry of its path away. An entry
/// without a line of its own goes with the last one below it.
pub fn load(rules: &dyn TreeRules, entries: &mut Vec<ConfigEntry>, loaded: &[ConfigEntry]) {
    load_section(rules, &[], entries, loaded);
}

/// Loads entries into those of a section.
fn load_section(
    rules: &dyn TreeRules,
    section: &[&str],
    entries: &mut Vec<ConfigEntry>,
    loaded: &[ConfigEntry],
) {
    for entry in facts(loaded) {
        let at = entries.iter().position(|other| other.name == entry.name);
        match (at, entry.sign) {
            (None, Sign::Take) => {}
            (Some(at), Sign::Take) if entry.below.is_empty() => {
                entries.remove(at);
            }
            (Some(at), _) => {
                enter(rules, section, &mut entries[at], entry);
                if entries[at].line.is_none() && entries[at].below.is_empty() {
                    entries.remove(at);
                }
            }
            (None, Sign::Put) => insert(rules, section, entries, entry),
        }
    }
}

/// Loads an entry into the one of its name.
fn enter(rules: &dyn TreeRules, section: &[&str], entry: &mut ConfigEntry, loaded: &ConfigEntry) {
    let says = loaded.sign == Sign::Put && loaded.line.is_some();
    if says && (entry.value != loaded.value || entry.line.is_none()) {
        entry.value.clone_from(&loaded.value);
        entry.line.clone_from(&loaded.line);
    }
    let section = [section, &[&loaded.name]].concat();
    load_section(rules, &section, &mut entry.below, &loaded.below);
}

/// Makes an entry where the rules place it.
fn insert(
    rules: &dyn TreeRules,
    section: &[&str],
    entries: &mut Vec<ConfigEntry>,
    loaded: &ConfigEntry,
) {
    let mut entry = ConfigEntry {
        below: Vec::new(),
        ..loaded.clone()
    };
    enter(rules, section, &mut entry, loaded);
    let follows =
        |other: &ConfigEntry| !other.is_remark() && rules.is_before(section, &entry, other);
    let last = entries.iter().rposition(|entry| !entry.is_remark());
    let end = last.map_or(entries.len(), |last| last + 1);
    entries.insert(entries.iter().position(follows).unwrap_or(end), entry);
}

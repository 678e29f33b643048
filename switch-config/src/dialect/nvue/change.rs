//! Patches of NVUE there and back, and the file after one was loaded.
//!
//! A key of `interface` may stand for many ports. A port has the leaves of its own key, and
//! else those of such a range; a port that would say the same as its range has no leaf of its own.

use super::ports::covers_with_others;
use super::read::{WHAT, settings};
use super::render::{GLOBAL, OFF, leaves_of, thresholds_name};
use crate::change::ConfigChange;
use crate::notation::yaml::{self, EMPTY, KeyPath, Leaves, bare, path};
use crate::plan::{OURS, Plan, SwitchPort};
use crate::reading::ReadError;
use crate::tree::ConfigEntry;
use crate::tree::diff::{self, EntryChange, TreeStep};
use crate::tree::rules::{Owner, TreeRules};

/// The key of all ports.
const INTERFACE: &str = "interface";

/// The facts of NVUE that decide about a tree.
#[derive(Debug)]
struct NvueRules {
    /// Paths below which everything is the plan's.
    roots: Vec<KeyPath>,
}

impl TreeRules for NvueRules {
    fn owner(&self, section: &[&str], entry: &ConfigEntry) -> Owner {
        let starts = |path: &[&str], other: &KeyPath| {
            path.iter().zip(other).all(|(one, other)| one == other)
        };
        let path = [section, &[entry.name.as_str()]].concat();
        let is_below = |root: &KeyPath| section.len() >= root.len() && starts(section, root);
        let has = |root: &KeyPath| path.len() <= root.len() && starts(&path, root);
        match (self.roots.iter().any(is_below), self.roots.iter().any(has)) {
            (true, _) => Owner::Plan,
            (false, true) => Owner::Mixed,
            (false, false) => Owner::Others,
        }
    }
}

/// The patches that lead from a running file to the plan, and back.
pub(super) fn change(plan: &Plan, running: &str) -> Result<ConfigChange, ReadError> {
    let before = settings(yaml::parse(WHAT, running)?)?;
    let mut set = before.clone();
    for port in &plan.site.ports {
        add_ranges(&mut set, port);
    }
    let mut leaves = leaves_of(plan);
    add_pauses_off(plan, &set, &mut leaves);
    let rules = NvueRules {
        roots: own_roots(plan),
    };
    let wanted = yaml::tree(&leaves);
    let steps = diff::steps(&rules, &mut Vec::new(), &set.below, &wanted.below);
    let mut patches = NvuePatches::default();
    patches.add(&mut Vec::new(), &steps);
    load(before, &patches.unset, &patches.set)?;
    Ok(ConfigChange {
        forward: patch(&patches.unset, &patches.set),
        inverse: patch(&patches.unset_back, &patches.set_back),
    })
}

/// Gives a port the leaves of the ranges that it is in.
fn add_ranges(set: &mut ConfigEntry, port: &SwitchPort) {
    let mut entries = set.below.iter_mut();
    let Some(ports) = entries.find(|entry| entry.name == INTERFACE) else {
        return;
    };
    let ranges = ports.facts();
    let ranges: Vec<ConfigEntry> = ranges
        .filter(|entry| covers_with_others(&entry.name, &port.name))
        .cloned()
        .collect();
    for range in ranges {
        let own = ports.below.iter().position(|entry| entry.name == port.name);
        let own = own.unwrap_or_else(|| {
            ports.below.push(ConfigEntry::part(&port.name, EMPTY));
            ports.below.len() - 1
        });
        fill(&mut ports.below[own], &range);
    }
}

/// Adds to an entry the leaves of another one that it lacks.
fn fill(entry: &mut ConfigEntry, other: &ConfigEntry) {
    for child in other.facts() {
        match entry.below.iter_mut().find(|one| one.name == child.name) {
            Some(one) => fill(one, child),
            None => entry.below.push(child.clone()),
        }
    }
}

/// Where a port pauses by a profile of PFC or link pause, one that is off takes its place.
fn add_pauses_off(plan: &Plan, set: &ConfigEntry, wanted: &mut Leaves) {
    for feature in ["link-pause", "pfc"] {
        let for_all = set.at(&["qos", feature, GLOBAL]).is_some();
        let paused = plan.site.ports.iter().map(|port| {
            let path = path(&[INTERFACE, &port.name, "qos", feature, "profile"]);
            (for_all || set.at(&path).is_some(), path)
        });
        let paused: Vec<KeyPath> = paused
            .filter_map(|(has, path)| has.then_some(path))
            .collect();
        for side in ["rx", "tx"].iter().filter(|_| !paused.is_empty()) {
            wanted.push((path(&["qos", feature, OFF, side]), "disable".to_owned()));
        }
        wanted.extend(paused.into_iter().map(|path| (path, OFF.to_owned())));
    }
}

/// Paths below which everything is the plan's.
fn own_roots(plan: &Plan) -> Vec<KeyPath> {
    let mut roots = vec![
        path(&["qos", "mapping", OURS]),
        path(&["qos", "egress-scheduler", OURS]),
        path(&["qos", "pfc", OFF]),
        path(&["qos", "link-pause", OFF]),
    ];
    for port in &plan.site.ports {
        roots.push(path(&[INTERFACE, &port.name, "qos", "congestion-control"]));
        let name = thresholds_name(port.rate);
        roots.push(path(&["qos", "congestion-control", &name]));
    }
    roots
}

/// Leaves to be set and paths to be unset, there and back.
#[derive(Default)]
struct NvuePatches {
    set: Leaves,
    unset: Leaves,
    set_back: Leaves,
    unset_back: Leaves,
}

impl NvuePatches {
    fn add(&mut self, section: &mut KeyPath, steps: &[TreeStep<'_>]) {
        for step in steps {
            match &step.change {
                EntryChange::Put(now) => {
                    self.set.extend(yaml::leaves(section, now));
                    let path = yaml::below(section, now);
                    self.unset_back.push((path, String::new()));
                }
                EntryChange::Take(was) => {
                    self.unset.push((yaml::below(section, was), String::new()));
                    self.set_back.extend(yaml::leaves(section, was));
                }
                EntryChange::Replace { was, now } => {
                    self.set.extend(yaml::leaves(section, now));
                    self.set_back.extend(yaml::leaves(section, was));
                }
                EntryChange::Within { was, now, steps } => {
                    section.push(now.name.clone());
                    if was.value == EMPTY && was.below.is_empty() {
                        self.set_back.push((section.clone(), EMPTY.to_owned()));
                    }
                    self.add(section, steps);
                    section.pop();
                }
            }
        }
    }
}

/// A patch; empty without leaves.
fn patch(unset: &Leaves, set: &Leaves) -> String {
    let parts = [("unset", unset), ("set", set)].into_iter();
    let parts = parts.filter(|(_, leaves)| !leaves.is_empty());
    parts
        .map(|(name, leaves)| item(name, &yaml::tree(leaves)))
        .collect()
}

/// An item of a file.
fn item(name: &str, entry: &ConfigEntry) -> String {
    format!("- {name}:\n{}", yaml::block(entry, 4))
}

/// A running file after `nv config patch` and `nv config apply`, in block style without comments.
pub(super) fn apply(running: &str, change: &str) -> Result<String, ReadError> {
    let items = yaml::parse(WHAT, running)?;
    let header = items.below.iter().find_map(|item| item.child("header"));
    let header = header.map_or_else(String::new, |header| item("header", header));
    let patches = match change.trim() {
        "" => yaml::map(),
        change => yaml::parse(WHAT, change)?,
    };
    let leaves = |name: &str| -> Leaves {
        let parts = patches.below.iter().filter_map(|patch| patch.child(name));
        let entries = parts.flat_map(|part| &part.below);
        entries.flat_map(|entry| yaml::leaves(&[], entry)).collect()
    };
    let set = load(settings(items)?, &leaves("unset"), &leaves("set"))?;
    Ok(header + &item("set", &set))
}

/// Settings after a patch.
fn load(mut set: ConfigEntry, unset: &Leaves, patch: &Leaves) -> Result<ConfigEntry, ReadError> {
    for (path, _) in unset {
        take(&mut set, path);
        let port = path.get(..2).filter(|path| range(&set, path).is_some());
        let is_empty = |path: &&[String]| set.at(path).is_some_and(|entry| entry.below.is_empty());
        if let Some(port) = port.filter(is_empty) {
            take(&mut set, port);
        }
    }
    for (path, value) in patch {
        check(&set, path, value)?;
        match range_says(&set, path, value) {
            true => prune(&mut set.below, path),
            false => yaml::put(&mut set, path, value),
        }
    }
    Ok(set)
}

/// Takes everything at the end of a path away.
fn take(entry: &mut ConfigEntry, path: &[String]) {
    match path {
        [] => {}
        [key] => entry.below.retain(|child| child.name != *key),
        [key, rest @ ..] => {
            let mut found = entry.below.iter_mut();
            if let Some(child) = found.find(|child| child.name == *key) {
                take(child, rest);
            }
        }
    }
}

/// Takes a leaf away, and those entries of its path that are empty without it.
fn prune(entries: &mut Vec<ConfigEntry>, path: &[String]) {
    let Some((key, rest)) = path.split_first() else {
        return;
    };
    let Some(at) = entries.iter().position(|entry| entry.name == *key) else {
        return;
    };
    prune(&mut entries[at].below, rest);
    if rest.is_empty() || entries[at].facts().next().is_none() {
        entries.remove(at);
    }
}

/// The range of ports that the port of a path is in, with others.
fn range<'a>(set: &'a ConfigEntry, path: &[String]) -> Option<&'a ConfigEntry> {
    let [first, port, ..] = path else {
        return None;
    };
    let ports = set.child(INTERFACE).filter(|_| first == INTERFACE)?;
    let mut ports = ports.facts();
    ports.find(|entry| covers_with_others(&entry.name, port))
}

/// Whether a range of ports says the same of one of them.
fn range_says(set: &ConfigEntry, path: &[String], said: &str) -> bool {
    let found = range(set, path).and_then(|range| range.at(&path[2..]));
    found.is_some_and(|found| found.below.is_empty() && found.value == bare(said))
}

/// Refuses a leaf that would go into a value, or take the place of a block.
fn check(set: &ConfigEntry, path: &[String], value: &str) -> Result<(), ReadError> {
    let wrong = |entry: &ConfigEntry, message: &str| {
        ReadError::new(
            WHAT,
            format!("`{}: {}`: {message}", entry.name, entry.value),
        )
    };
    let mut entry = set;
    for key in path {
        if !["", "~", EMPTY].contains(&entry.value.as_str()) {
            let message = "expected a map here; give the output of `nv config show -o yaml`";
            return Err(wrong(entry, message));
        }
        let Some(child) = entry.child(key) else {
            return Ok(());
        };
        entry = child;
    }
    match entry.facts().next() {
        Some(_) if value != EMPTY => Err(wrong(entry, "expected a value here, found a map")),
        _ => Ok(()),
    }
}

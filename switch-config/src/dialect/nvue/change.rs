//! Patches there and back, and what they make of a file.

use super::leaves::{self, EMPTY, Path, bare, path};
use super::render::{self, GLOBAL, Leaves, OFF, PROFILE};
use super::{WHAT, yaml};
use crate::dialect::Change;
use crate::lines::{Line, Lines};
use crate::plan::{Plan, Port};
use crate::reading::ReadError;

/// The lines of a file that was seen to be a configuration.
fn file(text: &str) -> Result<Lines, ReadError> {
    yaml::settings(text)?;
    let tree = Lines::read(text);
    match leaves::operation(&tree, "set") {
        Some(_) => Ok(tree),
        None => Err(ReadError {
            what: WHAT,
            line: Some(1),
            message: "no line `- set:`; give the output of `nv config show -o yaml`, not of json"
                .to_owned(),
        }),
    }
}

/// What must change in a running configuration.
pub(super) fn between(plan: &Plan, running: &str) -> Result<Change, ReadError> {
    let tree = file(running)?;
    let set = leaves::operation(&tree, "set").expect("file has looked");
    let mut wanted = render::of(plan);
    add_pauses_off(plan, set, &mut wanted);
    let mut patches = Patches::default();
    for (path, value) in &wanted {
        patches.compare(set, path, value);
    }
    for root in own_roots(plan) {
        patches.remove_others(set, &root, &wanted);
    }
    let change = patches.written();
    load(running, &change.forward)?;
    Ok(change)
}

/// Where a port pauses by a profile of PFC or link pause, one that is off takes its place.
fn add_pauses_off(plan: &Plan, set: &Line, wanted: &mut Leaves) {
    for feature in ["link-pause", "pfc"] {
        let for_all = leaves::find(set, &path(&["qos", feature, GLOBAL])).is_some();
        let paused = plan.site.ports.iter().map(|port| {
            let path = path(&["interface", &port.name, "qos", feature, "profile"]);
            (for_all || leaves::find(set, &path).is_some(), path)
        });
        let paused: Vec<Path> = paused
            .filter_map(|(has, path)| has.then_some(path))
            .collect();
        for side in ["rx", "tx"].iter().filter(|_| !paused.is_empty()) {
            wanted.push((path(&["qos", feature, OFF, side]), "disable".to_owned()));
        }
        wanted.extend(paused.into_iter().map(|path| (path, OFF.to_owned())));
    }
}

/// What is all the plan's.
fn own_roots(plan: &Plan) -> Vec<Path> {
    let mut roots = vec![
        path(&["qos", "mapping", PROFILE]),
        path(&["qos", "egress-scheduler", PROFILE]),
        path(&["qos", "pfc", OFF]),
        path(&["qos", "link-pause", OFF]),
    ];
    let ports = plan.site.ports.iter();
    let thresholds = |port: &Port| path(&["interface", &port.name, "qos", "congestion-control"]);
    roots.extend(ports.clone().map(thresholds));
    let mut names: Vec<String> = ports
        .map(|port| render::thresholds_name(port.rate))
        .collect();
    names.sort_unstable();
    names.dedup();
    roots.extend(
        names
            .iter()
            .map(|name| path(&["qos", "congestion-control", name])),
    );
    roots
}

/// Leaves to be set and paths to be unset, there and back.
#[derive(Default)]
struct Patches {
    set: Leaves,
    unset: Vec<Path>,
    set_back: Leaves,
    unset_back: Vec<Path>,
}

impl Patches {
    fn compare(&mut self, running: &Line, path: &Path, value: &str) {
        let found = leaves::find(running, path).and_then(leaves::value);
        if found.is_some_and(|found| bare(found) == bare(value)) {
            return;
        }
        self.set.push((path.clone(), value.to_owned()));
        if let Some(found) = found {
            self.set_back.push((path.clone(), found.to_owned()));
            return;
        }
        let depth = leaves::depth(running, path);
        let made = path[..=depth.min(path.len() - 1)].to_vec();
        let parent = leaves::find(running, &path[..depth]).and_then(leaves::value);
        if parent == Some(EMPTY) {
            self.set_back
                .push((path[..depth].to_vec(), EMPTY.to_owned()));
        }
        if !self.unset_back.contains(&made) {
            self.unset_back.push(made);
        }
    }

    /// Unsets what is below a root and not wanted, as near to the root as can be.
    fn remove_others(&mut self, running: &Line, root: &Path, wanted: &Leaves) {
        let Some(section) = leaves::find(running, root) else {
            return;
        };
        for (rest, value) in leaves::below(section) {
            let path = [&root[..], &rest].concat();
            let is_wanted = |depth: &usize| {
                let mut all = wanted.iter();
                all.any(|(other, _)| other.starts_with(&path[..*depth]))
            };
            let mut depths = root.len() + 1..=path.len();
            let Some(depth) = depths.find(|depth| !is_wanted(depth)) else {
                continue;
            };
            let gone = path[..depth].to_vec();
            if !self.unset.contains(&gone) {
                self.unset.push(gone);
            }
            self.set_back.push((path, value));
        }
    }

    fn written(self) -> Change {
        Change {
            forward: written(&self.unset, &self.set),
            inverse: written(&self.unset_back, &self.set_back),
        }
    }
}

/// A patch; empty when there is nothing to do.
fn written(unset: &[Path], set: &Leaves) -> String {
    let mut tree = Lines::default();
    let unset: Leaves = unset
        .iter()
        .map(|path| (path.clone(), String::new()))
        .collect();
    for (name, leaves) in [("unset", &unset), ("set", set)] {
        if !leaves.is_empty() {
            render::put(leaves::operation_mut(&mut tree, name), leaves);
        }
    }
    tree.to_string()
}

/// A running configuration after `nv config patch` and `nv config apply`.
pub(super) fn load(running: &str, change: &str) -> Result<String, ReadError> {
    let mut tree = file(running)?;
    if change.trim().is_empty() {
        return Ok(tree.to_string());
    }
    yaml::load(change)?;
    let change = Lines::read(change);
    let set = leaves::operation_mut(&mut tree, "set");
    if let Some(unset) = leaves::operation(&change, "unset") {
        for (path, _) in leaves::below(unset) {
            leaves::unset(set, &path);
        }
    }
    if let Some(patch) = leaves::operation(&change, "set") {
        for (path, value) in leaves::below(patch) {
            leaves::set(set, &path, &value)?;
        }
    }
    Ok(tree.to_string())
}

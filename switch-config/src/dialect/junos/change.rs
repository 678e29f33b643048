//! What must change in a running configuration, and what undoes it.

use super::statements::{Edit, Statements, Words, written};
use super::write::{OURS, statements};
use crate::dialect::Change;
use crate::plan::Plan;

/// Statements of a port that the plan decides: what is there and not the plan's goes.
const PORT_SLOTS: [&str; 6] = [
    "scheduler-map",
    "forwarding-class-set",
    "congestion-notification-profile",
    "output-traffic-control-profile",
    "unit 0 classifiers dscp",
    "unit 0 scheduler-map",
];

/// The change from a running configuration to the plan.
pub(super) fn change(plan: &Plan, running: &Statements) -> Change {
    let wanted = statements(plan);
    let mut after = running.clone();
    let stale = |words: &&Words| is_ours(plan, words) && !wanted.all().any(|one| one == *words);
    let stale: Vec<Words> = running.all().filter(stale).cloned().collect();
    let missing = |words: &&Words| !running.all().any(|one| one == *words);
    let missing: Vec<Words> = wanted.all().filter(missing).cloned().collect();
    let forward = edits(running, &stale, &missing);
    for edit in &forward {
        after.edit(edit);
    }
    let inverse = edits(&after, &missing, &stale);
    Change {
        forward: written(&forward),
        inverse: written(&inverse),
    }
}

/// The lines that take some statements out of a configuration and put others in.
fn edits(from: &Statements, gone: &[Words], new: &[Words]) -> Vec<Edit> {
    let replaced: Vec<&Words> = new.iter().filter_map(|one| from.replaced_by(one)).collect();
    let deleted = |words: &&Words| !replaced.contains(words);
    let mut edits: Vec<Edit> = Vec::new();
    for words in gone.iter().filter(deleted) {
        let edit = Edit::Delete(topmost(from, gone, new, words));
        if !edits.contains(&edit) {
            edits.push(edit);
        }
    }
    edits.extend(new.iter().cloned().map(Edit::Set));
    edits
}

/// The shortest beginning of a statement under which everything goes and nothing comes: what is
/// taken out whole leaves no empty husk behind.
fn topmost(from: &Statements, gone: &[Words], new: &[Words], words: &Words) -> Words {
    let least = match words.get(1).map(String::as_str) {
        Some("classifiers" | "forwarding-classes") => 4,
        _ => 3,
    };
    let alone = |length: &usize| {
        let prefix = &words[..*length];
        let mut below = from.all().filter(|one| one.starts_with(prefix));
        below.all(|one| gone.contains(one)) && !new.iter().any(|one| one.starts_with(prefix))
    };
    let length = (least..words.len()).find(alone).unwrap_or(words.len());
    words[..length].to_vec()
}

/// Whether a statement is the plan's to decide.
fn is_ours(plan: &Plan, words: &[String]) -> bool {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    if word(0) != "class-of-service" {
        return false;
    }
    let named = |name: &str| name == OURS || name.starts_with(&format!("{OURS}-"));
    match word(1) {
        "classifiers" | "forwarding-classes" => named(word(3)),
        "drop-profiles" | "schedulers" | "scheduler-maps" => named(word(2)),
        "forwarding-class-sets" | "traffic-control-profiles" => named(word(2)),
        "interfaces" => {
            let planned = plan.site.ports.iter().any(|port| port.name == word(2));
            let rest = words.get(3..).unwrap_or_default().join(" ");
            let slot = |slot: &str| rest.starts_with(&format!("{slot} "));
            planned && PORT_SLOTS.into_iter().any(slot)
        }
        _ => false,
    }
}

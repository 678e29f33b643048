//! The steps from a running tree to a wanted one, and so also those back.
//!
//! Entries are compared by name, level by level. Only entries that the wanted tree has are touched,
//! and those that the plan owns and does not want. A wanted [`Sign::Take`] is done where no entry
//! has its name.

use super::rules::{Owner, TreeRules};
use super::{ConfigEntry, Sign, facts};

/// One step between two trees.
#[derive(Clone, Debug)]
pub struct TreeStep<'a> {
    /// Position of the running entry in its section; `None` where there is none.
    pub at: Option<usize>,
    /// The change.
    pub change: EntryChange<'a>,
}

/// The change of an entry.
#[derive(Clone, Debug)]
pub enum EntryChange<'a> {
    /// It is new, with everything below it.
    Put(&'a ConfigEntry),
    /// It goes, with everything below it.
    Take(&'a ConfigEntry),
    /// It gets another value, or is taken away by a wanted entry.
    Replace {
        /// The running entry.
        was: &'a ConfigEntry,
        /// The wanted one.
        now: &'a ConfigEntry,
    },
    /// Something below it changes.
    Within {
        /// The running entry.
        was: &'a ConfigEntry,
        /// The wanted one; the running one again where none is wanted.
        now: &'a ConfigEntry,
        /// The steps below it.
        steps: Vec<TreeStep<'a>>,
    },
}

/// The steps from `running` to `wanted`: first those of wanted entries in their order, then running
/// entries that go, in theirs. `section` is the path of both.
pub fn steps<'a>(
    rules: &dyn TreeRules,
    section: &mut Vec<&'a str>,
    running: &'a [ConfigEntry],
    wanted: &'a [ConfigEntry],
) -> Vec<TreeStep<'a>> {
    let mut steps = Vec::new();
    for now in facts(wanted) {
        let found = facts(running).enumerate();
        let found = { found }.find(|(_, entry)| entry.name == now.name);
        let both_take = |was: &ConfigEntry| now.sign == Sign::Take && was.sign == Sign::Take;
        let found = found.filter(|(_, was)| !both_take(was));
        let change = match found {
            None if now.sign == Sign::Take => None,
            None => Some(EntryChange::Put(now)),
            Some((_, was)) => between(rules, section, was, now),
        };
        let at = found.map(|(at, _)| at);
        steps.extend(change.map(|change| TreeStep { at, change }));
    }
    let is_wanted = |entry: &ConfigEntry| facts(wanted).any(|now| now.name == entry.name);
    let others = facts(running).enumerate();
    for (at, was) in others.filter(|(_, was)| !is_wanted(was)) {
        let change = match rules.owner(section, was) {
            Owner::Others => None,
            Owner::Plan => Some(EntryChange::Take(was)),
            Owner::Mixed => within(rules, section, (was, was), &[]),
        };
        let at = Some(at);
        steps.extend(change.map(|change| TreeStep { at, change }));
    }
    steps
}

/// The change of a running entry that is wanted.
fn between<'a>(
    rules: &dyn TreeRules,
    section: &mut Vec<&'a str>,
    was: &'a ConfigEntry,
    now: &'a ConfigEntry,
) -> Option<EntryChange<'a>> {
    let is_leaf = |entry: &ConfigEntry| entry.below.is_empty();
    if now.sign == Sign::Take || is_leaf(was) && is_leaf(now) {
        let differs = now.sign == Sign::Take || was.value != now.value;
        return differs.then_some(EntryChange::Replace { was, now });
    }
    within(rules, section, (was, now), &now.below)
}

fn within<'a>(
    rules: &dyn TreeRules,
    section: &mut Vec<&'a str>,
    (was, now): (&'a ConfigEntry, &'a ConfigEntry),
    wanted: &'a [ConfigEntry],
) -> Option<EntryChange<'a>> {
    section.push(&now.name);
    let steps = steps(rules, section, &was.below, wanted);
    section.pop();
    (!steps.is_empty()).then_some(EntryChange::Within { was, now, steps })
}

//! The steps from a running tree to a wanted one, and so also those back.
//!
//! Nodes are compared by name, level by level. Only nodes that the wanted tree has are touched, and
//! those that the plan owns and does not want. A wanted [`Sign::Take`] is done where no node has
//! its name.

use super::rules::{Owner, TreeRules};
use super::{ConfigNode, Sign, facts};

/// One step between two trees.
#[derive(Clone, Debug)]
pub struct TreeStep<'a> {
    /// Position of the running node in its section; `None` where there is none.
    pub at: Option<usize>,
    /// What happens.
    pub change: NodeChange<'a>,
}

/// What happens to a node.
#[derive(Clone, Debug)]
pub enum NodeChange<'a> {
    /// It is new, with everything below it.
    Put(&'a ConfigNode),
    /// It goes, with everything below it.
    Take(&'a ConfigNode),
    /// It gets another value, or is taken away by a wanted node.
    Replace {
        /// The running node.
        was: &'a ConfigNode,
        /// The wanted one.
        now: &'a ConfigNode,
    },
    /// Something below it changes.
    Within {
        /// The running node.
        was: &'a ConfigNode,
        /// The wanted one; the running one again where none is wanted.
        now: &'a ConfigNode,
        /// The steps below it.
        steps: Vec<TreeStep<'a>>,
    },
}

/// The steps from `running` to `wanted`: first those of wanted nodes in their order, then running
/// nodes that go, in theirs. `section` is the path of both.
pub fn steps<'a>(
    rules: &dyn TreeRules,
    section: &mut Vec<&'a str>,
    running: &'a [ConfigNode],
    wanted: &'a [ConfigNode],
) -> Vec<TreeStep<'a>> {
    let mut steps = Vec::new();
    for now in facts(wanted) {
        let found = facts(running).enumerate();
        let found = { found }.find(|(_, node)| node.name == now.name);
        let both_take = |was: &ConfigNode| now.sign == Sign::Take && was.sign == Sign::Take;
        let found = found.filter(|(_, was)| !both_take(was));
        let change = match found {
            None if now.sign == Sign::Take => None,
            None => Some(NodeChange::Put(now)),
            Some((_, was)) => between(rules, section, was, now),
        };
        let at = found.map(|(at, _)| at);
        steps.extend(change.map(|change| TreeStep { at, change }));
    }
    let is_wanted = |node: &ConfigNode| facts(wanted).any(|now| now.name == node.name);
    let others = facts(running).enumerate();
    for (at, was) in others.filter(|(_, was)| !is_wanted(was)) {
        let change = match rules.owner(section, was) {
            Owner::Others => None,
            Owner::Plan => Some(NodeChange::Take(was)),
            Owner::Mixed => within(rules, section, (was, was), &[]),
        };
        let at = Some(at);
        steps.extend(change.map(|change| TreeStep { at, change }));
    }
    steps
}

/// What must happen to a running node that is wanted.
fn between<'a>(
    rules: &dyn TreeRules,
    section: &mut Vec<&'a str>,
    was: &'a ConfigNode,
    now: &'a ConfigNode,
) -> Option<NodeChange<'a>> {
    let is_leaf = |node: &ConfigNode| node.below.is_empty();
    if now.sign == Sign::Take || is_leaf(was) && is_leaf(now) {
        let differs = now.sign == Sign::Take || was.value != now.value;
        return differs.then_some(NodeChange::Replace { was, now });
    }
    within(rules, section, (was, now), &now.below)
}

fn within<'a>(
    rules: &dyn TreeRules,
    section: &mut Vec<&'a str>,
    (was, now): (&'a ConfigNode, &'a ConfigNode),
    wanted: &'a [ConfigNode],
) -> Option<NodeChange<'a>> {
    section.push(&now.name);
    let steps = steps(rules, section, &was.below, wanted);
    section.pop();
    (!steps.is_empty()).then_some(NodeChange::Within { was, now, steps })
}

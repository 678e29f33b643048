//! Loads a change into a running tree, as a switch does.

use super::rules::{Fence, TreeRules};
use super::{ConfigNode, Sign, facts};

/// Loads nodes into the nodes of a section. [`Sign::Put`] gives a node of that name the loaded
/// value, or makes it where the rules place it; [`Sign::Take`] takes the last node of its path away.
/// A node without a line of its own goes with the last one below it.
pub fn load(rules: &dyn TreeRules, nodes: &mut Vec<ConfigNode>, loaded: &[ConfigNode]) {
    let top = Level {
        rules,
        section: &[],
        head: "",
    };
    top.load(nodes, loaded);
}

/// The nodes of one section, and the white space before their lines.
struct Level<'a> {
    rules: &'a dyn TreeRules,
    section: &'a [&'a str],
    head: &'a str,
}

impl Level<'_> {
    fn load(&self, nodes: &mut Vec<ConfigNode>, loaded: &[ConfigNode]) {
        for node in facts(loaded) {
            let at = nodes.iter().position(|other| other.name == node.name);
            match (at, node.sign) {
                (None, Sign::Take) => {}
                (Some(at), Sign::Take) if node.below.is_empty() => self.take(nodes, at),
                (Some(at), _) => {
                    self.enter(&mut nodes[at], node);
                    if nodes[at].line.is_none() && nodes[at].below.is_empty() {
                        nodes.remove(at);
                    }
                }
                (None, Sign::Put) => self.insert(nodes, node),
            }
        }
    }

    /// Loads a node into the one of its name.
    fn enter(&self, node: &mut ConfigNode, loaded: &ConfigNode) {
        if loaded.sign == Sign::Put && loaded.line.is_some() {
            self.rules.replace(node, loaded);
        }
        if loaded.below.is_empty() {
            return;
        }
        if node.below.is_empty() {
            self.rules.open(node);
        }
        let head = match node.facts().next() {
            Some(first) => first.head.clone(),
            None => format!("{}{}", node.head, " ".repeat(self.rules.spaces(Some(node)))),
        };
        let section: Vec<&str> = [self.section, &[&loaded.name]].concat();
        let inner = Level {
            rules: self.rules,
            section: &section,
            head: &head,
        };
        inner.load(&mut node.below, &loaded.below);
    }

    /// Makes a node where the rules place it.
    fn insert(&self, nodes: &mut Vec<ConfigNode>, loaded: &ConfigNode) {
        let mut node = ConfigNode {
            below: Vec::new(),
            head: self.head.to_owned(),
            tail: String::new(),
            ..loaded.clone()
        };
        self.enter(&mut node, loaded);
        let follows = |other: &ConfigNode| {
            !other.is_remark() && self.rules.is_before(self.section, &node, other)
        };
        let anchor = nodes.iter().position(follows);
        let mut at = anchor.unwrap_or_else(|| self.end(nodes));
        match self.rules.fence(self.section, Some(&node)) {
            Fence::None => nodes.insert(at, node),
            Fence::Before => {
                while at > 0 && nodes[at - 1].is_remark() && anchor.is_some() {
                    at -= 1;
                }
                nodes.splice(at..at, [self.bar(), node]);
            }
            Fence::Behind => {
                let joins = |other: Option<&ConfigNode>| {
                    other.is_some_and(|other| self.is_one_group(other, &node))
                };
                let before = at.checked_sub(1).and_then(|at| nodes.get(at));
                if joins(nodes.get(at)) || joins(before) {
                    nodes.insert(at, node);
                } else if at >= 2 && joins(nodes.get(at - 2)) && is_bar(&nodes[at - 1]) {
                    nodes.insert(at - 1, node);
                } else {
                    nodes.splice(at..at, [node, self.bar()]);
                }
            }
        }
    }

    /// Takes a node away, and the fence that came with it.
    fn take(&self, nodes: &mut Vec<ConfigNode>, at: usize) {
        let node = nodes.remove(at);
        let bar_at = |at: Option<usize>| at.and_then(|at| nodes.get(at)).is_some_and(is_bar);
        match self.rules.fence(self.section, Some(&node)) {
            Fence::Before if bar_at(at.checked_sub(1)) => {
                nodes.remove(at - 1);
            }
            Fence::Behind if bar_at(Some(at)) => {
                let before = at.checked_sub(1).and_then(|at| nodes.get(at));
                if !before.is_some_and(|before| self.is_one_group(before, &node)) {
                    nodes.remove(at);
                }
            }
            Fence::None | Fence::Before | Fence::Behind => {}
        }
    }

    /// Place of a node that stands before no other: behind the last that says something.
    fn end(&self, nodes: &[ConfigNode]) -> usize {
        let last = nodes.iter().rposition(|node| !node.is_remark());
        match self.rules.fence(self.section, None) {
            Fence::Behind => nodes.len(),
            _ => last.map_or(nodes.len(), |last| last + 1),
        }
    }

    fn bar(&self) -> ConfigNode {
        let mut bar = ConfigNode::remark("!");
        bar.head = self.head.to_owned();
        bar
    }

    fn is_one_group(&self, one: &ConfigNode, other: &ConfigNode) -> bool {
        let is_leaf = |node: &ConfigNode| node.below.is_empty() && !node.is_remark();
        is_leaf(one) && is_leaf(other) && self.rules.is_one_group(self.section, one, other)
    }
}

fn is_bar(node: &ConfigNode) -> bool {
    node.text() == "!"
}

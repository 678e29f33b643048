//! What a platform says about its tree.
//!
//! A path is the names of the nodes from the root down to the section in question; it is empty at
//! the root.

use super::ConfigNode;

/// Who decides about a node that a plan does not have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Owner {
    /// The plan: the node is taken away.
    Plan,
    /// Others: it stays, with everything below it.
    Others,
    /// Others, but nodes of the plan may be below it.
    Mixed,
}

/// Lines between the nodes of a section.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fence {
    /// None.
    None,
    /// A line `!` before each node.
    Before,
    /// A line `!` behind each group of equal rank.
    Behind,
}

/// The facts of a platform that decide about its tree.
pub trait TreeRules {
    /// Who decides about a node that is not wanted.
    fn owner(&self, section: &[&str], node: &ConfigNode) -> Owner;

    /// Whether a new node stands before another one of its section.
    fn is_before(&self, section: &[&str], new: &ConfigNode, other: &ConfigNode) -> bool;

    /// Spaces by which the nodes below this one are indented more than it is.
    fn spaces(&self, parent: Option<&ConfigNode>) -> usize;

    /// The fence of a node.
    fn fence(&self, _section: &[&str], _node: Option<&ConfigNode>) -> Fence {
        Fence::None
    }

    /// Whether two nodes without others below them share one fence.
    fn is_one_group(&self, _section: &[&str], _one: &ConfigNode, _other: &ConfigNode) -> bool {
        false
    }

    /// Gives a node the value of a loaded one of the same name.
    fn replace(&self, node: &mut ConfigNode, loaded: &ConfigNode) {
        if node.value != loaded.value || node.line.is_none() {
            node.value.clone_from(&loaded.value);
            node.line.clone_from(&loaded.line);
        }
    }

    /// Makes a node without any below it ready for some.
    fn open(&self, _node: &mut ConfigNode) {}
}

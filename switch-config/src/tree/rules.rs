//! The facts of a platform that decide about its tree.
//!
//! A path is the names of the entries from the root down to the section in question; it is empty at
//! the root.

use super::ConfigEntry;

/// Who decides about an entry that a plan does not have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Owner {
    /// The plan: the entry is taken away.
    Plan,
    /// Others: it stays, with everything below it.
    Others,
    /// Others, but entries of the plan may be below it.
    Mixed,
}

/// The facts of a platform that decide about its tree.
pub trait TreeRules {
    /// Who decides about an entry that is not wanted.
    fn owner(&self, section: &[&str], entry: &ConfigEntry) -> Owner;

    /// Whether a new entry stands before another one of its section; else it stands at the end.
    fn is_before(&self, _section: &[&str], _new: &ConfigEntry, _other: &ConfigEntry) -> bool {
        false
    }
}

//! A configuration as a tree, whatever its notation: the running one, and the one that a plan
//! wants.
//!
//! An entry has a name that tells it from its siblings, perhaps a value, and entries below it. The
//! notations of [`crate::notation`] say how their text spells that: a command and its first words,
//! a word of a `set` line, a key. An entry also keeps the line that it was read from.
//!
//! - [`diff`] compares a running tree with a wanted one, and lists the steps between them.
//! - [`load`] changes a running tree as a switch does when it loads a change.
//! - [`rules`] is all that a platform says about its tree: order and ownership.
//! - [`order`] sorts names that have numbers in them.

pub mod diff;
pub mod load;
pub mod order;
pub mod rules;

/// Whether an entry is put into a tree, or taken out of it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Sign {
    /// It is there, or is put there.
    #[default]
    Put,
    /// It is absent, or is taken away: `no`, `delete`, `unset`.
    Take,
}

/// An entry of a configuration.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ConfigEntry {
    /// Tells it from its siblings; empty for a remark.
    pub name: String,
    /// Another value takes the place of this one.
    pub value: String,
    /// Whether it is there, or to be taken away.
    pub sign: Sign,
    /// Its text, as its notation writes it: a command, a `set` line, a YAML scalar. `None`: a part
    /// of a path, or a YAML map or list.
    pub line: Option<String>,
    /// Entries that belong to it.
    pub below: Vec<Self>,
}

impl ConfigEntry {
    /// An entry with a line and others below it. Its name is its line until a
    /// notation says otherwise.
    pub fn new(line: impl Into<String>, below: Vec<Self>) -> Self {
        let line = line.into();
        Self {
            name: line.clone(),
            value: line.clone(),
            line: Some(line),
            below,
            ..Self::default()
        }
    }

    /// The same without any below it.
    pub fn leaf(line: impl Into<String>) -> Self {
        Self::new(line, Vec::new())
    }

    /// A line that is not a setting, such as `deactivate ...`.
    pub fn remark(line: impl Into<String>) -> Self {
        Self {
            line: Some(line.into()),
            ..Self::default()
        }
    }

    /// An entry of this name and value without a line of its own.
    pub fn part(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
            ..Self::default()
        }
    }

    /// Whether it is a line that is not a setting.
    pub fn is_remark(&self) -> bool {
        self.name.is_empty()
    }

    /// Its line; empty without one.
    pub fn text(&self) -> &str {
        self.line.as_deref().unwrap_or_default()
    }

    /// The words of its line behind these; empty when it ends there, `None` when it begins
    /// otherwise.
    pub fn after(&self, words: &str) -> Option<&str> {
        let rest = self.text().strip_prefix(words)?;
        match rest.chars().next() {
            None => Some(rest),
            Some(first) => first.is_whitespace().then(|| rest.trim_start()),
        }
    }

    /// The words behind these, of the first line directly below it that begins so.
    pub fn command(&self, words: &str) -> Option<&str> {
        self.facts().find_map(|line| line.after(words))
    }

    /// Entries directly below it that say something.
    pub fn facts(&self) -> impl Iterator<Item = &Self> {
        facts(&self.below)
    }

    /// The entry of this name directly below it.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.facts().find(|entry| entry.name == name)
    }

    /// The entry at the end of a path of names.
    pub fn at<N: AsRef<str>>(&self, path: &[N]) -> Option<&Self> {
        path.iter()
            .try_fold(self, |entry, name| entry.child(name.as_ref()))
    }
}

/// Entries that say something.
pub fn facts(entries: &[ConfigEntry]) -> impl Iterator<Item = &ConfigEntry> {
    entries.iter().filter(|entry| !entry.is_remark())
}

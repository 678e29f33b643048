//! Lines that are indented below the line that they belong to: the command lines of EOS and NX-OS,
//! and the block style of YAML.
//!
//! [`IndentedText::read`] takes any text and writes it back byte for byte. Commands have names: the
//! words that a command shares with whatever would replace it, `service-profile` of
//! `service-profile X`. [`CommandRules`] says how many words that are; [`change`] writes the
//! commands between two trees, and [`apply`] loads typed ones.

use std::fmt;

use crate::change::ConfigChange;
use crate::reading::ReadError;
use crate::tree::diff::{self, EntryChange, TreeStep};
use crate::tree::load::load;
use crate::tree::rules::TreeRules;
use crate::tree::{ConfigEntry, Sign, facts};

/// Levels that are told apart; lines that are indented deeper stay at the last one.
const DEEPEST: usize = 48;

/// A text as a tree of lines.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct IndentedText {
    /// Lines that belong to no other.
    pub below: Vec<ConfigEntry>,
    /// Whether the last line lacks its line feed.
    unended: bool,
    /// Whether every line feed has a carriage return before it.
    returns: bool,
}

impl IndentedText {
    /// Reads a text. Blank lines and comments (`!`, `#`) go with the line that follows them.
    pub fn read(text: &str) -> Self {
        let mut builder = Builder::default();
        let returns =
            text.contains('\n') && text.matches('\n').count() == text.matches("\r\n").count();
        let plain = returns.then(|| text.replace("\r\n", "\n"));
        let text = plain.as_deref().unwrap_or(text);
        let unended = !text.is_empty() && !text.ends_with('\n');
        let body = text.strip_suffix('\n').unwrap_or(text);
        if !text.is_empty() {
            body.split('\n').for_each(|line| builder.add(line));
        }
        Self {
            below: builder.finish(),
            unended,
            returns,
        }
    }

    /// Reads the output of `show running-config`, in which some command must begin with one of the
    /// `known` words, of which there are two at least.
    ///
    /// # Errors
    /// [`ReadError`] names the first line when no command does.
    pub fn running_config(
        what: &'static str,
        text: &str,
        known: &[&str],
    ) -> Result<Self, ReadError> {
        let tree = Self::read(text);
        let is_known = |line: &ConfigEntry| known.iter().any(|word| line.after(word).is_some());
        if facts(&tree.below).any(is_known) {
            return Ok(tree);
        }
        let first = text.lines().position(|line| !line.trim().is_empty());
        let found = first.and_then(|at| text.lines().nth(at)).unwrap_or("");
        let found: String = found.trim().chars().take(40).collect();
        let give = "give the output of `show running-config`, not of `| json`";
        let message = match found.as_str() {
            "" => format!("it is empty; {give}"),
            _ => format!(
                "`{found}` is no command, and no line begins with `{}` or `{}`; {give}",
                known[0], known[1]
            ),
        };
        Err(ReadError::at(what, first.map_or(1, |at| at + 1), message))
    }

    /// The section with this line.
    pub fn section(&self, line: &str) -> Option<&ConfigEntry> {
        facts(&self.below).find(|entry| entry.text() == line)
    }

    /// A text of entries made by [`ConfigEntry::new`], each level indented by so many spaces.
    pub fn indented(below: Vec<ConfigEntry>, spaces: usize) -> Self {
        let mut tree = Self {
            below,
            ..Self::default()
        };
        for line in &mut tree.below {
            line.indent("", spaces);
        }
        tree
    }
}

impl fmt::Display for IndentedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for line in &self.below {
            line.write(&mut text);
        }
        if self.unended {
            text.pop();
        }
        match self.returns {
            true => f.write_str(&text.replace('\n', "\r\n")),
            false => f.write_str(&text),
        }
    }
}

/// The facts of a platform that decide about its commands.
pub trait CommandRules: TreeRules {
    /// The name of a command, its first words or all of them, without `no` or `default` before it.
    /// `section` is the line that it stands below; empty at the top.
    fn name<'a>(&self, section: &str, command: &'a str) -> &'a str;

    /// Whether a command takes something away. A platform may print some `no X` as values beside
    /// others; those put.
    fn takes_away(&self, _section: &str, command: &str) -> bool {
        command.starts_with("no ") || command.starts_with("default ")
    }

    /// The command that takes away a line that was not there before.
    fn removal(&self, section: &str, entry: &ConfigEntry) -> String;
}

/// More words than a command has: all of it is its name.
pub const ALL: usize = 99;

/// The first `count` words of a command, or all of it.
pub fn first_words(command: &str, count: usize) -> &str {
    let ends = command.match_indices(' ').map(|(at, _)| at);
    let end = ends.take(count).nth(count.saturating_sub(1));
    &command[..end.unwrap_or(command.len())]
}

/// The section at the end of a path; empty at the root.
pub fn last<'a>(section: &[&'a str]) -> &'a str {
    section.last().copied().unwrap_or_default()
}

/// The commands that bring `running` to `wanted`, and those back.
pub fn change(
    running: &IndentedText,
    wanted: &IndentedText,
    rules: &dyn CommandRules,
) -> ConfigChange {
    let [running, wanted] = [running, wanted].map(|text| named(rules, text));
    let steps = diff::steps(as_tree(rules), &mut Vec::new(), &running, &wanted);
    let text = |entries| IndentedText::indented(entries, rules.spaces(None)).to_string();
    let mut inverse = commands(rules, "", &steps, Way::Back);
    inverse.reverse();
    ConfigChange {
        forward: text(commands(rules, "", &steps, Way::There)),
        inverse: text(inverse),
    }
}

/// `running` after the commands were typed: new ones stand at the end of their section.
pub fn apply(
    running: &IndentedText,
    commands: &IndentedText,
    rules: &dyn CommandRules,
) -> IndentedText {
    let mut below = named(rules, running);
    load(as_tree(rules), &mut below, &named(rules, commands));
    IndentedText {
        unended: running.unended && !below.is_empty(),
        below,
        ..*running
    }
}

/// The direction of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    There,
    Back,
}

/// Commands of steps, section by section.
fn commands(
    rules: &dyn CommandRules,
    section: &str,
    steps: &[TreeStep<'_>],
    way: Way,
) -> Vec<ConfigEntry> {
    let removal = |entry: &ConfigEntry| ConfigEntry::leaf(rules.removal(section, entry));
    let command = |step: &TreeStep<'_>| match (&step.change, way) {
        (EntryChange::Put(now), Way::There) => (*now).clone(),
        (EntryChange::Put(now), Way::Back) => removal(now),
        (EntryChange::Take(was), Way::There) => removal(was),
        (EntryChange::Take(was), Way::Back) => (*was).clone(),
        (EntryChange::Replace { now, .. }, Way::There) => (*now).clone(),
        (EntryChange::Replace { was, .. }, Way::Back) => (*was).clone(),
        (EntryChange::Within { was, now, steps }, way) => {
            let line = match way {
                Way::There => now.text(),
                Way::Back => was.text(),
            };
            ConfigEntry::new(line, commands(rules, now.text(), steps, way))
        }
    };
    steps.iter().map(command).collect()
}

/// The entries of a text with the names and signs of their commands.
fn named(rules: &dyn CommandRules, text: &IndentedText) -> Vec<ConfigEntry> {
    let mut entries = text.below.clone();
    name_all(rules, "", &mut entries);
    entries
}

fn name_all(rules: &dyn CommandRules, section: &str, entries: &mut [ConfigEntry]) {
    for entry in entries.iter_mut().filter(|entry| !entry.is_remark()) {
        let line = entry.text().to_owned();
        let mut words = ["no ", "default "].into_iter();
        let bare = words.find_map(|word| line.strip_prefix(word));
        rules
            .name(section, bare.unwrap_or(&line))
            .clone_into(&mut entry.name);
        entry.sign = match rules.takes_away(section, &line) {
            true => Sign::Take,
            false => Sign::Put,
        };
        name_all(rules, &line, &mut entry.below);
    }
}

fn as_tree(rules: &dyn CommandRules) -> &dyn TreeRules {
    rules
}

/// Makes the tree, line by line.
#[derive(Default)]
struct Builder {
    done: Vec<ConfigEntry>,
    /// Lines that may still get others below them, each with the width of its indentation.
    open: Vec<(usize, ConfigEntry)>,
    /// Remarks that go with the next line.
    remarks: Vec<ConfigEntry>,
}

impl Builder {
    fn add(&mut self, line: &str) {
        let text = line.trim();
        let width = line.len() - line.trim_start().len();
        let is_remark = text.is_empty() || text.starts_with(['!', '#']);
        let entry = match is_remark {
            true => ConfigEntry::remark(text),
            false => ConfigEntry::leaf(text),
        };
        let line = ConfigEntry {
            head: line[..width].to_owned(),
            tail: line[width + text.len()..].to_owned(),
            ..entry
        };
        if line.is_remark() {
            return self.remarks.push(line);
        }
        let closed = |open: &Vec<(usize, ConfigEntry)>| {
            let last = open.last().map(|(last, _)| *last);
            last.is_some_and(|last| last >= width) || open.len() > DEEPEST
        };
        while closed(&self.open) {
            self.close();
        }
        let remarks = std::mem::take(&mut self.remarks);
        self.level().extend(remarks);
        self.open.push((width, line));
    }

    fn level(&mut self) -> &mut Vec<ConfigEntry> {
        match self.open.last_mut() {
            Some((_, line)) => &mut line.below,
            None => &mut self.done,
        }
    }

    fn close(&mut self) {
        if let Some((_, line)) = self.open.pop() {
            self.level().push(line);
        }
    }

    fn finish(mut self) -> Vec<ConfigEntry> {
        while !self.open.is_empty() {
            self.close();
        }
        self.done.append(&mut self.remarks);
        self.done
    }
}

#[cfg(test)]
mod tests;

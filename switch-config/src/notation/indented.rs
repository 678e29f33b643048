//! Lines that are indented below the line that they belong to: the command lines of EOS and NX-OS.
//!
//! [`read`] takes any text, without its comments. Commands have names: the words that a command
//! shares with whatever would replace it, `service-profile` of `service-profile X`.
//! [`CommandRules`] says how many words that are; [`change`] writes the commands between two trees,
//! and [`apply`] loads typed ones.

use std::iter::Peekable;

use crate::change::ConfigChange;
use crate::reading::ReadError;
use crate::tree::diff::{self, EntryChange, TreeStep};
use crate::tree::load::load;
use crate::tree::rules::TreeRules;
use crate::tree::{ConfigEntry, Sign};

/// Levels that are told apart; lines that are indented deeper stay at the last one.
const DEEPEST: usize = 48;

/// The lines of a text, without blank ones and comments (`!`, `#`).
pub fn read(text: &str) -> Vec<ConfigEntry> {
    let lines = text.lines().map(|line| {
        let width = line.len() - line.trim_start().len();
        (width, line.trim())
    });
    let said = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(['!', '#']));
    level(&mut said.peekable(), None, DEEPEST)
}

/// The next lines that are indented deeper than the one above, with this many levels below them.
fn level<'a, I>(lines: &mut Peekable<I>, above: Option<usize>, levels: usize) -> Vec<ConfigEntry>
where
    I: Iterator<Item = (usize, &'a str)>,
{
    let mut entries = Vec::new();
    while let Some((width, line)) =
        lines.next_if(|(width, _)| above.is_none_or(|above| *width > above))
    {
        let below = match levels {
            0 => Vec::new(),
            _ => level(lines, Some(width), levels - 1),
        };
        entries.push(ConfigEntry::new(line, below));
    }
    entries
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
) -> Result<Vec<ConfigEntry>, ReadError> {
    let entries = read(text);
    let is_known = |line: &ConfigEntry| known.iter().any(|word| line.after(word).is_some());
    if entries.iter().any(is_known) {
        return Ok(entries);
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
pub fn section<'a>(entries: &'a [ConfigEntry], line: &str) -> Option<&'a ConfigEntry> {
    entries.iter().find(|entry| entry.text() == line)
}

/// Entries as text, each level indented by this many spaces.
pub fn text(entries: &[ConfigEntry], spaces: usize) -> String {
    let lines = entries.iter().map(|entry| {
        let below = text(&entry.below, spaces);
        let below = below.lines().map(|line| format!("{:spaces$}{line}\n", ""));
        format!("{}\n{}", entry.text(), below.collect::<String>())
    });
    lines.collect()
}

/// The facts of a platform that decide about its commands.
pub trait CommandRules: TreeRules {
    /// The name of a command, its first words or all of them, without `no` or `default` before it.
    /// `section` is the line that it stands below; empty at the top.
    fn name<'a>(&self, section: &str, command: &'a str) -> &'a str;

    /// Spaces by which each level is indented.
    fn spaces(&self) -> usize;

    /// Whether a command takes something away. A platform may print some `no X` as values beside
    /// others; those put.
    fn takes_away(&self, _section: &str, command: &str) -> bool {
        command.starts_with("no ") || command.starts_with("default ")
    }

    /// The command that takes away a line that was not there before.
    fn removal(&self, section: &str, entry: &ConfigEntry) -> String;

    /// Makes the commands of a change, one for each name, into those that are shown.
    fn gather(&self, _commands: &mut Vec<ConfigEntry>) {}
}

/// How many words of a command are its name, by a kind of section and the beginning of a command;
/// `None`: all of them.
pub type NameWords = (&'static str, &'static str, Option<usize>);

/// The name of a command: as many words as the first matching row says; the whole command if none
/// matches.
pub fn name_of<'a>(rows: &[NameWords], kind: &str, command: &'a str) -> &'a str {
    let fits = |(of, words, _): &&NameWords| *of == kind && command.starts_with(words);
    let count = rows.iter().find(fits).and_then(|(.., count)| *count);
    let mut ends = command.match_indices(' ').map(|(at, _)| at);
    let end = count.and_then(|count| ends.nth(count - 1));
    &command[..end.unwrap_or(command.len())]
}

/// The section at the end of a path; empty at the root.
pub fn last<'a>(section: &[&'a str]) -> &'a str {
    section.last().copied().unwrap_or_default()
}

/// The commands that bring `running` to `wanted`, and those back.
pub fn change(
    running: &[ConfigEntry],
    wanted: &[ConfigEntry],
    rules: &dyn CommandRules,
) -> ConfigChange {
    let [running, wanted] = [running, wanted].map(|entries| named(rules, entries));
    let steps = diff::steps(as_tree(rules), &mut Vec::new(), &running, &wanted);
    let mut inverse = commands(rules, "", &steps, Way::Back);
    inverse.reverse();
    let mut forward = commands(rules, "", &steps, Way::There);
    rules.gather(&mut forward);
    rules.gather(&mut inverse);
    ConfigChange {
        forward: text(&forward, rules.spaces()),
        inverse: text(&inverse, rules.spaces()),
    }
}

/// `running` after the commands were typed: new ones stand at the end of their section.
pub fn apply(
    running: &[ConfigEntry],
    commands: &[ConfigEntry],
    rules: &dyn CommandRules,
) -> Vec<ConfigEntry> {
    let mut entries = named(rules, running);
    load(as_tree(rules), &mut entries, &named(rules, commands));
    entries
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

/// Entries with the names and signs of their commands.
fn named(rules: &dyn CommandRules, entries: &[ConfigEntry]) -> Vec<ConfigEntry> {
    let mut entries = entries.to_vec();
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

#[cfg(test)]
mod tests;

//! Lines that begin with `set` and name one statement each, as Junos exports and loads them.
//!
//! Every word is an entry of the tree. The last two words of a statement that has one value only
//! are one entry, a name and its value. `deactivate` lines stay where they are; an entry below
//! which something is deactivated is in the tree all the same, but not among the [`in_force`].

use crate::change::ConfigChange;
use crate::reading::ReadError;
use crate::tree::ConfigEntry;
use crate::tree::Sign;
use crate::tree::diff::{self, EntryChange, TreeStep};
use crate::tree::load::load;
use crate::tree::rules::TreeRules;

/// The expected text, in the words of an error.
pub const WHAT: &str = "Junos configuration in `set` lines";

/// The words of one statement, without `set`.
pub type Words = Vec<String>;

/// The facts of a platform that decide about its statements.
pub trait StatementRules: TreeRules {
    /// Statements that have one value: `*` stands for any word, the last word is the value.
    fn single(&self) -> &[&str];

    /// Words of the shortest path that a change deletes, of those that begin as this one does.
    fn entry_words(&self, path: &[&str]) -> usize;
}

/// Reads the output of `show configuration | display set`.
///
/// # Errors
/// [`ReadError`] names the first line that is no statement.
pub fn read(rules: &dyn StatementRules, text: &str) -> Result<Vec<ConfigEntry>, ReadError> {
    let mut entries = Vec::new();
    let mut remarks = Vec::new();
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        if line.is_empty() || line.starts_with('#') || line.starts_with("/*") {
            continue;
        }
        let (verb, words) = verb_and_words(line, number)?;
        match verb.as_str() {
            "set" => {
                for words in unlisted(words) {
                    add(&mut entries, statement(rules, &words), &mut remarks);
                }
            }
            "deactivate" | "activate" | "annotate" | "protect" => {
                remarks.push(ConfigEntry::remark(line));
            }
            _ => return Err(unexpected(number, line)),
        }
    }
    entries.append(&mut remarks);
    Ok(entries)
}

/// Puts a statement behind those that begin as it does, and remarks before it.
fn add(entries: &mut Vec<ConfigEntry>, entry: ConfigEntry, remarks: &mut Vec<ConfigEntry>) {
    let same = entries.iter_mut().find(|other| other.name == entry.name);
    let Some(same) = same else {
        entries.append(remarks);
        return entries.push(entry);
    };
    for child in entry.below {
        add(&mut same.below, child, remarks);
    }
    if entry.line.is_some() {
        (same.line, same.value) = (entry.line, entry.value);
    }
}

/// The configuration as text, in the order of the tree.
pub fn write(entries: &[ConfigEntry]) -> String {
    let lines = entries.iter().map(|entry| {
        let line = entry.line.iter().map(|line| format!("{line}\n"));
        line.collect::<String>() + &write(&entry.below)
    });
    lines.collect()
}

/// All statements, deactivated ones among them.
pub fn statements(entries: &[ConfigEntry]) -> Vec<Words> {
    Statements::of(entries).set
}

/// The statements that are in force: not deactivated.
pub fn in_force(entries: &[ConfigEntry]) -> Vec<Words> {
    let Statements { mut set, off } = Statements::of(entries);
    set.retain(|words| !off.iter().any(|prefix| words.starts_with(prefix)));
    set
}

/// Statements of a tree, and beginnings of those that are deactivated.
#[derive(Default)]
struct Statements {
    set: Vec<Words>,
    off: Vec<Words>,
}

impl Statements {
    fn of(entries: &[ConfigEntry]) -> Self {
        let mut found = Self::default();
        found.add(&mut Vec::new(), entries);
        found
    }

    fn add(&mut self, path: &mut Words, entries: &[ConfigEntry]) {
        for entry in entries {
            if entry.is_remark() {
                let line = Some(entry.text().trim()).filter(|line| line.starts_with("deactivate "));
                let words = line.and_then(|line| verb_and_words(line, 0).ok());
                self.off.extend(words.map(|(_, words)| words));
                continue;
            }
            path.push(entry.name.clone());
            if entry.line.is_some() {
                let value = Some(&entry.value).filter(|value| !value.is_empty());
                self.set.push(path.iter().chain(value).cloned().collect());
            }
            self.add(path, &entry.below);
            path.pop();
        }
    }
}

/// The lines that bring `running` to `wanted`, and those back.
pub fn change(
    rules: &dyn StatementRules,
    running: &[ConfigEntry],
    wanted: &[ConfigEntry],
) -> ConfigChange {
    let steps = diff::steps(rules, &mut Vec::new(), running, wanted);
    let mut lines = ChangeLines::default();
    lines.add(rules, &mut Vec::new(), &steps);
    lines.order_of_running(&mut Vec::new(), &steps);
    let ChangeLines {
        taken,
        put,
        taken_back,
        put_back,
    } = lines;
    ConfigChange {
        forward: [taken, put].concat(),
        inverse: [taken_back, put_back].concat(),
    }
}

/// Lines of a change, there and back.
#[derive(Default)]
struct ChangeLines {
    taken: String,
    put: String,
    taken_back: String,
    put_back: String,
}

impl ChangeLines {
    /// Adds lines of wanted statements, in the order of the wanted tree.
    fn add<'a>(
        &mut self,
        rules: &dyn StatementRules,
        path: &mut Vec<&'a str>,
        steps: &[TreeStep<'a>],
    ) {
        for step in steps {
            match &step.change {
                EntryChange::Put(now) => {
                    set(path, now, &mut self.put);
                    delete(rules, path, now, &mut self.taken_back);
                }
                EntryChange::Replace { now, .. } => set(path, now, &mut self.put),
                EntryChange::Within { now, steps, .. } => {
                    path.push(&now.name);
                    self.add(rules, path, steps);
                    path.pop();
                }
                EntryChange::Take(_) => {}
            }
        }
    }

    /// Adds lines of running statements that go, in the order of the running tree.
    fn order_of_running<'a>(&mut self, path: &mut Vec<&'a str>, steps: &[TreeStep<'a>]) {
        let mut steps: Vec<&TreeStep<'a>> = steps.iter().collect();
        steps.sort_by_key(|step| step.at);
        for step in steps {
            match &step.change {
                EntryChange::Take(was) => {
                    let line = typed("delete", path, was, "");
                    self.taken.push_str(&line);
                    set(path, was, &mut self.put_back);
                }
                EntryChange::Replace { was, .. } => set(path, was, &mut self.put_back),
                EntryChange::Within { was, steps, .. } => {
                    path.push(&was.name);
                    self.order_of_running(path, steps);
                    path.pop();
                }
                EntryChange::Put(_) => {}
            }
        }
    }
}

/// Adds `set` lines of an entry and of everything below it.
fn set<'a>(path: &mut Vec<&'a str>, entry: &'a ConfigEntry, text: &mut String) {
    if entry.line.is_some() {
        text.push_str(&typed("set", path, entry, &entry.value));
    }
    path.push(&entry.name);
    for child in entry.facts() {
        set(path, child, text);
    }
    path.pop();
}

/// Adds `delete` lines that take an entry away: one for each entry below it, where it has several.
fn delete<'a>(
    rules: &dyn StatementRules,
    path: &mut Vec<&'a str>,
    entry: &'a ConfigEntry,
    text: &mut String,
) {
    path.push(&entry.name);
    let is_whole = path.len() >= rules.entry_words(path) || entry.below.is_empty();
    if !is_whole {
        for child in entry.facts() {
            delete(rules, path, child, text);
        }
    }
    path.pop();
    if is_whole {
        text.push_str(&typed("delete", path, entry, ""));
    }
}

/// A line of a verb, a path, an entry and its value, if it has one.
fn typed(verb: &str, path: &[&str], entry: &ConfigEntry, value: &str) -> String {
    let words = path.iter().copied().chain([entry.name.as_str(), value]);
    let words: Words = words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    format!("{verb} {}\n", shown(&words))
}

/// The entries after a change of `set` and `delete` lines was loaded.
///
/// # Errors
/// [`ReadError`] names the first line of the change that is neither.
pub fn apply(
    rules: &dyn StatementRules,
    entries: &mut Vec<ConfigEntry>,
    change: &str,
) -> Result<(), ReadError> {
    let mut loaded = Vec::new();
    for (number, line) in change.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let (verb, words) = verb_and_words(trimmed, number + 1)?;
        match verb.as_str() {
            "set" => loaded.extend(unlisted(words).map(|words| statement(rules, &words))),
            "delete" => {
                let mut entry = statement(rules, &words);
                take(&mut entry);
                loaded.push(entry);
            }
            _ => return Err(unexpected(number + 1, trimmed)),
        }
    }
    load(rules, entries, &loaded);
    Ok(())
}

fn take(entry: &mut ConfigEntry) {
    entry.sign = Sign::Take;
    entry.below.iter_mut().for_each(take);
}

/// A statement as a path of entries, the last of which has its line.
pub fn statement(rules: &dyn StatementRules, words: &[String]) -> ConfigEntry {
    let is_single = rules.single().iter().any(|pattern| fits(pattern, words));
    let (names, value) = match words.split_last() {
        Some((value, names)) if is_single => (names, value.as_str()),
        _ => (words, ""),
    };
    let mut entries = names.iter().rev().map(|name| ConfigEntry::part(name, ""));
    let mut entry = entries.next().unwrap_or_default();
    value.clone_into(&mut entry.value);
    entry.line = Some(format!("set {}", shown(words)));
    entries.fold(entry, |below, mut entry| {
        entry.below.push(below);
        entry
    })
}

fn fits(pattern: &str, words: &[String]) -> bool {
    let mut pattern = pattern.split(' ');
    let each = words.iter().all(|word| {
        let wanted = pattern.next();
        wanted.is_some_and(|wanted| wanted == "*" || wanted == word)
    });
    each && pattern.next().is_none()
}

/// Words as they are typed.
fn shown(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:*<>@,+%".contains(c);
    let shown = words.iter().map(|word| match word.chars().all(plain) {
        true if !word.is_empty() => word.clone(),
        _ => format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")),
    });
    shown.collect::<Vec<_>>().join(" ")
}

fn unexpected(number: usize, line: &str) -> ReadError {
    let shown: String = line.chars().take(40).collect();
    let text =
        format!("`{shown}` is no `set` line; export with `show configuration | display set`");
    ReadError::at(WHAT, number, text)
}

/// Splits a line at its blanks, quoted parts apart.
fn verb_and_words(line: &str, number: usize) -> Result<(String, Words), ReadError> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    while let Some(first) = chars.peek().copied() {
        if first.is_whitespace() {
            chars.next();
            continue;
        }
        let mut word = String::new();
        if first == '"' {
            chars.next();
            let mut closed = false;
            while let Some(c) = chars.next() {
                match c {
                    '"' => {
                        closed = true;
                        break;
                    }
                    '\\' => word.extend(chars.next()),
                    c => word.push(c),
                }
            }
            if !closed {
                let text = "a quote is opened and not closed";
                return Err(ReadError::at(WHAT, number, text));
            }
        } else {
            while let Some(c) = chars.next_if(|c| !c.is_whitespace()) {
                word.push(c);
            }
        }
        words.push(word);
    }
    let verb = words.remove(0);
    Ok((verb, words))
}

/// One statement for each value of a list in brackets: `a [ b c ]` is `a b` and `a c`.
fn unlisted(words: Words) -> impl Iterator<Item = Words> {
    let open = words.iter().position(|word| word == "[");
    let close = words.iter().rposition(|word| word == "]");
    let expanded = match (open, close) {
        (Some(open), Some(close)) if open < close => {
            let values = words[open + 1..close].iter();
            values
                .map(|value| {
                    let mut one = words[..open].to_vec();
                    one.push(value.clone());
                    one.extend_from_slice(&words[close + 1..]);
                    one
                })
                .collect()
        }
        _ => vec![words],
    };
    expanded.into_iter()
}

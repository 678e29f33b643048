//! YAML: any of it parsed into a tree, and trees written in block style, their lists in flow style.
//!
//! Maps and lists have the values [`EMPTY`] and [`LIST`], their entries below them, and no line.
//! [`put`] keeps a map in natural order; a parsed map keeps the order of its text. A scalar has its
//! meaning as its value, and as its line how it is written: `on` is no truth value, and a number in
//! quotes stays in quotes.

use std::collections::BTreeSet;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use crate::reading::ReadError;
use crate::tree::ConfigEntry;
use crate::tree::order::natural;

/// Levels that a text may have; NVUE's own have fewer than 20.
const DEEPEST: usize = 64;
/// An empty map.
pub const EMPTY: &str = "{}";
/// The value of a list.
pub const LIST: &str = "[]";

/// Keys from the root to a leaf.
pub type KeyPath = Vec<String>;

/// A path of these keys.
pub fn path(keys: &[&str]) -> KeyPath {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

/// Whether an entry is a map: `'{}'` in quotes is a text.
fn is_map(entry: &ConfigEntry) -> bool {
    entry.line.is_none() && entry.value == EMPTY
}

/// The path of an entry in a section.
pub fn below(section: &[String], entry: &ConfigEntry) -> KeyPath {
    [section, std::slice::from_ref(&entry.name)].concat()
}

/// The text at the end of a path of keys in a parsed tree.
pub fn text_at<'a>(entry: &'a ConfigEntry, path: &[&str]) -> Option<&'a str> {
    let value = entry.at(path)?.value.as_str();
    (![EMPTY, LIST].contains(&value)).then_some(value)
}

/// Keys and values directly below a path in a parsed tree; none below a text or a list.
pub fn rows_at<'a>(entry: &'a ConfigEntry, path: &[&str]) -> &'a [ConfigEntry] {
    let entry = entry.at(path).filter(|entry| entry.value == EMPTY);
    entry.map_or(&[], |entry| &entry.below)
}

/// Puts `other` over a parsed tree: maps are merged, everything else takes the place of the
/// old value.
pub fn merge(entry: &mut ConfigEntry, other: ConfigEntry) {
    if !is_map(entry) || !is_map(&other) {
        let name = std::mem::take(&mut entry.name);
        *entry = ConfigEntry { name, ..other };
        return;
    }
    for child in other.below {
        match entry.below.iter_mut().find(|one| one.name == child.name) {
            Some(one) => merge(one, child),
            None => entry.below.push(child),
        }
    }
}

/// Leaves with their values, as they are written.
pub type Leaves = Vec<(KeyPath, String)>;

/// A map without entries.
pub fn map() -> ConfigEntry {
    ConfigEntry::part("", EMPTY)
}

/// Puts a value, as it is written, at the end of a path of keys; maps on the way are made.
pub fn put(entry: &mut ConfigEntry, path: &[String], written: &str) {
    let Some((key, rest)) = path.split_first() else {
        if entry.below.is_empty() {
            bare(written).clone_into(&mut entry.value);
            entry.line = (written != EMPTY).then(|| written.to_owned());
        }
        return;
    };
    (entry.value, entry.line) = (EMPTY.to_owned(), None);
    let found = entry.below.iter().position(|child| child.name == *key);
    let at = found.unwrap_or_else(|| {
        let mut children = entry.below.iter();
        let at = children.position(|child| natural(&child.name, key).is_gt());
        let at = at.unwrap_or(entry.below.len());
        entry.below.insert(at, ConfigEntry::part(key, EMPTY));
        at
    });
    put(&mut entry.below[at], rest, written);
}

/// Leaves as a tree.
pub fn tree(leaves: &Leaves) -> ConfigEntry {
    let mut tree = map();
    for (path, written) in leaves {
        put(&mut tree, path, written);
    }
    tree
}

/// The value of a leaf as it is written; `None` of a map that has entries.
pub fn written(entry: &ConfigEntry) -> Option<String> {
    match (&entry.line, entry.value.as_str()) {
        (Some(line), _) => Some(line.clone()),
        (None, LIST) => Some(flow(entry)),
        (None, EMPTY) => entry.below.is_empty().then(|| EMPTY.to_owned()),
        (None, value) => Some(quoted(value)),
    }
}

/// An entry in flow style, without its name.
fn flow(entry: &ConfigEntry) -> String {
    let joined = |part: fn(&ConfigEntry) -> String| {
        let parts: Vec<String> = entry.below.iter().map(part).collect();
        parts.join(", ")
    };
    match (&entry.line, entry.value.as_str()) {
        (Some(line), value) => flow_scalar(line, value),
        (None, LIST) => format!("[{}]", joined(flow)),
        (None, EMPTY) => format!("{{{}}}", joined(flow_pair)),
        (None, value) => flow_scalar(&quoted(value), value),
    }
}

fn flow_pair(entry: &ConfigEntry) -> String {
    let key = flow_scalar(&quoted(&entry.name), &entry.name);
    format!("{key}: {}", flow(entry))
}

/// A scalar between brackets: a plain one ends at other letters there than in a line of its own.
fn flow_scalar(written: &str, text: &str) -> String {
    match written.starts_with(['\'', '"']) {
        true => written.to_owned(),
        false if written.is_empty() => "~".to_owned(),
        false if written.contains([',', '[', ']', '{', '}']) => in_quotes(text),
        false => written.to_owned(),
    }
}

/// An entry that is a leaf, or every leaf below it, with paths that begin in a section.
pub fn leaves(section: &[String], entry: &ConfigEntry) -> Leaves {
    let path = below(section, entry);
    match written(entry) {
        Some(written) => vec![(path, written)],
        None => entry
            .below
            .iter()
            .flat_map(|child| leaves(&path, child))
            .collect(),
    }
}

/// The entries of a map in block style, indented by this many spaces.
pub fn block(entry: &ConfigEntry, spaces: usize) -> String {
    let lines = entry.below.iter().map(|child| {
        let key = format!("{}{}:", " ".repeat(spaces), quoted(&child.name));
        match written(child) {
            Some(written) => format!("{}\n", format!("{key} {written}").trim_end()),
            None => format!("{key}\n{}", block(child, spaces + 2)),
        }
    });
    lines.collect()
}

/// A scalar without its quotes.
pub fn bare(text: &str) -> &str {
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('\'').or_else(|| inner('"')).unwrap_or(text)
}

/// A text as a key or a value: in quotes where some reader of YAML would take it for a number, a
/// truth value, null, or an item of a list.
pub fn quoted(text: &str) -> String {
    let words = [
        "on", "off", "yes", "no", "true", "false", "null", "~", "y", "n", "",
    ];
    let is_word = words.contains(&text.to_ascii_lowercase().as_str());
    let is_number = text.starts_with(|first: char| first.is_ascii_digit())
        && text
            .chars()
            .all(|letter| letter.is_ascii_digit() || "._-".contains(letter));
    let begins_plainly =
        text.starts_with(|first: char| first.is_ascii_alphanumeric() || "_/".contains(first));
    let is_plain = begins_plainly
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "-_./,".contains(letter));
    match is_word || is_number || !is_plain {
        true => in_quotes(text),
        false => text.to_owned(),
    }
}

/// A text in quotes; those of JSON where it has line ends or other control characters.
fn in_quotes(text: &str) -> String {
    match text.contains(char::is_control) {
        true => serde_json::json!(text).to_string(),
        false => format!("'{}'", text.replace('\'', "''")),
    }
}

/// Parses a text. Every scalar is kept as it is written: `on` is no truth value. Maps and lists
/// have the values [`EMPTY`] and [`LIST`], entries of lists their number as a name.
///
/// # Errors
/// [`ReadError`] names the line that is not YAML, or that has something that is not read.
pub fn parse(what: &'static str, text: &str) -> Result<ConfigEntry, ReadError> {
    let mut reader = YamlReader {
        what,
        events: Parser::new_from_str(text),
        line: 1,
    };
    let text = "it is empty; give the output of `nv config show -o yaml`";
    let first = reader.next()?;
    let first = first.ok_or_else(|| ReadError::at(what, 1, text))?;
    let root = reader.value(first, 0)?;
    match reader.next()? {
        None => Ok(root),
        Some(_) => Err(reader.wrong("a second document; give one")),
    }
}

/// Makes the tree out of events.
struct YamlReader<E> {
    what: &'static str,
    events: E,
    /// Line of the last event.
    line: usize,
}

impl<'a, E> YamlReader<E>
where
    E: Iterator<Item = Result<(Event<'a>, Span), ScanError>>,
{
    fn wrong(&self, message: &str) -> ReadError {
        ReadError::at(self.what, self.line, message)
    }

    /// The next event that begins or ends a value.
    fn next(&mut self) -> Result<Option<Event<'a>>, ReadError> {
        for event in self.events.by_ref() {
            let (event, span) = event.map_err(|error| {
                let text = format!("this is not YAML: {}", error.info());
                ReadError::at(self.what, error.marker().line(), text)
            })?;
            self.line = span.start.line();
            match event {
                Event::Alias(_) => {
                    return Err(
                        self.wrong("aliases (`*name`) are not read; write the value itself")
                    );
                }
                Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd => return Ok(Some(event)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The value that an event begins, at a depth.
    fn value(&mut self, first: Event<'a>, depth: usize) -> Result<ConfigEntry, ReadError> {
        let kind = match first {
            Event::Scalar(text, style, ..) => {
                let is_plain = style == ScalarStyle::Plain && !text.contains(char::is_control);
                let line = match is_plain {
                    true => text.to_string(),
                    false => in_quotes(&text),
                };
                let line = Some(line);
                return Ok(ConfigEntry {
                    line,
                    ..ConfigEntry::part("", text)
                });
            }
            Event::SequenceStart(..) => LIST,
            _ => EMPTY,
        };
        if depth >= DEEPEST {
            return Err(self.wrong("more than 64 levels: no NVUE configuration has as many"));
        }
        let mut entry = ConfigEntry::part("", kind);
        let mut keys = BTreeSet::new();
        while let Some(event) = self.next()? {
            let (name, first) = match event {
                Event::SequenceEnd | Event::MappingEnd => break,
                item if kind == LIST => (entry.below.len().to_string(), Some(item)),
                Event::Scalar(key, ..) => (key.into_owned(), self.next()?),
                _ => return Err(self.wrong("a key must be a text")),
            };
            if !keys.insert(name.clone()) {
                return Err(self.wrong("a key stands here twice; keep one"));
            }
            let first = first.ok_or_else(|| self.wrong("a key without a value"))?;
            let value = self.value(first, depth + 1)?;
            entry.below.push(ConfigEntry { name, ..value });
        }
        Ok(entry)
    }
}

#[cfg(test)]
mod tests;

//! YAML: any of it parsed into a tree, and block style edited line by line.
//!
//! [`parse`] reads the meaning of a text. An edited text is an [`IndentedText`] instead, so that
//! lines which are not touched stay as they are: [`name_keys`] gives its lines the names of their
//! keys, and [`leaf_lines`] makes new ones. Block style has two spaces a level and keys in natural
//! order.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use saphyr_parser::{Event, Parser, ScanError, Span};

use super::indented::IndentedText;
use crate::reading::ReadError;
use crate::tree::ConfigEntry;
use crate::tree::load::load;
use crate::tree::order::natural;
use crate::tree::rules::{Owner, TreeRules};

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
    if entry.value != EMPTY || other.value != EMPTY {
        (entry.value, entry.below) = (other.value, other.below);
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

/// The rules of block style. A plan owns no entry of it.
#[derive(Debug)]
pub struct BlockStyle;

impl TreeRules for BlockStyle {
    fn owner(&self, _section: &[&str], _entry: &ConfigEntry) -> Owner {
        Owner::Others
    }

    fn is_before(&self, _section: &[&str], new: &ConfigEntry, other: &ConfigEntry) -> bool {
        natural(&other.name, &new.name) == Ordering::Greater
    }

    fn spaces(&self, parent: Option<&ConfigEntry>) -> usize {
        match parent {
            None => 0,
            Some(parent) if parent.text().starts_with("- ") => 4,
            Some(_) => 2,
        }
    }

    fn replace(&self, entry: &mut ConfigEntry, loaded: &ConfigEntry) {
        if let Some(value) = raw_value(loaded).filter(|_| entry.below.is_empty()) {
            put_value(entry, value);
        }
    }

    fn open(&self, entry: &mut ConfigEntry) {
        if entry.value == EMPTY {
            put_value(entry, "");
        }
    }
}

/// The entry of `- set:` or `- unset:`.
pub fn operation<'a>(tree: &'a IndentedText, name: &str) -> Option<&'a ConfigEntry> {
    let title = format!("- {name}:");
    let mut found = tree.below.iter();
    found.find(|entry| entry.text().starts_with(&title))
}

/// Loads leaves below an operation, which is made at the end where there is none.
pub fn put(tree: &mut IndentedText, name: &str, leaves: &Leaves) {
    if !leaves.is_empty() && operation(tree, name).is_none() {
        let mut entry = ConfigEntry::leaf(format!("- {name}:"));
        name.clone_into(&mut entry.name);
        tree.below.push(entry);
    }
    for (path, value) in leaves {
        let path = [&[name.to_owned()], &path[..]].concat();
        let leaf = leaf_lines(&path, value);
        load(&BlockStyle, &mut tree.below, &[leaf]);
    }
}

/// The text of block style with the names and values of its keys.
pub fn read_lines(text: &str) -> IndentedText {
    let mut tree = IndentedText::read(text);
    name_keys(&mut tree.below);
    tree
}

/// Gives lines the names and values of their keys; a line without a key keeps its own.
pub fn name_keys(entries: &mut [ConfigEntry]) {
    for entry in entries.iter_mut().filter(|entry| !entry.is_remark()) {
        if let Some((key, value)) = split(entry.text()) {
            let value = bare(value).to_owned();
            (entry.name, entry.value) = (key, value);
        }
        name_keys(&mut entry.below);
    }
}

/// The lines of a path and of the value at its end, which is written as it stands.
pub fn leaf_lines(path: &[String], value: &str) -> ConfigEntry {
    let mut keys = path.iter().rev();
    let line = |key: &str, value: &str| {
        let line = format!("{}: {value}", quoted(key));
        let mut entry = ConfigEntry::leaf(line.trim_end());
        key.clone_into(&mut entry.name);
        bare(value).clone_into(&mut entry.value);
        entry
    };
    let last = keys.next().map(|key| line(key, value));
    keys.fold(last.unwrap_or_default(), |below, key| {
        let mut entry = line(key, "");
        entry.below.push(below);
        entry
    })
}

/// The value of a leaf as it is written, with its quotes; `None` of an entry that has others below
/// it.
pub fn raw_value(entry: &ConfigEntry) -> Option<&str> {
    let is_leaf = entry.facts().next().is_none();
    let (_, value) = split(entry.text())?;
    is_leaf.then_some(value)
}

/// Writes another value behind the key of a line.
fn put_value(entry: &mut ConfigEntry, value: &str) {
    let line = entry.text();
    let old = split(line).map_or(0, |(_, old)| old.len());
    let key = line[..line.len() - old].trim_end();
    entry.line = Some(format!("{key} {value}").trim_end().to_owned());
    bare(value).clone_into(&mut entry.value);
}

/// Every leaf below an entry, with its path from there and its value as it is written.
pub fn leaves(entry: &ConfigEntry) -> Leaves {
    let mut leaves = Vec::new();
    for child in entry.facts().filter(|child| split(child.text()).is_some()) {
        match raw_value(child) {
            Some(value) => leaves.push((vec![child.name.clone()], value.to_owned())),
            None => leaves.extend(self::leaves(child).into_iter().map(|(mut path, value)| {
                path.insert(0, child.name.clone());
                (path, value)
            })),
        }
    }
    leaves
}

/// A key and what stands behind it on its line; `None` of a line that has no key.
fn split(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix("- ").unwrap_or(text);
    let quote = text
        .chars()
        .next()
        .filter(|first| ['\'', '"'].contains(first));
    let (key, rest) = match quote {
        Some(quote) => {
            let (key, rest) = text[1..].split_once(quote)?;
            (key, rest.trim_start().strip_prefix(':')?)
        }
        None => text
            .split_once(": ")
            .or_else(|| Some((text.strip_suffix(':')?, "")))?,
    };
    Some((key.to_owned(), rest.trim()))
}

/// A scalar without its quotes.
pub fn bare(text: &str) -> &str {
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('\'').or_else(|| inner('"')).unwrap_or(text)
}

/// A text as a key or a value: in quotes where some reader of YAML would take it for a number, a
/// truth value or null.
pub fn quoted(text: &str) -> String {
    let words = [
        "on", "off", "yes", "no", "true", "false", "null", "~", "y", "n", "",
    ];
    let is_word = words.contains(&text.to_ascii_lowercase().as_str());
    let is_number = text.starts_with(|first: char| first.is_ascii_digit())
        && text
            .chars()
            .all(|letter| letter.is_ascii_digit() || "._-".contains(letter));
    let is_plain = text
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || "-_./,".contains(letter));
    match is_word || is_number || !is_plain {
        true => format!("'{}'", text.replace('\'', "''")),
        false => text.to_owned(),
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
            Event::Scalar(text, ..) => return Ok(ConfigEntry::part("", text)),
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

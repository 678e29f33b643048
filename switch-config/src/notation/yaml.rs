//! YAML: any of it parsed into a tree, and block style edited line by line.
//!
//! [`parse`] reads what a text says. An edited text is an [`IndentedText`] instead, so that lines
//! which are not touched stay as they are: [`name_keys`] gives its lines the names of their keys,
//! and [`entry`] makes new ones. Block style has two spaces a level and keys in natural order.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use saphyr_parser::{Event, Parser, ScanError};

use super::indented::IndentedText;
use crate::reading::ReadError;
use crate::tree::ConfigNode;
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
pub fn text_at<'a>(node: &'a ConfigNode, path: &[&str]) -> Option<&'a str> {
    let value = node.at(path)?.value.as_str();
    (![EMPTY, LIST].contains(&value)).then_some(value)
}

/// Keys and values directly below a path in a parsed tree; none below a text or a list.
pub fn rows_at<'a>(node: &'a ConfigNode, path: &[&str]) -> &'a [ConfigNode] {
    let node = node.at(path).filter(|node| node.value == EMPTY);
    node.map_or(&[], |node| &node.below)
}

/// Puts `other` over a parsed tree: maps are merged, everything else takes the place of what is
/// there.
pub fn merge(node: &mut ConfigNode, other: ConfigNode) {
    if node.value != EMPTY || other.value != EMPTY {
        (node.value, node.below) = (other.value, other.below);
        return;
    }
    for child in other.below {
        match node.below.iter_mut().find(|one| one.name == child.name) {
            Some(one) => merge(one, child),
            None => node.below.push(child),
        }
    }
}

/// Leaves with their values, as they are written.
pub type Leaves = Vec<(KeyPath, String)>;

/// The rules of block style; nothing in it is a plan's.
#[derive(Debug)]
pub struct BlockStyle;

impl TreeRules for BlockStyle {
    fn owner(&self, _section: &[&str], _node: &ConfigNode) -> Owner {
        Owner::Others
    }

    fn is_before(&self, _section: &[&str], new: &ConfigNode, other: &ConfigNode) -> bool {
        natural(&other.name, &new.name) == Ordering::Greater
    }

    fn spaces(&self, parent: Option<&ConfigNode>) -> usize {
        match parent {
            None => 0,
            Some(parent) if parent.text().starts_with("- ") => 4,
            Some(_) => 2,
        }
    }

    fn replace(&self, node: &mut ConfigNode, loaded: &ConfigNode) {
        if let Some(value) = raw_value(loaded).filter(|_| node.below.is_empty()) {
            put_value(node, value);
        }
    }

    fn open(&self, node: &mut ConfigNode) {
        if node.value == EMPTY {
            put_value(node, "");
        }
    }
}

/// The node of `- set:` or `- unset:`.
pub fn operation<'a>(tree: &'a IndentedText, name: &str) -> Option<&'a ConfigNode> {
    let title = format!("- {name}:");
    let mut found = tree.below.iter();
    found.find(|node| node.text().starts_with(&title))
}

/// Loads leaves below an operation, which is made at the end where there is none.
pub fn put(tree: &mut IndentedText, name: &str, leaves: &Leaves) {
    if !leaves.is_empty() && operation(tree, name).is_none() {
        let mut node = ConfigNode::leaf(format!("- {name}:"));
        name.clone_into(&mut node.name);
        tree.below.push(node);
    }
    for (path, value) in leaves {
        let path = [&[name.to_owned()], &path[..]].concat();
        let leaf = entry(&path, value);
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
pub fn name_keys(nodes: &mut [ConfigNode]) {
    for node in nodes.iter_mut().filter(|node| !node.is_remark()) {
        if let Some((key, value)) = split(node.text()) {
            let value = bare(value).to_owned();
            (node.name, node.value) = (key, value);
        }
        name_keys(&mut node.below);
    }
}

/// The lines of a path and of the value at its end, which is written as it stands.
pub fn entry(path: &[String], value: &str) -> ConfigNode {
    let mut keys = path.iter().rev();
    let line = |key: &str, value: &str| {
        let line = format!("{}: {value}", quoted(key));
        let mut node = ConfigNode::leaf(line.trim_end());
        key.clone_into(&mut node.name);
        bare(value).clone_into(&mut node.value);
        node
    };
    let last = keys.next().map(|key| line(key, value));
    keys.fold(last.unwrap_or_default(), |below, key| {
        let mut node = line(key, "");
        node.below.push(below);
        node
    })
}

/// The value of a leaf as it is written, with its quotes; `None` of a node that has others below it.
pub fn raw_value(node: &ConfigNode) -> Option<&str> {
    let is_leaf = node.facts().next().is_none();
    let (_, value) = split(node.text())?;
    is_leaf.then_some(value)
}

/// Writes another value behind the key of a line.
fn put_value(node: &mut ConfigNode, value: &str) {
    let line = node.text();
    let old = split(line).map_or(0, |(_, old)| old.len());
    let key = line[..line.len() - old].trim_end();
    node.line = Some(format!("{key} {value}").trim_end().to_owned());
    bare(value).clone_into(&mut node.value);
}

/// Every leaf below a node, with its path from there and its value as it is written.
pub fn leaves(node: &ConfigNode) -> Leaves {
    let mut leaves = Vec::new();
    for child in node.facts().filter(|child| split(child.text()).is_some()) {
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
/// truth value or nothing.
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

/// Parses a text. Every scalar is kept as it is written: `on` is no truth value. Maps and lists have
/// the values [`EMPTY`] and [`LIST`], entries of lists their number as a name.
///
/// # Errors
/// [`ReadError`] names the line that is not YAML, or that has something that is not read.
pub fn parse(what: &'static str, text: &str) -> Result<ConfigNode, ReadError> {
    let mut loader = YamlLoader::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| broken(what, &error))?;
        let line = span.start.line();
        loader.add(event).map_err(|message| ReadError {
            what,
            line: Some(line),
            message: message.to_owned(),
        })?;
    }
    loader.root.ok_or_else(|| ReadError {
        what,
        line: Some(1),
        message: "it is empty; give the output of `nv config show -o yaml`".to_owned(),
    })
}

fn broken(what: &'static str, error: &ScanError) -> ReadError {
    ReadError {
        what,
        line: Some(error.marker().line()),
        message: format!("this is not YAML: {}", error.info()),
    }
}

/// A list or a map that is not at its end yet.
struct OpenNode {
    node: ConfigNode,
    keys: BTreeSet<String>,
    /// The key whose value comes next.
    key: Option<String>,
}

impl OpenNode {
    /// Puts the next value into it.
    fn put(&mut self, mut value: ConfigNode) -> Result<(), &'static str> {
        if self.node.value == LIST {
            value.name = self.node.below.len().to_string();
            self.node.below.push(value);
            return Ok(());
        }
        match self.key.take() {
            Some(key) => {
                value.name = key;
                self.node.below.push(value);
            }
            None if [LIST, EMPTY].contains(&value.value.as_str()) => {
                return Err("a key must be a text");
            }
            None if !self.keys.insert(value.value.clone()) => {
                return Err("a key stands here twice; keep one");
            }
            None => self.key = Some(value.value),
        }
        Ok(())
    }
}

/// Makes the tree out of events.
#[derive(Default)]
struct YamlLoader {
    open: Vec<OpenNode>,
    root: Option<ConfigNode>,
}

impl YamlLoader {
    fn add(&mut self, event: Event<'_>) -> Result<(), &'static str> {
        match event {
            Event::Scalar(text, ..) => self.put(ConfigNode::part("", text.into_owned())),
            Event::SequenceStart(..) => self.begin(LIST),
            Event::MappingStart(..) => self.begin(EMPTY),
            Event::SequenceEnd | Event::MappingEnd => {
                let done = self.open.pop().ok_or("an end without a beginning")?;
                self.put(done.node)
            }
            Event::Alias(_) => Err("aliases (`*name`) are not read; write the value itself"),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, kind: &str) -> Result<(), &'static str> {
        if self.open.len() >= DEEPEST {
            return Err("more than 64 levels: no NVUE configuration has as many");
        }
        self.open.push(OpenNode {
            node: ConfigNode::part("", kind),
            keys: BTreeSet::new(),
            key: None,
        });
        Ok(())
    }

    fn put(&mut self, value: ConfigNode) -> Result<(), &'static str> {
        match self.open.last_mut() {
            None if self.root.is_some() => Err("a second document; give one"),
            None => {
                self.root = Some(value);
                Ok(())
            }
            Some(open) => open.put(value),
        }
    }
}

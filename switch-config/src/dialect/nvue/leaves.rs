//! Leaves in the lines of a file: found, set and unset without touching any other line.
//!
//! NVUE writes block style, two spaces a level, keys in natural order; what is in flow style but
//! for an empty `{}` is refused where a leaf would go into it.

use std::cmp::Ordering;

use super::WHAT;
use super::ports::covers_with_others;
use crate::lines::order::natural;
use crate::lines::{Line, Lines};
use crate::reading::ReadError;

/// Keys from the root to a leaf.
pub(super) type Path = Vec<String>;

/// An empty map.
pub(super) const EMPTY: &str = "{}";

/// A path of these keys.
pub(super) fn path(keys: &[&str]) -> Path {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

/// A key and what stands behind it on its line; `None` of a line that has no key.
pub(super) fn split(text: &str) -> Option<(String, &str)> {
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
pub(super) fn bare(text: &str) -> &str {
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('\'').or_else(|| inner('"')).unwrap_or(text)
}

/// A text as a key or a value: in quotes where some reader of YAML would take it for a number, a
/// truth value or nothing.
pub(super) fn quoted(text: &str) -> String {
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

/// The lines below `- set:` or `- unset:`.
pub(super) fn operation<'a>(tree: &'a Lines, name: &str) -> Option<&'a Line> {
    let title = format!("- {name}:");
    let mut found = tree
        .below
        .iter()
        .filter(|line| line.text.starts_with(&title));
    found.next()
}

/// The same, to be changed; it is made at the end where there is none.
pub(super) fn operation_mut<'a>(tree: &'a mut Lines, name: &str) -> &'a mut Line {
    let title = format!("- {name}:");
    let at = tree
        .below
        .iter()
        .position(|line| line.text.starts_with(&title));
    let at = at.unwrap_or_else(|| {
        tree.below.push(Line::leaf(title));
        tree.below.len() - 1
    });
    &mut tree.below[at]
}

/// The line at the end of a path; that of a range of interfaces where a port has none of its own.
pub(super) fn find<'a>(line: &'a Line, path: &[String]) -> Option<&'a Line> {
    let Some((key, rest)) = path.split_first() else {
        return Some(line);
    };
    let is_port = is_interfaces(line);
    let exact = child(line, key).and_then(|child| find(child, rest));
    exact.or_else(|| {
        let mut ranges = line.facts().filter(|line| {
            let key_of = split(&line.text).map(|(key, _)| key);
            is_port && key_of.is_some_and(|other| covers_with_others(&other, key))
        });
        ranges.find_map(|range| find(range, rest))
    })
}

/// How many keys of a path there are.
pub(super) fn depth(line: &Line, path: &[String]) -> usize {
    let mut depths = (0..=path.len()).rev();
    let is_there = |depth: &usize| find(line, &path[..*depth]).is_some();
    depths.find(is_there).unwrap_or(0)
}

/// What stands behind the key of a leaf; `None` of a line that has others below it.
pub(super) fn value(line: &Line) -> Option<&str> {
    let is_leaf = line.facts().next().is_none();
    let (_, value) = split_raw(&line.text)?;
    is_leaf.then_some(value)
}

fn split_raw(text: &str) -> Option<(usize, &str)> {
    let (_, value) = split(text)?;
    Some((text.len() - value.len(), value))
}

/// Every leaf below a line, with its path from there.
pub(super) fn below(line: &Line) -> Vec<(Path, String)> {
    let mut leaves = Vec::new();
    for child in line.facts() {
        let Some((key, _)) = split(&child.text) else {
            continue;
        };
        match value(child) {
            Some(value) => leaves.push((vec![key], value.to_owned())),
            None => leaves.extend(below(child).into_iter().map(|(mut path, value)| {
                path.insert(0, key.clone());
                (path, value)
            })),
        }
    }
    leaves
}

/// Sets a leaf. A port that then says what its range says, says nothing of its own.
///
/// # Errors
/// [`ReadError`] where something on the path is a value, or in flow style.
pub(super) fn set(line: &mut Line, path: &[String], value: &str) -> Result<(), ReadError> {
    if range_says(line, path, value) {
        prune(line, path);
        return Ok(());
    }
    let Some((key, rest)) = path.split_first() else {
        return put_value(line, value);
    };
    open(line)?;
    let at = match position(line, key) {
        Some(at) => at,
        None => insert(line, key),
    };
    set(&mut line.below[at], rest, value)
}

/// Unsets what is at the end of a path, with everything below it.
pub(super) fn unset(line: &mut Line, path: &[String]) {
    let Some((key, rest)) = path.split_first() else {
        return;
    };
    let Some(at) = position(line, key) else {
        return;
    };
    if rest.is_empty() {
        line.below.remove(at);
        return;
    }
    unset(&mut line.below[at], rest);
    let is_covered = is_interfaces(line) && range(line, key).is_some();
    if is_covered && line.below[at].facts().next().is_none() {
        line.below.remove(at);
    }
}

/// Takes a leaf away, and what is empty without it.
fn prune(line: &mut Line, path: &[String]) {
    let Some((key, rest)) = path.split_first() else {
        return;
    };
    let Some(at) = position(line, key) else {
        return;
    };
    prune(&mut line.below[at], rest);
    if rest.is_empty() || line.below[at].facts().next().is_none() {
        line.below.remove(at);
    }
}

/// Whether the line is the key `interface` at the top, below which are names of ports.
fn is_interfaces(line: &Line) -> bool {
    line.text == "interface:" && line.head().len() == 4
}

fn range<'a>(line: &'a Line, port: &str) -> Option<&'a Line> {
    line.facts().find(|line| {
        let key = split(&line.text).map(|(key, _)| key);
        key.is_some_and(|key| covers_with_others(&key, port))
    })
}

/// Whether a range of ports says the same of one of them.
fn range_says(line: &Line, path: &[String], said: &str) -> bool {
    let Some((port, rest)) = path.split_first().filter(|_| is_interfaces(line)) else {
        return false;
    };
    let found = range(line, port).and_then(|range| find(range, rest));
    found
        .and_then(value)
        .is_some_and(|found| bare(found) == bare(said))
}

fn position(line: &Line, key: &str) -> Option<usize> {
    let is_key =
        |line: &Line| !line.is_remark() && split(&line.text).is_some_and(|(other, _)| other == key);
    line.below.iter().position(is_key)
}

fn child<'a>(line: &'a Line, key: &str) -> Option<&'a Line> {
    position(line, key).map(|at| &line.below[at])
}

/// Makes a line ready for others below it.
fn open(line: &mut Line) -> Result<(), ReadError> {
    match value(line) {
        None | Some("") => Ok(()),
        Some(EMPTY) => {
            let at = line.text.len() - EMPTY.len();
            line.text.truncate(at);
            line.text.truncate(line.text.trim_end().len());
            Ok(())
        }
        Some(_) => Err(ReadError {
            what: WHAT,
            line: None,
            message: format!(
                "`{}`: expected an indented block here; give the output of `nv config show -o \
                 yaml`",
                line.text
            ),
        }),
    }
}

fn put_value(line: &mut Line, value: &str) -> Result<(), ReadError> {
    if line.facts().next().is_some() {
        return match value {
            EMPTY => Ok(()),
            _ => Err(ReadError {
                what: WHAT,
                line: None,
                message: format!("`{}`: expected a value here, found a block", line.text),
            }),
        };
    }
    let at = split_raw(&line.text).map_or(line.text.len(), |(at, _)| at);
    line.text.truncate(at);
    line.text.truncate(line.text.trim_end().len());
    if !value.is_empty() {
        line.text = format!("{} {value}", line.text);
    }
    Ok(())
}

/// Makes a line for a key, in natural order among its siblings.
fn insert(line: &mut Line, key: &str) -> usize {
    let head = match line.facts().next() {
        Some(sibling) => sibling.head().to_owned(),
        None => {
            let deeper = if line.text.starts_with("- ") { 4 } else { 2 };
            format!("{}{}", line.head(), " ".repeat(deeper))
        }
    };
    let mut made = Line::leaf(format!("{}:", quoted(key)));
    made.indent(&head, 2);
    let follows = |line: &Line| {
        let other = split(&line.text).filter(|_| !line.is_remark());
        other.is_some_and(|(other, _)| natural(&other, key) == Ordering::Greater)
    };
    let at = line.below.iter().position(follows);
    let at = at.unwrap_or(line.below.len());
    line.below.insert(at, made);
    at
}

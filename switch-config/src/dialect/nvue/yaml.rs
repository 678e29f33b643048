//! YAML as a tree of texts: every scalar is kept as it is written, `on` is no truth value.

use std::collections::BTreeSet;

use saphyr_parser::{Event, Parser, ScanError};

use super::WHAT;
use crate::reading::ReadError;

/// Levels that a file may have; NVUE's own have fewer than 20.
const DEEPEST: usize = 64;

/// A tree of texts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Yaml {
    /// A scalar.
    Text(String),
    /// Keys and values, in order.
    Map(Vec<(String, Self)>),
    /// Values.
    List(Vec<Self>),
}

impl Yaml {
    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let found = self.rows().iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value)
    }

    /// The value at the end of a path of keys.
    pub(super) fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |value, key| value.get(key))
    }

    /// The text at the end of a path of keys.
    pub(super) fn text(&self, path: &[&str]) -> Option<&str> {
        match self.at(path)? {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Keys and values; none of what is no map.
    pub(super) fn rows(&self) -> &[(String, Self)] {
        match self {
            Self::Map(rows) => rows,
            _ => &[],
        }
    }

    /// Puts `other` over it: maps are merged, everything else takes the place of what is there.
    pub(super) fn merge(&mut self, other: Self) {
        let rows = match (&mut *self, other) {
            (Self::Map(rows), Self::Map(others)) => (rows, others),
            (slot, other) => return *slot = other,
        };
        let (rows, others) = rows;
        for (key, value) in others {
            match rows.iter_mut().find(|(name, _)| *name == key) {
                Some((_, slot)) => slot.merge(value),
                None => rows.push((key, value)),
            }
        }
    }
}

/// What a file sets: all its `- set:`, merged.
pub(super) fn settings(text: &str) -> Result<Yaml, ReadError> {
    let error = |message: String| ReadError {
        what: WHAT,
        line: Some(1),
        message,
    };
    let Yaml::List(items) = load(text)? else {
        return Err(error(
            "expected a list, `- header:` and `- set:`; give the output of `nv config show -o yaml`"
                .to_owned(),
        ));
    };
    let mut set = None;
    for item in items {
        for (key, value) in item.rows() {
            match key.as_str() {
                "set" => set
                    .get_or_insert(Yaml::Map(Vec::new()))
                    .merge(value.clone()),
                "header" | "unset" => {}
                other => {
                    return Err(error(format!(
                        "`- {other}:` is no operation of NVUE; expected `- header:`, `- set:`"
                    )));
                }
            }
        }
    }
    match set {
        Some(set) => Ok(set),
        None => Err(error(
            "nothing is set: `- set:` is missing; give the output of `nv config show -o yaml`"
                .to_owned(),
        )),
    }
}

/// The tree of a text.
pub(super) fn load(text: &str) -> Result<Yaml, ReadError> {
    let mut loader = Loader::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| broken(&error))?;
        let line = span.start.line();
        loader.add(event).map_err(|message| ReadError {
            what: WHAT,
            line: Some(line),
            message: message.to_owned(),
        })?;
    }
    loader.root.ok_or_else(|| ReadError {
        what: WHAT,
        line: Some(1),
        message: "it is empty; give the output of `nv config show -o yaml`".to_owned(),
    })
}

fn broken(error: &ScanError) -> ReadError {
    ReadError {
        what: WHAT,
        line: Some(error.marker().line()),
        message: format!("this is not YAML: {}", error.info()),
    }
}

/// A list or a map that is not at its end yet.
enum Open {
    List(Vec<Yaml>),
    Map(OpenMap),
}

/// A map that is not at its end yet.
#[derive(Default)]
struct OpenMap {
    rows: Vec<(String, Yaml)>,
    keys: BTreeSet<String>,
    /// The key whose value comes next.
    key: Option<String>,
}

impl OpenMap {
    fn put(&mut self, value: Yaml) -> Result<(), &'static str> {
        match (self.key.take(), value) {
            (Some(key), value) => self.rows.push((key, value)),
            (None, Yaml::Text(text)) if !self.keys.insert(text.clone()) => {
                return Err("a key stands here twice; keep one");
            }
            (None, Yaml::Text(text)) => self.key = Some(text),
            (None, _) => return Err("a key must be a text"),
        }
        Ok(())
    }
}

/// Makes the tree out of events.
#[derive(Default)]
struct Loader {
    open: Vec<Open>,
    root: Option<Yaml>,
}

impl Loader {
    fn add(&mut self, event: Event<'_>) -> Result<(), &'static str> {
        match event {
            Event::Scalar(text, ..) => self.put(Yaml::Text(text.into_owned())),
            Event::SequenceStart(..) => self.begin(Open::List(Vec::new())),
            Event::MappingStart(..) => self.begin(Open::Map(OpenMap::default())),
            Event::SequenceEnd | Event::MappingEnd => {
                let done = match self.open.pop() {
                    Some(Open::List(items)) => Yaml::List(items),
                    Some(Open::Map(map)) => Yaml::Map(map.rows),
                    None => return Err("an end without a beginning"),
                };
                self.put(done)
            }
            Event::Alias(_) => Err("aliases (`*name`) are not read; write the value itself"),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, open: Open) -> Result<(), &'static str> {
        if self.open.len() >= DEEPEST {
            return Err("more than 64 levels: no NVUE configuration has as many");
        }
        self.open.push(open);
        Ok(())
    }

    fn put(&mut self, value: Yaml) -> Result<(), &'static str> {
        match self.open.last_mut() {
            None if self.root.is_some() => return Err("a second document; give one"),
            None => self.root = Some(value),
            Some(Open::List(items)) => items.push(value),
            Some(Open::Map(map)) => return map.put(value),
        }
        Ok(())
    }
}

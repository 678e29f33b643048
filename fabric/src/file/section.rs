//! Tables of a TOML text whose keys and values know where they stand.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::FileError;
use crate::spelling::nearest;

/// A table of the text.
#[derive(Clone, Debug)]
pub(super) struct Section<'d> {
    text: &'d str,
    name: String,
    at: usize,
    table: &'d DeTable<'d>,
}

/// A value of the text and its key.
#[derive(Clone, Debug)]
pub(super) struct Entry<'d> {
    text: &'d str,
    key: String,
    span: std::ops::Range<usize>,
    pub(super) value: &'d DeValue<'d>,
}

/// The line, from 1, of the byte `at`.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    let before = text.bytes().take(at);
    before.filter(|byte| *byte == b'\n').count() + 1
}

impl<'d> Section<'d> {
    pub(super) fn root(text: &'d str, table: &'d DeTable<'d>) -> Self {
        Self {
            text,
            name: "the root table".to_owned(),
            at: 0,
            table,
        }
    }

    /// Refuses keys other than `known`.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), FileError> {
        let strange = self.table.iter().map(|(key, _)| key);
        let mut strange = strange.filter(|key| !known.contains(&key.get_ref().as_ref()));
        let Some(key) = strange.next() else {
            return Ok(());
        };
        let nearest = nearest(key.get_ref(), known.iter().copied());
        Err(FileError::UnknownKey {
            line: line_of(self.text, key.span().start),
            key: key.get_ref().to_string(),
            table: self.name.clone(),
            nearest: nearest.map(str::to_owned),
            known: known.join(", "),
        })
    }

    pub(super) fn get(&self, key: &str) -> Option<Entry<'d>> {
        let value = self.table.get(key)?;
        Some(Entry::new(self.text, key.to_owned(), value))
    }

    /// The value of a key that must be there; `needed` says what to add if it is not.
    pub(super) fn required(
        &self,
        key: &'static str,
        needed: &'static str,
    ) -> Result<Entry<'d>, FileError> {
        self.get(key).ok_or_else(|| FileError::Missing {
            line: line_of(self.text, self.at),
            table: self.name.clone(),
            key,
            needed,
        })
    }

    /// Refuses a key that cannot stand beside another.
    pub(super) fn refuse(
        &self,
        key: &'static str,
        other: &'static str,
        rule: &'static str,
    ) -> Result<(), FileError> {
        self.get(key).map_or(Ok(()), |entry| {
            Err(FileError::Conflict {
                line: entry.line(),
                key,
                other,
                rule,
            })
        })
    }

    /// The table `[key]`, if there is one.
    pub(super) fn table(&self, key: &str) -> Result<Option<Self>, FileError> {
        self.get(key).map(|entry| entry.table()).transpose()
    }

    /// The tables `[[key]]`, none if there are none.
    pub(super) fn tables(&self, key: &str) -> Result<Vec<Self>, FileError> {
        let Some(entry) = self.get(key) else {
            return Ok(Vec::new());
        };
        let entries = entry.list().into_iter();
        let tables = entries.map(|entry| {
            let table = entry.table()?;
            let name = format!("[[{key}]]");
            Ok(Section { name, ..table })
        });
        tables.collect()
    }
}

impl<'d> Entry<'d> {
    fn new(text: &'d str, key: String, value: &'d Spanned<DeValue<'d>>) -> Self {
        Self {
            text,
            key,
            span: value.span(),
            value: value.get_ref(),
        }
    }

    pub(super) fn line(&self) -> usize {
        line_of(self.text, self.span.start)
    }

    /// The value as `read` reads it from its text; `allowed` says what may be written. A number
    /// counts as its text.
    pub(super) fn read<T>(
        &self,
        allowed: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, FileError> {
        let text: Option<Cow<'_, str>> = match self.value {
            DeValue::String(text) => Some(Cow::Borrowed(text)),
            DeValue::Float(number) => Some(Cow::Borrowed(number.as_str())),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .ok()
                .map(|number| Cow::Owned(number.to_string())),
            _ => None,
        };
        let value = text.and_then(|text| read(&text));
        value.ok_or_else(|| self.refused(allowed))
    }

    /// The error that says what may be written here.
    pub(super) fn refused(&self, allowed: &str) -> FileError {
        let given = self.text.get(self.span.clone()).unwrap_or_default();
        let first = given.lines().next().unwrap_or_default();
        let short: String = first.chars().take(60).collect();
        FileError::Value {
            line: self.line(),
            key: self.key.clone(),
            given: if short.len() < given.len() {
                format!("{short} ...")
            } else {
                short
            },
            allowed: allowed.to_owned(),
        }
    }

    /// The entries of a list; the value itself when it is no list.
    pub(super) fn list(&self) -> Vec<Self> {
        let DeValue::Array(list) = self.value else {
            return vec![self.clone()];
        };
        let values = list.iter();
        values
            .map(|value| Entry::new(self.text, self.key.clone(), value))
            .collect()
    }

    /// The value as a table.
    pub(super) fn table(&self) -> Result<Section<'d>, FileError> {
        let DeValue::Table(table) = self.value else {
            return Err(self.refused("a table"));
        };
        Ok(Section {
            text: self.text,
            name: format!("[{}]", self.key),
            at: self.span.start,
            table,
        })
    }
}

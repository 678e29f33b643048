//! TOML whose tables and values know their line, so that an error can name it. `job.toml` and
//! `fabric.toml` are read through it.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::spelling::{did_you_mean, nearest};

/// Characters of a refused value that an error quotes.
const GIVEN_MAX: usize = 60;

/// Name of the table outside of all others.
pub(super) const ROOT: &str = "the root table";

/// Why a TOML file is refused, with the line.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TomlError {
    /// Line of the text, from 1.
    pub line: usize,
    /// The mistake on that line.
    pub problem: TomlProblem,
}

/// A mistake in a TOML file.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TomlProblem {
    /// The text is not TOML; the text is the parser's message.
    #[error("{0}")]
    Syntax(String),
    /// No such key.
    #[error(
        "unknown key `{key}` in {table}{}; known keys are {known}",
        did_you_mean(.nearest.as_deref())
    )]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The table that has it: `[name]`, `[[name]]` or `the root table`.
        table: String,
        /// The known key with the nearest spelling, if one is near.
        nearest: Option<String>,
        /// All keys of the table.
        known: String,
    },
    /// A value of the wrong kind or outside its range.
    #[error("{key} = {given}: allowed are {allowed}")]
    Value {
        /// The key, with its table in front.
        key: String,
        /// The value as written.
        given: String,
        /// The allowed values.
        allowed: String,
    },
    /// A required key is missing.
    #[error("{table} has no `{key}`; {needed}")]
    Missing {
        /// The table.
        table: String,
        /// The key.
        key: &'static str,
        /// The line to add.
        needed: &'static str,
    },
    /// Two keys that exclude each other.
    #[error("`{key}` cannot stand beside `{other}`: {rule}")]
    Exclusive {
        /// One key.
        key: &'static str,
        /// The other.
        other: &'static str,
        /// How to write it instead.
        rule: &'static str,
    },
}

impl TomlProblem {
    /// The problem of a `key` that `table` does not know.
    pub(super) fn unknown(key: &str, table: &str, known: &[&str]) -> Self {
        Self::UnknownKey {
            key: key.to_owned(),
            table: table.to_owned(),
            nearest: nearest(key, known.iter().copied()).map(str::to_owned),
            known: known.join(", "),
        }
    }
}

/// A table of the text.
#[derive(Clone, Debug)]
pub struct TomlTable<'d> {
    text: &'d str,
    name: String,
    /// Prefix of the keys of this table in errors: `transport.` for `[transport]`.
    prefix: String,
    at: usize,
    table: &'d DeTable<'d>,
}

/// A value of the text and its key.
#[derive(Clone, Debug)]
pub struct TomlEntry<'d> {
    text: &'d str,
    key: String,
    span: Range<usize>,
    /// The value.
    pub value: &'d DeValue<'d>,
}

/// Parses a text.
///
/// # Errors
/// [`TomlProblem::Syntax`].
pub fn parse(text: &str) -> Result<DeTable<'_>, TomlError> {
    let parsed = DeTable::parse(text).map_err(|error| TomlError {
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        problem: TomlProblem::Syntax(error.message().replace('\n', ", ")),
    })?;
    Ok(parsed.into_inner())
}

/// The number, from 1, of the line that has the byte at `at`.
fn line_of(text: &str, at: usize) -> usize {
    let before = text.bytes().take(at);
    before.filter(|byte| *byte == b'\n').count() + 1
}

impl<'d> TomlTable<'d> {
    /// The root table of `text`, as [`parse`] gave it.
    pub fn root(text: &'d str, table: &'d DeTable<'d>) -> Self {
        Self {
            text,
            name: ROOT.to_owned(),
            prefix: String::new(),
            at: 0,
            table,
        }
    }

    /// Refuses keys other than `known`.
    ///
    /// # Errors
    /// [`TomlProblem::UnknownKey`].
    pub fn only(&self, known: &[&str]) -> Result<(), TomlError> {
        let mut keys = self.table.keys();
        let Some(key) = keys.find(|key| !known.contains(&key.get_ref().as_ref())) else {
            return Ok(());
        };
        Err(TomlError {
            line: line_of(self.text, key.span().start),
            problem: TomlProblem::unknown(key.get_ref(), &self.name, known),
        })
    }

    /// The value of a key, if present.
    pub fn get(&self, key: &str) -> Option<TomlEntry<'d>> {
        let value = self.table.get(key)?;
        Some(TomlEntry::new(
            self.text,
            format!("{}{key}", self.prefix),
            value,
        ))
    }

    /// The value of a required key; `needed` tells the user which line to add if it is missing.
    ///
    /// # Errors
    /// [`TomlProblem::Missing`].
    pub fn required(
        &self,
        key: &'static str,
        needed: &'static str,
    ) -> Result<TomlEntry<'d>, TomlError> {
        self.get(key).ok_or_else(|| TomlError {
            line: line_of(self.text, self.at),
            problem: TomlProblem::Missing {
                table: self.name.clone(),
                key,
                needed,
            },
        })
    }

    /// Refuses a key that cannot be combined with another.
    ///
    /// # Errors
    /// [`TomlProblem::Exclusive`].
    pub fn refuse(
        &self,
        key: &'static str,
        other: &'static str,
        rule: &'static str,
    ) -> Result<(), TomlError> {
        self.get(key).map_or(Ok(()), |entry| {
            Err(TomlError {
                line: entry.line(),
                problem: TomlProblem::Exclusive { key, other, rule },
            })
        })
    }

    /// The table `[key]`, if there is one.
    ///
    /// # Errors
    /// [`TomlProblem::Value`] if it is not a table.
    pub fn table(&self, key: &str) -> Result<Option<Self>, TomlError> {
        self.get(key).map(|entry| entry.table()).transpose()
    }

    /// The tables `[[key]]`; empty without any.
    ///
    /// # Errors
    /// [`TomlProblem::Value`] if one is not a table.
    pub fn tables(&self, key: &str) -> Result<Vec<Self>, TomlError> {
        let entries = self.get(key).map(|entry| entry.list());
        let tables = entries.into_iter().flatten().map(|entry| {
            Ok(TomlTable {
                name: format!("[[{key}]]"),
                prefix: String::new(),
                ..entry.table()?
            })
        });
        tables.collect()
    }
}

impl<'d> TomlEntry<'d> {
    fn new(text: &'d str, key: String, value: &'d Spanned<DeValue<'d>>) -> Self {
        Self {
            text,
            key,
            span: value.span(),
            value: value.get_ref(),
        }
    }

    /// The line of the value, from 1.
    pub fn line(&self) -> usize {
        line_of(self.text, self.span.start)
    }

    /// Reads the value from its text by `read`; `allowed` names the allowed values for the error. A
    /// number counts as its text.
    ///
    /// # Errors
    /// [`TomlProblem::Value`].
    pub fn read<T>(
        &self,
        allowed: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, TomlError> {
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

    /// The error for a value that is not among the `allowed` ones.
    pub fn refused(&self, allowed: &str) -> TomlError {
        let given = self.text.get(self.span.clone()).unwrap_or_default();
        let first = given.lines().next().unwrap_or_default();
        let short: String = first.chars().take(GIVEN_MAX).collect();
        TomlError {
            line: self.line(),
            problem: TomlProblem::Value {
                key: self.key.clone(),
                given: if short.len() < given.len() {
                    format!("{short} ...")
                } else {
                    short
                },
                allowed: allowed.to_owned(),
            },
        }
    }

    /// The entries of a list; a value that is not a list counts as its only entry.
    pub fn list(&self) -> Vec<Self> {
        let DeValue::Array(list) = self.value else {
            return vec![self.clone()];
        };
        let values = list.iter();
        values
            .map(|value| Self::new(self.text, self.key.clone(), value))
            .collect()
    }

    /// The value as a table.
    ///
    /// # Errors
    /// [`TomlProblem::Value`].
    pub fn table(&self) -> Result<TomlTable<'d>, TomlError> {
        let DeValue::Table(table) = self.value else {
            return Err(self.refused(&format!("a table, [{}]", self.key)));
        };
        Ok(TomlTable {
            text: self.text,
            name: format!("[{}]", self.key),
            prefix: format!("{}.", self.key),
            at: self.span.start,
            table,
        })
    }
}

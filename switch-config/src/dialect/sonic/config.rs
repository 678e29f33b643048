//! A CONFIG_DB as exported: tables of rows of fields, all by name.

use serde_json::{Map, Value};

use super::ranges;
use crate::notation::json;
use crate::reading::ReadError;

/// What is read, in the words of an error.
pub(super) const WHAT: &str = "CONFIG_DB in JSON";
/// What comes before the name of everything that is ours.
pub(super) const OURS: &str = "GRADWIRE";
/// What parts of keys have between them.
pub(super) const BAR: char = '|';

/// A configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config<'a>(pub(super) &'a Value);

/// A row that was found by the name of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    pub(super) table: &'a str,
    pub(super) key: &'a str,
    pub(super) fields: &'a Map<String, Value>,
}

impl<'a> Config<'a> {
    /// The rows of a table that are objects, in order of keys.
    pub(super) fn rows(self, table: &'a str) -> impl Iterator<Item = Row<'a>> {
        let rows = json::at(self.0, &[table]).and_then(Value::as_object);
        let rows = rows.into_iter().flatten();
        rows.filter_map(move |(key, value)| {
            let fields = value.as_object()?;
            Some(Row { table, key, fields })
        })
    }

    /// A row, where there is one.
    pub(super) fn row(self, table: &'a str, key: &'a str) -> Option<Row<'a>> {
        let fields = json::at(self.0, &[table, key])?.as_object()?;
        Some(Row { table, key, fields })
    }

    /// Whether a table is there.
    pub(super) fn has(self, table: &str) -> bool {
        json::at(self.0, &[table]).is_some()
    }

    /// The row that a field of another names.
    pub(super) fn named(self, table: &'a str, row: Row<'a>, field: &str) -> Option<Row<'a>> {
        self.row(table, row.fields.get(field)?.as_str()?)
    }

    /// The row of a port and a queue: `Ethernet0|3`, or a range that has it, `Ethernet0|0-6`.
    pub(super) fn of_queue(self, table: &'a str, port: &str, queue: u8) -> Option<Row<'a>> {
        let mut rows = self.rows(table);
        rows.find(|row| {
            let numbers = row.queues_of(port).and_then(ranges::read);
            numbers.is_some_and(|numbers| numbers.contains(&queue))
        })
    }
}

impl<'a> Row<'a> {
    /// Where it is, for people: `QUEUE|Ethernet0|3`.
    pub(super) fn place(self) -> String {
        format!("{}{BAR}{}", self.table, self.key)
    }

    /// A field as text, however JSON types it; `None` when it is a list, an object or not there.
    pub(super) fn text(self, field: &str) -> Option<String> {
        text(self.fields.get(field)?)
    }

    /// A field as a number.
    pub(super) fn number<T: std::str::FromStr>(self, field: &str) -> Option<T> {
        self.text(field)?.parse().ok()
    }

    /// The numbers of queues that its key has, when they are of this port.
    pub(super) fn queues_of(self, port: &str) -> Option<&'a str> {
        let rest = self.key.strip_prefix(port)?.strip_prefix(BAR)?;
        (!rest.contains(BAR)).then_some(rest)
    }
}

/// A leaf as text: CONFIG_DB has strings only, but people write numbers and Booleans, too.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// Refuses an export in which a table that is to be changed is no table of rows.
pub(super) fn check_shape(root: &Value, names: &[&str]) -> Result<(), ReadError> {
    let wrong = |place: String| ReadError {
        what: WHAT,
        line: None,
        message: format!("{place} must be an object, `{{...}}`"),
    };
    for name in names {
        let Some(table) = json::at(root, &[name]) else {
            continue;
        };
        let rows = table.as_object().ok_or_else(|| wrong((*name).to_owned()))?;
        let bad = rows.iter().find(|(_, row)| !row.is_object());
        if let Some((key, _)) = bad {
            return Err(wrong(format!("{name}{BAR}{key}")));
        }
    }
    Ok(())
}

//! A CONFIG_DB as exported: tables of rows of fields, all by name.

use serde_json::{Map, Value};

use super::ranges;
use crate::notation::json;
use crate::reading::ReadError;

/// The expected text, in the words of an error.
pub(crate) const WHAT: &str = "CONFIG_DB in JSON";
/// The beginning of all names of ours.
pub(crate) const OURS: &str = "GRADWIRE";
/// The character between parts of keys.
pub(crate) const BAR: char = '|';

/// A configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config<'a>(pub(crate) &'a Value);

/// A row that was found by the name of its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfigRow<'a> {
    pub(crate) table: &'a str,
    pub(crate) key: &'a str,
    pub(crate) fields: &'a Map<String, Value>,
}

impl<'a> Config<'a> {
    /// The rows of a table that are objects, in order of keys.
    pub(crate) fn rows(self, table: &'a str) -> impl Iterator<Item = ConfigRow<'a>> {
        let rows = json::at(self.0, &[table]).and_then(Value::as_object);
        let rows = rows.into_iter().flatten();
        rows.filter_map(move |(key, value)| {
            let fields = value.as_object()?;
            Some(ConfigRow { table, key, fields })
        })
    }

    /// A row, where there is one.
    pub(crate) fn row(self, table: &'a str, key: &str) -> Option<ConfigRow<'a>> {
        let rows = json::at(self.0, &[table])?.as_object()?;
        let (key, row) = rows.get_key_value(key)?;
        let fields = row.as_object()?;
        Some(ConfigRow { table, key, fields })
    }

    /// Whether a table is there.
    pub(crate) fn has(self, table: &str) -> bool {
        json::at(self.0, &[table]).is_some()
    }

    /// The row that a field of another names.
    pub(crate) fn named(
        self,
        table: &'a str,
        row: ConfigRow<'a>,
        field: &str,
    ) -> Option<ConfigRow<'a>> {
        self.row(table, row.fields.get(field)?.as_str()?)
    }

    /// The row of a port and a queue: `Ethernet0|3`, or a range that has it, `Ethernet0|0-6`.
    pub(crate) fn of_queue(self, table: &'a str, port: &str, queue: u8) -> Option<ConfigRow<'a>> {
        let mut rows = self.rows(table);
        rows.find(|row| {
            let numbers = row.queues_of(port).and_then(ranges::read);
            numbers.is_some_and(|numbers| numbers.contains(&queue))
        })
    }
}

impl<'a> ConfigRow<'a> {
    /// Where it is, for people: `QUEUE|Ethernet0|3`.
    pub(crate) fn place(self) -> String {
        format!("{}{BAR}{}", self.table, self.key)
    }

    /// A field as text, however JSON types it; `None` when it is a list, an object or not there.
    pub(crate) fn text(self, field: &str) -> Option<String> {
        text(self.fields.get(field)?)
    }

    /// A field as a number.
    pub(crate) fn number<T: std::str::FromStr>(self, field: &str) -> Option<T> {
        self.text(field)?.parse().ok()
    }

    /// The numbers of queues that its key has, when they are of this port.
    pub(crate) fn queues_of(self, port: &str) -> Option<&'a str> {
        let rest = self.key.strip_prefix(port)?.strip_prefix(BAR)?;
        (!rest.contains(BAR)).then_some(rest)
    }
}

/// A leaf as text: CONFIG_DB has strings only, but people write numbers and Booleans, too.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// Refuses an export in which a table that is to be changed is no table of rows.
pub(crate) fn check_shape<'a>(
    root: &Value,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), ReadError> {
    let wrong =
        |place: String| ReadError::new(WHAT, format!("{place} must be an object, `{{...}}`"));
    for name in names {
        let Some(table) = json::at(root, &[name]) else {
            continue;
        };
        let rows = table.as_object().ok_or_else(|| wrong(name.to_owned()))?;
        let bad = rows.iter().find(|(_, row)| !row.is_object());
        if let Some((key, _)) = bad {
            return Err(wrong(format!("{name}{BAR}{key}")));
        }
    }
    Ok(())
}

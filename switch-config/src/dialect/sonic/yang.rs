//! A CONFIG_DB as a document of its YANG models (RFC 7951), which validators read.
//!
//! Rows become list entries with their keys as leaves, and numbers are typed as the models have
//! them. Only the tables of quality of service, and the ports that they name, are written: the
//! other models are not here. Where the configuration has no ports (a rendered one has none), those
//! that are named get a row, so that names of ports lead somewhere.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::read::config::{self, BAR, Config, ConfigRow};
use super::read::models::{Field, FieldKind, Rows, TABLES, Table};
use crate::notation::json;
use crate::reading::ReadError;

pub use super::read::models::MODULES;

/// Writes a configuration as a document of its models.
///
/// # Errors
/// [`ReadError`] when the text is no JSON object.
pub fn document(text: &str) -> Result<String, ReadError> {
    let root = json::read(config::WHAT, text)?;
    let config = Config(&root);
    let mut document = Map::new();
    document.insert(
        "sonic-port:sonic-port".to_owned(),
        json!({"PORT": {"PORT_LIST": ports(config)}}),
    );
    for table in TABLES.iter().filter(|table| config.has(&table.name)) {
        let content = match &table.rows {
            Rows::Single { .. } => single(config, table),
            _ => {
                let rows = config.rows(&table.name);
                let entries: Vec<Value> = rows.filter_map(|row| entry(table, row)).collect();
                json!({format!("{}_LIST", table.name): entries})
            }
        };
        let module = &table.module;
        document.insert(format!("{module}:{module}"), json!({&table.name: content}));
    }
    Ok(json::write(&Value::Object(document)))
}

fn ports(config: Config<'_>) -> Vec<Value> {
    if config.has("PORT") {
        let known = config.rows("PORT").map(|row| {
            let speed = row.fields.get("speed").map(|value| typed(&SPEED, value));
            json!({"name": row.key, "lanes": row.text("lanes"), "speed": speed})
        });
        return known.collect();
    }
    let mut names = BTreeSet::new();
    for table in ["QUEUE", "PORT_QOS_MAP", "BUFFER_QUEUE", "BUFFER_PG"] {
        let firsts = config.rows(table).map(|row| row.key.split(BAR).next());
        names.extend(firsts.flatten());
    }
    let real = names
        .into_iter()
        .filter(|name| !["global", "CPU"].contains(name));
    real.map(|name| json!({"name": name, "lanes": "0", "speed": 100_000}))
        .collect()
}

const SPEED: FieldKind = FieldKind::Number(1, 1_600_000);

fn single(config: Config<'_>, table: &Table) -> Value {
    let rows = config.rows(&table.name);
    let rows = rows.map(|row| (row.key.to_owned(), Value::Object(leaves(table, row))));
    Value::Object(rows.collect())
}

/// An entry of a list; `None` for rows of a chassis, which have a list of their own.
fn entry(table: &Table, row: ConfigRow<'_>) -> Option<Value> {
    let mut entry = Map::new();
    match &table.rows {
        Rows::Keyed { keys, .. } => {
            let parts: Vec<&str> = row.key.split(BAR).collect();
            if parts.len() > keys.len() {
                return None;
            }
            for (key, part) in keys.iter().zip(parts) {
                entry.insert(key.name.clone(), Value::from(part));
            }
            entry.append(&mut leaves(table, row));
        }
        Rows::Maps { from, to } => {
            let pairs = row.fields.iter().map(|(key, value)| {
                let key = typed(&from.kind, &Value::from(key.as_str()));
                json!({&from.name: key, &to.name: typed(&to.kind, value)})
            });
            entry.insert("name".to_owned(), Value::from(row.key));
            entry.insert(table.name.clone(), pairs.collect());
        }
        Rows::Single { .. } => return None,
    }
    Some(Value::Object(entry))
}

fn leaves(table: &Table, row: ConfigRow<'_>) -> Map<String, Value> {
    let known: &[Field] = match &table.rows {
        Rows::Keyed { fields, .. } | Rows::Single { fields } => fields,
        Rows::Maps { .. } => &[],
    };
    let leaves = row.fields.iter().map(|(name, value)| {
        let field = known.iter().find(|field| field.name == *name);
        let kind = field.map_or(&FieldKind::Text, |field| &field.kind);
        (name.clone(), typed(kind, value))
    });
    leaves.collect()
}

/// A value as RFC 7951 writes its type; a value that does not fit is left for the validator to
/// refuse.
fn typed(kind: &FieldKind, value: &Value) -> Value {
    let Some(text) = config::text(value) else {
        return value.clone();
    };
    let number = |text: &str| text.parse::<i64>().ok().map(Value::from);
    let other = match kind {
        FieldKind::Number(..) | FieldKind::Or(..) => number(&text),
        FieldKind::Wide | FieldKind::Percent => {
            text.parse::<u64>().ok().map(|wide| wide.to_string().into())
        }
        FieldKind::Truth => text.parse::<bool>().ok().map(Value::from),
        _ => None,
    };
    other.unwrap_or(Value::String(text))
}

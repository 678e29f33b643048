//! Violations of SONiC's models: wrong types and ranges, unknown fields, dangling names.

use serde_json::Value;

use super::config::{self, BAR, Config, ConfigRow};
use super::models::{Field, FieldKind, Rows, TABLES, Table};
use super::ranges;
use crate::lint::{Finding, Rule};

const COLOURS: [&str; 3] = ["green", "yellow", "red"];

/// Everything in the tables of quality of service that the models forbid, table by table.
pub(crate) fn findings(config: Config<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for table in TABLES.iter() {
        let Some(rows) = config.0.get(&table.name) else {
            continue;
        };
        let Some(rows) = rows.as_object() else {
            findings.push(schema(&table.name, "must be an object of rows"));
            continue;
        };
        for (key, value) in rows {
            let place = format!("{}{BAR}{key}", table.name);
            match value.as_object() {
                Some(fields) => {
                    let row = ConfigRow {
                        table: &table.name,
                        key,
                        fields,
                    };
                    Check { config, row }.add_to(table, &mut findings);
                }
                None => findings.push(schema(place, "must be an object of fields")),
            }
        }
    }
    findings
}

fn schema(place: impl Into<String>, text: impl Into<String>) -> Finding {
    Finding::new(Rule::Schema, place, text)
}

/// Checks one row against the model of its table.
struct Check<'a> {
    config: Config<'a>,
    row: ConfigRow<'a>,
}

impl Check<'_> {
    fn add_to(&self, table: &Table, findings: &mut Vec<Finding>) {
        match &table.rows {
            Rows::Keyed {
                keys,
                fields,
                needed,
            } => {
                // Rows of a chassis with virtual output queues have keys of four parts.
                if keys.len() == 2 && self.row.key.matches(BAR).count() == 3 {
                    return;
                }
                findings.extend(self.key(keys));
                self.fields(fields, findings);
                let absent = needed
                    .iter()
                    .filter(|name| !self.row.fields.contains_key(*name));
                let text = |name: &String| format!("has no `{name}`; it must");
                findings.extend(absent.map(|name| schema(self.row.place(), text(name))));
                if table.name == "WRED_PROFILE" {
                    findings.extend(COLOURS.iter().filter_map(|colour| self.order(colour)));
                }
            }
            Rows::Maps { from, to } => {
                findings.extend(self.value(&FieldKind::Label, self.row.key, "the name"));
                for (key, value) in self.row.fields {
                    findings.extend(self.value(&from.kind, key, &from.name));
                    findings.extend(self.leaf(&to.kind, value, key));
                }
            }
            Rows::Single { fields } if self.row.key == "GLOBAL" => self.fields(fields, findings),
            Rows::Single { .. } => {
                findings.push(schema(self.row.place(), "the only row is `GLOBAL`"));
            }
        }
    }

    /// The condition on thresholds: an upper one needs a lower one that is not above it.
    fn order(&self, colour: &str) -> Option<Finding> {
        let high: u64 = self.row.number(&format!("{colour}_max_threshold"))?;
        let low: Option<u64> = self.row.number(&format!("{colour}_min_threshold"));
        let text = match low {
            Some(low) if low <= high => return None,
            Some(low) => format!("{colour} begins at {low} bytes and is full at {high}: swap them"),
            None => format!("{colour} has an upper threshold and no lower one"),
        };
        Some(Finding::new(Rule::ThresholdOrder, self.row.place(), text))
    }

    fn key(&self, keys: &[Field]) -> Vec<Finding> {
        let parts: Vec<&str> = self.row.key.splitn(keys.len(), BAR).collect();
        if parts.len() < keys.len() {
            let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
            let text = format!("its key must be `{}`", names.join("|"));
            return vec![schema(self.row.place(), text)];
        }
        let pairs = keys.iter().zip(parts);
        pairs
            .filter_map(|(key, part)| self.value(&key.kind, part, &key.name))
            .collect()
    }

    fn fields(&self, known: &[Field], findings: &mut Vec<Finding>) {
        for (name, value) in self.row.fields {
            let found = known.iter().find(|field| field.name == *name);
            match found {
                Some(field) => findings.extend(self.leaf(&field.kind, value, name)),
                None => {
                    let names: Vec<&str> = known.iter().map(|field| field.name.as_str()).collect();
                    let text = format!("unknown field `{name}`; known are {}", names.join(", "));
                    findings.push(schema(self.row.place(), text));
                }
            }
        }
    }

    fn leaf(&self, kind: &FieldKind, value: &Value, name: &str) -> Option<Finding> {
        if let (FieldKind::Words(words), Value::Array(items)) = (kind, value) {
            let mut texts = items.iter().map(config::text);
            let known =
                |text: &Option<String>| text.as_ref().is_some_and(|text| words.contains(text));
            let wrong = texts.find(|text| !known(text))?;
            let text = format!(
                "`{name}` has `{}`; known are {}",
                wrong.unwrap_or_default(),
                words.join(", ")
            );
            return Some(schema(self.row.place(), text));
        }
        match config::text(value) {
            Some(text) => self.value(kind, &text, name),
            None => {
                let text = format!("`{name}` must be a string");
                Some(schema(self.row.place(), text))
            }
        }
    }

    fn value(&self, kind: &FieldKind, text: &str, name: &str) -> Option<Finding> {
        let table = match kind {
            FieldKind::RowOr(_, word) if word == text => return None,
            FieldKind::Row(table) | FieldKind::RowOr(table, _) => table,
            FieldKind::Port(word) => {
                let known = text == word || !self.config.has("PORT");
                let known = known || self.config.row("PORT", text).is_some();
                return (!known).then(|| self.dangling("PORT", text, name));
            }
            other => {
                let wanted = refusal(other, text)?;
                let text = format!("`{name}` is `{text}`; it must be {wanted}");
                return Some(schema(self.row.place(), text));
            }
        };
        let known = self.config.row(table, text).is_some();
        (!known).then(|| self.dangling(table, text, name))
    }

    fn dangling(&self, table: &str, text: &str, name: &str) -> Finding {
        let bare = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'));
        let text = match bare.and_then(|text| text.split_once(BAR)) {
            Some((_, bare)) => {
                format!("`{name}` is `{text}`, as old releases had it; write `{bare}`")
            }
            None => format!("`{name}` is `{text}`, and there is no {table}{BAR}{text}"),
        };
        Finding::new(Rule::Dangling, self.row.place(), text)
    }
}

/// The requirement that a value breaks, if it does.
fn refusal(kind: &FieldKind, text: &str) -> Option<String> {
    let number = || text.parse::<i64>().ok();
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let up_to = |most: u64| {
        let number = text.parse::<u64>();
        digits(text) && number.is_ok_and(|number| number <= most)
    };
    let (right, wanted) = match kind {
        FieldKind::Number(least, most) => (
            number().is_some_and(|number| (*least..=*most).contains(&number)),
            format!("a number from {least} to {most}"),
        ),
        FieldKind::Wide => (up_to(u64::MAX), format!("a number from 0 to {}", u64::MAX)),
        FieldKind::Percent => (up_to(100), "a number from 0 to 100".to_owned()),
        FieldKind::Or(most, word) => (
            text == word || up_to(*most),
            format!("a number from 0 to {most}, or `{word}`"),
        ),
        FieldKind::Truth => (
            ["true", "false"].contains(&text),
            "`true` or `false`".to_owned(),
        ),
        FieldKind::Word(words) => (
            words.iter().any(|word| word == text),
            format!("one of {}", words.join(", ")),
        ),
        FieldKind::Words(words) => (false, format!("a list of {}", words.join(", "))),
        FieldKind::Classes => (
            text.is_empty() || text.split(',').all(|class| is_digit(class, 7)),
            "classes from 0 to 7 with commas between them, or empty".to_owned(),
        ),
        FieldKind::Digit(most) => (
            text.is_empty() || is_digit(text, *most),
            format!("a digit from 0 to {most}"),
        ),
        FieldKind::Dscp => (
            text.is_empty() || up_to(63) && (text == "0" || !text.starts_with('0')),
            "a DSCP from 0 to 63".to_owned(),
        ),
        FieldKind::Range(most) => (
            text.split('-').count() <= 2 && text.split('-').all(|end| is_short(end, *most)),
            format!("a number from 0 to {most}, or two with a dash between them"),
        ),
        FieldKind::Label => (
            is_label(text),
            "a letter or digit, then up to 31 letters, digits, - and _".to_owned(),
        ),
        FieldKind::Row(_) | FieldKind::RowOr(..) | FieldKind::Port(_) | FieldKind::Text => {
            return None;
        }
    };
    (!right).then_some(wanted)
}

fn is_digit(text: &str, most: u8) -> bool {
    text.len() == 1 && ranges::read(text).is_some_and(|range| *range.end() <= most)
}

fn is_short(text: &str, most: u8) -> bool {
    let number = ranges::read(text).map(|range| *range.end());
    number.is_some_and(|number| number <= most && number.to_string() == text)
}

fn is_label(text: &str) -> bool {
    let mut chars = text.chars();
    let first = chars.next();
    let rest = |char: char| char.is_ascii_alphanumeric() || char == '-' || char == '_';
    first.is_some_and(|char| char.is_ascii_alphanumeric()) && text.len() <= 32 && chars.all(rest)
}

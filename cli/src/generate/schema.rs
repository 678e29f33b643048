//! The keys of files as JSON Schema (draft 2020-12), from the forms that their readers have.

use gradwire_fabric::file;
use gradwire_protocol::job;
use gradwire_protocol::job::form::{FormKey, KeyNeed, ValueForm};
use serde_json::{Map, Value, json};

use super::options::SchemaOf;

/// The largest whole number that every program reads exactly.
const EXACT_MAX: u64 = 1 << 53;

/// The schema of a file.
pub(super) fn of_file(file: SchemaOf) -> Value {
    let (title, keys) = match file {
        SchemaOf::Job => ("job.toml of gradwire", job::file_form()),
        SchemaOf::Fabric => ("fabric.toml of gradwire", file::file_form()),
    };
    let mut schema = table(&keys);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(title);
    schema
}

fn table(keys: &[FormKey]) -> Value {
    let properties: Map<String, Value> = keys
        .iter()
        .map(|key| (key.name.to_owned(), property(key)))
        .collect();
    let required = keys.iter().filter(|key| key.need == KeyNeed::Required);
    let required: Vec<&str> = required.map(|key| key.name).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn property(key: &FormKey) -> Value {
    let mut schema = of_form(&key.form);
    schema["description"] = json!(key.meaning);
    if let Some(default) = key.default.as_deref().and_then(from_toml) {
        schema["default"] = default;
    }
    schema
}

/// A value that is written as TOML.
fn from_toml(text: &str) -> Option<Value> {
    let value: toml_edit::Value = text.parse().ok()?;
    Some(match value {
        toml_edit::Value::String(text) => json!(text.value()),
        toml_edit::Value::Integer(number) => json!(number.value()),
        toml_edit::Value::Float(number) => json!(number.value()),
        toml_edit::Value::Boolean(flag) => json!(flag.value()),
        toml_edit::Value::Array(list) => list
            .iter()
            .filter_map(|entry| from_toml(entry.to_string().trim()))
            .collect(),
        _ => return None,
    })
}

fn of_form(form: &ValueForm) -> Value {
    match form {
        ValueForm::Words(words) => json!({"enum": words}),
        ValueForm::Text("") => json!({"type": "string"}),
        ValueForm::Text(pattern) => json!({"type": "string", "pattern": pattern}),
        ValueForm::Whole(range) => {
            let mut schema = json!({"type": "integer", "minimum": range.start()});
            if *range.end() <= EXACT_MAX {
                schema["maximum"] = json!(range.end());
            }
            schema
        }
        ValueForm::Decimal(range) => {
            json!({"type": "number", "minimum": range.start(), "maximum": range.end()})
        }
        ValueForm::Flag => json!({"type": "boolean"}),
        ValueForm::List(entry, count) => {
            let mut schema = json!({"type": "array", "items": of_form(entry)});
            schema["minItems"] = json!(count.start());
            if *count.end() < usize::MAX {
                schema["maxItems"] = json!(count.end());
            }
            schema
        }
        ValueForm::Table(keys) => table(keys),
        ValueForm::Named(value) => {
            json!({"type": "object", "additionalProperties": of_form(value)})
        }
        ValueForm::AnyOf(forms) => {
            let forms: Vec<Value> = forms.iter().map(of_form).collect();
            json!({"anyOf": forms})
        }
    }
}

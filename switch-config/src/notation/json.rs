//! Configurations that are one JSON object: reading, canonical writing, and patches.
//!
//! SONiC and OpenConfig export it. Canonical text has sorted keys, an indent of
//! four and a newline at its end, so that equal configurations are equal bytes: a switch keeps its
//! tables in a database that has no order of its own. Patches are RFC 6902. The
//! meaning of tables is the dialects' own.

use json_patch::Patch;
use serde::Serialize;
use serde_json::ser::PrettyFormatter;
use serde_json::{Deserializer, Map, Serializer, Value, json};

use crate::change::ConfigChange;
use crate::reading::ReadError;

/// Reads an object.
///
/// # Errors
/// [`ReadError`] says where the text stops being JSON, or that it is JSON of another kind.
pub fn read(what: &'static str, text: &str) -> Result<Value, ReadError> {
    let value: Value = serde_json::from_str(text).map_err(|error| not_json(what, &error))?;
    match value {
        Value::Object(_) => Ok(value),
        other => {
            let text = format!("expected an object, `{{...}}`, found {}", kind(&other));
            Err(ReadError::at(what, 1, text))
        }
    }
}

/// Reads the outputs of commands, one behind the other. `give` says which are wanted.
///
/// # Errors
/// [`ReadError`] says where the text stops being JSON.
pub fn outputs(what: &'static str, text: &str, give: &str) -> Result<Vec<Value>, ReadError> {
    let outputs = Deserializer::from_str(text).into_iter();
    let outputs: Result<Vec<Value>, _> = outputs.collect();
    outputs.map_err(|error| ReadError::at(what, error.line(), format!("{error}; {give}")))
}

/// Writes a value canonically: `serde_json` keeps the keys of objects sorted.
pub fn write(value: &Value) -> String {
    let mut bytes = Vec::new();
    let form = PrettyFormatter::with_indent(b"    ");
    let mut writer = Serializer::with_formatter(&mut bytes, form);
    value.serialize(&mut writer).expect("a value is JSON");
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// The value at the end of a path of keys.
pub fn at<'a>(root: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(root, |value, key| value.get(key))
}

/// The object at the end of a path of keys; it is made where it is not there.
///
/// # Panics
/// When something on the path is no object: the caller has looked.
pub fn object_at<'a>(root: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let value = path.iter().fold(root, |value, key| &mut value[*key]);
    if value.is_null() {
        *value = json!({});
    }
    value
        .as_object_mut()
        .expect("what a path leads to is an object")
}

/// The patches that lead from one value to another, and back; empty when they are equal.
pub fn change(before: &Value, after: &Value) -> ConfigChange {
    ConfigChange {
        forward: patch_text(before, after),
        inverse: patch_text(after, before),
    }
}

/// Applies a patch, all of it or no part of it. An empty text is an empty patch.
///
/// # Errors
/// [`ReadError`] when the text is no patch, or its paths do not fit the value.
pub fn apply(value: &mut Value, patch: &str) -> Result<(), ReadError> {
    const WHAT: &str = "patch (RFC 6902)";
    if patch.trim().is_empty() {
        return Ok(());
    }
    let patch: Patch = serde_json::from_str(patch).map_err(|error| not_json(WHAT, &error))?;
    json_patch::patch(value, &patch)
        .map_err(|error| ReadError::new(WHAT, format!("does not fit the configuration: {error}")))
}

fn patch_text(before: &Value, after: &Value) -> String {
    let patch = json_patch::diff(before, after);
    if patch.is_empty() {
        return String::new();
    }
    let patch = serde_json::to_value(&patch).expect("a patch is JSON");
    write(&patch)
}

fn not_json(what: &'static str, error: &serde_json::Error) -> ReadError {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    ReadError {
        what,
        line: (error.line() > 0).then(|| error.line()),
        message: format!(
            "not JSON of the right form: {}",
            text.strip_suffix(&place).unwrap_or(&text)
        ),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a Boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn canonical_text_is_sorted_and_indented_by_four() {
        let value = json!({"b": {"2": "x", "10": []}, "a": [1, {}], "c\"": true});
        let text = concat!(
            "{\n    \"a\": [\n        1,\n        {}\n    ],\n",
            "    \"b\": {\n        \"10\": [],\n        \"2\": \"x\"\n    },\n",
            "    \"c\\\"\": true\n}\n",
        );
        assert_eq!(write(&value), text);
        assert_eq!(read("test", text), Ok(value));
    }

    #[test]
    fn what_is_not_an_object_is_refused_with_its_line() {
        let error = |text| read("CONFIG_DB in JSON", text).map_err(|error| error.to_string());
        assert_eq!(
            error("{\n  \"a\": 1,\n  !\n}"),
            Err(
                "CONFIG_DB in JSON, line 3: not JSON of the right form: key must be a string"
                    .to_owned()
            )
        );
        assert_eq!(
            error("[]"),
            Err("CONFIG_DB in JSON, line 1: expected an object, `{...}`, found a list".to_owned())
        );
        let deep = "[".repeat(100_000);
        assert!(error(&deep).is_err_and(|message| message.contains("recursion limit")));
    }

    #[test]
    fn patches_lead_there_and_back() {
        let before = json!({"T": {"a/b|c": {"x": "1"}, "k": ["p", "q"]}, "U": {}});
        let mut after = before.clone();
        json_patch::merge(
            &mut after,
            &json!({"T": {"a/b|c": {"y": "2"}, "k": ["r"]}, "V": {"z": "3"}}),
        );
        assert_eq!(at(&after, &["T", "a/b|c", "x"]), Some(&json!("1")));
        let change = change(&before, &after);
        let mut value = before.clone();
        apply(&mut value, &change.forward).expect("made for it");
        assert_eq!(value, after);
        apply(&mut value, &change.inverse).expect("made for it");
        assert_eq!(value, before);
    }

    #[test]
    fn equal_values_need_no_patch_and_a_patch_that_does_not_fit_changes_nothing() {
        let value = json!({"a": {"b": 1}});
        let nothing = change(&value, &value);
        assert_eq!(
            (nothing.forward.as_str(), nothing.inverse.as_str()),
            ("", "")
        );
        let mut same = value.clone();
        assert_eq!(apply(&mut same, ""), Ok(()));
        let patch = r#"[{"op": "add", "path": "/c", "value": 1}, {"op": "remove", "path": "/x"}]"#;
        let error = apply(&mut same, patch).expect_err("there is no x");
        assert!(
            error
                .to_string()
                .starts_with("patch (RFC 6902): does not fit"),
            "{error}"
        );
        assert_eq!(same, value);
    }
}

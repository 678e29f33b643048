//! Configurations that are one JSON object: reading, canonical writing, merging, and patches.
//!
//! SONiC and OpenConfig export it. Canonical text has sorted keys, an indent of
//! four and a newline at its end, so that equal configurations are equal bytes: a switch keeps its
//! tables in a database that has no order of its own. Patches are RFC 6902. The
//! meaning of tables is the dialects' own.

use json_patch::Patch;
use serde_json::{Map, Value};

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

/// Writes a value canonically.
pub fn write(value: &Value) -> String {
    let mut text = String::new();
    write_at(value, 0, &mut text);
    text.push('\n');
    text
}

/// Puts `ours` into `theirs`: objects of both are merged key by key, everything else of `ours`
/// takes its place. Keys that `ours` does not name stay as they are.
pub fn merge(theirs: &mut Value, ours: &Value) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            for (key, value) in ours {
                merge(theirs.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (theirs, ours) => *theirs = ours.clone(),
    }
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
    let mut value = root;
    for key in path {
        let object = value.as_object_mut();
        let object = object.expect("what a path leads through is an object");
        value = object
            .entry(*key)
            .or_insert_with(|| Value::Object(Map::new()));
    }
    let object = value.as_object_mut();
    object.expect("what a path leads to is an object")
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

fn write_at(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            let mut keys: Vec<&String> = object.keys().collect();
            keys.sort_unstable();
            let rows = keys.into_iter().map(|key| (Some(key), &object[key]));
            write_rows(rows, ['{', '}'], depth, text);
        }
        Value::Array(items) if !items.is_empty() => {
            let rows = items.iter().map(|item| (None, item));
            write_rows(rows, ['[', ']'], depth, text);
        }
        other => text.push_str(&other.to_string()),
    }
}

fn write_rows<'a>(
    rows: impl Iterator<Item = (Option<&'a String>, &'a Value)>,
    [open, close]: [char; 2],
    depth: usize,
    text: &mut String,
) {
    let new_line = |depth: usize| format!("\n{}", "    ".repeat(depth));
    text.push(open);
    for (number, (key, value)) in rows.enumerate() {
        if number > 0 {
            text.push(',');
        }
        text.push_str(&new_line(depth + 1));
        if let Some(key) = key {
            text.push_str(&Value::String(key.clone()).to_string());
            text.push_str(": ");
        }
        write_at(value, depth + 1, text);
    }
    text.push_str(&new_line(depth));
    text.push(close);
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
        merge(
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

//! Places in a tree as gNMI names them: `/qos/queues/queue[name=x]/config`.
//!
//! Values are found at a place, put there, or taken away. Entries of lists are kept in
//! the order of their keys, since the models' lists have no order of their own.

use serde_json::{Map, Value};

use crate::tree::order::natural;

/// One step on the way to a place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PathStep {
    /// Name of the child.
    pub(super) name: String,
    /// Which entry of a list: its key and that key's value.
    pub(super) key: Option<(String, String)>,
}

/// The steps to a place.
pub(super) type Path = Vec<PathStep>;

/// Steps of children that are no lists: `qos/queues`.
pub(super) fn children(names: &[&str]) -> Path {
    let step = |name: &&str| PathStep {
        name: (*name).to_owned(),
        key: None,
    };
    names.iter().map(step).collect()
}

/// The step to an entry of a list.
pub(super) fn entry(name: &str, key: &str, value: &str) -> PathStep {
    PathStep {
        name: name.to_owned(),
        key: Some((key.to_owned(), value.to_owned())),
    }
}

/// A path as gNMI writes it.
pub(super) fn written(path: &[PathStep]) -> String {
    let step = |step: &PathStep| match &step.key {
        None => format!("/{}", step.name),
        Some((key, value)) => {
            let value = value.replace('\\', "\\\\").replace(']', "\\]");
            format!("/{}[{key}={value}]", step.name)
        }
    };
    path.iter().map(step).collect()
}

/// Reads a path; `None` when it is none.
pub(super) fn parse(text: &str) -> Option<Path> {
    let mut path = Vec::new();
    let mut rest = text.strip_prefix('/')?;
    while !rest.is_empty() {
        let end = rest.find(['/', '[']).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        let mut step = children(&[name]).pop()?;
        rest = behind;
        if let Some(inner) = behind.strip_prefix('[') {
            let (key, value) = inner.split_once('=')?;
            let (value, behind) = until_bracket(value)?;
            step.key = Some((key.to_owned(), value));
            rest = behind;
        }
        rest = match rest.strip_prefix('/') {
            Some(next) if !next.is_empty() => next,
            None if rest.is_empty() => rest,
            _ => return None,
        };
        if name.is_empty() {
            return None;
        }
        path.push(step);
    }
    (!path.is_empty()).then_some(path)
}

/// The value up to a closing bracket that has no `\` before it, and the rest.
fn until_bracket(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            ']' => return Some((value, &text[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

/// The value at a place.
pub(super) fn at<'a>(root: &'a Value, path: &[PathStep]) -> Option<&'a Value> {
    path.iter().try_fold(root, |value, step| {
        let child = value.get(&step.name)?;
        match &step.key {
            None => Some(child),
            Some((key, wanted)) => {
                let mut entries = child.as_array()?.iter();
                entries.find(|entry| is_entry(entry, key, wanted))
            }
        }
    })
}

/// Puts a value at a place, on a way that is made where there is none; `false` when something on
/// the way is of another kind.
pub(super) fn put(root: &mut Value, path: &[PathStep], value: Value) -> bool {
    let Some((step, rest)) = path.split_first() else {
        *root = value;
        return true;
    };
    let Some(object) = root.as_object_mut() else {
        return false;
    };
    let empty = || Value::Object(Map::new());
    let Some((key, wanted)) = &step.key else {
        let child = object.entry(step.name.clone()).or_insert_with(empty);
        return put(child, rest, value);
    };
    let list = object.entry(step.name.clone());
    let list = list.or_insert_with(|| Value::Array(Vec::new()));
    let Some(list) = list.as_array_mut() else {
        return false;
    };
    let found = list.iter().position(|entry| is_entry(entry, key, wanted));
    let index = found.unwrap_or_else(|| {
        let later = |entry: &Value| {
            let other = key_of(entry, key).unwrap_or_default();
            natural(&other, wanted).is_gt()
        };
        let index = list.iter().position(later).unwrap_or(list.len());
        let mut entry = Map::new();
        entry.insert(key.clone(), Value::String(wanted.clone()));
        list.insert(index, Value::Object(entry));
        index
    });
    put(&mut list[index], rest, value)
}

/// Takes the value at a place away, and then the empty objects on the way to it.
pub(super) fn take(root: &mut Value, path: &[PathStep]) {
    let Some((step, rest)) = path.split_first() else {
        return;
    };
    let Some(object) = root.as_object_mut() else {
        return;
    };
    let Some(child) = object.get_mut(&step.name) else {
        return;
    };
    let gone = match &step.key {
        None if rest.is_empty() => true,
        None => {
            take(child, rest);
            child.as_object().is_some_and(Map::is_empty)
        }
        Some((key, wanted)) => {
            let Some(list) = child.as_array_mut() else {
                return;
            };
            if rest.is_empty() {
                list.retain(|entry| !is_entry(entry, key, wanted));
            } else if let Some(entry) = list.iter_mut().find(|entry| is_entry(entry, key, wanted)) {
                take(entry, rest);
            }
            list.is_empty()
        }
    };
    if gone {
        object.remove(&step.name);
    }
}

/// The value of an entry's key, as text.
pub(super) fn key_of(entry: &Value, key: &str) -> Option<String> {
    match entry.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn is_entry(entry: &Value, key: &str, wanted: &str) -> bool {
    key_of(entry, key).is_some_and(|value| value == wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_reads_back_with_brackets_and_slashes_in_its_keys() {
        let mut path = children(&["qos", "interfaces"]);
        path.push(entry("interface", "interface-id", "eth1/1[a]\\"));
        path.extend(children(&["output"]));
        assert_eq!(parse(&written(&path)), Some(path));
        for broken in ["", "qos", "/", "/a//b", "/a[b", "/a[b=c", "/a[b=c]d", "/a/"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn what_is_put_and_taken_leaves_nothing_behind() {
        let before = json!({"a": {"list": [{"k": "x2"}, {"k": "x10"}]}});
        let mut value = before.clone();
        for (key, rest) in [("x9", "c"), ("x11", "d")] {
            let mut path = children(&["a"]);
            path.push(entry("list", "k", key));
            path.extend(children(&[rest]));
            assert!(put(&mut value, &path, json!(1)));
        }
        let keys = value["a"]["list"].as_array().expect("a list");
        let keys: Vec<_> = keys.iter().map(|one| key_of(one, "k")).collect();
        assert_eq!(
            keys,
            ["x2", "x9", "x10", "x11"].map(|key| Some(key.to_owned()))
        );
        for key in ["x9", "x11"] {
            let mut path = children(&["a"]);
            path.push(entry("list", "k", key));
            take(&mut value, &path);
        }
        assert_eq!(value, before);
        assert!(!put(&mut value, &children(&["a", "list", "b"]), json!(1)));
    }
}

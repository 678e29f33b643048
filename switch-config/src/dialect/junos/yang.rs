//! Statements as a document of Juniper's models (RFC 7951), which validators read.
//!
//! The command line leaves some names of the models out; `SHAPES` says which, for the statements
//! that we write and those that stand beside them. Statements of another shape, and all
//! that is not class-of-service, are left out: those models are larger than all others together.

use serde_json::{Map, Value, json};

use super::change::JunosRules;
use crate::notation::set_lines;
use crate::reading::ReadError;

/// Modules to load, in order; the modules that they import are found beside them.
pub const MODULES: [&str; 2] = ["junos-qfx-conf-root", "junos-qfx-conf-class-of-service"];

/// Statements, word by word: `a` a container, `a[]` a list with its key behind, `a=` a leaf, `a*`
/// a list of values, `a!` a leaf without a value, `a{b,c}` a list whose keys are named, and `(a)`
/// before one of these a name that is not typed.
const SHAPES: [&str; 23] = [
    "classifiers dscp[] forwarding-class[] loss-priority[] code-points*",
    "classifiers dscp[] import=",
    "drop-profiles[] interpolate fill-level*",
    "drop-profiles[] interpolate drop-probability*",
    "forwarding-classes class[] queue-num=",
    "forwarding-classes class[] no-loss!",
    "traffic-control-profiles[] scheduler-map=",
    "traffic-control-profiles[] guaranteed-rate percent=",
    "forwarding-class-sets[] class[]",
    "congestion-notification-profile[] input ieee-802.1 code-point[] pfc!",
    "interfaces (interface)[] scheduler-map=",
    "interfaces (interface)[] congestion-notification-profile=",
    "interfaces (interface)[] forwarding-class-set[] output-traffic-control-profile \
     (profile-name)=",
    "interfaces (interface)[] unit[] classifiers dscp[]",
    "interfaces (interface)[] unit[] rewrite-rules dscp[]",
    "rewrite-rules dscp[] forwarding-class[] loss-priority[] code-point=",
    "scheduler-maps[] forwarding-class[] scheduler=",
    "schedulers[] drop-profile-map{loss-priority,protocol} drop-profile=",
    "schedulers[] priority=",
    "schedulers[] explicit-congestion-notification!",
    "schedulers[] buffer-size percent=",
    "schedulers[] transmit-rate percent=",
    "schedulers[] transmit-rate (rate)=",
];

/// Leaves whose type is a number.
const NUMBERS: [&str; 5] = [
    "queue-num",
    "fill-level",
    "drop-probability",
    "percent",
    "unit",
];

/// Writes the class-of-service of an export as a document of [`MODULES`].
///
/// # Errors
/// [`ReadError`] when the text is no export in `set` lines.
pub fn document(text: &str) -> Result<String, ReadError> {
    let entries = set_lines::read(&JunosRules { plan: None }, text)?;
    let mut root = Map::new();
    for words in set_lines::statements(&entries) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some((&"class-of-service", words)) = words.split_first() else {
            continue;
        };
        let shape = SHAPES.iter().find_map(|shape| {
            let steps: Vec<&str> = shape.split(' ').collect();
            put(&mut Map::new(), &steps, words).then_some(steps)
        });
        if let Some(steps) = shape {
            put(&mut root, &steps, words);
        }
    }
    let document = json!({"junos-qfx-conf-root:configuration": {
        "junos-qfx-conf-class-of-service:class-of-service": root,
    }});
    Ok(document.to_string())
}

/// Puts a statement into a tree; `false` when it has another shape.
fn put(tree: &mut Map<String, Value>, steps: &[&str], words: &[&str]) -> bool {
    let Some((step, steps)) = steps.split_first() else {
        return words.is_empty();
    };
    let end = step.find(['[', '=', '*', '!', '{']).unwrap_or(step.len());
    let (name, kind) = step.split_at(end);
    let untyped = name
        .strip_prefix('(')
        .and_then(|name| name.strip_suffix(')'));
    let (name, words) = match (untyped, words.split_first()) {
        (Some(name), _) => (name, words),
        (None, Some((first, rest))) if *first == name => (name, rest),
        (None, _) => return false,
    };
    match (kind, words) {
        ("", _) => {
            let child = tree.entry(name).or_insert_with(|| json!({}));
            let child = child.as_object_mut();
            child.is_some_and(|child| put(child, steps, words))
        }
        ("[]", [key, rest @ ..]) => {
            let keys = vec![("name".to_owned(), value(name, key))];
            entry(tree, name, keys).is_some_and(|entry| put(entry, steps, rest))
        }
        ("!", []) => {
            tree.insert(name.to_owned(), json!([null]));
            steps.is_empty()
        }
        ("=", [word]) => {
            tree.insert(name.to_owned(), value(name, word));
            steps.is_empty()
        }
        ("*", [word]) => {
            let list = tree.entry(name).or_insert_with(|| json!([]));
            let list = list.as_array_mut();
            list.map(|list| list.push(value(name, word))).is_some()
        }
        (named, _) if named.starts_with('{') => {
            let names = named.trim_matches(['{', '}']).split(',');
            let Some((keys, rest)) = named_keys(names, words) else {
                return false;
            };
            entry(tree, name, keys).is_some_and(|entry| put(entry, steps, rest))
        }
        _ => false,
    }
}

/// Keys of an entry of a list, and their values.
type Keys = Vec<(String, Value)>;

/// Keys that are typed with their names, and the words behind them.
fn named_keys<'a, 'b>(
    names: impl Iterator<Item = &'a str>,
    words: &'b [&'b str],
) -> Option<(Keys, &'b [&'b str])> {
    let mut rest = words;
    let mut keys = Vec::new();
    for name in names {
        let [typed, word, behind @ ..] = rest else {
            return None;
        };
        if *typed != name {
            return None;
        }
        keys.push((name.to_owned(), json!(word)));
        rest = behind;
    }
    Some((keys, rest))
}

/// The entry of a list that has these keys; it is made where it is not there.
fn entry<'a>(
    tree: &'a mut Map<String, Value>,
    list: &str,
    keys: Keys,
) -> Option<&'a mut Map<String, Value>> {
    let list = tree.entry(list).or_insert_with(|| json!([]));
    let list = list.as_array_mut()?;
    let same = |entry: &Value| keys.iter().all(|(key, value)| &entry[key] == value);
    let at = list.iter().position(same).unwrap_or(list.len());
    if at == list.len() {
        list.push(Value::Object(keys.into_iter().collect()));
    }
    list[at].as_object_mut()
}

fn value(name: &str, word: &str) -> Value {
    match (NUMBERS.contains(&name), word.parse::<u64>()) {
        (true, Ok(number)) => json!(number),
        _ => json!(word),
    }
}

//! From `set` lines to the tree of Juniper's models, as far as class-of-service is written by us
//! or stands in our export.
//!
//! The command line leaves some names of the models out; [`SHAPES`] says which. What is not
//! class-of-service is left out of the tree: its models are larger than all others together.

use serde_json::{Map, Value, json};

/// Statements, word by word: `a` a container, `a[]` a list with its key behind, `a=` a leaf, `a*`
/// a list of values, `a!` a leaf without a value, `a{b,c}` a list whose keys are named, and `(a)`
/// before one of these a name that is not typed.
const SHAPES: [&str; 18] = [
    "classifiers dscp[] forwarding-class[] loss-priority[] code-points*",
    "classifiers dscp[] import=",
    "drop-profiles[] interpolate fill-level*",
    "drop-profiles[] interpolate drop-probability*",
    "forwarding-classes class[] queue-num=",
    "forwarding-classes class[] no-loss!",
    "traffic-control-profiles[] scheduler-map=",
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
    "schedulers[] (any)=",
];

/// Leaves whose type is a number.
const NUMBERS: [&str; 4] = ["queue-num", "fill-level", "drop-probability", "unit"];

/// The tree of a text, as a document of RFC 7951.
pub(crate) fn tree(text: &str) -> String {
    let mut root = Map::new();
    for line in text.lines() {
        let Some(statement) = line.strip_prefix("set class-of-service ") else {
            continue;
        };
        let words: Vec<&str> = statement.split(' ').collect();
        let shape = SHAPES.iter().find_map(|shape| {
            let mut trial = Map::new();
            let steps: Vec<&str> = shape.split(' ').collect();
            put(&mut trial, &steps, &words).then_some(steps)
        });
        let steps = shape.unwrap_or_else(|| panic!("`{line}` has a shape that is not known"));
        put(&mut root, &steps, &words);
    }
    let root = json!({"junos-qfx-conf-root:configuration": {
        "junos-qfx-conf-class-of-service:class-of-service": root,
    }});
    root.to_string()
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
        (Some("any"), Some((first, rest))) => (*first, rest),
        (Some(name), _) => (name, words),
        (None, Some((first, rest))) if *first == name => (name, rest),
        (None, _) => return false,
    };
    let empty = || Value::Object(Map::new());
    match (kind, words) {
        ("", _) => {
            let child = tree.entry(name).or_insert_with(empty);
            put(child.as_object_mut().expect("a container"), steps, words)
        }
        ("[]", [key, rest @ ..]) => {
            let keys = vec![("name".to_owned(), value(name, key))];
            put(entry(tree, name, keys), steps, rest)
        }
        ("!", []) | ("=", []) => {
            tree.insert(name.to_owned(), json!([null]));
            steps.is_empty()
        }
        ("=", [word]) => {
            tree.insert(name.to_owned(), value(name, word));
            steps.is_empty()
        }
        ("*", [word]) => {
            let list = tree.entry(name).or_insert_with(|| json!([]));
            list.as_array_mut().expect("a list").push(value(name, word));
            steps.is_empty()
        }
        (named, _) => {
            let names = named.trim_matches(['{', '}']).split(',');
            let mut rest = words;
            let mut keys = Vec::new();
            for key in names {
                let [typed, word, behind @ ..] = rest else {
                    return false;
                };
                if *typed != key {
                    return false;
                }
                keys.push((key.to_owned(), json!(word)));
                rest = behind;
            }
            put(entry(tree, name, keys), steps, rest)
        }
    }
}

/// The entry of a list that has these keys; it is made where it is not there.
fn entry<'a>(
    tree: &'a mut Map<String, Value>,
    list: &str,
    keys: Vec<(String, Value)>,
) -> &'a mut Map<String, Value> {
    let list = tree.entry(list).or_insert_with(|| json!([]));
    let list = list.as_array_mut().expect("a list");
    let same = |entry: &Value| keys.iter().all(|(key, value)| &entry[key] == value);
    let at = list.iter().position(same).unwrap_or(list.len());
    if at == list.len() {
        list.push(Value::Object(keys.into_iter().collect()));
    }
    list[at].as_object_mut().expect("an entry")
}

fn value(name: &str, word: &str) -> Value {
    match (NUMBERS.contains(&name), word.parse::<u64>()) {
        (true, Ok(number)) => json!(number),
        _ => json!(word),
    }
}

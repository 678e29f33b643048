//! Changes of an exported tree, as gNMI Set requests there and back.

use serde_json::{Map, Value, json};

use super::paths::{Path, PathStep, at, children, entry, key_of, parse, put, take, written};
use super::render::{ROOT, tree};
use crate::change::ConfigChange;
use crate::notation::json;
use crate::plan::{OURS, Plan, SwitchPort, is_our_name};
use crate::reading::ReadError;

/// The expected form of a change.
const WHAT: &str = "gNMI Set request in JSON";

/// The tree in paths, which do not name modules.
const TOP: &str = "qos";
/// The module of all its members.
const MODULE: &str = "openconfig-qos:";

/// Lists in which entries with our name are ours: the container, the list.
pub(super) const OWNED: [(&str, &str); 6] = [
    ("classifiers", "classifier"),
    ("forwarding-groups", "forwarding-group"),
    ("queues", "queue"),
    ("queue-management-profiles", "queue-management-profile"),
    ("buffer-allocation-profiles", "buffer-allocation-profile"),
    ("scheduler-policies", "scheduler-policy"),
];

/// The change from a running tree to the plan.
pub(super) fn change(plan: &Plan, running: &Value) -> ConfigChange {
    let wanted = tree(plan);
    let mut places = owned_places(running);
    for place in owned_places(&wanted) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    for port in &plan.site.ports {
        places.extend(port_places(plan, port, running));
    }
    let mut forward = Request::default();
    let mut inverse = Request::default();
    for place in places {
        let (before, after) = (at(running, &place), at(&wanted, &place));
        if before != after {
            forward.add(&place, after);
            inverse.add(&place, before);
        }
    }
    ConfigChange {
        forward: forward.text(),
        inverse: inverse.text(),
    }
}

/// A running tree after a change.
pub(super) fn apply(running: &mut Value, change: &str) -> Result<(), ReadError> {
    if change.trim().is_empty() {
        return Ok(());
    }
    let request = json::read(WHAT, change)?;
    let broken = |message: String| ReadError::new(WHAT, message);
    let path_of = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        let mut path = parse(text)
            .ok_or_else(|| broken(format!("`{value}` is no path, such as /a/b[key=value]")))?;
        if path[0].name == TOP {
            ROOT.clone_into(&mut path[0].name);
        }
        Ok(path)
    };
    let list = |name: &str| match request.get(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => Ok(list.clone()),
        Some(_) => Err(broken(format!("`{name}` must be a list"))),
    };
    for path in list("deletes")? {
        take(running, &path_of(&path)?);
    }
    for row in list("replaces")? {
        let path = path_of(row.get("path").unwrap_or(&Value::Null))?;
        let value = row.get("value").unwrap_or(&Value::Null);
        if !put(running, &path, unqualified(value)) {
            let text = written(&path);
            return Err(broken(format!("{text} does not fit the configuration")));
        }
    }
    Ok(())
}

/// Requests to a switch.
#[derive(Default)]
struct Request {
    deletes: Vec<Value>,
    replaces: Vec<Value>,
}

impl Request {
    fn add(&mut self, place: &[PathStep], value: Option<&Value>) {
        let mut place = place.to_vec();
        TOP.clone_into(&mut place[0].name);
        let path = written(&place);
        match value {
            None => self.deletes.push(json!(path)),
            Some(value) => self
                .replaces
                .push(json!({"path": path, "value": qualified(value), "encoding": "json_ietf"})),
        }
    }

    fn text(self) -> String {
        let lists = [("deletes", self.deletes), ("replaces", self.replaces)];
        let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
        let request: Map<String, Value> = lists
            .map(|(name, list)| (name.to_owned(), Value::Array(list)))
            .collect();
        match request.is_empty() {
            true => String::new(),
            false => json::write(&Value::Object(request)),
        }
    }
}

/// A value of its own names the module of its members (RFC 7951, section 4).
fn qualified(value: &Value) -> Value {
    members(value, |name| format!("{MODULE}{name}"))
}

/// A value as it stands in a tree.
fn unqualified(value: &Value) -> Value {
    members(value, |name| {
        name.strip_prefix(MODULE).unwrap_or(name).to_owned()
    })
}

fn members(value: &Value, name: impl Fn(&str) -> String) -> Value {
    let Some(object) = value.as_object() else {
        return value.clone();
    };
    let members = object.iter().map(|(key, value)| (name(key), value.clone()));
    Value::Object(members.collect())
}

/// Places of entries with names of ours.
fn owned_places(root: &Value) -> Vec<Path> {
    let mut places = Vec::new();
    for (container, list) in OWNED {
        let entries = at(root, &children(&[ROOT, container, list]));
        let entries = entries.and_then(Value::as_array).into_iter().flatten();
        for name in entries.filter_map(|entry| key_of(entry, "name")) {
            if is_our_name(&name) {
                let mut place = children(&[ROOT, container]);
                place.push(entry(list, "name", &name));
                places.push(place);
            }
        }
    }
    places
}

/// Places of a port that the plan decides: all of it where the export does not have it.
fn port_places(plan: &Plan, port: &SwitchPort, running: &Value) -> Vec<Path> {
    let mut base = children(&[ROOT, "interfaces"]);
    base.push(entry("interface", "interface-id", &port.name));
    if at(running, &base).is_none() {
        return vec![base];
    }
    let below = |steps: Path| -> Path { base.iter().cloned().chain(steps).collect() };
    let mut classifier = children(&["input", "classifiers"]);
    classifier.push(entry("classifier", "type", "IPV4"));
    let mut places = vec![
        below(classifier),
        below(children(&["output", "queues"])),
        below(children(&["output", "scheduler-policy"])),
    ];
    let memory = below(children(&["output", "config", "buffer-allocation-profile"]));
    let is_ours = at(running, &memory).is_some_and(|name| name == OURS);
    if plan.alpha.is_some() || is_ours {
        places.push(memory);
    }
    places
}

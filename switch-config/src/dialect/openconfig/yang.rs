//! An export as a document of the published models, which validators read.
//!
//! Only quality of service is in it, and of interfaces their names: the other models are not here.
//! State is left out.

use serde_json::{Value, json};

use super::render::ROOT;
use crate::reading::ReadError;

/// Modules to load, in order; the modules that they import are found beside them.
pub const MODULES: [&str; 2] = ["iana-if-type", "openconfig-qos"];

/// Writes an export as a document of [`MODULES`].
///
/// # Errors
/// [`ReadError`] when the text is no JSON object.
pub fn document(text: &str) -> Result<String, ReadError> {
    let root = super::tree(text)?;
    let mut qos = root.get(ROOT).cloned().unwrap_or_else(|| json!({}));
    drop_state(&mut qos);
    let mut names: Vec<&str> = Vec::new();
    named_interfaces(&qos, &mut names);
    names.sort_unstable();
    names.dedup();
    let kind = "iana-if-type:ethernetCsmacd";
    let row = |name: &&str| json!({"name": name, "config": {"name": name, "type": kind}});
    let rows: Vec<Value> = names.iter().map(row).collect();
    let document = json!({
        "openconfig-interfaces:interfaces": {"interface": rows},
        ROOT: qos,
    });
    Ok(document.to_string())
}

fn drop_state(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.remove("state");
            object.values_mut().for_each(drop_state);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_state),
        _ => {}
    }
}

/// Names that references to interfaces have.
fn named_interfaces<'a>(value: &'a Value, names: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => {
            let reference = value.pointer("/interface-ref/config/interface");
            names.extend(reference.and_then(Value::as_str));
            object
                .values()
                .for_each(|value| named_interfaces(value, names));
        }
        Value::Array(list) => list.iter().for_each(|value| named_interfaces(value, names)),
        _ => {}
    }
}

//! OpenConfig: the vendor-neutral models of quality of service, in JSON as RFC 7951 writes it.
//!
//! Entries of ours have names that begin with `gradwire`; of a port its IPv4 classifier, its output
//! queues, its scheduler policy and, where memory is shared, its buffer profile are changed.

mod change;
mod counters;
mod paths;
mod read;
mod render;
pub mod yang;

use serde_json::{Value, json};

use crate::change::ConfigChange;
use crate::counters::QueueCount;
use crate::dialect::contract::{Dialect, PlatformTexts};
use crate::notation::json;
use crate::plan::Plan;
use crate::ports::SeenPorts;
use crate::reading::{ReadError, Reading};

/// The expected text, in the words of an error.
const WHAT: &str = "openconfig-qos in JSON";

/// OpenConfig.
#[derive(Debug)]
pub struct OpenConfig;

impl Dialect for OpenConfig {
    fn texts(&self) -> PlatformTexts {
        PlatformTexts {
            limits: include_str!("openconfig/limits.toml"),
            commands: include_str!("openconfig/commands.txt"),
        }
    }

    fn port_name(&self, number: usize) -> String {
        format!("Ethernet{number}")
    }

    fn render(&self, plan: &Plan) -> String {
        json::write(&render::tree(plan))
    }

    fn read(&self, plan: &Plan, text: &str) -> Result<Reading, ReadError> {
        Ok(read::reading(plan, &tree(text)?))
    }

    fn ports(&self, text: &str) -> Result<SeenPorts, ReadError> {
        Ok(read::ports(&tree(text)?))
    }

    fn change(&self, plan: &Plan, running: &str) -> Result<ConfigChange, ReadError> {
        Ok(change::change(plan, &tree(running)?))
    }

    fn apply(&self, running: &str, change: &str) -> Result<String, ReadError> {
        let mut root = json::read(WHAT, running)?;
        change::apply(&mut root, change)?;
        Ok(json::write(&root))
    }

    fn own_counters(&self, plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError> {
        counters::counters(plan, &tree(text)?)
    }
}

/// The tree of an export: a tree, or a list of answers of `gnmic get` that has one in it.
fn tree(text: &str) -> Result<Value, ReadError> {
    json::read(WHAT, text).or_else(|error| {
        let answers: Option<Value> = serde_json::from_str(text).ok();
        let found = answers.as_ref().and_then(answered);
        found.map(|qos| json!({render::ROOT: qos})).ok_or(error)
    })
}

/// The tree somewhere in an answer.
fn answered(value: &Value) -> Option<&Value> {
    match value {
        Value::Array(list) => list.iter().find_map(answered),
        Value::Object(object) => {
            let here = object.get(render::ROOT).or_else(|| object.get("qos"));
            let here = here.filter(|qos| qos.is_object());
            here.or_else(|| object.values().find_map(answered))
        }
        _ => None,
    }
}

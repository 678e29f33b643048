//! OpenConfig: the vendor-neutral models of quality of service, in JSON as RFC 7951 writes it.
//!
//! Entries of ours have names that begin with `gradwire`; of a port its IPv4 classifier, its output
//! queues, its scheduler policy and, where memory is shared, its buffer profile are changed.

mod change;
mod facts;
mod paths;
mod read;
mod show;
mod write;

use crate::counters::{QueueCount, neutral};
use crate::dialect::{Change, Dialect, Look};
use crate::limits::Limits;
use crate::plan::Plan;
use crate::reading::{ReadError, Reading};
use crate::tables;

/// What a text should have been.
const WHAT: &str = "openconfig-qos in JSON";

/// OpenConfig.
#[derive(Debug)]
pub struct OpenConfig;

impl Dialect for OpenConfig {
    fn limits(&self, _version: &str) -> Limits {
        facts::limits()
    }

    fn port_name(&self, number: usize) -> String {
        format!("Ethernet{number}")
    }

    fn render(&self, plan: &Plan) -> String {
        tables::write(&write::tree(plan))
    }

    fn read(&self, plan: &Plan, text: &str) -> Result<Reading, ReadError> {
        Ok(read::reading(plan, &tables::read(WHAT, text)?))
    }

    fn change(&self, plan: &Plan, running: &str) -> Result<Change, ReadError> {
        Ok(change::change(plan, &tables::read(WHAT, running)?))
    }

    fn apply(&self, running: &str, change: &str) -> Result<String, ReadError> {
        let mut root = tables::read(WHAT, running)?;
        change::apply(&mut root, change)?;
        Ok(tables::write(&root))
    }

    fn procedure(&self, _plan: &Plan) -> Vec<Look> {
        show::procedure()
    }

    fn looks(&self, plan: &Plan) -> Vec<Look> {
        show::looks(plan)
    }

    fn counters(&self, plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError> {
        neutral::read(text).unwrap_or_else(|| show::counters(plan, text))
    }
}

//! Junos on QFX switches: class-of-service in `set` commands.
//!
//! The forwarding classes, classifiers, drop profiles, schedulers and maps of ours have names that
//! begin with `gradwire`; on ports only what a scheduler map or classifier is bound by is changed,
//! and PFC is unbound. Sources of what the switches do are in `facts`.

mod change;
mod facts;
mod read;
mod show;
mod statements;
mod write;
pub mod yang;

use crate::counters::{QueueCount, neutral};
use crate::dialect::{Change, Dialect, Look};
use crate::limits::Limits;
use crate::plan::Plan;
use crate::reading::{ReadError, Reading};
use statements::{Statements, edits};

/// Junos.
#[derive(Debug)]
pub struct Junos;

impl Dialect for Junos {
    fn limits(&self, version: &str) -> Limits {
        facts::limits(version)
    }

    fn port_name(&self, number: usize) -> String {
        format!("et-0/0/{number}")
    }

    fn render(&self, plan: &Plan) -> String {
        let origin = plan.site.origin.replace(['\n', '\r'], " ");
        format!(
            "# gradwire switch render --platform {}\n# {origin}\n# what is not certain: `gradwire \
             switch platforms`\n{}",
            plan.target,
            write::statements(plan).text()
        )
    }

    fn read(&self, plan: &Plan, text: &str) -> Result<Reading, ReadError> {
        Ok(read::reading(plan, &Statements::parse(text)?))
    }

    fn change(&self, plan: &Plan, running: &str) -> Result<Change, ReadError> {
        Ok(change::change(plan, &Statements::parse(running)?))
    }

    fn apply(&self, running: &str, change: &str) -> Result<String, ReadError> {
        let mut statements = Statements::parse(running)?;
        for edit in edits(change)? {
            statements.edit(&edit);
        }
        Ok(statements.text())
    }

    fn procedure(&self, _plan: &Plan) -> Vec<Look> {
        show::procedure()
    }

    fn looks(&self, plan: &Plan) -> Vec<Look> {
        show::looks(plan)
    }

    fn counters(&self, _plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError> {
        neutral::read(text).unwrap_or_else(|| show::counters(text))
    }
}

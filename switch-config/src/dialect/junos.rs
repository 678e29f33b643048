//! Junos on QFX switches: class-of-service in `set` commands.
//!
//! The forwarding classes, classifiers, drop profiles, schedulers and maps of ours have names that
//! begin with `gradwire`; on ports only the bindings of scheduler maps and classifiers are changed,
//! and PFC is unbound. `limits.toml` names the sources.

mod change;
mod counters;
mod read;
mod render;
mod scheduling;
pub mod yang;

use crate::change::ConfigChange;
use crate::counters::QueueCount;
use crate::dialect::commands::CommandWords;
use crate::dialect::contract::{Dialect, PlatformTexts};
use crate::notation::set_lines;
use crate::plan::{Plan, Selection};
use crate::ports::SeenPorts;
use crate::reading::{ReadError, Reading};
use change::JunosRules;

/// The rules of Junos for reading, without a plan.
const ANY_PLAN: JunosRules<'_> = JunosRules { plan: None };

/// Junos.
#[derive(Debug)]
pub struct Junos;

impl Dialect for Junos {
    fn texts(&self) -> PlatformTexts {
        PlatformTexts {
            limits: include_str!("junos/limits.toml"),
            commands: include_str!("junos/commands.txt"),
        }
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
            set_lines::write(&render::statements(plan))
        )
    }

    fn read(&self, plan: &Plan, text: &str) -> Result<Reading, ReadError> {
        Ok(read::reading(plan, &set_lines::read(&ANY_PLAN, text)?))
    }

    fn ports(&self, text: &str) -> Result<SeenPorts, ReadError> {
        Ok(read::ports(&set_lines::read(&ANY_PLAN, text)?))
    }

    fn change(&self, plan: &Plan, running: &str) -> Result<ConfigChange, ReadError> {
        let rules = JunosRules { plan: Some(plan) };
        let running = set_lines::read(&rules, running)?;
        Ok(set_lines::change(
            &rules,
            &running,
            &render::statements(plan),
        ))
    }

    fn apply(&self, running: &str, change: &str) -> Result<String, ReadError> {
        let mut entries = set_lines::read(&ANY_PLAN, running)?;
        set_lines::apply(&ANY_PLAN, &mut entries, change)?;
        Ok(set_lines::write(&entries))
    }

    fn words(&self, plan: &Plan) -> CommandWords {
        let marks = match plan.selection {
            Selection::Precedence => "RED-dropped",
            Selection::Ecn => "ECN-CE and RED-dropped",
        };
        vec![("marks", marks.to_owned())]
    }

    fn own_counters(&self, _plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError> {
        counters::counters(text)
    }
}

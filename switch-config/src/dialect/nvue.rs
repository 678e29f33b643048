//! NVIDIA Cumulus Linux: NVUE's object model in YAML, as `nv config save` writes it.
//!
//! A configuration is a list with `- header:` and `- set:`; a change is one with `- unset:` and
//! `- set:`, as `nv config patch` takes it. Keys and values are those of the models in nvueschema
//! 0.1.0 for 5.11, 5.14 and 5.18; `release` has the differences.
//!
//! `render` writes the leaves of a plan, `read` reads the meaning of a file, `change` makes patches
//! and loads them without touching other lines, `ports` knows names of many interfaces.

mod change;
mod counters;
mod ports;
mod read;
mod release;
mod render;

use crate::change::ConfigChange;
use crate::counters::QueueCount;
use crate::dialect::contract::{Dialect, PlatformTexts};
use crate::notation::yaml;
use crate::plan::Plan;
use crate::ports::SeenPorts;
use crate::reading::{ReadError, Reading};

/// NVIDIA Cumulus Linux.
#[derive(Debug)]
pub struct Nvue;

impl Dialect for Nvue {
    fn texts(&self) -> PlatformTexts {
        PlatformTexts {
            limits: include_str!("nvue/limits.toml"),
            commands: include_str!("nvue/commands.txt"),
        }
    }

    fn port_name(&self, number: usize) -> String {
        format!("swp{}", number + 1)
    }

    fn render(&self, plan: &Plan) -> String {
        render::whole(plan)
    }

    fn read(&self, plan: &Plan, text: &str) -> Result<Reading, ReadError> {
        let set = read::settings(yaml::parse(read::WHAT, text)?)?;
        Ok(read::reading(plan, &set))
    }

    fn ports(&self, text: &str) -> Result<SeenPorts, ReadError> {
        let set = read::settings(yaml::parse(read::WHAT, text)?)?;
        Ok(read::ports(&set))
    }

    fn change(&self, plan: &Plan, running: &str) -> Result<ConfigChange, ReadError> {
        change::change(plan, running)
    }

    fn apply(&self, running: &str, change: &str) -> Result<String, ReadError> {
        change::apply(running, change)
    }

    fn own_counters(&self, plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError> {
        counters::read(plan, text)
    }
}

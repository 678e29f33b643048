//! Cisco NX-OS on Nexus 9000: lines of its command line, as `show running-config` prints them.
//!
//! No grammar of it can be read offline and no validator is known: the commands are those of
//! public configurations, and limits, output and procedure say so. Class maps and policy maps of
//! ours have names that begin with `gradwire`; on ports the two service policies and the mode of
//! PFC are set.

mod change;
mod counters;
mod read;
mod render;

use crate::change::ConfigChange;
use crate::counters::QueueCount;
use crate::dialect::contract::{Dialect, Look, steps};
use crate::limits::PlatformLimits;
use crate::notation::indented::{self, IndentedText};
use crate::plan::Plan;
use crate::reading::{ReadError, Reading};

/// The expected text, in the words of an error.
const WHAT: &str = "running-config of NX-OS";

/// Cisco NX-OS.
#[derive(Debug)]
pub struct Nxos;

impl Dialect for Nxos {
    fn limits(&self, version: &str) -> PlatformLimits {
        PlatformLimits::of(version, include_str!("nxos/limits.toml"))
    }

    fn port_name(&self, number: usize) -> String {
        format!("Ethernet1/{}", number + 1)
    }

    fn render(&self, plan: &Plan) -> String {
        render::whole(plan)
    }

    fn read(&self, plan: &Plan, text: &str) -> Result<Reading, ReadError> {
        Ok(read::reading(plan, &lines(text)?))
    }

    fn change(&self, plan: &Plan, running: &str) -> Result<ConfigChange, ReadError> {
        let running = lines(running)?;
        let wanted = render::wanted(plan, &running);
        Ok(indented::change(&running, &wanted, &change::NxosRules))
    }

    fn apply(&self, running: &str, change: &str) -> Result<String, ReadError> {
        let commands = IndentedText::read(change);
        Ok(indented::apply(&lines(running)?, &commands, &change::NxosRules).to_string())
    }

    fn procedure(&self, _plan: &Plan) -> Vec<Look> {
        steps(counters::PROCEDURE)
    }

    fn looks(&self, plan: &Plan) -> Vec<Look> {
        counters::looks(plan)
    }

    fn counters(&self, _plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError> {
        counters::read(text)
    }
}

/// The lines of a configuration.
fn lines(text: &str) -> Result<IndentedText, ReadError> {
    let known = [
        "interface",
        "policy-map",
        "class-map",
        "hostname",
        "version",
        "feature",
    ];
    IndentedText::running_config(WHAT, text, &known)
}

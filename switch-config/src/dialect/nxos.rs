//! Cisco NX-OS on Nexus 9000: lines of its command line, as `show running-config` prints them.
//!
//! No grammar of it can be read offline and no validator is known: the commands are those of
//! public configurations, and limits, output and procedure say so. Class maps and policy maps of
//! ours have names that begin with `gradwire`; on ports the two service policies and the mode of
//! PFC are set.

mod change;
mod read;
mod render;

use crate::change::ConfigChange;
use crate::counters::QueueCount;
use crate::dialect::contract::{Dialect, PlatformTexts};
use crate::notation::indented::{self, CommandRules};
use crate::plan::Plan;
use crate::ports::{self, SeenPorts};
use crate::reading::{ReadError, Reading};
use crate::tree::ConfigEntry;

use change::NxosRules;

/// The expected text, in the words of an error.
const WHAT: &str = "running-config of NX-OS";

/// Cisco NX-OS.
#[derive(Debug)]
pub struct Nxos;

impl Dialect for Nxos {
    fn texts(&self) -> PlatformTexts {
        PlatformTexts {
            limits: include_str!("nxos/limits.toml"),
            commands: include_str!("nxos/commands.txt"),
        }
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

    fn ports(&self, text: &str) -> Result<SeenPorts, ReadError> {
        Ok(ports::of_commands(&lines(text)?))
    }

    fn change(&self, plan: &Plan, running: &str) -> Result<ConfigChange, ReadError> {
        let running = lines(running)?;
        let wanted = render::wanted(plan, &running);
        Ok(indented::change(&running, &wanted, &NxosRules))
    }

    fn apply(&self, running: &str, change: &str) -> Result<String, ReadError> {
        let commands = indented::read(change);
        let after = indented::apply(&lines(running)?, &commands, &NxosRules);
        Ok(indented::text(&after, NxosRules.spaces()))
    }

    fn own_counters(&self, _plan: &Plan, _text: &str) -> Result<Vec<QueueCount>, ReadError> {
        let text = "no form of NX-OS tells early drops from late ones: give the neutral JSON form";
        Err(ReadError::new("counters", text))
    }
}

/// The lines of a configuration.
fn lines(text: &str) -> Result<Vec<ConfigEntry>, ReadError> {
    let known = [
        "interface",
        "policy-map",
        "class-map",
        "hostname",
        "version",
        "feature",
    ];
    indented::running_config(WHAT, text, &known)
}

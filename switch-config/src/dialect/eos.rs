//! Arista EOS: lines of its command line, as `show running-config` prints them.
//!
//! Versions are the two kinds of chips: `sand` (Jericho: 7280R, 7800R) has `tx-queue`s, `trident`
//! (Trident and Tomahawk: 7050X, 7060X, 7388X) has `uc-tx-queue`s and dynamic thresholds. The
//! commands are those that the schema of pyavd 6.4.0 knows, and as its templates write them.
//!
//! A queue drops packets of drop precedence 2 by `random-detect drop` and does not mark: pyavd's
//! templates write that or `random-detect ecn` for a queue, never both. How a switch treats
//! not-ECT packets under the latter is unknown.
//!
//! `render` writes the lines of a plan, `read` reads their meaning, `change` has their names,
//! `maps` the map of DSCPs.

mod change;
mod chip;
mod counters;
mod maps;
mod read;
mod render;

use crate::change::ConfigChange;
use crate::counters::QueueCount;
use crate::dialect::commands::CommandWords;
use crate::dialect::contract::{Dialect, PlatformTexts};
use crate::notation::indented::{self, CommandRules};
use crate::plan::Plan;
use crate::ports::{self, SeenPorts};
use crate::reading::{ReadError, Reading};
use crate::tree::ConfigEntry;

use change::EosRules;
use chip::Chip;

/// The expected text, in the words of an error.
const WHAT: &str = "running-config of EOS";

/// Arista EOS.
#[derive(Debug)]
pub struct Eos;

impl Dialect for Eos {
    fn texts(&self) -> PlatformTexts {
        PlatformTexts {
            limits: include_str!("eos/limits.toml"),
            commands: include_str!("eos/commands.txt"),
        }
    }

    fn port_name(&self, number: usize) -> String {
        format!("Ethernet{}", number + 1)
    }

    fn render(&self, plan: &Plan) -> String {
        text(&render::whole(plan))
    }

    fn read(&self, plan: &Plan, text: &str) -> Result<Reading, ReadError> {
        Ok(read::reading(plan, &lines(text)?))
    }

    fn ports(&self, text: &str) -> Result<SeenPorts, ReadError> {
        Ok(ports::of_commands(&lines(text)?))
    }

    fn change(&self, plan: &Plan, running: &str) -> Result<ConfigChange, ReadError> {
        let mut running = lines(running)?;
        maps::spread(&mut running);
        let mut wanted = render::whole(plan);
        render::clear_overrides(&mut wanted, &running);
        maps::spread(&mut wanted);
        Ok(indented::change(&running, &wanted, &EosRules))
    }

    fn apply(&self, running: &str, change: &str) -> Result<String, ReadError> {
        let mut running = lines(running)?;
        let mut commands = indented::read(change);
        maps::spread(&mut running);
        maps::spread(&mut commands);
        let mut tree = indented::apply(&running, &commands, &EosRules);
        maps::gather(&mut tree);
        Ok(text(&tree))
    }

    fn words(&self, plan: &Plan) -> CommandWords {
        let form = match Chip::of(plan.target.version) {
            Chip::Sand => "drops",
            Chip::Trident => "detail",
        };
        vec![("form", form.to_owned())]
    }

    fn own_counters(&self, _plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError> {
        counters::read(text)
    }
}

fn text(tree: &[ConfigEntry]) -> String {
    indented::text(tree, EosRules.spaces())
}

/// The lines of a configuration.
fn lines(text: &str) -> Result<Vec<ConfigEntry>, ReadError> {
    let known = ["interface", "qos", "hostname", "platform", "vlan", "ip"];
    indented::running_config(WHAT, text, &known)
}

//! SONiC: the tables of CONFIG_DB, as one JSON object.
//!
//! Start here: [`Sonic`] is the dialect, and `limits.toml` has the platform's abilities. The other
//! files are one concern each:
//! - `render`: a plan as tables; `change`: a plan put into a running configuration.
//! - `models` and `models.toml`: the tables as SONiC's YANG models type them; `check`: their
//!   rules; [`yang`]: a configuration as validators read it.
//! - `read`: the meaning of a configuration; `meaning`: mistakes that the models let through.
//! - `counters`: exports of counters; `commands.txt`: commands for people.
//!
//! Sources are sonic-net/sonic-buildimage at commit 086b03bd (2026-08-23) and the documents of
//! sonic-net/SONiC that are named beside each fact. No switch of any maker was at hand: for the
//! effect of these tables on an ASIC there is only its maker's word.

mod change;
mod counters;
mod read;
mod render;
pub mod yang;

use crate::change::ConfigChange;
use crate::counters::QueueCount;
use crate::dialect::commands::CommandWords;
use crate::dialect::contract::{Dialect, PlatformTexts};
use crate::notation::json;
use crate::plan::Plan;
use crate::ports::{self, SeenPorts};
use crate::reading::{ReadError, Reading};

use read::config::{self, Config, OURS, WHAT};

/// The dialect of SONiC.
#[derive(Debug)]
pub struct Sonic;

impl Dialect for Sonic {
    fn texts(&self) -> PlatformTexts {
        PlatformTexts {
            limits: include_str!("sonic/limits.toml"),
            commands: include_str!("sonic/commands.txt"),
        }
    }

    fn port_name(&self, number: usize) -> String {
        format!("Ethernet{}", number * 4)
    }

    fn render(&self, plan: &Plan) -> String {
        json::write(&render::render(plan))
    }

    fn read(&self, plan: &Plan, text: &str) -> Result<Reading, ReadError> {
        let root = json::read(WHAT, text)?;
        Ok(read::reading(plan, Config(&root)))
    }

    fn ports(&self, text: &str) -> Result<SeenPorts, ReadError> {
        let root = json::read(WHAT, text)?;
        let rows = Config(&root).rows("PORT");
        Ok(SeenPorts::all(rows.map(|row| {
            let speed = row.text("speed");
            (row.key.to_owned(), speed.as_deref().and_then(ports::speed))
        })))
    }

    fn change(&self, plan: &Plan, running: &str) -> Result<ConfigChange, ReadError> {
        let running = json::read(WHAT, running)?;
        config::check_shape(&running, change::touched())?;
        Ok(json::change(&running, &change::with_plan(plan, &running)))
    }

    fn apply(&self, running: &str, change: &str) -> Result<String, ReadError> {
        let mut root = json::read(WHAT, running)?;
        json::apply(&mut root, change)?;
        Ok(json::write(&root))
    }

    fn words(&self, plan: &Plan) -> CommandWords {
        vec![("dscps", dscps(plan)), ("thresholds", thresholds(plan))]
    }

    fn own_counters(&self, _plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError> {
        counters::read(text)
    }
}

fn dscps(plan: &Plan) -> String {
    let rows = plan.queues.iter().map(|queue| {
        let dscps = queue.dscps.iter().chain(&queue.droppable);
        let dscps: Vec<String> = dscps.map(ToString::to_string).collect();
        format!(
            "{} -> {} ({})",
            dscps.join(", "),
            queue.number,
            queue.name()
        )
    });
    let rows: Vec<String> = rows.collect();
    let last = plan.queues.last().map_or(0, |queue| queue.number);
    format!("{}; all others -> {last}", rows.join("; "))
}

fn thresholds(plan: &Plan) -> String {
    let rows = plan.profiles.iter().map(|profile| {
        let threshold = &profile.threshold;
        let (low, high) = (threshold.low_bytes(), threshold.high_bytes());
        format!("{OURS}_{}: `ecn_all`, {low} to {high} bytes", profile.name)
    });
    let mut rows: Vec<String> = rows.collect();
    let control = plan.control().number;
    rows.push(format!("nothing for queue {control} (control)"));
    rows.join("; ")
}

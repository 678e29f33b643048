//! `gradwire switch check`: what is wrong with a configuration.

use gradwire_switch_config::lint::{self, Finding};
use serde_json::json;

use super::options::Running;
use super::site::Origin;
use crate::exit::Failure;
use crate::sim::files;

/// Runs the command.
///
/// # Errors
/// [`Failure::Check`] when anything is wrong; others name the file and what would be right.
pub fn run(options: &Running) -> Result<(), Failure> {
    let origin = Origin::load(&options.plan)?;
    let plan = origin.plan()?;
    let text = files::text(&options.running)?;
    let reading = origin.dialect.read(&plan, &text);
    let reading = reading.map_err(|error| super::unreadable(&options.running, &error))?;
    let findings = lint::findings(&plan, &reading);
    match options.plan.json {
        true => println!(
            "{}",
            object(&plan.target.to_string(), origin.switch()?, &findings)
        ),
        false => findings.iter().for_each(|finding| println!("{finding}")),
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(Failure::Check(format!(
            "{}: {count} found; `gradwire switch diff` prints what mends it",
            options.running.display()
        ))),
    }
}

fn object(target: &str, switch: &str, findings: &[Finding]) -> serde_json::Value {
    let findings = findings.iter().map(|finding| {
        json!({"rule": finding.rule.name(), "place": finding.place, "text": finding.text})
    });
    json!({
        "target": target,
        "switch": switch,
        "findings": findings.collect::<Vec<_>>(),
    })
}

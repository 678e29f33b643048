//! `gradwire switch check`: the faults of a configuration.

use gradwire_switch_config::lint::{self, Finding, Rule};
use gradwire_switch_config::plan::Plan;
use gradwire_switch_config::ports::SeenPorts;
use serde_json::json;

use super::options::Running;
use super::schema;
use super::schema::validation::Validation;
use super::site::PlanOrigin;
use crate::exit::CommandError;
use gradwire_lab::error::LabError;
use gradwire_lab::files;

/// Runs the command.
///
/// # Errors
/// [`LabError::Check`] when the configuration has a fault; others name the file and the values
/// that are allowed.
pub fn run(options: &Running) -> Result<(), CommandError> {
    let origin = PlanOrigin::load(&options.plan)?;
    let plan = origin.plan()?;
    let text = files::text(&options.running)?;
    let reading = origin.dialect.read(&plan, &text);
    let reading = reading.map_err(|error| super::tell::unreadable(&options.running, &error))?;
    let seen = origin.dialect.ports(&text);
    let seen = seen.map_err(|error| super::tell::unreadable(&options.running, &error))?;
    let (mut findings, others) = sorted(&plan, &seen, lint::findings(&plan, &reading));
    let validator = judged(schema::validate(plan.target, &text), &mut findings);
    match options.plan.json {
        true => println!(
            "{}",
            json!({
                "target": plan.target.to_string(),
                "switch": origin.switch()?,
                "findings": findings.iter().map(super::tell::finding).collect::<Vec<_>>(),
                "others": others.iter().map(super::tell::finding).collect::<Vec<_>>(),
                "validator": validator,
            })
        ),
        false => {
            findings.iter().for_each(|finding| println!("{finding}"));
            if !others.is_empty() {
                let count = others.len();
                eprintln!("of ports that were not asked for: {count} more (--json lists them)");
            }
            eprintln!("validator: {validator}");
        }
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(LabError::Check(format!(
            "{}: {count} found; `gradwire switch diff` prints the change that mends it",
            options.running.display()
        ))
        .into()),
    }
}

/// Findings in the order of their weight: of the ports asked for, then of the whole switch. Those
/// of other ports come apart from them.
fn sorted(plan: &Plan, seen: &SeenPorts, found: Vec<Finding>) -> (Vec<Finding>, Vec<Finding>) {
    let mistakes = seen.mistakes(plan);
    let absent = |port: &str| {
        let mut mistakes = mistakes.iter();
        mistakes.any(|one| one.rule == Rule::PortAbsent && one.place == port)
    };
    let said = found
        .into_iter()
        .filter(|one| one.rule != Rule::PortUnsaid || !absent(&one.place));
    let said: Vec<Finding> = said.collect();
    let names = |finding: &Finding, port: &str| {
        let mut words = finding.place.split([' ', ',', '|', '[', ']', '"', '=']);
        words.any(|word| word == port)
    };
    let asked = |one: &Finding| plan.site.ports.iter().any(|port| names(one, &port.name));
    let other = |one: &Finding| seen.rates.keys().any(|port| names(one, port));
    let (own, rest): (Vec<_>, Vec<_>) = said.into_iter().partition(asked);
    let (others, whole): (Vec<_>, Vec<_>) = rest.into_iter().partition(other);
    (
        mistakes.into_iter().chain(own).chain(whole).collect(),
        others,
    )
}

/// The verdict of the platform's own validator, in words; its refusals become findings.
fn judged(validation: Validation, findings: &mut Vec<Finding>) -> String {
    match validation {
        Validation::Accepted { tool } => format!("accepted by {tool}"),
        Validation::Rejected { tool, messages } => {
            let refused = messages.into_iter();
            findings.extend(refused.map(|text| Finding::new(Rule::Schema, &tool, text)));
            format!("refused by {tool}")
        }
        Validation::Missing { install } => format!("not asked: {install}"),
    }
}

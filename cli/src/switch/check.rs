//! `gradwire switch check`: the faults of a configuration.

use gradwire_switch_config::lint::{self, Finding, Rule};
use serde_json::{Value, json};

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
    let mut findings = lint::findings(&plan, &reading);
    let validator = judged(schema::validate(plan.target, &text), &mut findings);
    match options.plan.json {
        true => println!(
            "{}",
            json!({
                "target": plan.target.to_string(),
                "switch": origin.switch()?,
                "findings": findings.iter().map(object).collect::<Vec<_>>(),
                "validator": validator,
            })
        ),
        false => {
            findings.iter().for_each(|finding| println!("{finding}"));
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

fn object(finding: &Finding) -> Value {
    json!({"rule": finding.rule.name(), "place": finding.place, "text": finding.text})
}

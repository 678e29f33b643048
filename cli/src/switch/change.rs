//! `gradwire switch diff` and `undo`: the change to load into a running switch, and the change that
//! takes it back.

use gradwire_switch_config::change::ConfigChange;
use gradwire_switch_config::dialect::Look;
use gradwire_switch_config::plan::Plan;
use serde_json::{Value, json};

use super::options::Running;
use super::site::PlanOrigin;
use crate::exit::CommandError;
use gradwire_lab::files;

/// Prints the change.
///
/// # Errors
/// [`CommandError`] names the file and the values that are allowed.
pub fn diff(options: &Running) -> Result<(), CommandError> {
    let (origin, plan, change) = load(options)?;
    let procedure = origin.dialect.procedure(&plan);
    match options.plan.json {
        true => println!("{}", object(&plan, &change.forward, &procedure)),
        false if change.forward.is_empty() => {
            eprintln!("{}: nothing to change", options.running.display());
        }
        false => {
            print!("{}", change.forward);
            super::tell::list(&procedure, super::tell::PrintStream::Error);
        }
    }
    Ok(())
}

/// Prints the change that takes another one back.
///
/// # Errors
/// As [`diff`]; and [`CommandError::Usage`] when the configuration is not one from before the
/// change.
pub fn undo(options: &Running) -> Result<(), CommandError> {
    let (_, plan, change) = load(options)?;
    if change.inverse.is_empty() {
        return Err(CommandError::Usage(format!(
            "{}: this has the plan in it already; undo needs the switch's export from before, or \
             roll back on the switch: `gradwire switch verify` tells how",
            options.running.display()
        )));
    }
    match options.plan.json {
        true => println!("{}", object(&plan, &change.inverse, &[])),
        false => print!("{}", change.inverse),
    }
    Ok(())
}

fn load(options: &Running) -> Result<(PlanOrigin<'_>, Plan, ConfigChange), CommandError> {
    let origin = PlanOrigin::load(&options.plan)?;
    let plan = origin.plan()?;
    let text = files::text(&options.running)?;
    let change = origin.dialect.change(&plan, &text);
    let change = change.map_err(|error| super::tell::unreadable(&options.running, &error))?;
    Ok((origin, plan, change))
}

fn object(plan: &Plan, change: &str, procedure: &[Look]) -> Value {
    json!({
        "target": plan.target.to_string(),
        "origin": plan.site.origin,
        "change": change,
        "procedure": procedure,
    })
}

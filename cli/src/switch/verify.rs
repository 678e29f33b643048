//! `gradwire switch verify`: commands to look at a switch with, and a judgement of its counters.

use std::path::Path;

use gradwire_switch_config::counters::{self, CounterVerdict, Judgement, QueueCount};
use gradwire_switch_config::plan::Plan;
use serde_json::json;

use super::options::Verify;
use super::site::PlanOrigin;
use super::tell;
use crate::exit::CommandError;
use gradwire_lab::files;

/// Runs the command.
///
/// # Errors
/// [`CommandError::Check`] when counters are against the plan; others name the file and the values
/// that are allowed.
pub fn run(options: &Verify) -> Result<(), CommandError> {
    let origin = PlanOrigin::load(&options.plan)?;
    let plan = origin.plan()?;
    let Some(path) = &options.counters else {
        let [procedure, looks] = [origin.dialect.procedure(&plan), origin.dialect.looks(&plan)];
        match options.plan.json {
            true => println!(
                "{}",
                json!({"procedure": tell::looks(&procedure), "looks": tell::looks(&looks)})
            ),
            false => {
                println!("Load, try and go back:");
                tell::list(&procedure, tell::PrintStream::Output);
                println!("\nLook at:");
                tell::list(&looks, tell::PrintStream::Output);
            }
        }
        return Ok(());
    };
    let after = counts(&origin, &plan, path)?;
    let counts = match &options.since {
        Some(before) => counters::since(&counts(&origin, &plan, before)?, &after),
        None => after,
    };
    let judgements = counters::judge(&plan, &counts);
    tell(options, &judgements);
    let wrong = judgements.iter();
    let wrong = wrong.filter(|judgement| judgement.verdict == CounterVerdict::Wrong);
    match wrong.count() {
        0 => Ok(()),
        count => Err(CommandError::Check(format!(
            "{}: {count} of {} queues are against the plan",
            path.display(),
            judgements.len()
        ))),
    }
}

fn counts(
    origin: &PlanOrigin<'_>,
    plan: &Plan,
    path: &Path,
) -> Result<Vec<QueueCount>, CommandError> {
    let counts = origin.dialect.counters(plan, &files::text(path)?);
    counts.map_err(|error| tell::unreadable(path, &error))
}

fn tell(options: &Verify, judgements: &[Judgement]) {
    if options.plan.json {
        let judgements = judgements.iter().map(|judgement| {
            json!({
                "verdict": judgement.verdict.to_string(),
                "place": judgement.place,
                "text": judgement.text,
            })
        });
        println!("{}", json!(judgements.collect::<Vec<_>>()));
        return;
    }
    for Judgement {
        verdict,
        place,
        text,
    } in judgements
    {
        println!("{:<7} {place}: {text}", verdict.to_string());
    }
}

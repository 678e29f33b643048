//! `gradwire switch verify`: what to look at on a switch, and what its counters tell.

use std::path::Path;

use gradwire_switch_config::counters::{self, Judgement, QueueCount, Verdict};
use gradwire_switch_config::plan::Plan;
use serde_json::json;

use super::options::Verify;
use super::site::Origin;
use crate::exit::Failure;
use gradwire_lab::files;

/// Runs the command.
///
/// # Errors
/// [`Failure::Check`] when counters are against the plan; others name the file and what is right.
pub fn run(options: &Verify) -> Result<(), Failure> {
    let origin = Origin::load(&options.plan)?;
    let plan = origin.plan()?;
    let Some(path) = &options.counters else {
        let [procedure, looks] = [origin.dialect.procedure(&plan), origin.dialect.looks(&plan)];
        match options.plan.json {
            true => println!(
                "{}",
                json!({"procedure": super::looks(&procedure), "looks": super::looks(&looks)})
            ),
            false => {
                println!("Load, try and go back:");
                super::list(&procedure, super::Stream::Output);
                println!("\nLook at:");
                super::list(&looks, super::Stream::Output);
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
    let wrong = wrong.filter(|judgement| judgement.verdict == Verdict::Wrong);
    match wrong.count() {
        0 => Ok(()),
        count => Err(Failure::Check(format!(
            "{}: {count} of {} queues are against the plan",
            path.display(),
            judgements.len()
        ))),
    }
}

fn counts(origin: &Origin<'_>, plan: &Plan, path: &Path) -> Result<Vec<QueueCount>, Failure> {
    let counts = origin.dialect.counters(plan, &files::text(path)?);
    counts.map_err(|error| super::unreadable(path, &error))
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

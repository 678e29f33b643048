//! `gradwire sim`: simulated fabrics from the command line.
//!
//! - [`options`]: the command line. [`sweep`]: `gradwire sim sweep`.
//! - `catalogue`: the lists of workloads and fabrics.
//!
//! Not here: scenarios and their runs (`gradwire_lab::sim`), and the simulator (`gradwire-netsim`).

mod catalogue;
pub mod options;
pub mod sweep;

use gradwire_lab::error::LabError;
use gradwire_lab::sim::compare::ComparisonPlan;
use gradwire_lab::sim::fuzz::{self, FuzzPlan};
use gradwire_lab::sim::run::{self, RunFiles};
use gradwire_lab::sim::{compare, report};
use gradwire_report::json;
use gradwire_report::printing::OutputForm;

use crate::exit::CommandError;
use options::{SimCommand, SimCompare, SimFuzz, SimReport, SimRun, scenario};

/// Runs one of the commands.
///
/// # Errors
/// [`CommandError`] when a scenario makes no sense, or when flows or tasks did not all end; in that
/// case the numbers of the others are printed first.
pub fn run(command: &SimCommand) -> Result<(), CommandError> {
    match command {
        SimCommand::Run(options) => once(options),
        SimCommand::Compare(options) => compared(options),
        SimCommand::Sweep(options) => sweep::run(options),
        SimCommand::Fuzz(options) => fuzzed(options),
        SimCommand::Report(options) => drawn(options),
        SimCommand::Workloads(options) => {
            let form = OutputForm::from(options.json);
            form.print(catalogue::text, catalogue::object);
            Ok(())
        }
    }
}

fn once(options: &SimRun) -> Result<(), CommandError> {
    let files = RunFiles {
        trace: options.trace.as_deref(),
        flows: options.flows.as_deref(),
    };
    let ran = run::run(&scenario(&options.scenario), files)?;
    OutputForm::from(options.json).print(|| ran.table(), || &ran.summary);
    Ok(ran.summary.unfinished()?)
}

fn compared(options: &SimCompare) -> Result<(), CommandError> {
    let scenario = scenario(&options.plan.scenario);
    let plan = ComparisonPlan {
        scenario,
        ..options.plan.clone()
    };
    let comparison = compare::compare(&plan)?;
    OutputForm::from(options.json).print(|| comparison.table(), || &comparison);
    Ok(comparison.unfinished()?)
}

fn trained(options: &SimFuzz) -> Result<(), CommandError> {
    let week = fuzz::week(options.seed);
    let week = week.map_err(|violation| LabError::Check(violation.to_string()))?;
    if options.json {
        println!("{}", json::line(&week));
    } else {
        print!("{}", week.text());
    }
    Ok(())
}

fn fuzzed(options: &SimFuzz) -> Result<(), CommandError> {
    if options.week {
        return trained(options);
    }
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u16);
    let plan = FuzzPlan {
        seed: options.seed,
        count: options.count,
        faults: options.faults,
        ranks: options.ranks,
        operations: options.operations.map(usize::from),
        parallel: options.parallel.unwrap_or_else(cores),
    };
    if options.trace {
        let traced = plan.trace(&mut |line| println!("{line}"));
        return traced.map_err(|violation| LabError::Check(violation.to_string()).into());
    }
    let report = fuzz::fuzz(&plan);
    if options.json {
        println!("{}", json::line(&report));
    } else {
        print!("{}", report.text());
    }
    report
        .failure()
        .map_or(Ok(()), |failure| Err(LabError::Check(failure).into()))
}

fn drawn(options: &SimReport) -> Result<(), CommandError> {
    let scenario = scenario(&options.scenario);
    let end = report::report(&scenario, &options.transports, &options.out)?;
    println!("{}", options.out.display());
    Ok(end?)
}

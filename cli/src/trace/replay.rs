//! `gradwire trace replay`: the predicted iteration, its critical path, and the answer to a
//! what-if.

use std::fmt::Write as _;

use gradwire_lab::error::LabError;
use gradwire_lab::output::WholeFile;
use gradwire_lab::sim::training::mean;
use gradwire_lab::trace::drawing;
use gradwire_lab::trace::events::{self, Alignment};
use gradwire_report::printing::OutputForm;
use gradwire_trace::critical::{CriticalPath, PathResource, PathStation};
use gradwire_trace::replay::{Prediction, coarse, replay};
use gradwire_trace::whatif::{WhatIf, changed};
use serde::Serialize;

use super::options::TraceReplay;
use crate::exit::CommandError;

/// Stations of the path in a table at most; the longest.
const STATIONS_MAX: usize = 12;
/// Resources in a table at most.
const SHARES_MAX: usize = 8;

/// A predicted iteration, for programs.
#[derive(Serialize)]
struct ReplayReport {
    /// The mean of the recorded iterations, in microseconds.
    measured_us: Option<f64>,
    /// The same, predicted.
    replayed_us: f64,
    /// Each of the replayed iterations.
    iterations_us: Vec<f64>,
    /// Predicted with one duration for each collective, for comparison.
    coarse_us: f64,
    /// With the changes of `--whatif`, if there are any.
    whatif: Option<WhatIfReport>,
    /// How long the slowest rank computes.
    compute_us: f64,
    /// The longest way through the last iteration, with the changes if there are any.
    path: CriticalPath,
    /// Microseconds of the path on each resource.
    shares: Vec<ShareReport>,
}

#[derive(Serialize)]
struct WhatIfReport {
    question: String,
    replayed_us: f64,
    /// The replayed iteration over this one: above 1 it becomes faster.
    times_as_fast: f64,
}

#[derive(Serialize)]
struct ShareReport {
    resource: PathResource,
    rank: u32,
    us: f64,
}

/// Runs the command.
///
/// # Errors
/// [`LabError`] names the file, host, rank or question, and the mistake.
pub fn run(options: &TraceReplay) -> Result<(), CommandError> {
    let alignment = match options.unaligned {
        true => Alignment::AsNoted,
        false => Alignment::Align,
    };
    let questions = options.whatif.as_deref().unwrap_or_default();
    let changes = WhatIf::list(questions).map_err(usage)?;
    let (scene, measured) = events::scene(&options.files, alignment)?;
    let before = replay(&scene).map_err(usage)?;
    let coarse_us = coarse(&scene).map_err(usage)?;
    let now = changed(&scene, &changes).map_err(usage)?;
    let after = match changes.is_empty() {
        true => before.clone(),
        false => replay(&now).map_err(usage)?,
    };
    let path = CriticalPath::of(&now.workload, &after);
    if let Some(out) = &options.out {
        let page = drawing::page(&now, &after, &path);
        WholeFile::create(out)?.keep(page.as_bytes())?;
    }
    let report = report((&before, &after), path, questions);
    let report = ReplayReport {
        measured_us: mean(&measured),
        coarse_us,
        ..report
    };
    OutputForm::from(options.json).print(|| text(&report), || &report);
    Ok(())
}

fn usage(error: impl std::fmt::Display) -> LabError {
    LabError::Usage(error.to_string())
}

fn report(
    (before, after): (&Prediction, &Prediction),
    path: CriticalPath,
    question: &str,
) -> ReplayReport {
    let replayed_us = before.iteration_us();
    let shares = path.shares().into_iter();
    let whatif = (!question.is_empty()).then(|| WhatIfReport {
        question: question.to_owned(),
        replayed_us: after.iteration_us(),
        times_as_fast: replayed_us / after.iteration_us(),
    });
    ReplayReport {
        measured_us: None,
        replayed_us,
        iterations_us: before.iterations_us.clone(),
        coarse_us: 0.0,
        whatif,
        compute_us: after.compute_us,
        shares: shares
            .map(|((resource, rank), us)| ShareReport { resource, rank, us })
            .collect(),
        path,
    }
}

fn text(report: &ReplayReport) -> String {
    let mut text = String::new();
    let mut row = |name: &str, us: f64, beside: &str| {
        let _ = writeln!(text, "{name:<24}{:>12.3} ms  {beside}", us / 1e3);
    };
    if let Some(measured) = report.measured_us {
        row("iteration, recorded", measured, "");
        let apart = |us: f64| format!("{:+.1} %", (us / measured - 1.0) * 100.0);
        row(
            "iteration, replayed",
            report.replayed_us,
            &apart(report.replayed_us),
        );
        row(
            "  one time a collective",
            report.coarse_us,
            &apart(report.coarse_us),
        );
    } else {
        row("iteration, replayed", report.replayed_us, "");
    }
    if let Some(whatif) = &report.whatif {
        let times = format!(
            "{:.2} times as fast: {}",
            whatif.times_as_fast, whatif.question
        );
        row("iteration, what if", whatif.replayed_us, &times);
    }
    row(
        "computing",
        report.compute_us,
        "the least that an iteration can take",
    );
    let total: f64 = report.shares.iter().map(|share| share.us).sum();
    text += "\ncritical path of the last iteration, by resource\n";
    for share in report.shares.iter().take(SHARES_MAX) {
        let part = share.us / total.max(f64::MIN_POSITIVE) * 100.0;
        let name = format!("{} of rank {}", share.resource.in_words(), share.rank);
        let _ = writeln!(
            text,
            "  {name:<32}{:>10.3} ms {part:>5.1} %",
            share.us / 1e3
        );
    }
    text += "\nlongest stations of the path\n";
    for station in longest(&report.path) {
        let took = (station.to_us - station.from_us) / 1e3;
        let peer = station
            .peer
            .map_or_else(String::new, |peer| format!(" with rank {peer}"));
        let place = format!(
            "{} of rank {}{peer}",
            station.resource.in_words(),
            station.rank
        );
        let _ = writeln!(text, "  {:<40}{took:>10.3} ms  {place}", station.task);
    }
    text
}

fn longest(path: &CriticalPath) -> Vec<&PathStation> {
    let mut stations: Vec<&PathStation> = path.stations.iter().collect();
    stations.sort_by(|one, other| {
        let took = |station: &PathStation| station.to_us - station.from_us;
        took(other).total_cmp(&took(one))
    });
    stations.truncate(STATIONS_MAX);
    stations
}

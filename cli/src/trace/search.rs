//! `gradwire trace search`: the keys and the bucket size that shorten a step most, by replays.

use std::fmt::Write as _;
use std::path::Path;

use gradwire_lab::error::LabError;
use gradwire_lab::output::WholeFile;
use gradwire_lab::sim::progress;
use gradwire_lab::sim::training::mean;
use gradwire_lab::trace::events::{self, Alignment};
use gradwire_report::printing::OutputForm;
use gradwire_trace::search::{Depth, Found, keys, search};
use serde::Serialize;

use super::options::TraceSearch;
use crate::exit::CommandError;

/// By how much a replay may be off, as a share of the recorded iteration, before its gains count
/// for little.
const TRUSTED: f64 = 0.1;

/// The search, for programs.
#[derive(Serialize)]
struct SearchReport {
    /// Iteration as recorded, in microseconds.
    measured_us: Option<f64>,
    /// Iteration as recorded, replayed, in microseconds.
    before_us: f64,
    /// Iteration with the keys, replayed.
    after_us: f64,
    /// Predicted gain, in percent of the iteration before.
    gain_percent: f64,
    /// Keys of `job.toml`.
    keys: Vec<(&'static str, String)>,
    /// `bucket_cap_mb` of DDP, in units of 2^20 bytes.
    bucket_cap_mb: Option<f64>,
    /// Replays.
    trials: usize,
    /// Time of the search on the wall.
    wall_s: f64,
}

/// Runs the command.
///
/// # Errors
/// [`LabError`] names the file, host or rank, and the mistake.
pub fn run(options: &TraceSearch) -> Result<(), CommandError> {
    let (scene, measured) = events::scene(&options.files, Alignment::Align)?;
    let depth = match options.full {
        true => Depth::Full,
        false => Depth::Partial,
    };
    let bar = progress::bar(0, "{pos} replays, {elapsed} gone  {msg}");
    let began = clock();
    let found = search(&scene, depth, &mut |trials, best| {
        bar.set_position(trials as u64);
        bar.set_message(format!("{:.3} ms so far", best / 1e3));
    });
    bar.finish_and_clear();
    let found = found.map_err(|error| LabError::Usage(error.to_string()))?;
    let report = report(
        &found,
        mean(&measured),
        clock().duration_since(began).as_secs_f64(),
    );
    if let Some(out) = &options.out {
        write(&report, out)?;
    }
    OutputForm::from(options.json).print(|| text(&report), || &report);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the search reports its own time")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

fn report(found: &Found, measured_us: Option<f64>, wall_s: f64) -> SearchReport {
    let (keys, bucket_cap_mb) = keys(&found.changes);
    SearchReport {
        measured_us,
        before_us: found.before_us,
        after_us: found.after_us,
        gain_percent: (1.0 - found.after_us / found.before_us) * 100.0,
        keys,
        bucket_cap_mb,
        trials: found.trials,
        wall_s,
    }
}

/// The keys as lines of a job file, and the bucket size as a comment.
fn toml(report: &SearchReport) -> String {
    let mut text = String::new();
    if let Some(bucket) = report.bucket_cap_mb {
        let _ = writeln!(
            text,
            "# DistributedDataParallel(model, bucket_cap_mb={bucket})"
        );
    }
    for (key, value) in &report.keys {
        let value = value.replace(' ', "");
        let _ = writeln!(text, "{key} = \"{value}\"");
    }
    text
}

/// A warning where the replay is far from the recorded iteration.
fn doubt(report: &SearchReport) -> String {
    let off = report
        .measured_us
        .map_or(0.0, |us| report.before_us / us - 1.0);
    match off.abs() > TRUSTED {
        true => format!(
            "# a replay of the recorded steps is off by {:+.0} %, and so are predicted gains: run \
             each change before you keep it\n\n",
            off * 100.0
        ),
        false => String::new(),
    }
}

fn write(report: &SearchReport, out: &Path) -> Result<(), LabError> {
    WholeFile::create(out)?.keep(toml(report).as_bytes())
}

fn text(report: &SearchReport) -> String {
    let SearchReport {
        before_us,
        after_us,
        gain_percent,
        trials,
        wall_s,
        ..
    } = report;
    let mut text = format!(
        "# {trials} replays in {wall_s:.1} s\niteration now   {:>12.3} ms\niteration then  \
         {:>12.3} ms, {gain_percent:.1} % less\n\n",
        before_us / 1e3,
        after_us / 1e3
    );
    text += &doubt(report);
    match toml(report).as_str() {
        "" => text += "nothing was found that helps: the step computes, or its links are full\n",
        lines => text += lines,
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_that_is_far_off_is_doubted() {
        let report = |before_us| SearchReport {
            measured_us: Some(100.0),
            before_us,
            after_us: 50.0,
            gain_percent: 50.0,
            keys: Vec::new(),
            bucket_cap_mb: None,
            trials: 1,
            wall_s: 0.0,
        };
        assert_eq!(doubt(&report(109.0)), "");
        assert!(doubt(&report(172.0)).contains("by +72 %"));
        assert!(doubt(&report(80.0)).contains("by -20 %"));
    }
}

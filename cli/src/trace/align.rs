//! `gradwire trace align`: how far the clocks of a run's hosts are apart, and a copy on one clock.

use std::fmt::Write as _;
use std::path::Path;

use gradwire_lab::error::LabError;
use gradwire_lab::output::WholeFile;
use gradwire_lab::trace::events;
use gradwire_report::printing::OutputForm;
use gradwire_trace::clocks::AlignedClocks;
use gradwire_trace::event::Trace;
use gradwire_trace::run::TracedRun;

use super::options::TraceAlign;
use crate::exit::CommandError;

/// Runs the command.
///
/// # Errors
/// [`LabError`] names the file, or the two hosts whose clocks contradict each other.
pub fn run(options: &TraceAlign) -> Result<(), CommandError> {
    let mut run = events::read(&options.files)?;
    let clocks = events::clocks(&run)?;
    if let Some(out) = &options.out {
        clocks.apply(&mut run);
        write(run, out)?;
    }
    OutputForm::from(options.json).print(|| text(&clocks), || &clocks);
    Ok(())
}

/// Writes all events of a run into one file.
fn write(run: TracedRun, out: &Path) -> Result<(), LabError> {
    let file = WholeFile::create(out)?;
    let trace = Trace {
        gradwire: run.head,
        events: run.events,
    };
    file.keep(trace.to_json().as_bytes())
}

fn text(clocks: &AlignedClocks) -> String {
    let count = clocks.messages;
    let mut text = format!("# {count} messages with both ends; offsets from the first host\n");
    let _ = writeln!(
        text,
        "{:<24}{:>14}{:>14}{:>14}",
        "host", "offset us", "within us", "drift ppm"
    );
    for clock in &clocks.hosts {
        let (offset, within) = (clock.offset_us, clock.within_us);
        let _ = writeln!(
            text,
            "{:<24}{offset:>14.1}{within:>14.1}{:>14.2}",
            clock.host, clock.drift_ppm
        );
    }
    text
}

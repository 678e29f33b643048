//! Reads the event files of one run, aligns its clocks, and makes the scene that is replayed.

use std::path::{Path, PathBuf};

use crate::error::LabError;
use crate::files;
use crate::sim::traced;
use gradwire_netsim::fluid::FluidExtent;
use gradwire_trace::clocks::AlignedClocks;
use gradwire_trace::event::Trace;
use gradwire_trace::graph;
use gradwire_trace::network::TracedNetwork;
use gradwire_trace::replay::{Scene, measured};
use gradwire_trace::run::TracedRun;

use super::recorders::json_files;

/// Whether clocks are aligned before a replay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Alignment {
    /// They are.
    Align,
    /// They are taken as they were noted.
    AsNoted,
}

/// The events in some files, or in the folders with such files.
///
/// # Errors
/// [`LabError`] names the file and its mistake.
pub fn read(places: &[PathBuf]) -> Result<TracedRun, LabError> {
    let hint = "name the folder that `sim run --trace` or gradwire.events wrote to";
    let paths = json_files(places, "events-", hint)?;
    let traces = paths
        .iter()
        .map(|path| read_one(path))
        .collect::<Result<Vec<_>, _>>()?;
    TracedRun::of(traces).map_err(|(index, error)| {
        let path = index.map(|index| paths[index].display().to_string());
        let place = || {
            places
                .iter()
                .map(|place| place.display().to_string())
                .collect::<Vec<_>>()
        };
        LabError::input(path.unwrap_or_else(|| place().join(", ")), error)
    })
}

/// The offsets of the clocks of a run's hosts.
///
/// # Errors
/// [`LabError::Check`] names the two hosts whose clocks contradict each other.
pub fn clocks(run: &TracedRun) -> Result<AlignedClocks, LabError> {
    AlignedClocks::of(run).map_err(|error| LabError::Check(error.to_string()))
}

/// The scene of some files, and the iterations that were measured, in microseconds.
///
/// # Errors
/// [`LabError`] names the file, host or rank, and the mistake.
pub fn scene(places: &[PathBuf], alignment: Alignment) -> Result<(Scene, Vec<f64>), LabError> {
    let mut run = read(places)?;
    if alignment == Alignment::Align {
        clocks(&run)?.apply(&mut run);
    }
    let check = |error: &dyn std::error::Error| LabError::Check(error.to_string());
    let workload = graph::workload(&run).map_err(|error| check(&error))?;
    let scene = Scene {
        network: TracedNetwork::of(&run),
        job: traced::job(&run.head)?,
        workload,
        extent: FluidExtent::Whole,
    };
    Ok((scene, measured(&run)))
}

fn read_one(path: &Path) -> Result<Trace, LabError> {
    let text = files::text(path)?;
    Trace::from_json(&text).map_err(|error| LabError::input(path.display(), error))
}

//! One cell in its own process: it reads the order from standard input and prints the record.
//!
//! The process ends when its input does, so no cell outlives its sweep.

use std::io::BufRead;

use serde::{Deserialize, Serialize};

use super::record::CellRecord;
use crate::crew::leash;
use crate::error::LabError;
use crate::sim::scenario::Scenario;

/// The order, on one line.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CellOrder {
    /// The version of the sweep that sends it.
    pub version: String,
    /// The cell.
    pub id: String,
    /// The scenario to run.
    pub scenario: Scenario,
}

impl CellOrder {
    /// Makes the order to run a cell with this version.
    pub fn new(id: &str, scenario: &Scenario) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            id: id.to_owned(),
            scenario: scenario.clone(),
        }
    }
}

/// Runs the ordered cell; a failed cell has a record, too. When standard input ends before that,
/// this process ends with the exit code `orphaned`.
///
/// # Errors
/// [`LabError::Usage`] when the input is no order, or one of another version.
pub fn run(orphaned: u8) -> Result<CellRecord, LabError> {
    let mut line = String::new();
    let told = std::io::stdin().lock().read_line(&mut line);
    told.map_err(LabError::system("standard input"))?;
    let order: CellOrder = serde_json::from_str(&line)
        .map_err(|error| LabError::Usage(format!("the cell told over standard input: {error}")))?;
    if order.version != env!("CARGO_PKG_VERSION") {
        return Err(LabError::Usage(format!(
            "this is gradwire {} and the sweep is of {}: install the same version everywhere",
            env!("CARGO_PKG_VERSION"),
            order.version
        )));
    }
    leash::when_input_ends(move || std::process::exit(i32::from(orphaned)));
    Ok(record_of(&order))
}

fn record_of(order: &CellOrder) -> CellRecord {
    let (id, scenario) = (&order.id, &order.scenario);
    let loaded = scenario.load();
    match loaded.and_then(|loaded| scenario.run(&loaded, &mut |_| {})) {
        Ok((_, summary)) => CellRecord::of_run(id, scenario, &summary),
        Err(failure) => CellRecord::of_failure(id, scenario, failure.to_string()),
    }
}

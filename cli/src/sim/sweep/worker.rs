//! One cell in a process of its own: told over standard input, its record printed.
//!
//! The process ends when its input does: no cell runs on for a sweep that is gone.

use std::io::{BufRead, Read};

use serde::{Deserialize, Serialize};

use super::super::run::json;
use super::super::scenario::Scenario;
use super::record::Record;
use crate::exit::{Exit, Failure};

/// What is told, on one line.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Order {
    /// The version of the sweep that tells it.
    pub version: String,
    /// The cell.
    pub id: String,
    /// What to run.
    pub scenario: Scenario,
}

impl Order {
    /// The order to run a cell with this version.
    pub fn new(id: &str, scenario: &Scenario) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            id: id.to_owned(),
            scenario: scenario.clone(),
        }
    }
}

/// Runs the cell that is told and prints its record on one line; a cell that fails has one too.
///
/// # Errors
/// [`Failure::Usage`] when what is told is no order, or one of another version.
pub fn run() -> Result<(), Failure> {
    let mut line = String::new();
    let told = std::io::stdin().lock().read_line(&mut line);
    told.map_err(|source| Failure::System {
        what: "standard input".to_owned(),
        source,
    })?;
    let order: Order = serde_json::from_str(&line)
        .map_err(|error| Failure::Usage(format!("the cell told over standard input: {error}")))?;
    if order.version != env!("CARGO_PKG_VERSION") {
        return Err(Failure::Usage(format!(
            "this is gradwire {} and the sweep is of {}: install the same version everywhere",
            env!("CARGO_PKG_VERSION"),
            order.version
        )));
    }
    std::thread::spawn(end_with_input);
    println!("{}", json(&record_of(&order)));
    Ok(())
}

fn record_of(order: &Order) -> Record {
    let (id, scenario) = (&order.id, &order.scenario);
    let loaded = scenario.load();
    match loaded.and_then(|loaded| scenario.run(&loaded, &mut |_| {})) {
        Ok((_, summary)) => Record::of_run(id, scenario, &summary),
        Err(failure) => Record::of_failure(id, scenario, failure.to_string()),
    }
}

fn end_with_input() {
    // Whatever ends the input, an error too, whoever wanted the result is gone.
    let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
    std::process::exit(Exit::PeerLost as i32);
}

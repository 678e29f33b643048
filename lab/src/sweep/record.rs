//! The record of a cell that has run: its result and cost, or the reason why it has none.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::sim::scenario::Scenario;
use crate::sim::summary::Summary;
use gradwire_report::json;

/// Fields of a summary that differ from run to run.
const COSTS: [&str; 4] = ["cpu_s", "cpu_per_thread_s", "wall_s", "peak_rss_bytes"];

/// A cell that has run: with a result, with an error, or with both if the run was stopped before
/// its end.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CellRecord {
    /// The cell.
    pub id: String,
    /// The fields of its scenario.
    pub scenario: Value,
    /// The summary of the run, without its costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Map<String, Value>>,
    /// The error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Time and memory that it took.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub cost: Map<String, Value>,
}

impl CellRecord {
    /// Returns the record of a finished run.
    pub fn of_run(id: &str, scenario: &Scenario, summary: &Summary) -> Self {
        let Value::Object(mut result) = json!(summary) else {
            unreachable!("a struct is an object in JSON");
        };
        let costs = COSTS.iter();
        let cost = costs
            .filter_map(|name| result.remove_entry(*name))
            .collect();
        let stopped = summary.unfinished().err();
        Self {
            result: Some(result),
            error: stopped.map(|failure| failure.to_string()),
            cost,
            ..Self::of_failure(id, scenario, String::new())
        }
    }

    /// Returns the record of a cell without a result.
    pub fn of_failure(id: &str, scenario: &Scenario, error: String) -> Self {
        Self {
            id: id.to_owned(),
            scenario: json!(scenario),
            result: None,
            error: Some(error),
            cost: Map::new(),
        }
    }

    /// Returns the record on one line, without the fields that differ between runs.
    pub fn result_line(&self) -> String {
        let lasting = Self {
            cost: Map::new(),
            ..self.clone()
        };
        format!("{}\n", json::line(&lasting))
    }

    /// Returns its cost, on one line.
    pub fn cost_line(&self) -> String {
        format!("{}\n", json!({ "id": self.id, "cost": self.cost }))
    }
}

//! The findings of a table, made from its cells.

use serde::Serialize;

use super::section::{Chart, EvalGoal, Grid};

/// Mean time of a step in a result, in microseconds.
pub const ITERATION: &str = "/training/0/iteration_us";
/// The place of each step's time in a result, in microseconds.
pub const ITERATIONS: &str = "/training/0/iterations_us";

/// Mean completion time of the other traffic's flows in a result, in microseconds.
pub const OTHERS_FCT: &str = "/background_fct_us/mean";
/// Mean slowdown of the other traffic's flows in a result.
pub const OTHERS_SLOWDOWN: &str = "/background_slowdown/mean";

/// The findings of a table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TableFindings {
    /// Paragraphs: the experiment, and how to read the table.
    pub about: Vec<String>,
    /// The numbers.
    pub grids: Vec<Grid>,
    /// The pictures, which show the numbers of the grids.
    #[serde(skip)]
    pub charts: Vec<Chart>,
    /// The goals.
    pub goals: Vec<EvalGoal>,
}

/// Returns the names, each once, in their order.
pub(super) fn named<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut list: Vec<String> = Vec::new();
    for name in names {
        if !list.iter().any(|known| known == name) {
            list.push(name.to_owned());
        }
    }
    list
}

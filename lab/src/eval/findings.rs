//! The findings of a table: what it makes of its cells.

use super::section::{Chart, EvalGoal, Grid};

/// Mean time of a step in a result, in microseconds.
pub const ITERATION: &str = "/training/0/iteration_us";
/// The time of each step.
pub const ITERATIONS: &str = "/training/0/iterations_us";

/// What a table says of what was found.
#[derive(Clone, Debug, Default)]
pub struct TableFindings {
    /// Paragraphs: what was run, and how to read it.
    pub about: Vec<String>,
    /// The numbers.
    pub grids: Vec<Grid>,
    /// The pictures.
    pub charts: Vec<Chart>,
    /// What was to be reached.
    pub goals: Vec<EvalGoal>,
}

/// Names, each once, in their order.
pub(super) fn named<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut list: Vec<String> = Vec::new();
    for name in names {
        if !list.iter().any(|known| known == name) {
            list.push(name.to_owned());
        }
    }
    list
}

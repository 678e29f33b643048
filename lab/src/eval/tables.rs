//! The tables of an evaluation: what each runs, and what it makes of that.
//!
//! A table of simulated cells has plans ([`super::plans`]) and a function that reads
//! [`Evidence`]; one of real training runs a command ([`super::training`]).

pub mod accuracy;
pub mod fabric;
pub mod losses;
mod rivals;
pub mod scheduling;
pub mod search;
pub mod steps;
pub mod tolerance;

use super::evidence::Evidence;
use super::plans::{self, Plan};
use super::section::{Chart, Goal, Grid};
use super::training::Study;

/// Mean time of a step in a result, in microseconds.
pub const ITERATION: &str = "/training/0/iteration_us";
/// The time of each step.
pub const ITERATIONS: &str = "/training/0/iterations_us";

/// One table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// What `--only` calls it.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Where its numbers are from.
    pub content: Content,
}

/// Where the numbers of a table are from.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// Simulated cells: those of the quick evaluation, those of the whole one, what they say.
    Simulated(&'static [Plan], &'static [Plan], fn(&Evidence) -> Found),
    /// Real training.
    Trained(&'static Study),
}

/// What a table says of what was found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Paragraphs: what was run, and how to read it.
    pub about: Vec<String>,
    /// The numbers.
    pub grids: Vec<Grid>,
    /// The pictures.
    pub charts: Vec<Chart>,
    /// What was to be reached.
    pub goals: Vec<Goal>,
}

/// All tables, in the order of the report.
pub const TABLES: [Table; 7] = [
    Table {
        name: "scheduling",
        title: "Scheduling: front layers first, in parts, within a credit",
        content: Content::Simulated(
            &[
                plans::SERVERS_OFF_QUICK,
                plans::SERVERS_ON_QUICK,
                plans::SERVERS_ON_SMALL_QUICK,
            ],
            &[
                plans::SERVERS_OFF,
                plans::SERVERS_ON,
                plans::SERVERS_ON_SMALL,
                plans::RING,
            ],
            scheduling::found,
        ),
    },
    Table {
        name: "search",
        title: "Chunk and credit by few trials",
        content: Content::Simulated(&[plans::SEARCH_QUICK], &[plans::SEARCH], search::found),
    },
    Table {
        name: "fabric",
        title: "144 hosts beside other traffic",
        content: Content::Simulated(
            &[plans::FABRIC_QUICK],
            &[plans::FABRIC_SERVERS, plans::FABRIC_RING],
            fabric::found,
        ),
    },
    Table {
        name: "steps",
        title: "What each part adds",
        content: Content::Simulated(&[plans::STEPS_QUICK], &[plans::STEPS], steps::found),
    },
    Table {
        name: "losses",
        title: "Links that lose packets",
        content: Content::Simulated(&[plans::LOSSES_QUICK], &[plans::LOSSES], losses::found),
    },
    Table {
        name: "training",
        title: "Accuracy under loss",
        content: Content::Trained(&accuracy::STUDY),
    },
    Table {
        name: "tolerance",
        title: "Tolerances found by trials",
        content: Content::Trained(&tolerance::STUDY),
    },
];

/// Names, each once, in their order.
fn named<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut list: Vec<String> = Vec::new();
    for name in names {
        if !list.iter().any(|known| known == name) {
            list.push(name.to_owned());
        }
    }
    list
}

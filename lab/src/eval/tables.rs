//! The tables of an evaluation: the cells of each, and its findings.
//!
//! A table of simulated cells has plans ([`super::plans`]) and a function that reads
//! [`TableEvidence`]; one of real training runs a command ([`super::training`]).

pub mod accuracy;
pub mod fabric;
pub mod losses;
mod rivals;
pub mod scheduling;
pub mod search;
pub mod steps;
pub mod stragglers;
pub mod tolerance;

use super::evidence::TableEvidence;
use super::findings::TableFindings;
use super::plans::{self, EvalPlan};
use super::training::Study;

/// One table.
#[derive(Clone, Copy, Debug)]
pub struct EvalTable {
    /// Its name for `--only`.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Where its numbers are from.
    pub content: Content,
}

/// The source of a table's numbers.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// Simulated cells: plans of the quick evaluation, plans of the whole one, and the function
    /// that reads them.
    Simulated(
        &'static [EvalPlan],
        &'static [EvalPlan],
        fn(&TableEvidence) -> TableFindings,
    ),
    /// Real training.
    Trained(&'static Study),
}

/// Returns all tables, in the order of the report.
pub const TABLES: [EvalTable; 8] = [
    EvalTable {
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
    EvalTable {
        name: "search",
        title: "Chunk and credit by few trials",
        content: Content::Simulated(&[plans::SEARCH_QUICK], &[plans::SEARCH], search::found),
    },
    EvalTable {
        name: "fabric",
        title: "144 hosts beside other traffic",
        content: Content::Simulated(
            &[plans::FABRIC_QUICK],
            &[plans::FABRIC_SERVERS, plans::FABRIC_RING],
            fabric::found,
        ),
    },
    EvalTable {
        name: "steps",
        title: "What each part adds",
        content: Content::Simulated(&[plans::STEPS_QUICK], &[plans::STEPS], steps::found),
    },
    EvalTable {
        name: "losses",
        title: "Links that lose packets",
        content: Content::Simulated(&[plans::LOSSES_QUICK], &[plans::LOSSES], losses::found),
    },
    EvalTable {
        name: "stragglers",
        title: "Ranks that are slow for a while, and patience",
        content: Content::Simulated(
            &[plans::STRAGGLERS_QUICK],
            &[plans::STRAGGLERS, plans::STRAGGLERS_RECEIVE],
            stragglers::found,
        ),
    },
    EvalTable {
        name: "training",
        title: "Accuracy under loss",
        content: Content::Trained(&accuracy::STUDY),
    },
    EvalTable {
        name: "tolerance",
        title: "Tolerances found by trials",
        content: Content::Trained(&tolerance::STUDY),
    },
];

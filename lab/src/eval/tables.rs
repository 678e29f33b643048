//! The tables of an evaluation: the cells of each, and its findings.
//!
//! A table of simulated cells has plans ([`super::plans`]) and a function that reads
//! [`TableEvidence`]; one of real training runs a command ([`super::training`]).

pub mod accuracy;
pub mod fabric;
pub mod loads;
pub mod losses;
mod references;
pub mod rivals;
pub mod scheduling;
pub mod search;
pub mod steps;
pub mod stragglers;
pub mod tolerance;

use super::evidence::TableEvidence;
use super::findings::TableFindings;
use super::plans::{self, TablePlans};
use super::request::Suite;
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
    /// Simulated cells: their plans, and the function that reads them.
    Simulated(TablePlans, fn(&TableEvidence) -> TableFindings),
    /// Real training.
    Trained(&'static Study),
}

/// Returns the tables of a suite, in the order of the report.
pub fn of(suite: Suite) -> &'static [EvalTable] {
    match suite {
        Suite::Dlcp => &TABLES,
        Suite::Rivals => &RIVAL_TABLES,
    }
}

const fn rivals(name: &'static str, title: &'static str, plans: TablePlans) -> EvalTable {
    EvalTable {
        name,
        title,
        content: Content::Simulated(plans, rivals::found),
    }
}

/// The tables of gradwire beside its rivals.
pub const RIVAL_TABLES: [EvalTable; 5] = [
    rivals(
        "flows",
        "Permutations, incasts, all-to-all",
        TablePlans {
            quick: &[plans::RIVALS_FLOWS_QUICK],
            whole: &[plans::RIVALS_FLOWS],
            thorough: &[plans::RIVALS_FLOWS],
        },
    ),
    rivals(
        "faults",
        "Oversubscription, slow, gray and failing links",
        TablePlans {
            quick: &[plans::RIVALS_FAULTS_QUICK],
            whole: &[plans::RIVALS_FAULTS],
            thorough: &[plans::RIVALS_FAULTS],
        },
    ),
    rivals(
        "collectives",
        "Collectives",
        TablePlans {
            quick: &[plans::RIVALS_COLLECTIVES_QUICK],
            whole: &[plans::RIVALS_COLLECTIVES],
            thorough: &[plans::RIVALS_COLLECTIVES],
        },
    ),
    rivals(
        "beside",
        "Beside other traffic",
        TablePlans {
            quick: &[plans::RIVALS_BESIDE_QUICK],
            whole: &[plans::RIVALS_BESIDE],
            thorough: &[plans::RIVALS_BESIDE],
        },
    ),
    rivals(
        "large",
        "1,024 hosts",
        TablePlans {
            quick: &[],
            whole: &[],
            thorough: &[plans::RIVALS_LARGE],
        },
    ),
];

/// Returns the tables of DLCP's evaluation, in the order of the report.
pub const TABLES: [EvalTable; 9] = [
    EvalTable {
        name: "scheduling",
        title: "Scheduling: front layers first, in parts, within a credit",
        content: Content::Simulated(
            TablePlans {
                quick: &[
                    plans::SERVERS_OFF_QUICK,
                    plans::SERVERS_ON_QUICK,
                    plans::SERVERS_ON_SMALL_QUICK,
                ],
                whole: &[
                    plans::SERVERS_OFF,
                    plans::SERVERS_ON,
                    plans::SERVERS_ON_SMALL,
                    plans::RING,
                ],
                thorough: &[
                    plans::SERVERS_OFF,
                    plans::SERVERS_ON,
                    plans::SERVERS_ON_SMALL,
                    plans::RING,
                ],
            },
            scheduling::found,
        ),
    },
    EvalTable {
        name: "search",
        title: "Chunk and credit by few trials",
        content: Content::Simulated(
            TablePlans {
                quick: &[plans::SEARCH_QUICK],
                whole: &[plans::SEARCH],
                thorough: &[plans::SEARCH_THOROUGH],
            },
            search::found,
        ),
    },
    EvalTable {
        name: "fabric",
        title: "144 hosts beside other traffic",
        content: Content::Simulated(
            TablePlans {
                quick: &[plans::FABRIC_QUICK],
                whole: &[plans::FABRIC],
                thorough: &[plans::FABRIC_SERVERS_THOROUGH, plans::FABRIC_RING_THOROUGH],
            },
            fabric::found,
        ),
    },
    EvalTable {
        name: "steps",
        title: "What each part adds",
        content: Content::Simulated(
            TablePlans {
                quick: &[plans::STEPS_QUICK],
                whole: &[plans::STEPS],
                thorough: &[plans::STEPS_THOROUGH],
            },
            steps::found,
        ),
    },
    EvalTable {
        name: "losses",
        title: "Links that lose packets",
        content: Content::Simulated(
            TablePlans {
                quick: &[plans::LOSSES_QUICK],
                whole: &[plans::LOSSES],
                thorough: &[plans::LOSSES_THOROUGH],
            },
            losses::found,
        ),
    },
    EvalTable {
        name: "loads",
        title: "Load of other traffic, and memory of switches",
        content: Content::Simulated(
            TablePlans {
                quick: &[plans::LOADS_QUICK],
                whole: &[plans::LOADS],
                thorough: &[plans::LOADS_THOROUGH],
            },
            loads::found,
        ),
    },
    EvalTable {
        name: "stragglers",
        title: "Ranks that are slow for a while, and patience",
        content: Content::Simulated(
            TablePlans {
                quick: &[plans::STRAGGLERS_QUICK],
                whole: &[plans::STRAGGLERS],
                thorough: &[plans::STRAGGLERS_THOROUGH, plans::STRAGGLERS_RECEIVE],
            },
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

//! The request for an evaluation.

use std::path::PathBuf;

use clap::Args;

/// The tables to evaluate, and the folder of the report.
#[derive(Args, Clone, Debug)]
pub struct EvalRequest {
    /// Run only a few cells of every table, in minutes, to see that everything works.
    #[arg(long)]
    pub quick: bool,
    /// Run more models, rates and seeds, in a night.
    #[arg(long, conflicts_with = "quick")]
    pub thorough: bool,
    /// Run only this table; may be repeated.
    #[arg(long, value_name = "TABLE")]
    pub only: Vec<String>,
    /// Folder of the report; created if it is missing.
    #[arg(long, value_name = "DIR", default_value = "out/eval-dlcp")]
    pub out: PathBuf,
    /// Folder of plans that replace the built-in ones of the same names; DIR/plans has copies to
    /// edit.
    #[arg(long, value_name = "DIR")]
    pub plans: Option<PathBuf>,
    /// Cells that run at the same time; by default one per core.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub parallel: Option<u16>,
    /// The Python that has gradwire and PyTorch, for the tables of real training.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub python: PathBuf,
}

/// The tables that belong together in one report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Suite {
    /// DLCP's evaluation, and ByteScheduler's.
    Dlcp,
    /// gradwire beside the strongest known designs.
    Rivals,
}

impl Suite {
    /// Returns the word behind `gradwire eval`.
    pub fn command(self) -> &'static str {
        match self {
            Self::Dlcp => "dlcp",
            Self::Rivals => "rivals",
        }
    }

    /// Returns the title of its report.
    pub fn title(self) -> &'static str {
        match self {
            Self::Dlcp => "gradwire: DLCP's evaluation, and ByteScheduler's",
            Self::Rivals => "gradwire beside its rivals",
        }
    }
}

/// How much of every table an evaluation runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// A few cells, in minutes.
    Quick,
    /// Enough for confidence intervals, within an hour.
    Whole,
    /// More models, rates and seeds, in a night.
    Thorough,
}

impl Extent {
    /// Returns the option that asks for it.
    pub fn option(self) -> Option<&'static str> {
        match self {
            Self::Quick => Some("--quick"),
            Self::Whole => None,
            Self::Thorough => Some("--thorough"),
        }
    }
}

impl EvalRequest {
    /// Returns the extent that the options ask for.
    pub fn extent(&self) -> Extent {
        match (self.quick, self.thorough) {
            (true, _) => Extent::Quick,
            (false, false) => Extent::Whole,
            (false, true) => Extent::Thorough,
        }
    }
}

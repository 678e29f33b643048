//! Which run: a seed, and the parts of it that are left after shrinking.

use std::fmt;
use std::str::FromStr;

use rand::RngExt;

use super::draw;
use super::faults::FaultSet;

/// The most ranks of a run.
pub const RANKS_MAX: u16 = 6;

/// One run of a cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClusterSchedule {
    /// Decides everything else.
    pub seed: u64,
    /// The faults that happen.
    pub faults: FaultSet,
    /// How many ranks there are, 2 to [`RANKS_MAX`].
    pub ranks: u16,
    /// How many operations the job has.
    pub operations: usize,
}

impl ClusterSchedule {
    /// The whole run of a seed.
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = draw::stream(seed, "schedule", 0);
        Self {
            seed,
            faults: FaultSet::of_seed(seed),
            ranks: rng.random_range(2..=RANKS_MAX),
            operations: rng.random_range(1..=16),
        }
    }
}

/// As options of the command: "--seed 7 --faults loss --ranks 2 --operations 3".
impl fmt::Display for ClusterSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            faults,
            ranks,
            operations,
        } = self;
        write!(
            f,
            "--seed {seed} --faults {faults} --ranks {ranks} --operations {operations}"
        )
    }
}

impl FromStr for ClusterSchedule {
    type Err = String;

    /// Reads the options that it is written as; those left out are as the seed has them.
    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let value = |option: &str| {
            let at = words.iter().position(|word| *word == option);
            at.and_then(|at| words.get(at + 1).copied())
        };
        let number = |option: &str| match value(option) {
            None => Ok(None),
            Some(text) => {
                let wrong = |_| format!("{option} {text}: a number is allowed");
                text.parse::<u64>().map(Some).map_err(wrong)
            }
        };
        let seed = number("--seed")?.ok_or("--seed is missing")?;
        let mut schedule = Self::of_seed(seed);
        if let Some(faults) = value("--faults") {
            schedule.faults = faults.parse()?;
        }
        if let Some(ranks) = number("--ranks")? {
            schedule.ranks = ranks.clamp(2, u64::from(RANKS_MAX)) as u16;
        }
        if let Some(operations) = number("--operations")? {
            schedule.operations = operations.clamp(1, 10_000) as usize;
        }
        Ok(schedule)
    }
}

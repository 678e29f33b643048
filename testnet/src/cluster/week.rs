//! A training job of days or weeks, on paths that lose nothing.

use gradwire_protocol::units::Instant;

use super::faults::FaultSet;
use super::program::ClusterProgram;
use super::run::{ClusterTally, run_program};
use super::schedule::ClusterSchedule;
use super::violation::{ClusterCheck, ClusterViolation};

/// Ranks of the job.
const RANKS: u16 = 4;

/// Hours of a week.
pub const WEEK_HOURS: u64 = 7 * 24;

/// Runs a training job for this many hours. Besides the checks of every run (no repairs, few
/// control packets while ranks wait) the state of a rank must not grow.
///
/// # Errors
/// The first check that failed.
pub fn train(seed: u64, hours: u64) -> Result<ClusterTally, ClusterViolation> {
    let program = ClusterProgram::training(seed, RANKS, hours);
    let schedule = ClusterSchedule {
        seed,
        faults: FaultSet::NONE,
        ranks: RANKS,
        operations: program.operations.len(),
    };
    let tally = run_program(&schedule, program, None)?;
    let [early, late] = tally.state;
    if late > early + early / 8 {
        return Err(ClusterViolation {
            check: ClusterCheck::Memory,
            at: Instant::START + tally.took,
            detail: format!(
                "the state grew from {early} to {late} characters in {}",
                tally.took
            ),
        });
    }
    Ok(tally)
}

//! Who takes turns: several crews do the same rounds in alternation, so that whatever else this
//! machine does meets all of them alike.

use std::time::Duration;

use gradwire_netsim::results::statistics::Spread;

use super::kind::PerfCollective;
use super::messages::{Measured, Round};
use crate::error::LabError;

/// Longest that one round may take.
pub const ROUND_PATIENCE: Duration = Duration::from_secs(300);
/// Time for the timed iterations of one contestant, when their number is not given.
const BUDGET_MICROS: f64 = 500_000.0;
/// Time for which one contestant is warmed up after its first iterations.
const WARMUP_MICROS: f64 = 50_000.0;
/// Fewest timed iterations of all rounds together.
const ITERATIONS_MIN: u32 = 5;
/// Most iterations of one round that are chosen by time.
const ITERATIONS_MAX: u32 = 200;

/// The collective to run, and how often.
#[derive(Clone, Copy, Debug)]
pub struct RoundsPlan {
    /// Which collective.
    pub kind: PerfCollective,
    /// Size of the tensor.
    pub bytes: u64,
    /// Rounds in which all take turns.
    pub rounds: u32,
    /// Timed iterations of each contestant over all rounds; by time when not given.
    pub iterations: Option<u32>,
    /// Iterations before the timed ones, at least.
    pub warmup: u32,
}

/// The measurements of one contestant.
#[derive(Clone, Debug, Default)]
pub struct RoundSeries {
    /// Each rank's measurements before the timed rounds.
    pub warmup: Vec<Vec<Measured>>,
    /// Each rank's measurements, by timed round.
    pub rounds: Vec<Vec<Measured>>,
}

impl RoundsPlan {
    /// Has contestants 0 to `contestants - 1` take turns; `run` has one of them do a round.
    ///
    /// # Errors
    /// The error of `run`.
    pub fn alternate(
        &self,
        contestants: usize,
        run: &mut impl FnMut(usize, &Round) -> Result<Vec<Measured>, LabError>,
    ) -> Result<Vec<RoundSeries>, LabError> {
        let mut all = vec![RoundSeries::default(); contestants];
        let round = |iterations| Round {
            kind: self.kind,
            bytes: self.bytes,
            iterations,
        };
        let mut counts = Vec::new();
        for (at, series) in all.iter_mut().enumerate() {
            let first = run(at, &round(self.warmup.max(1)))?;
            // Small sizes are over before clocks, caches and windows have settled.
            let more = affordable(&slowest(&first), WARMUP_MICROS);
            let second = run(at, &round(more))?;
            let timed = affordable(&slowest(&second), BUDGET_MICROS).max(ITERATIONS_MIN);
            counts.push(self.iterations.unwrap_or(timed).div_ceil(self.rounds));
            series.warmup = vec![first, second];
        }
        for _ in 0..self.rounds {
            for (at, series) in all.iter_mut().enumerate() {
                series.rounds.push(run(at, &round(counts[at]))?);
            }
        }
        Ok(all)
    }
}

impl RoundSeries {
    /// All rounds, those before the timed ones first.
    pub fn parts(&self) -> impl Iterator<Item = &Vec<Measured>> {
        self.warmup.iter().chain(&self.rounds)
    }

    /// Of each timed round the median time of an iteration, in microseconds.
    pub fn medians_us(&self) -> Vec<f64> {
        let of_round = |round: &Vec<Measured>| median(slowest(round));
        self.rounds.iter().map(of_round).collect()
    }

    /// The median over rounds.
    pub fn time_us(&self) -> f64 {
        median(self.medians_us())
    }

    /// The 99th percentile of all timed iterations, in microseconds, by nearest rank; 0 of none.
    pub fn p99_us(&self) -> f64 {
        let times = self.rounds.iter().flat_map(|round| slowest(round));
        Spread::of(times.collect()).map_or(0.0, |spread| spread.p99)
    }

    /// How many iterations were timed.
    pub fn iterations(&self) -> usize {
        self.rounds.iter().map(|round| slowest(round).len()).sum()
    }
}

/// How two contestants compare: the first one's time over the second one's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Ratio of the medians over rounds.
    pub median: f64,
    /// The least ratio of one round.
    pub min: f64,
    /// The greatest ratio of one round.
    pub max: f64,
    /// In how many rounds the first one took longer.
    pub won: usize,
}

impl Ratio {
    /// The ratio of `theirs` to `ours`, round by round.
    pub fn of(theirs: &RoundSeries, ours: &RoundSeries) -> Self {
        let (above, below) = (theirs.medians_us(), ours.medians_us());
        let ratios: Vec<f64> = above.iter().zip(&below).map(|(a, b)| a / b).collect();
        Self {
            median: theirs.time_us() / ours.time_us(),
            min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            max: ratios.iter().copied().fold(0.0, f64::max),
            won: ratios.iter().filter(|ratio| **ratio > 1.0).count(),
        }
    }
}

/// The median; 0 of an empty list.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

fn affordable(times: &[f64], budget_micros: f64) -> u32 {
    ((budget_micros / median(times.to_vec()).max(1.0)) as u32).clamp(1, ITERATIONS_MAX)
}

/// Of each iteration the time of its slowest rank.
pub fn slowest(ranks: &[Measured]) -> Vec<f64> {
    let iterations = ranks
        .iter()
        .map(|rank| rank.times_us.len())
        .min()
        .unwrap_or(0);
    let times = |at: usize| ranks.iter().map(move |rank| rank.times_us[at]);
    (0..iterations)
        .map(|at| times(at).fold(0.0, f64::max))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(times_us: &[f64]) -> Measured {
        Measured {
            times_us: times_us.to_vec(),
            ..Measured::default()
        }
    }

    fn series(rounds: &[f64]) -> RoundSeries {
        RoundSeries {
            warmup: Vec::new(),
            rounds: rounds.iter().map(|time| vec![rank(&[*time])]).collect(),
        }
    }

    #[test]
    fn even_medians_lie_between_the_middle_two() {
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn the_slowest_rank_counts() {
        assert_eq!(slowest(&[rank(&[1.0, 5.0]), rank(&[2.0, 3.0])]), [2.0, 5.0]);
    }

    #[test]
    fn the_99th_percentile_is_of_all_rounds() {
        let times: Vec<f64> = (1..=150).map(f64::from).collect();
        let rounds = times.chunks(50).map(|round| vec![rank(round)]);
        let series = RoundSeries {
            warmup: vec![vec![rank(&[1e9])]],
            rounds: rounds.collect(),
        };
        assert_eq!(series.p99_us(), 149.0);
        assert_eq!(RoundSeries::default().p99_us(), 0.0);
    }

    #[test]
    fn ratios_are_of_medians_spreads_of_rounds() {
        let ratio = Ratio::of(&series(&[10.0, 30.0, 20.0]), &series(&[5.0, 10.0, 40.0]));
        let expected = Ratio {
            median: 2.0,
            min: 0.5,
            max: 3.0,
            won: 2,
        };
        assert_eq!(ratio, expected);
    }

    #[test]
    fn contestants_take_turns_within_their_own_budget() {
        let plan = RoundsPlan {
            kind: PerfCollective::AllReduce,
            bytes: 4,
            rounds: 2,
            iterations: None,
            warmup: 3,
        };
        let mut turns = Vec::new();
        let mut run = |at: usize, round: &Round| {
            turns.push((at, round.iterations));
            let time = [10_000.0, 1_000_000.0][at];
            Ok(vec![rank(&vec![time; round.iterations as usize])])
        };
        let all = plan.alternate(2, &mut run).expect("nothing fails");
        let warmup = [(0, 3), (0, 5), (1, 3), (1, 1)];
        let timed = [(0, 25), (1, 3), (0, 25), (1, 3)];
        assert_eq!(turns, [warmup, timed].concat());
        assert_eq!(all[1].iterations(), 6);
        assert_eq!(all[0].time_us(), 10_000.0);
    }
}

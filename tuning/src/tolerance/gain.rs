//! Decides whether a tolerance gains time, from pairs of runs with the same seed: without the
//! tolerance and with it, over a path that loses the same share of the packets of both.

use serde::Serialize;

/// The minimum ratio that counts as a gain: equal runs differ by less than that.
const LEAST_GAIN: f64 = 1.01;

/// How much faster operations are with a tolerance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeGain {
    /// Time without the tolerance over time with it, one ratio per pair, the smallest first.
    ratios: Vec<f64>,
}

impl TimeGain {
    /// The gain of pairs of times: without the tolerance, with it. `None` without any pair.
    pub fn of(pairs: impl Iterator<Item = (f64, f64)>) -> Option<Self> {
        let mut ratios: Vec<f64> = pairs.map(|(without, with)| without / with).collect();
        ratios.sort_by(f64::total_cmp);
        (!ratios.is_empty()).then_some(Self { ratios })
    }

    /// The median ratio; of an even number of pairs, the lower one.
    pub fn median(&self) -> f64 {
        self.ratios[(self.ratios.len() - 1) / 2]
    }

    /// The smallest and the largest ratio.
    pub fn range(&self) -> (f64, f64) {
        (self.ratios[0], self.ratios[self.ratios.len() - 1])
    }

    /// How many pairs there were.
    pub fn pairs(&self) -> usize {
        self.ratios.len()
    }

    /// Whether the tolerance is worth having.
    pub fn pays(&self) -> bool {
        self.median() >= LEAST_GAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gain(pairs: &[(f64, f64)]) -> TimeGain {
        TimeGain::of(pairs.iter().copied()).expect("there are pairs")
    }

    #[test]
    fn the_pair_in_the_middle_decides() {
        let gain = gain(&[(10.0, 20.0), (12.0, 10.0), (11.0, 10.0)]);
        assert_eq!((gain.median(), gain.range()), (1.1, (0.5, 1.2)));
        assert!(gain.pays());
    }

    #[test]
    fn equal_times_are_no_gain() {
        assert!(!gain(&[(10.0, 10.0)]).pays());
        assert!(!gain(&[(10.0, 9.95), (10.0, 9.0)]).pays());
        assert_eq!(TimeGain::of(std::iter::empty()), None);
    }
}

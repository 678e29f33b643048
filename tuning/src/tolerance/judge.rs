//! Decides by few trials whether a setting costs the metric less than the margin.
//!
//! - Each trial is compared with the lossless trial of the same seed, so the effect of the seed
//!   (first parameters, order of the data) cancels out.
//! - Student's t gives the mean of these differences a one-sided upper bound. A setting is accepted
//!   when that bound is below the margin.
//! - The judge looks after every trial, and frequent looks make errors likelier. So each look is
//!   strict enough that all looks together accept a setting that lies at the margin no more often
//!   than the confidence allows.
//! - Rejecting early is never an error of that kind, so its rules are simple.

use std::ops::RangeInclusive;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// The direction in which the metric improves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Better {
    /// Higher values are better: an accuracy.
    Higher,
    /// Lower values are better: a loss.
    Lower,
}

/// How much worse the metric may become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Margin {
    /// A share of the baseline's mean.
    Relative(f64),
    /// In the metric's own unit.
    Absolute(f64),
}

/// The requirement that a setting must be shown to meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricGoal {
    /// The direction in which the metric improves.
    pub better: Better,
    /// How much worse it may become.
    pub margin: Margin,
}

/// The decision about a setting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ToleranceVerdict {
    /// It costs less than the margin, with the required confidence.
    Accepted,
    /// It costs more than the margin.
    Rejected,
    /// All trials are done and do not show that it costs less than the margin.
    NotShown,
    /// More trials are needed.
    Open,
}

/// The verdict and its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct ToleranceJudgement {
    /// The verdict.
    pub verdict: ToleranceVerdict,
    /// Number of trials behind the verdict.
    pub trials: usize,
    /// Mean difference by which the metric was worse than without loss; infinite if a trial's
    /// metric was not a number.
    pub worse_by: f64,
    /// Upper bound of that difference, as strict as this look requires; `None` with a single trial.
    pub at_most: Option<f64>,
}

/// After how many trials the judge looks at a setting, and how strictly.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialLooks {
    trials: RangeInclusive<usize>,
    /// Quantiles of Student's t for accepting after 2, 3, ... trials.
    strict: Vec<f64>,
    /// Quantiles for rejecting.
    plain: Vec<f64>,
}

impl TrialLooks {
    /// Looks after each number of trials in `trials`, which starts at 2 or more. Of settings that
    /// lie at the margin, a share of at most `1 - confidence` is accepted; `confidence` is in
    /// (0.5, 1). Takes some milliseconds.
    pub fn new(trials: RangeInclusive<usize>, confidence: f64) -> Self {
        assert!(*trials.start() >= 2, "one difference has no spread");
        assert!(!trials.is_empty(), "there is a look");
        let error = 1.0 - confidence;
        let level = level_of_each_look(&trials, error);
        Self {
            strict: quantiles(*trials.end(), level),
            plain: quantiles(*trials.end(), error),
            trials,
        }
    }

    /// The smallest number of trials after which a setting can be accepted.
    pub fn least(&self) -> usize {
        *self.trials.start()
    }

    /// The number of trials after which every setting is decided.
    pub fn most(&self) -> usize {
        *self.trials.end()
    }
}

/// Judges settings against one lossless baseline.
#[derive(Clone, Debug)]
pub struct ToleranceJudge<'a> {
    looks: &'a TrialLooks,
    better: Better,
    margin: f64,
    /// Mean and standard deviation of the baseline over seeds.
    mean: f64,
    spread: f64,
}

/// Sequences of trials that are drawn to find how strict a look must be.
const DRAWN: usize = 20_000;
/// A single trial rejects if it is worse by twice the margin plus this many deviations.
const FAR: f64 = 5.0;

impl<'a> ToleranceJudge<'a> {
    /// A judge for the metrics of the first lossless trials, at least one.
    pub fn new(goal: MetricGoal, looks: &'a TrialLooks, baseline: &[f64]) -> Self {
        let (mean, spread) = mean_and_deviation(baseline);
        let margin = match goal.margin {
            Margin::Relative(share) => share * mean.abs(),
            Margin::Absolute(margin) => margin,
        };
        Self {
            looks,
            better: goal.better,
            margin,
            mean,
            spread,
        }
    }

    /// The margin in the metric's unit.
    pub fn margin(&self) -> f64 {
        self.margin
    }

    /// The mean of the baseline, of which a relative margin is a share.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// By how much `metric` is worse than `lossless`; infinite if it is not a finite number.
    pub fn worse_by(&self, metric: Option<f64>, lossless: f64) -> f64 {
        let Some(metric) = metric.filter(|metric| metric.is_finite()) else {
            return f64::INFINITY;
        };
        match self.better {
            Better::Higher => lossless - metric,
            Better::Lower => metric - lossless,
        }
    }

    /// Judges a setting by the differences of its trials from the lossless trials of the same
    /// seeds, positive where the trial is worse. There is at least one, and at most one per trial
    /// that the looks allow.
    pub fn judge(&self, differences: &[f64]) -> ToleranceJudgement {
        let trials = differences.len();
        let (worse_by, deviation) = mean_and_deviation(differences);
        let of = |quantiles: &[f64]| Some(quantiles.get(trials.checked_sub(2)?)? * deviation);
        let half = |quantiles: &[f64]| of(quantiles).map(|width| width / (trials as f64).sqrt());
        let at_most = half(&self.looks.strict).map(|half| worse_by + half);
        let at_least = half(&self.looks.plain).map(|half| worse_by - half);
        let accepted = at_most.is_some_and(|bound| bound <= self.margin);
        let rejected = match at_least {
            Some(bound) => bound > self.margin,
            None => worse_by > 2.0 * self.margin + FAR * self.spread,
        };
        let verdict = match worse_by.is_finite() {
            false => ToleranceVerdict::Rejected,
            true if accepted && self.looks.trials.contains(&trials) => ToleranceVerdict::Accepted,
            true if rejected => ToleranceVerdict::Rejected,
            true if trials >= self.looks.most() => ToleranceVerdict::NotShown,
            true => ToleranceVerdict::Open,
        };
        ToleranceJudgement {
            verdict,
            trials,
            worse_by,
            at_most: at_most.filter(|bound| bound.is_finite()),
        }
    }
}

/// Mean and sample standard deviation; the deviation of one value is 0.
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let variance = squares / (count - 1.0).max(1.0);
    (mean, variance.sqrt())
}

/// Upper quantiles of Student's t for 2, 3, ... `last` values.
fn quantiles(last: usize, level: f64) -> Vec<f64> {
    let quantile = |trials: usize| {
        let freedom = (trials - 1) as f64;
        let t = StudentsT::new(0.0, 1.0, freedom).expect("freedom is positive");
        t.inverse_cdf(1.0 - level)
    };
    (2..=last).map(quantile).collect()
}

/// The level of each look at which all looks together err in a share `error` of the cases, if the
/// differences are normal and their mean is the margin. It is found by bisection over sequences of
/// such differences, drawn from a fixed seed.
fn level_of_each_look(looks: &RangeInclusive<usize>, error: f64) -> f64 {
    let sequences = drawn_statistics(*looks.end());
    let first = looks.start() - 2;
    let errs = |level: f64| {
        let quantiles = quantiles(*looks.end(), level);
        let accepts = |statistics: &&Vec<f64>| {
            let mut looks = statistics.iter().zip(&quantiles).skip(first);
            looks.any(|(statistic, quantile)| *statistic <= -quantile)
        };
        sequences.iter().filter(accepts).count() as f64 / DRAWN as f64
    };
    let (mut strict, mut loose) = (error / 64.0, error);
    for _ in 0..16 {
        let middle = f64::midpoint(strict, loose);
        match errs(middle) > error {
            true => loose = middle,
            false => strict = middle,
        }
    }
    strict
}

/// Student's statistic after 2, 3, ... standard normal values, for many sequences.
fn drawn_statistics(last: usize) -> Vec<Vec<f64>> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let normal = Normal::new(0.0, 1.0).expect("a standard normal");
    let sequence = |_| {
        let mut values = Vec::with_capacity(last);
        let mut statistics = Vec::with_capacity(last);
        for _ in 0..last {
            values.push(normal.inverse_cdf(random.random_range(1e-12..1.0)));
            if values.len() >= 2 {
                let (mean, deviation) = mean_and_deviation(&values);
                statistics.push(mean * (values.len() as f64).sqrt() / deviation);
            }
        }
        statistics
    };
    (0..DRAWN).map(sequence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(looks: &TrialLooks) -> ToleranceJudge<'_> {
        let goal = MetricGoal {
            better: Better::Higher,
            margin: Margin::Absolute(1.0),
        };
        ToleranceJudge::new(goal, looks, &[0.0, 0.5, 1.0])
    }

    /// The verdict on drawn differences, after as many trials as it needs.
    fn verdict(judge: &ToleranceJudge<'_>, mut draw: impl FnMut() -> f64) -> ToleranceVerdict {
        let mut differences = Vec::new();
        loop {
            differences.push(draw());
            let judgement = judge.judge(&differences);
            if judgement.verdict != ToleranceVerdict::Open {
                return judgement.verdict;
            }
        }
    }

    /// The share of accepted settings among those that cost `cost` margins.
    fn accepted(confidence: f64, cost: f64, shape: fn(f64) -> f64) -> f64 {
        let looks = TrialLooks::new(3..=6, confidence);
        let judge = judge(&looks);
        let mut random = ChaCha8Rng::seed_from_u64(42);
        let mut draw = || cost + 0.4 * shape(random.random_range(1e-9..1.0));
        let cases = 4_000;
        let accepts = |_: &i32| verdict(&judge, &mut draw) == ToleranceVerdict::Accepted;
        (0..cases).filter(accepts).count() as f64 / f64::from(cases)
    }

    fn normal(uniform: f64) -> f64 {
        let normal = Normal::new(0.0, 1.0).expect("a standard normal");
        normal.inverse_cdf(uniform)
    }

    fn flat(uniform: f64) -> f64 {
        (uniform - 0.5) * 12.0_f64.sqrt()
    }

    #[test]
    fn settings_at_the_margin_are_rarely_accepted() {
        for confidence in [0.8, 0.9, 0.95] {
            for shape in [normal, flat] {
                let share = accepted(confidence, 1.0, shape);
                let allowed = 1.0 - confidence;
                assert!(share <= allowed + 0.02, "{share} at {confidence}");
            }
        }
    }

    #[test]
    fn cheaper_settings_are_accepted_more_often() {
        let shares = [2.0, 1.0, 0.5, 0.0].map(|cost| accepted(0.9, cost, normal));
        assert!(shares.is_sorted(), "{shares:?}");
        assert!(shares[0] < 0.005 && shares[3] > 0.85, "{shares:?}");
    }

    #[test]
    fn one_far_worse_trial_rejects() {
        let looks = TrialLooks::new(3..=6, 0.9);
        let judge = judge(&looks);
        for difference in [5.0, f64::INFINITY] {
            let judgement = judge.judge(&[difference]);
            assert_eq!(
                judgement.verdict,
                ToleranceVerdict::Rejected,
                "{difference}"
            );
        }
        assert_eq!(judge.judge(&[1.2]).verdict, ToleranceVerdict::Open);
        assert_eq!(judge.judge(&[1.9, 2.0]).verdict, ToleranceVerdict::Rejected);
    }

    #[test]
    fn equal_results_are_accepted_after_the_fewest_trials() {
        let looks = TrialLooks::new(3..=6, 0.9);
        let judge = judge(&looks);
        assert_eq!(judge.judge(&[0.0, 0.0]).verdict, ToleranceVerdict::Open);
        assert_eq!(judge.judge(&[0.0; 3]).verdict, ToleranceVerdict::Accepted);
        let unsure = [3.0, -1.0, 1.5, -0.5, 2.0, 0.0];
        assert_eq!(judge.judge(&unsure).verdict, ToleranceVerdict::NotShown);
    }

    #[test]
    fn a_lower_metric_can_be_better() {
        let goal = MetricGoal {
            better: Better::Lower,
            margin: Margin::Relative(0.01),
        };
        let looks = TrialLooks::new(2..=4, 0.9);
        let judge = ToleranceJudge::new(goal, &looks, &[-2.0, -2.2]);
        assert!((judge.margin() - 0.021).abs() < 1e-12);
        assert!((judge.worse_by(Some(-2.0), -2.2) - 0.2).abs() < 1e-12);
        assert_eq!(judge.worse_by(None, 1.0), f64::INFINITY);
        assert_eq!(judge.worse_by(Some(f64::NAN), 1.0), f64::INFINITY);
    }

    #[test]
    fn one_look_is_as_strict_as_the_confidence_itself() {
        let level = level_of_each_look(&(4..=4), 0.1);
        assert!((level - 0.1).abs() < 0.004, "{level}");
        let several = level_of_each_look(&(3..=6), 0.1);
        assert!((0.025..0.07).contains(&several), "{several}");
    }
}

//! Decides which setting to try next, by bisection over a ladder of tolerances, seed by seed:
//!
//! 1. Find the largest tolerance that the metric allows for all layers together.
//! 2. For each group of layers, find how much more the metric allows while the others keep their
//!    values.
//! 3. Find how much more the metric allows in calm steps, while steps after a change of phase keep
//!    the first value.
//!
//! The result has been tried as a whole.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use super::judge::{MetricGoal, ToleranceJudge, ToleranceJudgement, ToleranceVerdict, TrialLooks};
use super::{ToleranceSetting, ToleranceTrial};

/// The tolerances to try; each is 1.3 to 1.7 times the one before.
pub const LADDER: [f64; 16] = [
    0.001, 0.0015, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2,
    0.3,
];

/// Whether calm steps get a tolerance of their own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PhaseTolerance {
    /// All steps have the same tolerance.
    Alike,
    /// Steps after a change of phase keep the tolerance that was found for all steps.
    Tightened,
}

/// The question of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchSubject {
    /// Whether the metric stays within the margin at this tolerance.
    Check(f64),
    /// The largest tolerance that keeps the metric within the margin.
    Largest {
        /// Groups of layers; 1 for one tolerance of all layers.
        groups: usize,
        /// Whether calm steps get a tolerance of their own.
        phases: PhaseTolerance,
    },
}

/// A search. It has no memory: each answer follows from the trials alone.
#[derive(Clone, Debug)]
pub struct ToleranceSearch {
    /// The requirement that a setting must be shown to meet.
    pub goal: MetricGoal,
    /// The question of a search.
    pub subject: SearchSubject,
    /// How many trials decide about a setting. The smallest number is also that of the lossless
    /// trials from which the margin is computed.
    pub looks: TrialLooks,
    /// Maximum number of trials of the whole search. Trials of other searches do not count.
    pub budget: usize,
}

/// The next step of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum SearchStep {
    /// Run a trial with this setting and seed.
    Try {
        /// The tolerance to try.
        setting: ToleranceSetting,
        /// The seed.
        seed: u64,
        /// Estimated number of trials that are left, including this one.
        remaining: usize,
    },
    /// The search has ended with this result.
    Done(ToleranceFinding),
}

/// A setting and the judge's decision about it.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedSetting {
    /// The setting.
    pub setting: ToleranceSetting,
    /// The decision.
    pub judgement: ToleranceJudgement,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct ToleranceFinding {
    /// The largest accepted setting; lossless if the judge accepted none.
    pub found: ToleranceSetting,
    /// All judged settings, in the order of the decisions.
    pub cells: Vec<JudgedSetting>,
    /// How much worse than without loss the metric may be, in its own unit.
    pub margin: f64,
    /// The mean of the lossless trials that the margin was computed from, and how many they were.
    pub margin_of: (f64, usize),
    /// Whether the search is complete; otherwise the budget ended it.
    pub is_complete: bool,
}

/// The search cannot continue without this trial.
struct MissingTrial {
    setting: ToleranceSetting,
    seed: u64,
}

impl ToleranceSearch {
    /// The step that follows from the trials so far, in any order. Of two trials with the same
    /// setting and seed only the first counts.
    pub fn next(&self, done: &[ToleranceTrial]) -> SearchStep {
        let mut run = SearchRun {
            search: self,
            done,
            judge: None,
            finding: ToleranceFinding {
                found: ToleranceSetting::lossless(),
                cells: Vec::new(),
                margin: 0.0,
                margin_of: (0.0, 0),
                is_complete: true,
            },
            ahead: RefCell::new(self.settings_ahead()),
            used: RefCell::default(),
        };
        let Err(MissingTrial { setting, seed }) = run.go() else {
            return SearchStep::Done(run.finding);
        };
        let left = self.budget.saturating_sub(run.used.borrow().len());
        if left == 0 {
            run.finding.is_complete = false;
            return SearchStep::Done(run.finding);
        }
        let remaining = run.remaining(&setting).clamp(1, left);
        SearchStep::Try {
            setting,
            seed,
            remaining,
        }
    }

    /// Estimated number of settings to judge.
    fn settings_ahead(&self) -> f64 {
        let all = bisections(LADDER.len());
        match self.subject {
            SearchSubject::Check(_) => 1.0,
            SearchSubject::Largest { groups, phases } => {
                let groups = if groups > 1 { groups as f64 } else { 0.0 };
                let phases = if phases == PhaseTolerance::Tightened {
                    1.0
                } else {
                    0.0
                };
                all + (groups + phases) * all / 2.0
            }
        }
    }
}

/// Number of settings that a bisection over `rungs` rungs judges.
fn bisections(rungs: usize) -> f64 {
    ((rungs + 1) as f64).log2()
}

/// One pass of the search over the finished trials.
struct SearchRun<'a> {
    search: &'a ToleranceSearch,
    done: &'a [ToleranceTrial],
    judge: Option<ToleranceJudge<'a>>,
    finding: ToleranceFinding,
    /// Estimated number of settings that are still to judge.
    ahead: RefCell<f64>,
    /// Indices of the trials that the search used; these count against the budget.
    used: RefCell<BTreeSet<usize>>,
}

impl SearchRun<'_> {
    fn go(&mut self) -> Result<(), MissingTrial> {
        let least = self.search.looks.least() as u64;
        let baseline = (1..=least).map(|seed| self.lossless(seed));
        let baseline = baseline.collect::<Result<Vec<f64>, _>>()?;
        let judge = ToleranceJudge::new(self.search.goal, &self.search.looks, &baseline);
        self.finding.margin = judge.margin();
        self.finding.margin_of = (judge.mean(), baseline.len());
        self.judge = Some(judge);
        match self.search.subject {
            SearchSubject::Check(share) => self
                .is_accepted(&ToleranceSetting::overall(share))
                .map(|_| ()),
            SearchSubject::Largest { groups, phases } => self.largest(groups, phases),
        }
    }

    fn largest(&mut self, groups: usize, phases: PhaseTolerance) -> Result<(), MissingTrial> {
        let rungs = LADDER.len();
        let overall = self.bisect(0..rungs, |rung| ToleranceSetting::overall(share(rung)))?;
        let mut at = vec![overall; groups.max(1)];
        if groups > 1 {
            for group in 0..groups {
                at[group] = self.bisect(overall..rungs, |rung| {
                    let mut rungs = at.clone();
                    rungs[group] = rung;
                    of_groups(&rungs)
                })?;
            }
        }
        if phases == PhaseTolerance::Tightened {
            let most = at.iter().copied().max().unwrap_or(overall);
            self.bisect(0..rungs - most, |more| {
                let raised: Vec<usize> = at.iter().map(|rung| rung + more).collect();
                ToleranceSetting {
                    tight: Some(share(overall)),
                    ..of_groups(&raised)
                }
            })?;
        }
        Ok(())
    }

    /// Finds the last rung that is accepted, among `rungs` and all after them. The first of `rungs`
    /// is accepted already, and rung 0 has no loss. Each accepted setting is the result so far.
    fn bisect(
        &mut self,
        rungs: Range<usize>,
        setting: impl Fn(usize) -> ToleranceSetting,
    ) -> Result<usize, MissingTrial> {
        let (mut good, mut bad) = (rungs.start, rungs.end + 1);
        while bad - good > 1 {
            let middle = good.midpoint(bad);
            match self.is_accepted(&setting(middle))? {
                true => good = middle,
                false => bad = middle,
            }
        }
        Ok(good)
    }

    fn is_accepted(&mut self, setting: &ToleranceSetting) -> Result<bool, MissingTrial> {
        let judgement = self.judged(setting)?;
        let accepted = judgement.verdict == ToleranceVerdict::Accepted;
        if accepted {
            self.finding.found = setting.clone();
        }
        let setting = setting.clone();
        self.finding
            .cells
            .push(JudgedSetting { setting, judgement });
        let mut ahead = self.ahead.borrow_mut();
        *ahead = (*ahead - 1.0).max(0.0);
        Ok(accepted)
    }

    /// The decision about a setting, as soon as its trials suffice.
    fn judged(&self, setting: &ToleranceSetting) -> Result<ToleranceJudgement, MissingTrial> {
        let judge = self.judge.as_ref().expect("it is made of the baseline");
        let mut differences = Vec::new();
        for seed in 1.. {
            let lossless = self.lossless(seed)?;
            let metric = self.metric(setting, seed)?;
            differences.push(judge.worse_by(metric, lossless));
            let judgement = judge.judge(&differences);
            if judgement.verdict != ToleranceVerdict::Open {
                return Ok(judgement);
            }
        }
        unreachable!("the judge decides after the last trial")
    }

    fn lossless(&self, seed: u64) -> Result<f64, MissingTrial> {
        let metric = self.metric(&ToleranceSetting::lossless(), seed)?;
        // Without a number there is no baseline; NaN makes every comparison with it fail.
        Ok(metric.unwrap_or(f64::NAN))
    }

    fn metric(&self, setting: &ToleranceSetting, seed: u64) -> Result<Option<f64>, MissingTrial> {
        let is_it = |trial: &ToleranceTrial| trial.seed == seed && trial.setting == *setting;
        let Some(at) = self.done.iter().position(is_it) else {
            return Err(MissingTrial {
                setting: setting.clone(),
                seed,
            });
        };
        self.used.borrow_mut().insert(at);
        Ok(self.done[at].metric)
    }

    /// Estimated number of missing trials: of the current setting and of those to come.
    fn remaining(&self, current: &ToleranceSetting) -> usize {
        let least = self.search.looks.least();
        let of = |setting: &ToleranceSetting| {
            let trials = self.done.iter().filter(|trial| trial.setting == *setting);
            least.saturating_sub(trials.count())
        };
        let baseline = of(&ToleranceSetting::lossless());
        // About half of the settings are rejected, mostly by fewer trials than accepting takes.
        let each = least as f64 * 0.8 + 0.5;
        let ahead = *self.ahead.borrow();
        let begun = if current.is_lossless() {
            0.0
        } else {
            least as f64 - of(current) as f64
        };
        baseline + (ahead * each - begun).ceil().max(1.0) as usize
    }
}

/// The tolerance of a rung, from 1; rung 0 is no loss.
fn share(rung: usize) -> f64 {
    rung.checked_sub(1).map_or(0.0, |at| LADDER[at])
}

fn of_groups(rungs: &[usize]) -> ToleranceSetting {
    ToleranceSetting {
        groups: rungs.iter().copied().map(share).collect(),
        tight: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::super::judge::{Better, Margin};
    use super::*;

    fn search(subject: SearchSubject, budget: usize) -> ToleranceSearch {
        let goal = MetricGoal {
            better: Better::Higher,
            margin: Margin::Relative(0.01),
        };
        ToleranceSearch {
            goal,
            subject,
            looks: TrialLooks::new(3..=6, 0.9),
            budget,
        }
    }

    fn overall() -> SearchSubject {
        SearchSubject::Largest {
            groups: 1,
            phases: PhaseTolerance::Alike,
        }
    }

    /// The metric of a script: it falls by 2 % of 0.9 or more as soon as a group loses more than it
    /// tolerates. The seed decides most of the noise.
    fn metric(setting: &ToleranceSetting, seed: u64, bears: &[f64]) -> f64 {
        let mut of_seed = ChaCha8Rng::seed_from_u64(seed);
        let mut of_trial = ChaCha8Rng::seed_from_u64(seed ^ setting.largest().to_bits());
        let noise = 0.02 * (of_seed.random::<f64>() - 0.5) + 0.001 * of_trial.random::<f64>();
        let groups = setting.groups.iter().cycle().zip(bears);
        let over = groups.map(|(share, bears)| (share / bears - 1.0).max(0.0));
        let over: f64 = over.sum();
        let cost = if over > 0.0 { 0.02 + 0.1 * over } else { 0.0 };
        0.9 * (1.0 - cost) + noise
    }

    fn run(
        search: &ToleranceSearch,
        bears: &[f64],
        done: &mut Vec<ToleranceTrial>,
    ) -> ToleranceFinding {
        loop {
            match search.next(done) {
                SearchStep::Done(finding) => return finding,
                SearchStep::Try { setting, seed, .. } => {
                    let metric = Some(metric(&setting, seed, bears));
                    let trial = ToleranceTrial {
                        setting,
                        seed,
                        metric,
                    };
                    assert!(!done.contains(&trial), "{trial:?} was done before");
                    done.push(trial);
                }
            }
        }
    }

    #[test]
    fn every_rung_is_found_within_the_default_budget() {
        for bears in LADDER {
            let mut done = Vec::new();
            let finding = run(&SEARCH, &[bears * 1.1], &mut done);
            assert_eq!(
                finding.found,
                ToleranceSetting::overall(bears),
                "{finding:?}"
            );
            assert!(finding.is_complete && done.len() <= 24);
        }
    }

    #[test]
    fn the_ends_of_the_ladder_are_found() {
        let mut done = Vec::new();
        let finding = run(&search(overall(), 24), &[0.0005], &mut done);
        assert_eq!(finding.found, ToleranceSetting::lossless());
        let finding = run(&search(overall(), 24), &[0.9], &mut Vec::new());
        assert_eq!(finding.found, ToleranceSetting::overall(0.3));
    }

    #[test]
    fn groups_are_raised_one_by_one_and_tried_together() {
        let subject = SearchSubject::Largest {
            groups: 2,
            phases: PhaseTolerance::Alike,
        };
        let mut done = Vec::new();
        let finding = run(&search(subject, 100), &[0.11, 0.022], &mut done);
        assert_eq!(finding.found.groups, [0.1, 0.02]);
        let tried = finding
            .cells
            .iter()
            .any(|cell| cell.setting == finding.found);
        assert!(tried, "{finding:?}");
    }

    #[test]
    fn calm_steps_are_raised_while_the_others_stay() {
        let subject = SearchSubject::Largest {
            groups: 1,
            phases: PhaseTolerance::Tightened,
        };
        let mut done = Vec::new();
        let search = search(subject, 100);
        let finding = loop {
            match search.next(&done) {
                SearchStep::Done(finding) => break finding,
                SearchStep::Try { setting, seed, .. } => {
                    let bears = if setting.tight.is_some() { 0.11 } else { 0.022 };
                    let metric = Some(metric(&setting, seed, &[bears]));
                    done.push(ToleranceTrial {
                        setting,
                        seed,
                        metric,
                    });
                }
            }
        };
        let expected = ToleranceSetting {
            groups: vec![0.1],
            tight: Some(0.02),
        };
        assert_eq!(finding.found, expected);
    }

    #[test]
    fn a_single_tolerance_is_checked() {
        for (share, verdict) in [
            (0.05, ToleranceVerdict::Accepted),
            (0.6, ToleranceVerdict::Rejected),
        ] {
            let search = search(SearchSubject::Check(share), 24);
            let finding = run(&search, &[0.1], &mut Vec::new());
            assert_eq!(finding.cells.len(), 1);
            assert_eq!(finding.cells[0].judgement.verdict, verdict);
        }
    }

    #[test]
    fn an_ended_budget_leaves_the_accepted_setting() {
        let mut done = Vec::new();
        let finding = run(&search(overall(), 7), &[0.5], &mut done);
        assert_eq!(done.len(), 7);
        assert!(!finding.is_complete);
        let accepted = |cell: &&JudgedSetting| cell.judgement.verdict == ToleranceVerdict::Accepted;
        let last = finding.cells.iter().rfind(accepted);
        assert_eq!(finding.found, last.expect("all is borne").setting);
    }

    #[test]
    fn trials_of_another_search_cost_no_budget() {
        let mut done = Vec::new();
        run(&search(overall(), 24), &[0.1], &mut done);
        let before = done.len();
        let finding = run(&search(SearchSubject::Check(0.6), 7), &[0.1], &mut done);
        assert!(finding.is_complete);
        assert_eq!(
            finding.cells[0].judgement.verdict,
            ToleranceVerdict::Rejected
        );
        assert!(
            done[before..]
                .iter()
                .all(|trial| !trial.setting.is_lossless())
        );
    }

    #[test]
    fn a_trial_without_a_number_is_rejected() {
        let search = search(SearchSubject::Check(0.1), 24);
        let trial = |setting: ToleranceSetting, seed, metric| ToleranceTrial {
            setting,
            seed,
            metric,
        };
        let lossless = (1..=3).map(|seed| trial(ToleranceSetting::lossless(), seed, Some(0.9)));
        let mut done: Vec<ToleranceTrial> = lossless.collect();
        done.push(trial(ToleranceSetting::overall(0.1), 1, None));
        let SearchStep::Done(finding) = search.next(&done) else {
            panic!("one such trial is enough");
        };
        assert_eq!(
            finding.cells[0].judgement.verdict,
            ToleranceVerdict::Rejected
        );
    }

    static SEARCH: LazyLock<ToleranceSearch> = LazyLock::new(|| search(overall(), 24));

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn a_resumed_search_finds_the_same(
            bears in 0.002_f64..0.4,
            cut in 0_usize..24,
            shift in 0_usize..24,
        ) {
            let search = SEARCH.clone();
            let mut done = Vec::new();
            let finding = run(&search, &[bears], &mut done);
            let mut begun: Vec<ToleranceTrial> = done[..cut.min(done.len())].to_vec();
            let middle = shift.min(begun.len());
            begun.rotate_left(middle);
            prop_assert_eq!(run(&search, &[bears], &mut begun), finding);
            prop_assert_eq!(begun.len(), done.len());
        }
    }
}

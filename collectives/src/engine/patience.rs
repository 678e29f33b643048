//! How long contributions to a tensor usually take, and so how long stragglers are waited for.
//!
//! `collectives.patience` is m. An operation of the tensor takes t on this rank: from its start
//! until the last contribution that may lose segments is complete.
//!
//! 1. The usual time u is the lower quartile of the last [`REMEMBERED`] times t, so steps with
//!    stragglers, even if they are more than half of all, hardly move it.
//! 2. After [`CommunicatorLimits::learning`] steps, patience ends m u after the start (rule 10 of
//!    [`gradwire_protocol::receiver`]). A step that ends so has taken m u. So where all steps
//!    become slower, u grows by the factor m in every twelve steps, and stragglers alone are left
//!    behind.
//! 3. Only error feedback makes late values good, so only its operations have patience.

use std::collections::{BTreeMap, VecDeque};

use gradwire_protocol::job::Job;
use gradwire_protocol::units::{Instant, Span};

use crate::engine::limits::CommunicatorLimits;
use crate::numbers::holes::HoleFilling;
use crate::operation::Operation;

/// Steps of a tensor whose times are remembered.
const REMEMBERED: usize = 16;

/// The usual times of all tensors on this rank.
#[derive(Debug)]
pub(crate) struct UsualTimes {
    /// Patience as a multiple of the usual time; `None`: endless.
    multiple: Option<f64>,
    /// Steps after which a tensor's usual time is known.
    learning: usize,
    /// By tensor, the times of its last steps.
    of: BTreeMap<u64, VecDeque<Span>>,
}

impl UsualTimes {
    /// Before the first step of a job.
    pub(crate) fn of(job: &Job) -> Self {
        Self {
            multiple: job.collectives.patience,
            learning: CommunicatorLimits::USUAL.learning,
            of: BTreeMap::new(),
        }
    }

    /// Learns from this many steps.
    pub(crate) fn learn_from(&mut self, steps: usize) {
        self.learning = steps;
    }

    /// Whether some rank's patience with an operation may end.
    pub(crate) fn is_limited(&self) -> bool {
        self.multiple.is_some()
    }

    /// Whether patience with this operation may end.
    pub(crate) fn may_end(&self, operation: &Operation) -> bool {
        self.is_limited() && operation.may_lose() && operation.holes() == HoleFilling::ErrorFeedback
    }

    /// When patience ends with an operation on this tensor that starts now.
    pub(crate) fn ends(&self, now: Instant, tensor_key: u64) -> Option<Instant> {
        let times = self.of.get(&tensor_key);
        let usual = usual_of(times.filter(|times| times.len() >= self.learning)?);
        let picos = usual.as_picos() as f64 * self.multiple?;
        Some(now + Span::from_picos(picos as u64))
    }

    /// The contributions to the tensor have taken this long.
    pub(crate) fn note(&mut self, tensor_key: u64, took: Span) {
        let times = self.of.entry(tensor_key).or_default();
        if times.len() == REMEMBERED {
            times.pop_front();
        }
        times.push_back(took);
    }
}

/// The lower quartile of at least one time, by nearest rank.
fn usual_of(times: &VecDeque<Span>) -> Span {
    let mut sorted: Vec<Span> = times.iter().copied().collect();
    sorted.sort_unstable();
    sorted[sorted.len().div_ceil(4) - 1]
}

/// The wait of one operation for the contributions that may lose segments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OperationPatience {
    /// When it ends; `None`: not at all.
    pub(crate) ends: Option<Instant>,
    /// Contributions that are not complete.
    pub(crate) left: usize,
}

impl OperationPatience {
    /// A contribution is complete; tells whether it was the last one.
    pub(crate) fn on_complete(&mut self) -> bool {
        let had = self.left > 0;
        self.left = self.left.saturating_sub(1);
        had && self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(multiple: f64) -> UsualTimes {
        UsualTimes {
            multiple: Some(multiple),
            learning: LEARNING,
            of: BTreeMap::new(),
        }
    }

    const LEARNING: usize = CommunicatorLimits::USUAL.learning;
    const KEY: u64 = 7;
    const USUAL: Span = Span::from_millis(8);

    #[test]
    fn patience_is_a_multiple_of_the_usual_time() {
        let (mut times, now) = (times(1.5), Instant::START);
        for _ in 0..LEARNING {
            assert_eq!(times.ends(now, KEY), None);
            times.note(KEY, USUAL);
        }
        assert_eq!(times.ends(now, KEY), Some(now + Span::from_millis(12)));
        assert_eq!(times.ends(now, KEY + 1), None);
    }

    #[test]
    fn stragglers_in_every_second_step_do_not_move_the_usual_time() {
        let (mut times, now) = (times(1.0), Instant::START);
        for _ in 0..2 * REMEMBERED {
            times.note(KEY, USUAL);
            times.note(KEY, USUAL * 4);
        }
        assert_eq!(times.ends(now, KEY), Some(now + USUAL));
    }

    /// Every step ends when its patience does, since the network has become slower for good.
    #[test]
    fn a_slower_network_becomes_usual() {
        let (mut times, now) = (times(1.2), Instant::START);
        for _ in 0..LEARNING {
            times.note(KEY, USUAL);
        }
        let late = |times: &UsualTimes| {
            let ends = times.ends(now, KEY).expect("it has learned");
            (ends - now).min(USUAL * 3)
        };
        let steps = (1..1000).find(|_| {
            let took = late(&times);
            times.note(KEY, took);
            late(&times) >= USUAL * 3
        });
        assert!(steps.is_some_and(|steps| steps < 100), "{steps:?} steps");
    }
}

//! Finds how much loss a job can take by its own metric: decides which tolerance to try next, and
//! when enough is known.
//!
//! Start here:
//! - [`search::ToleranceSearch`] derives the next trial, or the result, from the trials so far. It
//!   has no memory: the same trials give the same answer, so an interrupted search can continue.
//! - [`judge::ToleranceJudge`] decides whether the trials of one setting show that it costs the
//!   metric less than the margin.
//! - [`gain::TimeGain`] decides whether an accepted tolerance gains any time.
//!
//! A trial is one short training of the user's script with one [`ToleranceSetting`] and one seed;
//! its result is one number. Not here: how a trial is run, and which packets it loses.

pub mod gain;
pub mod judge;
pub mod search;

use serde::{Deserialize, Serialize};

/// The loss that a trial tolerates.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ToleranceSetting {
    /// Share of a message that may be missing, per group of layers, front layers first; a single
    /// entry is for all layers. All zero is the lossless baseline.
    pub groups: Vec<f64>,
    /// The share for steps after a change of phase; `None`: as for all other steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tight: Option<f64>,
}

impl ToleranceSetting {
    /// The same share for all layers and steps.
    pub fn overall(share: f64) -> Self {
        Self {
            groups: vec![share],
            tight: None,
        }
    }

    /// The baseline: no data may be missing.
    pub fn lossless() -> Self {
        Self::overall(0.0)
    }

    /// The largest share of any group. A trial must lose this much to test all groups.
    pub fn largest(&self) -> f64 {
        self.groups.iter().copied().fold(0.0, f64::max)
    }

    /// The smallest share of any group, which applies to messages whose layers are not known.
    pub fn least(&self) -> f64 {
        self.groups.iter().copied().fold(self.largest(), f64::min)
    }

    /// Whether this is the lossless baseline.
    pub fn is_lossless(&self) -> bool {
        self.largest() == 0.0
    }
}

/// A finished trial.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ToleranceTrial {
    /// The tolerance that was tried.
    pub setting: ToleranceSetting,
    /// The seed of the script and of the losses, from 1.
    pub seed: u64,
    /// The metric at the end; `None` if it is not a number, which counts as worse than any number.
    pub metric: Option<f64>,
}

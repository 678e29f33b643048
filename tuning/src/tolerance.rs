//! How much loss a job can take, by its own metric: which tolerance to try next, and when enough is
//! known.
//!
//! Start here:
//! - [`search::Search`]: gives the next trial from those that were done, or what was found. It has
//!   no memory: the same trials give the same answer, so a search goes on wherever it was ended.
//! - [`judge::Judge`]: whether the trials of one setting show that it costs less than the margin.
//!
//! A trial is one short training of the user's script with one [`Setting`] and one seed; its result
//! is one number. What is not here: how a trial is run, and by what losses.

pub mod judge;
pub mod search;

use serde::{Deserialize, Serialize};

/// What is tolerated in a trial.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Setting {
    /// Share of a message that may be missing, by groups of layers, the front first; one entry
    /// for all layers. All zero is the lossless baseline.
    pub groups: Vec<f64>,
    /// What steps tolerate that follow a change of the gradients; as the others when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tight: Option<f64>,
}

impl Setting {
    /// The same share for all layers and steps.
    pub fn overall(share: f64) -> Self {
        Self {
            groups: vec![share],
            tight: None,
        }
    }

    /// Nothing may be missing.
    pub fn lossless() -> Self {
        Self::overall(0.0)
    }

    /// The largest share of any group: so much must be lost for all to be tried.
    pub fn largest(&self) -> f64 {
        self.groups.iter().copied().fold(0.0, f64::max)
    }

    /// The smallest share of any group: what is borne by messages whose layers are not known.
    pub fn least(&self) -> f64 {
        self.groups.iter().copied().fold(self.largest(), f64::min)
    }

    /// Whether this is the baseline.
    pub fn is_lossless(&self) -> bool {
        self.largest() == 0.0
    }
}

/// A trial that was done.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Trial {
    /// What was tried.
    pub setting: Setting,
    /// The seed of the script and of the losses, from 1.
    pub seed: u64,
    /// What the metric was at the end; nothing where it is no number, which is worse than any.
    pub metric: Option<f64>,
}

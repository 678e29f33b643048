//! A check that failed: which one, when, and how.

use std::fmt;

use gradwire_protocol::units::{Instant, Span};

/// The properties that every run must have.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ClusterCheck {
    /// A hole is legal only if the network lost every copy, or was later than the job allows.
    Provenance,
    /// Each element is what the rule for holes gives for its contributors; replicas are equal.
    Values,
    /// Contributions are delivered, kept as residuals, or told as lost at both ends.
    Conservation,
    /// No message and no step misses more than it tolerates.
    Bounds,
    /// Every operation ends, and time goes on.
    Liveness,
    /// No repairs on clean paths, few control packets while waiting.
    Economy,
    /// State ends with its messages.
    Memory,
    /// A send that has ended was received.
    SentMeansReceived,
    /// The machine panicked.
    Panic,
    /// The same seed gave another run.
    Determinism,
}

impl ClusterCheck {
    /// Its name in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Provenance => "provenance",
            Self::Values => "values",
            Self::Conservation => "conservation",
            Self::Bounds => "bounds",
            Self::Liveness => "liveness",
            Self::Economy => "economy",
            Self::Memory => "memory",
            Self::SentMeansReceived => "sent-means-received",
            Self::Panic => "panic",
            Self::Determinism => "determinism",
        }
    }
}

/// A check that failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterViolation {
    /// Which one.
    pub check: ClusterCheck,
    /// The simulated time.
    pub at: Instant,
    /// Given, allowed, and where, in words.
    pub detail: String,
}

impl fmt::Display for ClusterViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at: Span = self.at - Instant::START;
        write!(f, "{} at {at}: {}", self.check.word(), self.detail)
    }
}

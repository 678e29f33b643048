//! A finding of a check: its cost, and the command that mends it.

use serde::{Deserialize, Serialize};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// As it should be, or of no consequence.
    Ok,
    /// A job works, but slower or less safely than it could.
    Warning,
    /// A job hangs, fails, or loses more than half of its speed.
    Problem,
}

impl FindingState {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// The outcome of one check.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct HostFinding {
    /// Which check; a stable name for programs.
    pub name: String,
    /// How bad it is.
    pub state: FindingState,
    /// The finding in words.
    pub found: String,
    /// Its cost; measured numbers are of the machine that the documentation names.
    pub costs: Option<String>,
    /// The command that mends it, or the change of the job.
    pub mend: Option<String>,
}

impl HostFinding {
    /// All is well.
    pub fn ok(name: &str, found: impl Into<String>) -> Self {
        Self::new(name, FindingState::Ok, found.into())
    }

    /// Something is missing that a job can do without.
    pub fn warning(name: &str, found: impl Into<String>) -> Self {
        Self::new(name, FindingState::Warning, found.into())
    }

    /// Something stands in the way.
    pub fn problem(name: &str, found: impl Into<String>) -> Self {
        Self::new(name, FindingState::Problem, found.into())
    }

    /// The finding with its cost.
    pub fn costs(mut self, costs: impl Into<String>) -> Self {
        self.costs = Some(costs.into());
        self
    }

    /// The finding with the command that mends it.
    pub fn mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }

    fn new(name: &str, state: FindingState, found: String) -> Self {
        Self {
            name: name.to_owned(),
            state,
            found,
            costs: None,
            mend: None,
        }
    }
}

/// The worst of some findings.
pub fn worst(findings: &[HostFinding]) -> FindingState {
    let states = findings.iter().map(|finding| finding.state);
    states.max().unwrap_or(FindingState::Ok)
}

/// The command that mends a finding which states its cost.
#[cfg(test)]
pub(super) fn mended(finding: &HostFinding) -> &str {
    assert!(finding.costs.is_some(), "{finding:?} says what it costs");
    finding.mend.as_deref().expect("it can be mended")
}

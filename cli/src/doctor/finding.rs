//! What a check found, what that costs, and the command that mends it.

use serde::{Deserialize, Serialize};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// As it should be, or of no consequence.
    Ok,
    /// A job works, with less of what it could have.
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
    /// What was found.
    pub found: String,
    /// What that costs; measured numbers are of the machine that the documentation names.
    pub costs: Option<String>,
    /// The command that mends it, or what to change in the job.
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

    /// With what it costs.
    pub fn costs(mut self, costs: impl Into<String>) -> Self {
        self.costs = Some(costs.into());
        self
    }

    /// With what mends it.
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

/// What mends a finding that says what it costs.
#[cfg(test)]
pub(super) fn mended(finding: &HostFinding) -> &str {
    assert!(finding.costs.is_some(), "{finding:?} says what it costs");
    finding.mend.as_deref().expect("it can be mended")
}

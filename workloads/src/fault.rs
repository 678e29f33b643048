//! The faults of texts that workloads, models and distributions are read from.

/// Why a text cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TextError {
    /// A line breaks a rule of the format.
    #[error("line {line}: {rule}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The given words, and the allowed ones.
        rule: String,
    },
    /// The text as a whole breaks a rule.
    #[error("{0}")]
    Whole(String),
}

impl TextError {
    /// A line that breaks a rule.
    pub(crate) fn line(line: usize, rule: impl Into<String>) -> Self {
        let rule = rule.into();
        Self::Line { line, rule }
    }

    /// A value that is missing, in which case it is empty, or cannot be read.
    pub(crate) fn value(line: usize, key: &str, given: &str, allowed: &str) -> Self {
        Self::line(line, format!("{key} `{given}`: allowed is {allowed}"))
    }
}

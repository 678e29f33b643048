//! The verdict of a platform's own validator.

/// The verdict of a platform's validator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Validation {
    /// It accepts the configuration.
    Accepted {
        /// The program and its models: `yanglint, SONiC's models of 2026-08`.
        tool: String,
    },
    /// It refuses it.
    Rejected {
        /// The program and its models.
        tool: String,
        /// Why, one reason each.
        messages: Vec<String>,
    },
    /// It could not be asked.
    Missing {
        /// The package to install, or why there is no such program.
        install: String,
    },
}

//! What a platform's own validator says.

/// What a platform's validator says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Validation {
    /// It accepts the configuration.
    Accepted {
        /// The program, and what it knows: `yanglint, SONiC's models of 2026-08`.
        tool: String,
    },
    /// It refuses it.
    Rejected {
        /// The program, and what it knows.
        tool: String,
        /// Why, one reason each.
        messages: Vec<String>,
    },
    /// It could not be asked.
    Missing {
        /// What to install, or why there is no such program.
        install: String,
    },
}

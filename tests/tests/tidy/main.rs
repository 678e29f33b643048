//! The rules that no linter states, each a test whose failure names file, line and remedy.
//!
//! - [`code`]: headers, lengths, names and words of the source text, and which room may do what.
//! - [`documents`]: README, ARCHITECTURE and the rest say what is true and what exists.
//! - [`dependencies`]: licences and sources of what we build on; no socket below the simulator.

mod code;
mod dependencies;
mod documents;

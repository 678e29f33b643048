//! The rules that no linter states, each a test whose failure names file, line and remedy.
//!
//! - [`code`]: headers, lengths and names in the source text, and the limits of each room.
//! - [`structure`]: which package knows which; circles of files; public type names are unique.
//! - [`prose`]: comments and documents in plain English, as far as a count can tell.
//! - [`documents`]: README, ARCHITECTURE and the other pages name only things that exist.
//! - [`dependencies`]: licences and sources of the packages we use; no socket below the simulator.

mod code;
mod dependencies;
mod documents;
mod prose;
mod structure;

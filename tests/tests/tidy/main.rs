//! The rules that no linter states, each a test whose failure names file, line and remedy.
//!
//! - [`code`]: headers, lengths and names in the source text, and the limits of each room.
//! - [`structure`]: which package knows which; circles of files; public type names are unique.
//! - [`prose`]: comments and documents in plain English, as far as a count can tell.
//! - [`commands`]: commands that documents and help texts show can be typed; their files exist.
//! - [`links`]: every link between documents leads to a page and a heading.
//! - [`documents`]: README, ARCHITECTURE and the other pages name only things that exist.
//! - [`release`]: one version everywhere, and a changelog that people can read.
//! - [`dependencies`]: licences and sources of the packages we use; no socket below the simulator.

mod code;
mod commands;
mod dependencies;
mod documents;
mod links;
mod prose;
mod release;
mod structure;

//! Switch configuration: the requirements of a job on the switches between its hosts, rendered for
//! each platform.
//!
//! Start here:
//! - `gradwire_fabric::policy`: which DSCP goes to which queue, when a queue marks, drops,
//!   trims or pauses, and how packets are spread over equal paths. The simulated switches of
//!   `gradwire-netsim` execute this very value.
//! - [`target`] and [`limits`]: the platforms and their abilities, with sources.
//! - [`plan`]: the policy on the ports of one switch of one platform. Everything is decided here:
//!   rounded, refused or realised in another way, and told in notes.
//! - [`dialect`]: one module per platform. Each has `limits.toml` (its abilities), `commands.txt`
//!   (commands for people), `render`, `read`, `change` (ownership in a running configuration) and,
//!   where the platform exports usable counters, `counters`.
//!   `yang`, where a platform publishes models, is the document that validators read.
//! - [`tree`]: a configuration as a tree: its difference to a wanted one, and loading a change.
//! - [`notation`]: how texts become trees: commands, `set` lines, YAML, and JSON with its patches.
//! - [`reading`] and [`lint`]: the meaning of a configuration, whatever the platform, and its
//!   mistakes.
//! - [`ports`]: the ports that an export names, and their speeds; [`effect`]: a change as settings
//!   before and after, for people.
//! - [`counters`]: whether marks and drops happened where they should.
//!
//! Not here: which segment rides in which class (`gradwire_protocol::priority`), and files,
//! processes and namespaces (`gradwire switch` in `gradwire-cli`).

pub mod change;
mod code_points;
pub mod counters;
pub mod dialect;
pub mod effect;
pub mod limits;
pub mod lint;
pub mod notation;
pub mod plan;
pub mod ports;
pub mod reading;
pub mod target;
pub mod tree;

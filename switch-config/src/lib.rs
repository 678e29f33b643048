//! What a job asks of the switches between its hosts, and how each platform is told.
//!
//! Start here:
//! - `gradwire_fabric::policy`: which DSCP goes to which queue, when a queue marks, drops,
//!   trims or pauses, and how packets are spread over equal paths. The simulated switches of
//!   `gradwire-netsim` execute this very value.
//! - [`target`] and [`limits`]: the platforms, and what each can and cannot do, with sources.
//! - [`plan`]: the policy on the ports of one switch of one platform. Everything is decided here:
//!   rounded, refused or realised in another way, and told in notes.
//! - [`dialect`]: what every platform does with a plan: write it, read it back, change a running
//!   configuration and undo that, read counters. One module per platform implements it.
//! - [`tree`]: a configuration as a tree: its difference to a wanted one, and loading a change.
//! - [`notation`]: how texts become trees: commands, `set` lines, YAML, and JSON with its patches.
//! - [`reading`] and [`lint`]: what a configuration says, whatever the platform, and what is wrong
//!   with it.
//! - [`counters`]: whether marks and drops happened where they should.
//!
//! What is not here: which segment rides in which class (`gradwire_protocol::priority`), and files,
//! processes and namespaces (`gradwire switch` in `gradwire-cli`).

pub mod change;
mod code_points;
pub mod counters;
pub mod dialect;
pub mod limits;
pub mod lint;
pub mod notation;
pub mod plan;
pub mod reading;
pub mod target;
pub mod tree;

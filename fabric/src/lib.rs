//! Fabrics: hosts, switches and links, which paths packets take, and how switches treat a job.
//!
//! Start here:
//! - [`topology`]: a fabric as a plain graph. It comes from one line ([`shape`]), from
//!   `fabric.toml` ([`mod@file`]) or from the files of other simulators ([`htsim`], [`hpcc`]), all
//!   with the same [`settings`].
//! - [`check`]: whether it is consistent; [`paths`]: round trips and ideal times without
//!   simulating; [`exchange`]: how fast all hosts send to all; [`routing`]: the ports that lead to
//!   each host.
//! - [`policy`]: the one value that says which DSCP goes to which queue, when a queue marks, drops,
//!   trims or pauses, and how packets are spread over equal paths. Switch configurations are
//!   rendered from it, simulated switches execute it.
//! - [`fitting`]: a job on a fabric, its defaults and the policy of the switches there.
//!
//! Not here: configurations of platforms (`gradwire-switch-config`) and simulated ports
//! (`gradwire-netsim`). No clock, file or socket.

pub mod check;
pub mod exchange;
pub mod file;
pub mod fitting;
mod graph;
pub mod hpcc;
pub mod htsim;
pub mod paths;
pub mod policy;
pub mod routing;
pub mod settings;
pub mod shape;
pub mod topology;
mod tree;

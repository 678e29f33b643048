//! Traces of training: where the time of a step goes, and what would change it.
//!
//! Start here:
//! - [`event`]: the one format: Chrome-trace JSON with the names of dPRO (Hu et al., MLSys 2022),
//!   which Perfetto opens. Ranks and the simulator write it.
//! - [`run`]: the files of one run together, and the messages that both of its ends have seen.
//! - [`clocks`]: an offset for the clock of each host, by which no message arrives before it left.
//! - [`graph`]: the tasks of a run and their order, as a workload. [`network`]: the links, as the
//!   messages show them.
//! - [`replay`]: predicts the run on those links. [`critical`]: the longest way through it.
//! - [`buckets`]: the same gradients in buckets of another size. [`whatif`]: a change of the job or
//!   the network. [`search`]: the changes that help most.
//! - [`collective_costs`]: the time of a collective alone, for plans of runs without a trace.
//!
//! No file, clock or socket is here: callers give texts and take texts.

pub mod buckets;
pub mod clocks;
pub mod collective_costs;
pub mod critical;
pub mod event;
pub mod folded;
pub mod graph;
mod link_use;
pub mod network;
pub mod replay;
pub mod run;
pub mod search;
pub mod whatif;

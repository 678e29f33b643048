//! One rank of a job on this machine: sockets, control plane, driver thread and collectives put
//! together, and callbacks when operations end.
//!
//! Start here:
//! - [`open`]: sockets are open, peers are not known yet. [`open::OpenRank::join`] meets them.
//! - [`rank`]: a [`rank::LocalRank`] takes operations from any thread.
//! - `rank_driver`: the machine that the driver thread drives: the communicator, and the callers
//!   that wait for its operations. `inbox` is how other threads reach it.
//! - [`aggregator`]: a process that sums for the ranks of many jobs, and `in_network`: how a rank
//!   finds it.
//! - [`party`]: connections with other processes that come and go, without a job's world.
//! - `pairing`: the peer of such a connection, as the driver reaches it.
//! - [`promise`]: submitted operations, and the duty to call back exactly once.
//! - `inquiry`: the questions that ranks ask each other when an operation takes too long.
//! - `vigil`: notices dead processes of this host.
//! - `start`: the log line with the settings of a job.
//! - `vicinity`: the ranks of this host, and the memory shared with them.
//! - [`pool`]: the threads on which callbacks run, and why they may block.
//! - [`counters`]: the counters of all layers together.
//! - [`metrics`]: the same by peer and class, for observers.
//! - [`log`]: lines for people on standard error, and how many of them.
//! - [`tuner`]: chunk and credit, found in a job's first steps.
//! - [`trace`]: the flight recorder: the last operations, to find out why one did not end.
//!
//! `gradwire-collectives` implements operations, `gradwire-transport` moves packets, and options
//! come from the command and the Python package.

pub mod aggregator;
pub mod counters;
pub mod error;
mod in_network;
mod inbox;
mod inquiry;
pub mod log;
pub mod metrics;
pub mod open;
mod pairing;
pub mod party;
mod path_faults;
pub mod pool;
pub mod promise;
pub mod rank;
mod rank_driver;
mod start;
pub mod trace;
pub mod tuner;
mod vicinity;
mod vigil;

pub use counters::RankCounters;
pub use error::{EndError, OpenError, RankJoinError, ResidualError};
pub use gradwire_transport::control::{CertificateError, CertificateFiles};
pub use gradwire_transport::interface;
pub use metrics::Snapshot;
pub use open::{OpenRank, Opening};
pub use promise::{Done, EndedOperation, RankTask, Ticket};
pub use rank::LocalRank;

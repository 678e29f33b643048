//! One rank of a job on this machine: it joins sockets, control plane, driver thread and
//! collectives, and calls back when operations end.
//!
//! Start here:
//! - [`open`]: a rank with open sockets and unknown peers. [`open::OpenRank::join`] meets them.
//! - [`rank`]: a [`rank::LocalRank`] takes operations from any thread.
//! - `rank_driver`: the machine of the driver thread: the communicator, and the callers that wait
//!   for its operations. Other threads reach it through `inbox`.
//! - [`promise`]: submitted operations, and the duty to call back exactly once.
//! - `inquiry`: asks the other ranks when an operation takes too long.
//! - `vigil`: notices dead ranks of this host.
//! - `start`: the log line with a job's settings.
//! - `vicinity`: the ranks of this host, and the memory shared with them.
//! - [`pool`]: the threads on which callbacks run, and why they may block.
//! - [`counters`]: all counters, in one place.
//! - [`metrics`]: the same by peer and class, for observers.
//! - [`log`]: log lines on standard error, and their level.
//! - [`tuner`]: chunk and credit, found in a job's first steps.
//! - [`trace`]: the flight recorder: the last operations, to explain one that did not end.
//!
//! `gradwire-collectives` has the operations, `gradwire-transport` moves packets, and options come
//! from the command and the Python package.

pub mod counters;
pub mod error;
mod inbox;
mod inquiry;
pub mod log;
pub mod metrics;
pub mod open;
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
pub use error::{EndError, OpenError, RankJoinError};
pub use gradwire_transport::control::{CertificateError, CertificateFiles};
pub use metrics::Snapshot;
pub use open::{AUTO_MTU_MAX, OpenRank, Opening};
pub use promise::{Done, EndedOperation, RankTask, Ticket};
pub use rank::LocalRank;

//! Ranks as processes of this machine, and their measurements.
//!
//! Start here:
//! - [`launcher`]: starts the processes, sends them orders line by line, and ends them with itself.
//! - `aggregator`: the one that sums for them, if their job names none.
//! - [`leash`]: processes of this program that end with their starter: ranks, cells, scripts.
//! - [`messages`]: those lines. [`place`]: where the processes are: on this machine, or in network
//!   namespaces.
//! - [`worker`], [`mod@bench`], [`memory`]: one rank, the process at the other end, and its
//!   measurements.
//! - [`kind`]: the collectives, and how their bandwidths are computed.
//! - [`exercise`], [`pattern`]: the numbers that ranks begin with, and the results that are right.
//! - [`rounds`]: contestants take turns, and their times are compared.
//! - [`verdict`]: checks the results of all ranks together.
//! - [`rival`]: Gloo and Open MPI in the same harness.

mod aggregator;
pub mod bench;
pub mod exercise;
pub mod kind;
pub mod launcher;
pub mod leash;
pub mod memory;
pub mod messages;
pub mod pattern;
pub mod place;
pub mod rival;
pub mod rounds;
pub mod verdict;
pub mod worker;

/// Bytes of an element: 32-bit floats.
pub const ELEMENT_BYTES: u64 = 4;

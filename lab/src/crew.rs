//! Ranks as processes of this machine, and what they measure.
//!
//! Start here:
//! - [`launcher`]: processes that are told what to do line by line, and never left behind.
//! - [`messages`]: those lines. [`place`]: where the processes are: on this machine, or in network
//!   namespaces.
//! - [`worker`], [`mod@bench`], [`memory`]: one rank, the process at the other end; what it
//!   measures.
//! - [`kind`]: the collectives, and what their bandwidths mean.
//! - [`exercise`], [`pattern`]: the numbers that ranks begin with, and what they must end with.
//! - [`rounds`]: who takes turns, and how what they did compares.
//! - [`verdict`]: what the results of all ranks together must fulfil.
//! - [`rival`]: Gloo and Open MPI in the same harness.

pub mod bench;
pub mod exercise;
pub mod kind;
pub mod launcher;
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

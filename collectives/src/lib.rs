//! Collective operations as a sans-IO machine over the protocol's endpoint.
//!
//! Start here:
//! - [`communicator`]: the machine. Takes operations, drives an endpoint, gives completions.
//! - [`operation`]: what an operation is, what is refused, how it can fail.
//! - [`call`], [`agreement`]: what an operation has to be on every rank, and how ranks that
//!   disagree find out. [`overdue`]: what ranks ask each other when one takes too long.
//! - `plan`: the form in which every algorithm is written: which messages go where, after what.
//! - `one_step`, `direct`, `ring`, `halving_doubling`, `hierarchical`: reductions. `reduce`,
//!   `gather`, `broadcast`, `scatter`: to and from a root. `all_gather`, `all_to_all`, `barrier`,
//!   `point_to_point`: the rest. Each header states steps and bytes on the wire; `selection`
//!   chooses between them.
//! - [`outline`]: plans for others than the communicator, without their bytes.
//! - `rehearsal`: plans of all ranks run against each other, for tests.
//! - `plans`: plans that were made before.
//! - `matching`: which send answers which receive.
//! - [`scheduler`]: which message leaves next, and how many are on their way at once.
//! - `departures`: what of a rank's gradients waits, and what has left.
//! - `running`: executes a plan on the bytes of one operation.
//! - [`holes`]: what stands in for a segment that was lost within the tolerance. [`hadamard`]: what
//!   spreads it over others. `phases`: when less is tolerated.
//! - [`dtype`], [`kernels`], [`magnitude`]: element types and the loops over them.
//!
//! What is not here: packets, loss and repair (`gradwire-protocol`), sockets and clocks
//! (`gradwire-transport`).

pub mod agreement;
mod all_gather;
mod all_to_all;
mod barrier;
mod broadcast;
pub mod buffer;
pub mod call;
pub mod communicator;
mod departures;
mod direct;
pub mod dtype;
mod gather;
pub mod hadamard;
mod halving_doubling;
mod hierarchical;
pub mod holes;
pub mod kernels;
pub mod magnitude;
mod matching;
mod memory;
mod one_step;
pub mod operation;
pub mod outline;
pub mod overdue;
mod phases;
mod plan;
mod plans;
mod point_to_point;
mod reduce;
#[cfg(test)]
mod rehearsal;
mod ring;
mod running;
mod scatter;
pub mod scheduler;
mod selection;
mod stash;
mod table;

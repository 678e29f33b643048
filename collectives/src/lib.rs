//! Collective operations as a sans-IO machine over the protocol's endpoint.
//!
//! Start with [`communicator`]: it takes operations, drives an endpoint and returns completions.
//! The rooms, each of which uses only those above it:
//!
//! - `numbers`: element types, the loops over elements, and the values that stand in for lost ones.
//! - [`operation`]: an operation, how it is refused and how it can end.
//! - `plan`: the form in which an algorithm is written: messages, and the gates they wait for.
//! - `algorithms`: one file per algorithm; each header states steps and bytes on the wire.
//! - `engine`: the machine that runs plans.
//! - [`aggregation`]: sums within the network, and how the all-reduces of a rank use them.
//! - [`redundancy`]: codes for the state of parameter servers, apart from all of these.
//!
//! Packets, loss and repair are in `gradwire-protocol`, sockets and clocks in `gradwire-transport`.

pub mod aggregation;
mod algorithms;
mod engine;
mod numbers;
pub mod operation;
mod plan;
pub mod redundancy;

pub use algorithms::outline;
pub use algorithms::selection::ignores_tolerance;
pub use engine::{communicator, journal, limits, overdue, scheduler};
pub use numbers::{codec, dtype, fixed_point, hadamard, holes, kernels, magnitude};
pub use operation::{buffer, call};

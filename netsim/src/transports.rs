//! What carries flows: gradwire itself, and the transports that it is compared with.
//!
//! - [`gradwire`]: the `Endpoint` and the `Communicator` that ship, as a host of the fabric;
//!   [`program`] is what lets a rank run the tasks of a training job. When a task's turn comes is
//!   decided in `tasks`, and what it is to `gradwire_collectives` in `operations`.
//! - [`dctcp`], [`pfabric`], [`ndp`], [`roce`]: references, which exist in the simulator only, with
//!   [`settings`] that all of them share.
//! - [`open_loop`]: packets at fixed rates, whatever becomes of them.

pub mod dctcp;
pub mod gradwire;
mod identity;
pub mod ndp;
pub mod open_loop;
mod operations;
pub mod pfabric;
pub mod program;
pub mod reference;
pub mod roce;
pub mod settings;
mod tasks;

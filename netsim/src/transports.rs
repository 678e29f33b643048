//! What carries flows: gradwire itself, and the transports that it is compared with.
//!
//! - [`gradwire`]: the `Endpoint` and the `Communicator` that ship, as a host of the fabric;
//!   [`program`] is what lets a rank run the tasks of a training job.
//! - [`dctcp`], [`pfabric`], [`ndp`], [`roce`]: references, which exist in the simulator only, with
//!   [`settings`] that all of them share.
//! - [`open_loop`]: packets at fixed rates, whatever becomes of them.

pub mod dctcp;
pub mod gradwire;
pub mod ndp;
pub mod open_loop;
pub mod pfabric;
pub mod program;
pub mod reference;
pub mod roce;
pub mod settings;

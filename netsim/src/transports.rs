//! Transports that carry flows: gradwire itself, and those that it is compared with.
//!
//! - [`gradwire`]: the `Endpoint` and the `Communicator` that ship, as a host of the fabric;
//!   [`program`] lets a rank run the tasks of a training job. `tasks` decides when the turn of a
//!   task comes, `operations` turns it into an operation of `gradwire_collectives`.
//! - [`dctcp`], [`swift`], [`pfabric`], [`ndp`], [`eqds`], [`nscc`], [`rccc`], [`roce`], [`irn`]:
//!   references, which exist only in the simulator, with [`settings`] that all of them share.
//! - [`in_network`]: all-reduces that switches sum: SwitchML, ATP, NetReduce.
//! - [`tagged`]: DCTCP in several priority queues, among them PIAS.
//! - [`shared_host`]: gradwire beside a reference, which carries the flows of no training job;
//!   [`beside`]: two references, one of them for the background.
//! - [`open_loop`]: packets at fixed rates, without any reaction to loss.

pub mod beside;
pub mod dctcp;
pub mod eqds;
pub mod gradwire;
mod identity;
pub mod in_network;
pub mod irn;
pub mod ndp;
pub mod nscc;
pub mod open_loop;
mod operations;
pub mod pfabric;
pub mod program;
pub mod rccc;
pub mod reference;
pub mod roce;
pub mod settings;
pub mod shared_host;
pub mod swift;
pub mod tagged;
mod tasks;

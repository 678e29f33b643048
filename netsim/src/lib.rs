//! A deterministic simulated network that runs the protocol machines that ship.
//!
//! Start here:
//! - [`network`]: hosts that are [`Machine`](gradwire_protocol::machine::Machine)s, an event queue
//!   and the loop that drives them. No clock and no socket: the same seed gives the same trace,
//!   byte for byte.
//! - [`link`]: what happens to a packet on its way: queueing, marks, loss, jitter, duplication.
//!
//! What is not here: rules of the protocol. Every packet comes from a machine's `poll_transmit`
//! and goes to another's `handle_datagram`.

pub mod link;
pub mod network;

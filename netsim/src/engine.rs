//! The loop of the simulator and its parts.
//!
//! - [`host`]: the seam between the fabric and the transport of a host.
//! - [`region`]: the loop. [`calendar`] orders its events (`happening`), [`packets`] is the arena
//!   of packets, [`port`] has the queues, [`turns`] their order where not all are strict, `spells`
//!   makes hosts slow, [`wiring`] is the read-only state, [`flows`] begins flows.
//! - [`element`]: the seam between a switch and an element that looks into packets.
//! - [`partition`] divides a fabric into regions, [`parallel`] runs them, on one thread or several:
//!   the same bytes.

pub mod calendar;
pub mod element;
pub mod flows;
mod happening;
pub mod host;
pub mod packets;
pub mod parallel;
pub mod partition;
pub mod port;
pub mod region;
pub mod spells;
pub mod turns;
pub mod wiring;

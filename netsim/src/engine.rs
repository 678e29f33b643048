//! The loop of the simulator, and what is around it.
//!
//! - [`host`]: the seam between the fabric and what runs on a host.
//! - [`region`]: the loop. [`calendar`] orders its events, [`packets`] is the arena of packets,
//!   [`port`] the queues, [`wiring`] what is fixed, [`flows`] what begins when.
//! - [`parallel`]: several threads, the same bytes.

pub mod calendar;
pub mod flows;
pub mod host;
pub mod packets;
pub mod parallel;
pub mod port;
pub mod region;
pub mod wiring;

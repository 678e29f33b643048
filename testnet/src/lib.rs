//! Machines joined pair by pair by links that lose, reorder and duplicate, with real payloads.
//!
//! Start here: [`network`] joins machines and runs them, [`link`] decides the fate of each packet,
//! and [`cluster`] runs a whole job with random faults and checks it at every instant. The tests in
//! this package check the properties of the protocol and of the collectives. The same seed gives
//! the same trace, byte for byte.
//!
//! Switches, queues of ports and training jobs are in `gradwire-netsim`.

mod arrivals;
pub mod cluster;
pub mod link;
pub mod network;

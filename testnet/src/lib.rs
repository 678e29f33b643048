//! Machines joined pair by pair by links that lose, reorder and duplicate, with real payloads.
//!
//! Start here: [`network`] joins machines and runs them, [`link`] decides the fate of each packet.
//! The tests beside it check the properties of the protocol and of the collectives. The same seed
//! gives the same trace, byte for byte.
//!
//! Switches, queues of ports and training jobs are in `gradwire-netsim`.

pub mod link;
pub mod network;

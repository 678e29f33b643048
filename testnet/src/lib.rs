//! Machines joined pair by pair by links that lose, reorder and duplicate, with real payloads.
//!
//! Start here: [`network`] joins machines and runs them, [`link`] says what becomes of each packet.
//! The tests beside it hold the properties of the protocol and of the collectives. A seed decides
//! everything: the same seed gives the same trace, byte for byte.
//!
//! What is not here: switches, queues of ports and training jobs (`gradwire-netsim`).

pub mod link;
pub mod network;

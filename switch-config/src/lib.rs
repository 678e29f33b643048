//! What a job asks of the switches between its hosts.
//!
//! Start here: [`policy`], the one value that says which DSCP goes to which queue, when a queue
//! marks, drops, trims or pauses, and how packets are spread over equal paths. The simulated
//! switches of `gradwire-netsim` execute this very value.
//!
//! What is not here: which segment rides in which class (`gradwire_protocol::priority`).

pub mod policy;

//! The traffic of a fabric: flows between hosts, programs of ranks, training steps of models.
//!
//! Start here:
//! - [`workload`]: its one form. It comes from a pattern ([`pattern`]), from flow sizes and a load
//!   ([`arrivals`]), from a trained model ([`training`]), or from a file of another tool
//!   ([`connection_matrix`], [`goal`], [`layers`], [`chakra`]).
//! - [`check`]: whether a workload fits a fabric and can come to its end; [`placement`]: on which
//!   hosts it runs; [`order`]: which tasks wait for which; [`fault`]: why a text cannot be read.
//! - [`model`]: the trained models, and the times of their gradients.
//!
//! The simulator that carries a workload is `gradwire-netsim`. This crate has no clock, file or
//! socket.

pub mod arrivals;
pub mod chakra;
pub mod check;
pub mod connection_matrix;
pub mod fault;
pub mod goal;
pub mod layers;
pub mod model;
pub mod order;
pub mod pattern;
pub mod placement;
pub mod training;
mod words;
pub mod workload;

//! What a fabric carries: flows between hosts, programs that ranks run, models that are trained.
//!
//! Start here:
//! - [`workload`]: the one form of it. It comes from a pattern ([`pattern`]), from flow sizes and a
//!   load ([`arrivals`]), from a model that is trained ([`training`]), or from a file of another
//!   tool ([`connection_matrix`], [`goal`], [`layers`], [`chakra`]).
//! - [`check`]: whether a workload fits a fabric and can come to its end; [`placement`]: on which
//!   hosts it runs.
//! - [`model`]: models that are trained, and the times of their gradients.
//!
//! What is not here: what carries a workload (`gradwire-netsim`). No clock, file or socket.

pub mod arrivals;
pub mod chakra;
pub mod check;
pub mod connection_matrix;
pub mod goal;
pub mod layers;
pub mod model;
mod order;
pub mod pattern;
pub mod placement;
pub mod training;
mod words;
pub mod workload;

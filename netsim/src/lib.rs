//! A deterministic simulator of fabrics that runs the protocol machines that ship.
//!
//! Start here:
//! - [`setup`]: a fabric, a workload, a transport and a job. [`simulation`] runs it and returns an
//!   outcome; [`switches`] says how switches serve a transport.
//! - [`engine`]: the loop with its events, packets, ports, flows and threads, and the seam between
//!   the fabric and the transport of a host.
//! - [`transports`]: gradwire's own `Endpoint` and `Communicator`, and the references for
//!   comparison.
//! - [`fluid`]: the same programs without packets, on links that messages share.
//! - [`results`]: the outcome of a run, its percentiles and slowdowns, its training steps.
//!
//! Not here: fabrics (`gradwire-fabric`), workloads (`gradwire-workloads`), rules of the protocol.
//! No clock, file or socket; a thread only where a run is asked to use several.

pub mod engine;
pub mod fluid;
pub mod results;
pub mod setup;
pub mod simulation;
pub mod switches;
pub mod transports;

//! A deterministic simulator of fabrics that runs the protocol machines that ship.
//!
//! Start here:
//! - [`simulation`]: a fabric, a workload, a transport and a job in, an outcome out.
//! - [`engine`]: the loop, and what is around it: events, packets, ports, flows, threads; and the
//!   seam between the fabric and what runs on a host.
//! - [`transports`]: gradwire's own `Endpoint` and `Communicator`, and the references beside it.
//! - [`results`]: what came out: an outcome, its percentiles and slowdowns, its training steps.
//!
//! What is not here: fabrics (`gradwire-fabric`), what they carry (`gradwire-workloads`), rules of
//! the protocol. No clock, file or socket; a thread only where a run is asked to use several.

pub mod engine;
pub mod results;
pub mod simulation;
pub mod transports;

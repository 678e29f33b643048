//! A deterministic simulator of fabrics that runs the protocol machines that ship.
//!
//! Start here:
//! - [`simulation`]: a fabric, a workload, a transport and a job in, an [`outcome`] out.
//! - [`fabric`]: hosts, switches and links; [`workload`]: what they carry; both from one line, from
//!   TOML, or from the files of other simulators.
//! - [`model`]: models that are trained, and the times of their gradients.
//! - [`host`]: the seam between the fabric and what runs on a host; [`transports`]: gradwire's own
//!   `Endpoint` and `Communicator`, and the references beside it.
//! - [`region`]: the loop. Around it [`calendar`] (events), [`packets`] (their arena), [`port`]
//!   (queues), [`routing`] and [`wiring`] (what is fixed), [`flows`] (what begins when) and
//!   [`parallel`] (several threads, the same bytes).
//! - [`statistics`]: percentiles and slowdowns of an outcome; [`steps`]: its training steps.
//! - [`network`] and [`link`]: machines joined pair by pair by links that lose, reorder and
//!   duplicate, with real payloads: where the protocol's properties are tested.
//!
//! What is not here: rules of the protocol. No clock, file or socket; a thread only where a run is
//! asked to use several.

pub mod calendar;
pub mod fabric;
pub mod flows;
pub mod host;
pub mod link;
pub mod model;
pub mod network;
pub mod outcome;
pub mod packets;
pub mod parallel;
pub mod port;
pub mod region;
pub mod routing;
pub mod simulation;
pub mod statistics;
pub mod steps;
pub mod transports;
pub mod wiring;
pub mod workload;

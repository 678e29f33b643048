//! The protocol of gradwire, sans IO: it has no sockets, clocks, threads or environment, and never
//! looks at the payload that it carries.
//!
//! Start here:
//! - [`machine`]: the seam. Four verbs, driven by sockets (`gradwire-transport`) and by simulated
//!   links (`gradwire-netsim`).
//! - [`wire`]: the 64-byte header of every packet, drawn byte by byte.
//! - [`priority`]: the class, DSCP and protection of a segment. No other file decides about tags.
//! - [`endpoint`]: one rank's messages to and from all peers; it routes packets to
//!   [`sender`] (window, repair, probes) and [`receiver`] (holes, acknowledgements).
//! - [`budget`]: how much of a step may be missing, and how much is.
//! - [`congestion`], [`grants`], [`rtt`], [`entropy`]: how fast, how much from all peers together,
//!   how long to wait, over which path.
//! - [`job`]: every parameter that a job can set.
//! - [`metrics`]: counts and times of an endpoint.
//!
//! Collectives are in `gradwire-collectives`; checksums, encryption and batches of system calls in
//! `gradwire-transport`.

pub mod bitmap;
pub mod budget;
pub mod congestion;
pub mod endpoint;
pub mod entropy;
mod event;
pub mod footprint;
pub mod grants;
pub mod job;
pub mod launch;
pub mod loss;
pub mod machine;
pub mod message;
pub mod metrics;
mod order;
mod outlook;
pub mod parity;
pub mod path;
pub mod prefetch;
pub mod priority;
pub mod reach;
pub mod receiver;
pub mod rtt;
pub mod segment;
pub mod sender;
pub mod settings;
pub mod units;
pub mod wire;

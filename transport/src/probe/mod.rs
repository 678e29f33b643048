//! Probes of this host and of the path to another one: what `gradwire doctor` and
//! `gradwire switch probe` measure. Nothing here judges; a number that could not be had is an
//! absent number.
//!
//! Start here:
//! - [`ProbeServer`]: answers probes on the other host, never with more bytes than it was sent.
//! - [`ProbeClient`]: reaches a server; `path`, `load` and `tagged` hold what it measures over the path.
//! - [`offload`]: whether runs of packets stay runs on this host.
//! - [`device`]: an interface, and which features of it are switched on.
//! - [`rdma`]: RDMA devices; [`dcb`]: which priorities their interface pauses, and tells by DSCP.
//! - [`system`]: what the kernel allows this process: locked memory, buffers, time.
//!
//! `packet` draws a probe byte by byte; `desk` decides what is answered and `tally` counts what is
//! not, both without a socket; `socket` forbids that packets are cut and reads what ICMP says.
//!
//! What is not here: what a finding costs and how it is mended (the `doctor` command).

mod client;
mod clock;
pub mod dcb;
mod desk;
pub mod device;
mod load;
pub mod offload;
mod packet;
mod path;
pub mod rdma;
mod server;
mod socket;
pub mod system;
mod tagged;
mod tally;

pub use client::{ProbeClient, ProbeConnectError};
pub use load::{GsoRuns, ProbeSeries};
pub use packet::SOCKETS;
pub use path::{PathMtu, PathReach, RoundTrips, TagFate};
pub use server::{ProbeServer, ProbeServerError};
pub use socket::PacketRefusal;
pub use tagged::{Passage, Passages, Tagging};

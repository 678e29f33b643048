//! Probes of this host and of the path to another one: what `gradwire doctor` and
//! `gradwire switch probe` measure. This module only measures and does not judge. A number that
//! could not be measured is absent.
//!
//! Start here:
//! - [`ProbeServer`] answers probes on the other host, never with more bytes than it received.
//! - [`ProbeClient`] reaches a server; `path`, `load` and `tagged` measure the path to it.
//! - [`offload`]: whether runs of packets stay runs on this host.
//! - [`device`]: the features of an interface that are on.
//! - [`rdma`]: RDMA devices. [`dcb`]: the priorities that their interface pauses, and gives to
//!   DSCPs.
//! - [`system`]: limits of the kernel for this process: locked memory, buffers, time.
//!
//! `packet` draws a probe byte by byte. `desk` decides which probes are answered, and `tally`
//! counts those that are not; both have no socket. `socket` forbids fragmentation and reads ICMP
//! errors.
//!
//! Not here: the cost of a finding and its remedy (the `doctor` command).

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

//! Sockets, the driver thread, fault injection and the control plane of gradwire. The only crate
//! with a clock, sockets and unsafe code.
//!
//! Start here:
//! - [`driver`]: the thread that drives a machine; one round fits on a screen.
//! - [`seal`]: turns messages into packets of this job and checks received ones.
//! - [`udp`]: sends runs of packets, receives super-packets.
//! - [`shm`]: carries packets through memory between ranks of one host.
//! - [`uring`]: UDP through io_uring.
//! - [`rdma`]: carries packets as datagrams of an RDMA device and bypasses the kernel.
//! - [`wires`]: chooses one of these for a rank; [`address`]: where it is reached.
//! - [`faults`]: injects loss, bursts, reordering and more.
//! - [`interface`]: finds the interface of an address, and its largest packet.
//! - [`lanes`]: the form of AEGIS that all processors of a job compute fastest.
//! - [`process`]: tells a process from its forked children.
//! - [`probe`]: the measurements of `gradwire doctor`.
//! - [`http`]: a few pages for those who watch a rank.
//! - [`pair`]: two processes that meet by a ticket, without a job's control plane.
//! - [`control`]: rendezvous, agreement on the job, detection of lost ranks.
//!
//! Not here: rules of the protocol, and the meaning of messages.

pub mod address;
pub mod control;
mod dma_region;
pub mod driver;
pub mod faults;
mod hkdf;
pub mod http;
pub mod interface;
pub mod lanes;
mod message;
pub mod pair;
pub mod probe;
pub mod process;
pub mod rdma;
pub mod seal;
pub mod shm;
pub mod slot;
pub mod udp;
pub mod uring;
mod wake;
pub mod wires;
pub mod xdp;

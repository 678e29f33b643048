//! Sockets, the driver thread, fault injection and the control plane of gradwire. The only crate
//! with a clock, sockets and unsafe code.
//!
//! Start here:
//! - [`driver`]: the thread that drives a machine; a round in one screen.
//! - [`seal`]: what makes bytes a packet of this job.
//! - [`udp`]: runs of packets out, super-packets in.
//! - [`shm`]: packets through memory, between ranks of one host.
//! - [`uring`]: the same by io_uring.
//! - [`rdma`]: packets as datagrams of an RDMA device, past the kernel.
//! - [`wires`]: which of these a rank uses, [`address`]: where it is reached.
//! - [`faults`]: loss, bursts, reordering and more, on purpose.
//! - [`interface`]: which interface has an address, and how large a packet it takes.
//! - [`probe`]: what `gradwire doctor` measures.
//! - [`http`]: a few pages for those who watch a rank.
//! - [`control`]: rendezvous, agreement on the job, who is lost.
//!
//! What is not here: rules of the protocol, and what a message means.

pub mod address;
pub mod control;
mod dma_region;
pub mod driver;
pub mod faults;
pub mod http;
pub mod interface;
mod message;
pub mod probe;
pub mod rdma;
pub mod seal;
pub mod shm;
pub mod slot;
pub mod udp;
pub mod uring;
mod wake;
pub mod wires;

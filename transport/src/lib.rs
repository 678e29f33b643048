//! Sockets, the driver thread, fault injection and the control plane of gradwire.

pub mod control;

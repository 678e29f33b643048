//! The seam between a switch and an element in it that looks into packets.
//!
//! A switch has at most one. The region asks it about every packet that arrives; switches without
//! one, and runs without any, do not pay for it.

use gradwire_fabric::routing::PortId;

use crate::engine::packets::SimPacket;

/// Where a packet goes that an element has seen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ElementVerdict {
    /// To its destination, as without the element.
    Route,
    /// Nowhere: the element has taken it.
    Take,
    /// Out of these ports, a copy each.
    Copies(Vec<PortId>),
}

/// An element of a switch. [`crate::transports::in_network`] has the implementors.
pub trait SwitchElement<C>: std::fmt::Debug + Send {
    /// A packet arrives through a port; the element may alter it.
    fn arrive(&mut self, ingress: PortId, packet: &mut SimPacket, cargo: &mut C) -> ElementVerdict;

    /// The cargo of the copy that leaves through a port; `packet` is the copy's own.
    fn copy(&self, port: PortId, packet: &mut SimPacket, cargo: &C) -> C;
}

/// The element of a switch, if it has one.
pub type OptionalElement<C> = Option<Box<dyn SwitchElement<C>>>;

//! The seam between hosts and the fabric: what a transport is to the simulator.
//!
//! A [`Host`] is driven like a `Machine`, packet by packet: it takes packets and the time, gives
//! packets when its link has room, and says when it wants to be woken. Implementors: gradwire
//! itself ([`crate::transports::gradwire`], around the very `Endpoint` and `Communicator` that
//! ship), and the references in [`crate::transports`].
//!
//! A host never sends ahead of its link: [`Host::transmit`] is called when the link's queue has
//! room for a packet, so that what a packet says of the time is true.

use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{ByteCount, Dscp, Instant};

use crate::results::outcome::{TaskOutcome, TransportCounts};

/// What a switch and a link see of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Envelope {
    /// The host that sent it.
    pub source: u32,
    /// The host that it goes to.
    pub destination: u32,
    /// Its bytes on the wire, framing included.
    pub bytes: u32,
    /// Decides its queue.
    pub dscp: Dscp,
    /// Whether a full queue marks it or drops it.
    pub ecn: Ecn,
    /// Path: stands for the ports of the five-tuple. Packets of a pair with equal entropy take the
    /// same path where switches hash.
    pub entropy: u16,
    /// What it carries, for counting and for switches that trim.
    pub load: Load,
    /// Order within a queue that serves the least first; zero in all others.
    pub urgency: u32,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Load {
    /// Bytes of a flow.
    Data,
    /// Bytes of a flow, cut off by a switch: only the header arrives.
    Trimmed,
    /// Anything else.
    Control,
}

/// A flow that begins at its sender.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Begin {
    /// Its number.
    pub flow: u32,
    /// The host that receives.
    pub destination: u32,
    /// How much.
    pub bytes: ByteCount,
    /// Layer of the model, and layers of the model; 0 of 0 when not known.
    pub layer: (u16, u16),
}

/// What has happened to a flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// This host has all that it needs of a flow to it.
    Received {
        /// The flow.
        flow: u32,
        /// Bytes that it did without.
        lost_bytes: u64,
    },
    /// The receiver of a flow from this host has all that it needs.
    Acknowledged {
        /// The flow.
        flow: u32,
    },
    /// A task of this host's program is complete.
    Task,
}

/// A host of the fabric.
pub trait Host {
    /// What packets carry from host to host.
    type Cargo: Default + Send;

    /// A flow from this host begins.
    fn begin(&mut self, now: Instant, begin: Begin);

    /// A packet has arrived.
    fn receive(&mut self, now: Instant, envelope: &Envelope, cargo: &mut Self::Cargo);

    /// Called when [`Host::wakes_at`] has come.
    fn wake(&mut self, now: Instant);

    /// When this host wants to be woken next.
    fn wakes_at(&self) -> Option<Instant>;

    /// The next packet for the link, whose cargo is written over what `cargo` held; `None`: nothing
    /// now. Asked again after every other call.
    fn transmit(&mut self, now: Instant, cargo: &mut Self::Cargo) -> Option<Envelope>;

    /// What has happened since the last call, oldest first.
    fn progress(&mut self) -> Option<Progress>;

    /// How its program went, if it has one.
    fn tasks(&self) -> Vec<TaskOutcome> {
        Vec::new()
    }

    /// What it counted.
    fn counts(&self) -> TransportCounts;
}

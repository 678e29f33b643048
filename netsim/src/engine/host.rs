//! The seam between hosts and the fabric, which every transport of the simulator implements.
//!
//! A [`Host`] is driven like a `Machine`, packet by packet: it takes packets and the time, gives
//! packets when its link has room, and says when it wants to be woken. Implementors: gradwire
//! itself ([`crate::transports::gradwire`], around the same `Endpoint` and `Communicator` that
//! ship), and the references in [`crate::transports`].
//!
//! A host never sends ahead of its link: [`Host::transmit`] is called when the link's queue has
//! room for a packet, so the times that packets carry are true.

use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{ByteCount, Dscp, Instant, Layer};

use crate::results::outcome::{MessageOutcome, TaskOutcome, TransportCounts};

/// The part of a packet that switches and links read.
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
    /// The path, in place of the ports of the five-tuple. Packets of a pair with equal entropy take
    /// the same path where switches hash.
    pub entropy: u16,
    /// Data or control, for counters and for switches that trim.
    pub load: Load,
    /// Order within a queue that serves the smallest first; zero in all others.
    pub urgency: u32,
}

/// The kind of a packet's content.
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
    /// Its length.
    pub bytes: ByteCount,
    /// Layer of the model; 0 when it is not known.
    pub layer: Layer,
    /// Layers of the model; 0 when they are not known.
    pub layer_count: u16,
}

/// A flow or task that has ended at a host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HostProgress {
    /// This host has all that it needs of a flow to it.
    Received {
        /// The flow.
        flow: u32,
        /// Bytes whose loss it accepted.
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
    /// The content of packets, which only hosts read.
    type Cargo: Default + Send;

    /// A flow from this host begins.
    fn begin(&mut self, now: Instant, begin: Begin);

    /// A packet has arrived.
    fn receive(&mut self, now: Instant, envelope: &Envelope, cargo: &mut Self::Cargo);

    /// Called when [`Host::wakes_at`] has come.
    fn wake(&mut self, now: Instant);

    /// When this host wants to be woken next.
    fn wakes_at(&self) -> Option<Instant>;

    /// The next packet for the link; its cargo overwrites `cargo`. `None`: nothing to send now. The
    /// simulator asks again after every other call.
    fn transmit(&mut self, now: Instant, cargo: &mut Self::Cargo) -> Option<Envelope>;

    /// The flows and tasks that have ended since the last call, oldest first.
    fn progress(&mut self) -> Option<HostProgress>;

    /// The outcome of its program's tasks, if it has a program.
    fn tasks(&self) -> Vec<TaskOutcome> {
        Vec::new()
    }

    /// The messages of its program that ended since the last call, if it keeps a journal.
    fn messages(&mut self) -> Vec<MessageOutcome> {
        Vec::new()
    }

    /// Its counters.
    fn counts(&self) -> TransportCounts;
}

//! The header fields of packets of reference transports.

use gradwire_protocol::units::{ByteCount, Instant};

use super::scoreboard::Transmission;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CargoKind {
    /// Bytes of a flow.
    #[default]
    Data,
    /// A data packet has arrived.
    Ack,
    /// A data packet has not arrived: it was trimmed, or another one arrived in its place.
    Nack,
    /// Permission to send more (NDP, EQDS, RCCC).
    Pull,
    /// Congestion notification (RoCE).
    Congestion,
    /// Asks for an answer (pFabric).
    Probe,
    /// Answers a probe.
    Alive,
}

/// Header fields of all reference transports; each uses those that it needs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReferenceCargo {
    /// Its kind.
    pub kind: CargoKind,
    /// Whether the packet that it answers was marked.
    pub marked: bool,
    /// The path of a data packet; an answer repeats it.
    pub entropy: u16,
    /// The flow.
    pub flow: u32,
    /// The packet of the flow: of data its own number, of an answer the number that it answers.
    pub packet: u32,
    /// Of an answer: every packet of the flow before this one has arrived.
    pub before: u32,
    /// Counts the transmissions of a flow; an answer repeats it.
    pub number: u32,
    /// Packets that PULLs of the receiver have allowed so far; of data, up to how many they may.
    pub pulls: u32,
    /// Bytes of the whole flow.
    pub flow_bytes: ByteCount,
    /// When the data packet left; an answer repeats it.
    pub sent: Instant,
}

impl ReferenceCargo {
    /// A packet of a flow that leaves now.
    pub(crate) fn data(flow: u32, flow_bytes: ByteCount, now: Instant, sent: Transmission) -> Self {
        let Transmission { packet, number, .. } = sent;
        Self {
            flow,
            packet,
            number,
            flow_bytes,
            sent: now,
            ..Self::default()
        }
    }

    /// An answer to this packet.
    pub fn answer(&self, kind: CargoKind) -> Self {
        Self { kind, ..*self }
    }
}

//! The events of the simulator, and how each fits into the 16 bytes of a [`TimedEvent`].
//!
//! The key of an event is its kind in the upper three bits and a port or host below, so events of
//! equal time happen in the order of their kinds, then of their ports and hosts. Neither this order
//! nor the results depend on regions or threads.

use gradwire_fabric::routing::PortId;
use gradwire_fabric::topology::LinkState;
use gradwire_protocol::units::Instant;

use crate::engine::calendar::TimedEvent;
use crate::engine::packets::PacketIndex;
use crate::engine::port::Pausing;

/// An event; variants are in the order in which events of one time happen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Happening {
    /// A link fails or comes back.
    LinkChange { port: PortId, state: LinkState },
    /// A pause frame for one queue arrives at a port.
    Pause {
        port: PortId,
        queue: u8,
        pausing: Pausing,
    },
    /// A packet arrives, sent by `port`.
    Arrival { port: PortId, packet: PacketIndex },
    /// A port's wire is free.
    WireFree { port: PortId },
    /// A flow begins at a host.
    FlowBegin { host: u32, flow: u32 },
    /// A host wants to be woken.
    HostWake { host: u32 },
}

/// Bits of the port or host in the key of an event.
const NUMBER_BITS: u32 = 29;

impl Happening {
    /// The event by which this happens at a time.
    #[inline]
    pub(crate) const fn at(self, at: Instant) -> TimedEvent {
        let (kind, number, data) = match self {
            Self::LinkChange { port, state } => {
                (0, port.0, matches!(state, LinkState::Down) as u32)
            }
            Self::Pause {
                port,
                queue,
                pausing,
            } => {
                let stop = matches!(pausing, Pausing::Stop) as u32;
                (1, port.0, (queue as u32) << 1 | stop)
            }
            Self::Arrival { port, packet } => (2, port.0, packet.0),
            Self::WireFree { port } => (3, port.0, 0),
            Self::FlowBegin { host, flow } => (4, host, flow),
            Self::HostWake { host } => (5, host, 0),
        };
        TimedEvent {
            at,
            key: kind << NUMBER_BITS | number,
            data,
        }
    }

    /// The happening that an event encodes.
    #[inline]
    pub(crate) const fn of(event: TimedEvent) -> Self {
        let number = event.key & ((1 << NUMBER_BITS) - 1);
        let port = PortId(number);
        match event.key >> NUMBER_BITS {
            0 => Self::LinkChange {
                port,
                state: match event.data {
                    0 => LinkState::Up,
                    _ => LinkState::Down,
                },
            },
            1 => Self::Pause {
                port,
                queue: (event.data >> 1) as u8,
                pausing: match event.data & 1 {
                    0 => Pausing::GoOn,
                    _ => Pausing::Stop,
                },
            },
            2 => Self::Arrival {
                port,
                packet: PacketIndex(event.data),
            },
            3 => Self::WireFree { port },
            4 => Self::FlowBegin {
                host: number,
                flow: event.data,
            },
            _ => Self::HostWake { host: number },
        }
    }
}

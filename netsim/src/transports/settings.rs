//! Sizes and times that all reference transports share: packets, the round trip, the host's rate.

use gradwire_fabric::fitting;
use gradwire_fabric::topology::Fabric;
use gradwire_protocol::units::{ByteCount, Rate, Span};

/// Bytes of the header of a reference transport, and of its control packets.
pub(crate) const REFERENCE_HEADER: u32 = 64;

/// Sizes and times that all reference transports share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReferenceSettings {
    /// Bytes of a flow in a full packet; at least 1.
    pub payload: u32,
    /// Bytes of the transport's own header on data packets.
    pub header: u32,
    /// Bytes of a packet without data: ACK, NACK, PULL, CNP, probe.
    pub control: u32,
    /// Bytes on the wire around every packet.
    pub framing: u32,
    /// Time from the first bit of a full packet to the arrival of its ACK, on the longest path of
    /// an idle fabric.
    pub base_rtt: Span,
    /// Rate of the host's link.
    pub rate: Rate,
    /// Time that the full queue of a switch port takes on that link.
    pub full_queue: Span,
    /// Seed of everything that is random.
    pub seed: u64,
}

impl ReferenceSettings {
    /// Those that suit a fabric.
    pub fn of(fabric: &Fabric, seed: u64) -> Self {
        Self {
            payload: fabric.mtu - REFERENCE_HEADER,
            header: REFERENCE_HEADER,
            control: REFERENCE_HEADER,
            framing: fabric.framing,
            base_rtt: fitting::round_trip(fabric),
            rate: fabric.host_rate(),
            full_queue: fabric.host_rate().transmit_time(fabric.buffer.port_bytes()),
            seed,
        }
    }

    /// Those of messages that are not cut into packets, on links of a rate.
    pub(crate) fn of_messages(rate: Rate) -> Self {
        Self {
            payload: u32::MAX,
            header: 0,
            control: 0,
            framing: 0,
            base_rtt: Span::ZERO,
            rate,
            full_queue: Span::ZERO,
            seed: 0,
        }
    }

    /// Data packets of a flow.
    pub fn packets(&self, bytes: ByteCount) -> u32 {
        bytes.get().div_ceil(u64::from(self.payload)) as u32
    }

    /// Bytes on the wire of a flow's packet.
    pub fn packet_bytes(&self, bytes: ByteCount, packet: u32) -> u32 {
        let before = u64::from(packet) * u64::from(self.payload);
        let payload = (bytes.get() - before).min(u64::from(self.payload));
        payload as u32 + self.header + self.framing
    }

    /// Bytes of a full packet on the wire.
    pub fn full_packet_bytes(&self) -> ByteCount {
        ByteCount::new(u64::from(self.payload + self.header + self.framing))
    }

    /// Time that a full packet takes on the host's link.
    pub fn packet_time(&self) -> Span {
        self.rate.transmit_time(self.full_packet_bytes())
    }

    /// Full packets in flight during a round trip at line rate, rounded up.
    pub fn bandwidth_delay(&self) -> u32 {
        let picos = self.base_rtt.as_picos();
        picos.div_ceil(self.packet_time().as_picos().max(1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_cut_into_full_packets_and_a_rest() {
        let settings = ReferenceSettings {
            payload: 4086,
            header: 64,
            control: 64,
            framing: 0,
            base_rtt: Span::from_micros(14),
            rate: Rate::from_gbps(100),
            full_queue: Span::from_micros(42),
            seed: 1,
        };
        let bytes = ByteCount::new(2_000_000);
        assert_eq!(settings.packets(bytes), 490);
        assert_eq!(settings.packet_bytes(bytes, 488), 4150);
        assert_eq!(settings.packet_bytes(bytes, 489), 1946 + 64);
        assert_eq!(settings.packet_time(), Span::from_nanos(332));
        assert_eq!(settings.bandwidth_delay(), 43);
    }
}

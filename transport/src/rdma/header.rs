//! The network header of a datagram: sender, DSCP and ECN, read from the 40 bytes before it.
//!
//! - On InfiniBand, and RoCE v2 over IPv6, these bytes are a global route header, which looks like
//!   an IPv6 header: traffic class from bit 4 on, source from byte 8 on.
//! - RoCE v2 over IPv4 puts the IPv4 header into the last 20 bytes and leaves the rest undefined
//!   (InfiniBand specification, annex A17, 4.5.2).
//! - The own GID decides between the two: packets arrive in its address family.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::abi::HEADER_ROOM;

/// The fields that are read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct NetworkHeader {
    /// DSCP and ECN.
    pub(super) traffic_class: u8,
    /// The sender's GID.
    pub(super) source: Ipv6Addr,
}

impl Default for NetworkHeader {
    fn default() -> Self {
        Self {
            traffic_class: 0,
            source: Ipv6Addr::UNSPECIFIED,
        }
    }
}

const IPV4_AT: usize = 20;
/// Bytes of IPv6 and UDP headers, which `transport.mtu` counts besides a packet.
const IP_AND_UDP_BYTES: u32 = 48;

/// The `transport.mtu` of a port that takes datagrams of this many bytes.
pub(super) const fn mtu_of(datagram_bytes: u32) -> u32 {
    datagram_bytes + IP_AND_UDP_BYTES
}

/// Reads the header; `None` if it is not of the address family of `own`.
pub(super) fn read(raw: &[u8; HEADER_ROOM], own: Ipv6Addr) -> Option<NetworkHeader> {
    match own.to_ipv4_mapped() {
        Some(_) => {
            let (version, traffic_class) = (raw[IPV4_AT] >> 4, raw[IPV4_AT + 1]);
            let source: [u8; 4] = raw[IPV4_AT + 12..][..4].try_into().ok()?;
            (version == 4).then(|| NetworkHeader {
                traffic_class,
                source: Ipv4Addr::from(source).to_ipv6_mapped(),
            })
        }
        None => {
            let source: [u8; 16] = raw[8..24].try_into().ok()?;
            (raw[0] >> 4 == 6).then(|| NetworkHeader {
                traffic_class: raw[0] << 4 | raw[1] >> 4,
                source: Ipv6Addr::from(source),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_headers_are_read_after_undefined_bytes() {
        let own = Ipv4Addr::new(10, 1, 0, 2).to_ipv6_mapped();
        let mut raw = [0x6f; HEADER_ROOM];
        raw[20] = 0x45;
        raw[21] = 34 << 2 | 3;
        raw[32..36].copy_from_slice(&[10, 1, 0, 1]);
        let read_it = read(&raw, own).expect("IPv4");
        assert_eq!(read_it.traffic_class, 34 << 2 | 3);
        assert_eq!(read_it.source, Ipv4Addr::new(10, 1, 0, 1).to_ipv6_mapped());
        raw[20] = 0x60;
        assert_eq!(read(&raw, own), None);
    }

    #[test]
    fn a_global_route_header_is_read_from_its_start() {
        let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 1, 2, 3, 4);
        let mut raw = [0; HEADER_ROOM];
        raw[0] = 0x60 | 0x0b;
        raw[1] = 0xa0;
        raw[8..24].copy_from_slice(&source.octets());
        let own = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
        let read_it = read(&raw, own).expect("a version of 6");
        assert_eq!((read_it.traffic_class, read_it.source), (0xba, source));
        raw[0] = 0x45;
        assert_eq!(read(&raw, own), None);
    }
}

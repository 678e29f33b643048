//! Who sent a datagram and what the network did to it, from the 40 bytes before it.
//!
//! On InfiniBand, and RoCE v2 over IPv6, they are a global route header, which looks like an IPv6
//! header: traffic class from bit 4 on, source from byte 8 on. RoCE v2 over IPv4 puts the IPv4
//! header into the last 20 bytes and leaves the rest undefined (InfiniBand specification, annex
//! A17, 4.5.2). Which of the two it is follows from the own GID: packets reach it in its family.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::abi::HEADER_ROOM;

/// What is read from it.
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

/// Reads it; `None` when it is no header of the family of `own`.
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
    fn an_ipv4_header_is_read_behind_whatever_stands_before_it() {
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

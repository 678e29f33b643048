//! Addresses at which a rank receives packets.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// An address to send packets to. Ranks exchange their addresses through the control plane.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Address {
    /// A UDP socket.
    Socket(SocketAddr),
    /// A queue pair of an RDMA device.
    QueuePair(QueuePair),
}

/// A queue pair that takes unreliable datagrams.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct QueuePair {
    /// Its port's GID; those of RoCE v2 are IPv6 addresses, or IPv4 addresses mapped to such.
    pub gid: Ipv6Addr,
    /// Its number, 24 bits.
    pub number: u32,
    /// The Q_Key that packets to it must carry.
    pub key: u32,
    /// Its port's LID; 0 except on InfiniBand.
    pub lid: u16,
}

impl Address {
    /// The UDP socket, if it is one.
    pub const fn socket(self) -> Option<SocketAddr> {
        match self {
            Self::Socket(address) => Some(address),
            Self::QueuePair(_) => None,
        }
    }

    /// Whether a packet with source `from` may come from here. The key of a queue pair is not
    /// compared: packets to it carry the key, packets from it do not.
    pub fn is_source(&self, from: &Self) -> bool {
        match (self, from) {
            (Self::Socket(own), Self::Socket(from)) => own == from,
            (Self::QueuePair(own), Self::QueuePair(from)) => {
                own.number == from.number && own.gid == from.gid
            }
            _ => false,
        }
    }

    /// Whether packets can be sent to it.
    pub fn is_reachable(&self) -> bool {
        match self {
            Self::Socket(address) => !address.ip().is_unspecified() && address.port() != 0,
            Self::QueuePair(pair) => !pair.gid.is_unspecified() && pair.number != 0,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Socket(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(address) => write!(f, "{address}"),
            Self::QueuePair(pair) => write!(f, "queue pair {} of {}", pair.number, pair.gid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_json() {
        let socket = Address::from(SocketAddr::from(([10, 0, 0, 1], 4000)));
        let pair = Address::QueuePair(QueuePair {
            gid: std::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped(),
            number: 17,
            key: 5,
            lid: 0,
        });
        for (address, text) in [
            (socket, r#""10.0.0.1:4000""#),
            (
                pair,
                r#"{"gid":"::ffff:10.0.0.1","number":17,"key":5,"lid":0}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&address).expect("plain"), text);
            let read: Address = serde_json::from_str(text).expect("what was written");
            assert_eq!(read, address);
            assert!(address.is_source(&address) && address.is_reachable());
        }
        assert!(!socket.is_source(&pair));
    }

    #[test]
    fn a_queue_pair_is_recognized_without_its_key() {
        let pair = QueuePair {
            gid: Ipv6Addr::LOCALHOST,
            number: 17,
            key: 5,
            lid: 0,
        };
        let as_source = QueuePair { key: 0, ..pair };
        let another = QueuePair { number: 18, ..pair };
        let own = Address::QueuePair(pair);
        assert!(own.is_source(&Address::QueuePair(as_source)));
        assert!(!own.is_source(&Address::QueuePair(another)));
    }
}

//! The Ethernet, IPv4 and UDP headers of a packet: writes and reads them.
//!
//! A frame is 14 bytes of Ethernet, 20 of IPv4 without options, 8 of UDP, and the packet. Its UDP
//! checksum is 0, which says that it has none (RFC 768): the seal, or the packet's own CRC unless
//! the job turns that off, covers more. A checksum of a received frame is not compared, for the
//! same reason, and because a virtual link leaves it unfinished.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;

/// Bytes before the packet.
pub(super) const HEADERS_BYTES: usize = IPV4_AT + IPV4_BYTES + UDP_BYTES;
/// Bytes before the IP header.
pub(super) const ETHERNET_BYTES: usize = 14;
const IPV4_AT: usize = ETHERNET_BYTES;
const IPV4_BYTES: usize = 20;
const UDP_AT: usize = IPV4_AT + IPV4_BYTES;
const UDP_BYTES: usize = 8;

pub(super) const ETHER_TYPE_AT: usize = 12;
/// What an Ethernet header says before IPv4.
pub(super) const IPV4: [u8; 2] = [0x08, 0x00];
pub(super) const VERSION_AT: usize = IPV4_AT;
/// Version 4, and a header of five words, which has no options.
pub(super) const VERSION_4: u8 = 0x45;
const CLASS_AT: usize = IPV4_AT + 1;
const LENGTH_AT: usize = IPV4_AT + 2;
pub(super) const FRAGMENT_AT: usize = IPV4_AT + 6;
/// The bits of a fragment's place, and of a fragment that more follow.
pub(super) const FRAGMENT_BITS: [u8; 2] = [0x3f, 0xff];
const DO_NOT_FRAGMENT: [u8; 2] = [0x40, 0x00];
const HOPS_AT: usize = IPV4_AT + 8;
/// Linux's default.
const HOPS: u8 = 64;
pub(super) const PROTOCOL_AT: usize = IPV4_AT + 9;
pub(super) const UDP: u8 = 17;
const CHECKSUM_AT: usize = IPV4_AT + 10;
const SOURCE_AT: usize = IPV4_AT + 12;
pub(super) const DESTINATION_AT: usize = IPV4_AT + 16;
pub(super) const PORT_AT: usize = UDP_AT + 2;
const UDP_LENGTH_AT: usize = UDP_AT + 4;

/// The address of a network interface on its link.
pub(super) type Mac = [u8; 6];

/// The headers of a run's packets, complete but for lengths and the checksum over them.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameTemplate {
    bytes: [u8; HEADERS_BYTES],
    /// The sum of the IP header's words, without its length.
    sum: u32,
}

/// The two ends of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameEnds {
    pub(super) source: (Mac, SocketAddrV4),
    pub(super) destination: (Mac, SocketAddrV4),
}

/// What a received frame says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct FrameHead {
    pub(super) from: SocketAddrV4,
    /// DSCP and ECN.
    pub(super) traffic_class: u8,
    /// Where the packet lies in the frame.
    pub(super) packet: Range<usize>,
}

impl FrameTemplate {
    /// Headers of packets with this DSCP and ECN.
    pub(super) fn new(ends: &FrameEnds, traffic_class: u8) -> Self {
        let mut bytes = [0; HEADERS_BYTES];
        let (source, from) = ends.source;
        let (destination, to) = ends.destination;
        bytes[..6].copy_from_slice(&destination);
        bytes[6..ETHER_TYPE_AT].copy_from_slice(&source);
        bytes[ETHER_TYPE_AT..ETHERNET_BYTES].copy_from_slice(&IPV4);
        bytes[VERSION_AT] = VERSION_4;
        bytes[CLASS_AT] = traffic_class;
        bytes[FRAGMENT_AT..HOPS_AT].copy_from_slice(&DO_NOT_FRAGMENT);
        bytes[HOPS_AT] = HOPS;
        bytes[PROTOCOL_AT] = UDP;
        bytes[SOURCE_AT..DESTINATION_AT].copy_from_slice(&from.ip().octets());
        bytes[DESTINATION_AT..UDP_AT].copy_from_slice(&to.ip().octets());
        bytes[UDP_AT..PORT_AT].copy_from_slice(&from.port().to_be_bytes());
        bytes[PORT_AT..UDP_LENGTH_AT].copy_from_slice(&to.port().to_be_bytes());
        let sum = sum_of_words(&bytes[IPV4_AT..UDP_AT]);
        Self { bytes, sum }
    }

    /// Writes a packet's frame into `out`, and returns its length in bytes.
    ///
    /// # Panics
    /// When `out` is shorter than the frame.
    pub(super) fn write(&self, packet: &[u8], out: &mut [u8]) -> usize {
        let end = HEADERS_BYTES + packet.len();
        let udp = (UDP_BYTES + packet.len()) as u16;
        let ip = IPV4_BYTES as u16 + udp;
        out[..HEADERS_BYTES].copy_from_slice(&self.bytes);
        out[LENGTH_AT..LENGTH_AT + 2].copy_from_slice(&ip.to_be_bytes());
        let checksum = !folded(self.sum + u32::from(ip));
        out[CHECKSUM_AT..SOURCE_AT].copy_from_slice(&checksum.to_be_bytes());
        out[UDP_LENGTH_AT..UDP_LENGTH_AT + 2].copy_from_slice(&udp.to_be_bytes());
        out[HEADERS_BYTES..end].copy_from_slice(packet);
        end
    }
}

impl FrameHead {
    /// Reads the headers of a frame; `None` if it is no whole UDP packet over IPv4.
    pub(super) fn read(frame: &[u8]) -> Option<Self> {
        let head = frame.first_chunk::<HEADERS_BYTES>()?;
        let is_whole = head[FRAGMENT_AT] & FRAGMENT_BITS[0] == 0 && head[FRAGMENT_AT + 1] == 0;
        let is_udp = head[PROTOCOL_AT] == UDP && is_whole;
        if head[ETHER_TYPE_AT..ETHERNET_BYTES] != IPV4 || head[VERSION_AT] != VERSION_4 || !is_udp {
            return None;
        }
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let octets: [u8; 4] = head[SOURCE_AT..DESTINATION_AT].try_into().ok()?;
        // Short frames are filled up to 60 bytes, so the packet's own length counts.
        let end = UDP_AT + usize::from(word(UDP_LENGTH_AT));
        let packet = HEADERS_BYTES..end;
        (HEADERS_BYTES..=frame.len()).contains(&end).then(|| Self {
            from: SocketAddrV4::new(Ipv4Addr::from(octets), word(UDP_AT)),
            traffic_class: head[CLASS_AT],
            packet,
        })
    }
}

/// The sum of big-endian words (RFC 1071), before it is folded.
fn sum_of_words(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(2);
    words.fold(0, |sum, word| {
        sum + u32::from(u16::from_be_bytes([word[0], word[1]]))
    })
}

fn folded(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOURCE: Mac = [2, 0, 0, 0, 0, 1];
    const DESTINATION: Mac = [2, 0, 0, 0, 0, 2];

    fn ends(from: [u8; 4], to: [u8; 4]) -> FrameEnds {
        FrameEnds {
            source: (SOURCE, SocketAddrV4::new(from.into(), 4000)),
            destination: (DESTINATION, SocketAddrV4::new(to.into(), 5000)),
        }
    }

    /// The example of an IPv4 header that textbooks compute: checksum 0xb861 for length 115.
    #[test]
    fn the_checksum_is_that_of_a_known_header() {
        let head = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,
            0xc7,
        ];
        assert_eq!(!folded(sum_of_words(&head)), 0xb861);
        let template = FrameTemplate::new(&ends([192, 168, 0, 1], [192, 168, 0, 199]), 0);
        let mut frame = [0; 200];
        let packet = [7; 115 - IPV4_BYTES - UDP_BYTES];
        let bytes = template.write(&packet, &mut frame);
        assert_eq!(bytes, ETHERNET_BYTES + 115);
        assert_eq!(frame[CHECKSUM_AT..SOURCE_AT], [0xb8, 0x61]);
    }

    proptest! {
        #[test]
        fn a_frame_is_read_as_it_was_written(
            packet in prop::collection::vec(any::<u8>(), 0..1500),
            from in any::<[u8; 4]>(),
            to in any::<[u8; 4]>(),
            class in any::<u8>(),
        ) {
            let ends = ends(from, to);
            let mut out = vec![0; 2048];
            let bytes = FrameTemplate::new(&ends, class).write(&packet, &mut out);
            // The sum over a header with its checksum is all ones.
            prop_assert_eq!(folded(sum_of_words(&out[IPV4_AT..UDP_AT])), 0xffff);
            let head = FrameHead::read(&out[..bytes.max(60)]).expect("a whole packet");
            prop_assert_eq!(head.from, ends.source.1);
            prop_assert_eq!(head.traffic_class, class);
            prop_assert_eq!(&out[head.packet], &packet[..]);
        }

        #[test]
        fn no_bytes_make_a_packet_longer_than_its_frame(
            mut frame in prop::collection::vec(any::<u8>(), 0..200),
            is_ours in any::<bool>(),
        ) {
            if is_ours && frame.len() >= HEADERS_BYTES {
                frame[ETHER_TYPE_AT..ETHERNET_BYTES].copy_from_slice(&IPV4);
                (frame[VERSION_AT], frame[PROTOCOL_AT]) = (VERSION_4, UDP);
                frame[FRAGMENT_AT..HOPS_AT].copy_from_slice(&DO_NOT_FRAGMENT);
            }
            if let Some(head) = FrameHead::read(&frame) {
                prop_assert!(head.packet.start <= head.packet.end);
                prop_assert!(head.packet.end <= frame.len());
            }
        }
    }
}

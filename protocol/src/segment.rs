//! How a message is cut into segments: all of one size but the last, whole elements each.

use serde::{Deserialize, Serialize};

use crate::units::Share;
use crate::wire::SEGMENTS_MAX;

/// Every segment but a message's last is a multiple of this, so that it holds whole elements of
/// every type and starts aligned.
pub const SEGMENT_ALIGNMENT: u32 = 16;

/// The shortest full packet's payload: a report must fit in it with a good part of a bitmap, or
/// reports never end.
const SEGMENT_BYTES_MIN: u32 = 128;

/// IPv6 and UDP headers, the larger of the two families.
const IP_AND_UDP_BYTES: u32 = 48;

/// Payload bytes of a full packet on a path that carries IP packets of `mtu` bytes, of which
/// `overhead` are the job's own ([`Job::packet_overhead`](crate::job::Job::packet_overhead)).
///
/// # Panics
/// When `mtu` carries fewer than `SEGMENT_BYTES_MIN` bytes; jobs allow no such MTU.
pub fn segment_bytes(mtu: u32, overhead: u32) -> u32 {
    let room = mtu.min(65_535).saturating_sub(IP_AND_UDP_BYTES + overhead);
    let bytes = room / SEGMENT_ALIGNMENT * SEGMENT_ALIGNMENT;
    assert!(
        bytes >= SEGMENT_BYTES_MIN,
        "an MTU of {mtu} bytes carries segments of {bytes} bytes, at least {SEGMENT_BYTES_MIN} are \
         needed: jobs have an MTU from 576"
    );
    bytes
}

/// A message of some length, cut.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Segmentation {
    bytes: u32,
    segment_bytes: u32,
}

impl Segmentation {
    /// Cuts `bytes` into segments of `segment_bytes`, which is not zero.
    pub fn new(bytes: u32, segment_bytes: u32) -> Self {
        assert!(segment_bytes > 0, "segments have a size");
        Self {
            bytes,
            segment_bytes,
        }
    }

    /// Bytes of the message.
    pub fn bytes(self) -> u32 {
        self.bytes
    }

    /// Payload bytes of every segment but the last.
    pub fn segment_bytes(self) -> u32 {
        self.segment_bytes
    }

    /// Segments of the message. An empty message has one, which is empty too.
    pub fn segments(self) -> u32 {
        self.bytes.div_ceil(self.segment_bytes).max(1)
    }

    /// Whether the wire can count its segments.
    pub fn is_countable(self) -> bool {
        self.segments() <= SEGMENTS_MAX
    }

    /// Where a segment starts.
    pub fn offset(self, segment: u32) -> u32 {
        segment * self.segment_bytes
    }

    /// Bytes of a segment.
    pub fn length(self, segment: u32) -> u32 {
        self.segment_bytes.min(self.bytes - self.offset(segment))
    }

    /// Bytes of the `count` segments from `first` on.
    pub fn length_of(self, first: u32, count: u32) -> u32 {
        let start = self.offset(first);
        // In 64 bits, since the end of the last segment may lie beyond the message's.
        let end = u64::from(first + count) * u64::from(self.segment_bytes);
        end.min(u64::from(self.bytes)) as u32 - start
    }

    /// How many segments may be missing so that no more than `tolerance` of the bytes are.
    pub fn holes_allowed(self, tolerance: Share) -> u32 {
        tolerance.of(u64::from(self.bytes)) as u32 / self.segment_bytes
    }

    /// The part of `tolerance` that a message of this length can use: none if it is too short to
    /// miss one segment. Its packets should then not be droppable, since each would be repaired.
    pub fn usable(self, tolerance: Share) -> Share {
        match self.holes_allowed(tolerance) {
            0 => Share::NONE,
            _ => tolerance,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{HEADER_BYTES, TAG_BYTES};

    #[test]
    fn segments_cover_the_message_without_overlap() {
        for bytes in [0, 1, 15, 16, 17, 1376, 1377, 100_000] {
            let cut = Segmentation::new(bytes, 1376);
            let total: u32 = (0..cut.segments()).map(|segment| cut.length(segment)).sum();
            assert_eq!(total, bytes);
        }
    }

    #[test]
    fn an_ethernet_packet_carries_1376_bytes_and_a_sealed_one_1360() {
        let header = HEADER_BYTES as u32;
        assert_eq!(segment_bytes(1500, header), 1376);
        assert_eq!(segment_bytes(1500, header + TAG_BYTES as u32), 1360);
    }

    #[test]
    fn packets_of_448_bytes_cut_any_message_to_a_count_that_the_wire_has() {
        let least = segment_bytes(576, (HEADER_BYTES + TAG_BYTES) as u32);
        assert_eq!(least, 448);
        assert!(Segmentation::new(u32::MAX, least).is_countable());
        assert!(Segmentation::new(SEGMENTS_MAX * 16, 16).is_countable());
        assert!(!Segmentation::new(SEGMENTS_MAX * 16 + 1, 16).is_countable());
    }

    #[test]
    fn holes_never_exceed_the_tolerance_in_bytes() {
        let tolerance = Share::new(0.1).expect("within 0 to 1");
        let cut = Segmentation::new(10_000, 1000);
        assert_eq!(cut.holes_allowed(tolerance), 1);
        assert_eq!(Segmentation::new(9_999, 1000).holes_allowed(tolerance), 0);
    }

    #[test]
    fn a_message_of_few_segments_uses_no_tolerance() {
        let tolerance = Share::new(0.1).expect("within 0 to 1");
        let usable = |bytes| Segmentation::new(bytes, 1000).usable(tolerance);
        assert_eq!((usable(9_999), usable(10_000)), (Share::NONE, tolerance));
    }
}

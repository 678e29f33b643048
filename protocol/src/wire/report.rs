//! The body of ACK, BITMAP and STOP: the progress of a message, a bitmap, and paths that have
//! skipped packets.

use super::probe::{MARK_BYTES, PathMark};
use super::{get32, get64, put32};
use crate::bitmap::{self, Bitmap};
use crate::units::Class;

/// The progress of a message, as an ACK, BITMAP or STOP reports it before its bitmap. A PROBE uses
/// only `first`, `bits` and the bitmap, to name the holes.
///
/// ```text
///     0  echo            u32, `sent at` of the newest DATA or PROBE, echoed
///     4  held            u32, microseconds from the arrival of that packet to this report
///     8  ce              u32, DATA packets of the message that arrived with CE, so far
///    12  received        u32, distinct segments of the message that arrived, so far
///    16  granted         u32, segments that may be sent, counted in sending order
///    20  ce entropies    u64, bit e: since the last report a packet on entropy e had CE
///    28  cumulative      u32, every segment before this one arrived
///    32  first           u32, segment of the bitmap's first bit
///    36  bits            u32, length of the bitmap in bits
///    40  echo class      u8, traffic class of the packet whose `sent at` is echoed
///    41  keeps order     u8, 1 where the sender's paths may keep order
///    42  repeats         u8, 1 if it has the news of the report before it, too
///    43  restored        u8, segments of the message that parity has restored so far, modulo 256
///    44  awaited         u64, bit n: the end of path n, as PROBE has named it, has yet to pass
///    52  passed          u8, how many paths follow the bitmap
///    53  bitmap          of the segments that arrived; see crate::bitmap
///        passed paths    8 bytes each: a path, and the number that its next packet will have
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SegmentReport {
    /// `sent at` of the newest DATA or PROBE packet of the message.
    pub echo: u32,
    /// Microseconds from that packet's arrival to this report.
    pub held: u32,
    /// DATA packets of the message that arrived with CE, so far.
    pub ce: u32,
    /// Distinct segments of the message that arrived, so far.
    pub received: u32,
    /// How many segments, counted in sending order, the receiver is ready to accept.
    pub granted: u32,
    /// Bit e is set when a packet on entropy e had CE since the last report.
    pub ce_entropies: u64,
    /// Every segment before this one arrived.
    pub cumulative: u32,
    /// The segment that the bitmap's first bit stands for.
    pub first: u32,
    /// Length of the bitmap in bits.
    pub bits: u32,
    /// Traffic class of the packet whose `sent at` is echoed: packets of different classes overtake
    /// each other in every queue.
    pub echo_class: Class,
    /// Whether the sender's paths may keep order, as far as is known.
    pub keeps_order: bool,
    /// Whether the news of the report with the number before is in this one, too.
    pub repeats: bool,
    /// How many paths the report names ([`SegmentReport::passed_paths`]).
    pub passed: u8,
    /// Bit n is set when the receiver waits for a packet after the n-th end that PROBE has named.
    pub awaited: u64,
    /// Segments of the message that parity has restored so far, modulo 256.
    pub restored: u8,
}

/// Bytes of a [`SegmentReport`] before its bitmap.
pub const REPORT_BYTES: usize = 53;

/// How many paths a report names at most. Others wait for the next one.
pub const PASSED_MAX: usize = 8;

/// How many paths a report names in packets with `room` bytes of payload: they take no more than
/// half of what follows the report.
pub(crate) fn paths_named(room: usize) -> usize {
    PASSED_MAX.min((room - REPORT_BYTES) / 2 / MARK_BYTES)
}

/// The bytes that the bitmap of a report may fill in packets with `room` bytes of payload.
pub(crate) fn bitmap_room(room: usize) -> usize {
    room - REPORT_BYTES - paths_named(room) * MARK_BYTES
}

impl SegmentReport {
    /// Appends the report to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.encoded());
    }

    /// The report as it travels.
    pub fn encoded(&self) -> [u8; REPORT_BYTES] {
        let mut bytes = [0; REPORT_BYTES];
        put32(&mut bytes, 0, self.echo);
        put32(&mut bytes, 4, self.held);
        put32(&mut bytes, 8, self.ce);
        put32(&mut bytes, 12, self.received);
        put32(&mut bytes, 16, self.granted);
        put32(&mut bytes, 20, self.ce_entropies as u32);
        put32(&mut bytes, 24, (self.ce_entropies >> 32) as u32);
        put32(&mut bytes, 28, self.cumulative);
        put32(&mut bytes, 32, self.first);
        put32(&mut bytes, 36, self.bits);
        (bytes[40], bytes[41]) = (self.echo_class.0, u8::from(self.keeps_order));
        (bytes[42], bytes[43]) = (u8::from(self.repeats), self.restored);
        put32(&mut bytes, 44, self.awaited as u32);
        put32(&mut bytes, 48, (self.awaited >> 32) as u32);
        bytes[52] = self.passed;
        bytes
    }

    /// Reads a report and returns what follows it: the encoded bitmap, and the paths that it names.
    /// `None` when it is cut short.
    pub fn decode(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, rest) = payload.split_first_chunk::<REPORT_BYTES>()?;
        let report = Self {
            echo: get32(bytes, 0),
            held: get32(bytes, 4),
            ce: get32(bytes, 8),
            received: get32(bytes, 12),
            granted: get32(bytes, 16),
            ce_entropies: get64(bytes, 20),
            cumulative: get32(bytes, 28),
            first: get32(bytes, 32),
            bits: get32(bytes, 36),
            echo_class: Class(bytes[40]),
            keeps_order: bytes[41] == 1,
            repeats: bytes[42] == 1,
            awaited: get64(bytes, 44),
            passed: bytes[52],
            restored: bytes[43],
        };
        Some((report, rest))
    }

    /// Paths that keep order and have skipped numbers, out of what follows the report: the packets
    /// of each before its number have arrived and are reported, or are lost, once all reports
    /// before this one have come.
    pub fn passed_paths<'a>(&self, rest: &'a [u8]) -> impl Iterator<Item = PathMark> + use<'a> {
        let count = Some(usize::from(self.passed)).filter(|&count| count <= PASSED_MAX);
        let start = count.and_then(|count| rest.len().checked_sub(count * MARK_BYTES));
        let marks = start.map_or(&[][..], |start| &rest[start..]);
        marks.as_chunks().0.iter().filter_map(PathMark::decode)
    }

    /// The segments of the bitmap's window that did not arrive, in a message of `segments`.
    pub(crate) fn missing(&self, encoded: &[u8], segments: u32) -> Bitmap {
        let mut missing = Bitmap::new(segments);
        let end = self.first.saturating_add(self.bits).min(segments);
        let mut at = self.first.min(end);
        bitmap::decode_runs(encoded, self.bits, |offset, run| {
            let first = self.first.saturating_add(offset).min(end);
            missing.insert_range(at..first);
            at = first.saturating_add(run).min(end);
        });
        missing.insert_range(at..end);
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Entropy, PathNumber};

    #[test]
    fn a_report_survives_the_wire() {
        let report = SegmentReport {
            echo: 1,
            ce_entropies: 1 << 40,
            first: 5,
            echo_class: Class(3),
            keeps_order: true,
            repeats: true,
            awaited: 1 << 63 | 1,
            restored: 7,
            passed: 2,
            ..SegmentReport::default()
        };
        let mut bytes = Vec::new();
        report.encode(&mut bytes);
        bytes.push(42);
        assert_eq!(SegmentReport::decode(&bytes), Some((report, &[42][..])));
        assert_eq!(SegmentReport::decode(&bytes[..REPORT_BYTES - 1]), None);
    }

    #[test]
    fn passed_paths_survive_the_wire_and_those_cut_short_are_none() {
        let path = |entropy| PathMark {
            class: Class(2),
            entropy: Entropy(entropy),
            number: PathNumber(u32::MAX),
        };
        let report = SegmentReport {
            passed: 2,
            ..SegmentReport::default()
        };
        let mut rest = vec![1, 2, 3];
        for entropy in [9, 63] {
            rest.extend(path(entropy).encoded());
        }
        let named = |rest| report.passed_paths(rest).collect::<Vec<_>>();
        assert_eq!(named(&rest), [path(9), path(63)]);
        assert_eq!(named(&rest[4..]), []);
        assert_eq!(named(&[0; 40]), []);
        let too_many = SegmentReport {
            passed: PASSED_MAX as u8 + 1,
            ..report
        };
        let rest = path(9).encoded().repeat(PASSED_MAX + 1);
        assert_eq!(too_many.passed_paths(&rest).count(), 0);
    }
}

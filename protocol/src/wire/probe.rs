//! The body of PROBE: where the message's paths end, and the holes that its sender leaves.
//!
//! ```text
//!     0  paths           u8, how many ends of paths follow
//!     1  ends            8 bytes each: the last packet in flight on a path, see PathMark
//!        holes           a SegmentReport and a bitmap of the holes; absent if there are none
//! ```

use serde::{Deserialize, Serialize};

use super::report::{REPORT_BYTES, SegmentReport};
use super::{Flags, Header};
use crate::bitmap::Bitmap;
use crate::units::{Class, Entropy, PathNumber};

/// The maximum number of path ends that a PROBE names. A message that has used more names none.
const PATH_MARKS_MAX: usize = 128;
/// Bytes of a [`PathMark`].
pub(super) const MARK_BYTES: usize = 8;
/// Says that a mark is present: a body that is all zeros has none.
const PRESENT: u8 = 1;

/// A packet of a path.
///
/// ```text
///     0  number          u32, see crate::order
///     4  class           u8
///     5  entropy         u8
///     6  present         u8, 1
///     7  zero            u8
/// ```
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PathMark {
    /// Traffic class.
    pub class: Class,
    /// The path among those of the class.
    pub entropy: Entropy,
    /// The packet's number on it.
    pub number: PathNumber,
}

impl PathMark {
    /// The path and the number of a packet with this header.
    pub(crate) fn of(header: &Header) -> Self {
        Self {
            class: header.class,
            entropy: header.entropy,
            number: header.number,
        }
    }

    /// The mark as it travels.
    pub fn encoded(self) -> [u8; MARK_BYTES] {
        let [a, b, c, d] = self.number.0.to_le_bytes();
        [a, b, c, d, self.class.0, self.entropy.0, PRESENT, 0]
    }

    /// Reads a mark; `None` if there is none.
    pub fn decode(bytes: &[u8; MARK_BYTES]) -> Option<Self> {
        let [a, b, c, d, class, entropy, present, _] = *bytes;
        (present == PRESENT).then_some(Self {
            class: Class(class),
            entropy: Entropy(entropy),
            number: PathNumber(u32::from_le_bytes([a, b, c, d])),
        })
    }

    /// Whether both are on the same path.
    pub fn shares_path(self, other: Self) -> bool {
        (self.class, self.entropy) == (other.class, other.entropy)
    }
}

/// How sure a sender is of the holes that PROBE names: as sure as of the least sure one.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum HoleProof {
    /// They are lost.
    #[default]
    Sure,
    /// They are lost if paths keep order: their paths have passed them.
    Passed,
}

impl HoleProof {
    /// The flags that say so.
    pub(crate) fn flags(self) -> Flags {
        match self {
            Self::Sure => Flags::NONE,
            Self::Passed => Flags::PASSED,
        }
    }

    /// The proof that the flags stand for.
    pub(crate) fn of(flags: Flags) -> Self {
        match flags.has(Flags::PASSED) {
            true => Self::Passed,
            false => Self::Sure,
        }
    }
}

/// The body of a PROBE.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProbeBody<'a> {
    ends: &'a [[u8; MARK_BYTES]],
    /// The holes that the sender leaves: their window, and their encoded bitmap.
    pub holes: Option<(SegmentReport, &'a [u8])>,
}

impl<'a> ProbeBody<'a> {
    /// Reads a body. One that is cut short names no ends of paths.
    pub fn decode(payload: &'a [u8]) -> Self {
        let Some((&paths, rest)) = payload.split_first() else {
            return Self::default();
        };
        let Some((ends, rest)) = rest.split_at_checked(usize::from(paths) * MARK_BYTES) else {
            return Self::default();
        };
        Self {
            ends: ends.as_chunks().0,
            holes: SegmentReport::decode(rest),
        }
    }

    /// The last packet of the message in flight on each path, when all of it was sent.
    pub fn ends(&self) -> impl Iterator<Item = PathMark> + use<'a> {
        self.ends.iter().filter_map(PathMark::decode)
    }

    /// Writes a body into `out`, of at most `room` bytes.
    pub fn encode(ends: &[PathMark], holes: &Bitmap, room: usize, out: &mut Vec<u8>) {
        out.clear();
        let named = 1 + ends.len() * MARK_BYTES + REPORT_BYTES < room;
        let ends = match named && ends.len() <= PATH_MARKS_MAX {
            true => ends,
            false => &[],
        };
        if ends.is_empty() && holes.ones() == 0 {
            return;
        }
        out.push(ends.len() as u8);
        ends.iter().for_each(|end| out.extend(end.encoded()));
        if holes.ones() == 0 {
            return;
        }
        let first = holes.first_one(0);
        let mut window = Vec::with_capacity(64);
        let bits = holes.encode(first, room - REPORT_BYTES - out.len(), &mut window);
        SegmentReport {
            first,
            bits,
            ..SegmentReport::default()
        }
        .encode(out);
        out.extend_from_slice(&window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bitmap;

    #[test]
    fn ends_and_holes_survive_the_wire() {
        let end = |entropy| PathMark {
            class: Class(1),
            entropy: Entropy(entropy),
            number: PathNumber(7),
        };
        let mut holes = Bitmap::new(100);
        for ends in [vec![], vec![end(0)], vec![end(3), end(63)]] {
            for lost in [None, Some(40)] {
                lost.map(|segment| holes.insert(segment));
                let mut body = vec![1, 2, 3];
                ProbeBody::encode(&ends, &holes, 1400, &mut body);
                let read = ProbeBody::decode(&body);
                assert_eq!(read.ends().collect::<Vec<_>>(), ends);
                let mut named = Vec::new();
                if let Some((report, encoded)) = read.holes {
                    bitmap::decode_runs(encoded, report.bits, |at, run| {
                        named.extend(report.first + at..report.first + at + run);
                    });
                }
                assert_eq!(named, holes.iter_ones().collect::<Vec<_>>());
            }
            holes = Bitmap::new(100);
        }
    }

    #[test]
    fn bodies_cut_short_name_nothing() {
        for bytes in [&[][..], &[1], &[200, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0]] {
            let read = ProbeBody::decode(bytes);
            assert_eq!((read.ends().count(), read.holes), (0, None), "{bytes:?}");
        }
    }

    #[test]
    fn a_message_of_too_many_paths_names_no_end() {
        let end = PathMark {
            class: Class(1),
            entropy: Entropy(0),
            number: PathNumber(7),
        };
        let mut body = Vec::new();
        ProbeBody::encode(&[end; PATH_MARKS_MAX + 1], &Bitmap::new(9), 1400, &mut body);
        assert!(body.is_empty());
    }
}

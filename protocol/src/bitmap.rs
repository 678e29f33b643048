//! Sets of segments, in memory and on the wire.
//!
//! On the wire a bitmap is one byte of encoding and then either whole 64-bit words (0), or the
//! lengths of alternating runs of zeros and ones as LEB128 numbers (1), whichever is shorter. A
//! bitmap too long for a packet is cut: the packet covers a window that its report names.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

/// A set of the numbers `0..len`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Bitmap {
    /// Sets of short messages need no memory of their own.
    words: SmallVec<[u64; 2]>,
    len: u32,
    ones: u32,
}

const RAW: u8 = 0;
const RUNS: u8 = 1;

impl Bitmap {
    /// The empty set over `0..len`.
    pub fn new(len: u32) -> Self {
        Self {
            words: smallvec![0; len.div_ceil(64) as usize],
            len,
            ones: 0,
        }
    }

    /// How many numbers the set may hold.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the set may hold no number at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many numbers are in the set.
    pub fn ones(&self) -> u32 {
        self.ones
    }

    /// How many are not.
    pub fn zeros(&self) -> u32 {
        self.len - self.ones
    }

    /// Whether `index` is in the set; `false` outside `0..len`.
    #[inline]
    pub fn has(&self, index: u32) -> bool {
        index < self.len && self.words[index as usize / 64] >> (index % 64) & 1 == 1
    }

    /// Adds `index`; returns whether it is new.
    ///
    /// # Panics
    /// When `index` is outside `0..len`.
    pub fn insert(&mut self, index: u32) -> bool {
        assert!(index < self.len, "index {index} lies in 0..{}", self.len);
        let word = &mut self.words[index as usize / 64];
        let bit = 1 << (index % 64);
        let new = *word & bit == 0;
        *word |= bit;
        self.ones += u32::from(new);
        new
    }

    /// Adds the numbers of `range`; returns how many are new.
    ///
    /// # Panics
    /// When the range ends outside `0..=len`.
    pub fn insert_range(&mut self, range: Range<u32>) -> u32 {
        assert!(range.end <= self.len, "{range:?} lies in 0..{}", self.len);
        let mut new = 0;
        let words = &mut self.words[words_of(&range)];
        for (word, mask) in words.iter_mut().zip(masks(range)) {
            new += (!*word & mask).count_ones();
            *word |= mask;
        }
        self.ones += new;
        new
    }

    /// Removes the numbers of `range`; returns how many were in the set.
    ///
    /// # Panics
    /// When the range ends outside `0..=len`.
    pub fn remove_range(&mut self, range: Range<u32>) -> u32 {
        assert!(range.end <= self.len, "{range:?} lies in 0..{}", self.len);
        let mut had = 0;
        let words = &mut self.words[words_of(&range)];
        for (word, mask) in words.iter_mut().zip(masks(range)) {
            had += (*word & mask).count_ones();
            *word &= !mask;
        }
        self.ones -= had;
        had
    }

    /// Removes `index`; returns whether it was in the set.
    pub fn remove(&mut self, index: u32) -> bool {
        let had = self.has(index);
        if had {
            self.words[index as usize / 64] &= !(1 << (index % 64));
            self.ones -= 1;
        }
        had
    }

    /// The first number from `from` on that is not in the set; `len` when there is none.
    pub fn first_zero(&self, from: u32) -> u32 {
        self.first(from, u64::MAX)
    }

    /// The first number from `from` on that is in the set; `len` when there is none.
    pub fn first_one(&self, from: u32) -> u32 {
        self.first(from, 0)
    }

    /// How many numbers from the start of `range` on are alike: all in the set, or none of them.
    ///
    /// # Panics
    /// When the range is empty or ends outside `0..=len`.
    pub fn alike(&self, range: Range<u32>) -> u32 {
        assert!(range.end <= self.len, "{range:?} lies in 0..{}", self.len);
        let flip = match self.has(range.start) {
            true => u64::MAX,
            false => 0,
        };
        let places = words_of(&range);
        let words = self.words[places.clone()].iter().zip(masks(range.clone()));
        let other = (places.zip(words)).find_map(|(place, (word, mask))| {
            let others = (word ^ flip) & mask;
            (others != 0).then(|| place as u32 * 64 + others.trailing_zeros())
        });
        other.unwrap_or(range.end) - range.start
    }

    fn first(&self, from: u32, flip: u64) -> u32 {
        let mut index = from;
        while index < self.len {
            let word = (self.words[index as usize / 64] ^ flip) >> (index % 64);
            if word != 0 {
                return (index + word.trailing_zeros()).min(self.len);
            }
            index = (index / 64 + 1) * 64;
        }
        self.len
    }

    /// The numbers in the set, ascending.
    pub fn iter_ones(&self) -> impl Iterator<Item = u32> + '_ {
        Walk {
            bitmap: self,
            next: 0,
            flip: 0,
        }
    }

    /// The numbers not in the set, ascending.
    pub fn iter_zeros(&self) -> impl Iterator<Item = u32> + '_ {
        Walk {
            bitmap: self,
            next: 0,
            flip: u64::MAX,
        }
    }

    /// Appends the window that starts at `first` to `out`, using at most `room` bytes, at least 16;
    /// returns how many bits the window has.
    pub fn encode(&self, first: u32, room: usize, out: &mut Vec<u8>) -> u32 {
        let start = out.len();
        out.push(RUNS);
        let run_bits = self.encode_runs(first, start + room, out);
        let raw_bits = (((room - 1) / 8 * 64) as u32).min(self.len - first);
        let raw_bytes = 1 + raw_bits.div_ceil(64) as usize * 8;
        if run_bits > raw_bits || (run_bits == raw_bits && out.len() - start <= raw_bytes) {
            return run_bits;
        }
        out.truncate(start);
        out.push(RAW);
        for word in 0..raw_bits.div_ceil(64) {
            out.extend_from_slice(&self.word_from(first + word * 64).to_le_bytes());
        }
        raw_bits
    }

    fn encode_runs(&self, first: u32, end: usize, out: &mut Vec<u8>) -> u32 {
        let mut at = first;
        let mut flip = 0;
        while at < self.len {
            let next = self.first(at, flip);
            let room = end - out.len();
            if room < 5 {
                break;
            }
            put_leb128(out, next - at);
            at = next;
            flip = !flip;
        }
        at - first
    }

    fn word_from(&self, index: u32) -> u64 {
        let (word, shift) = (index as usize / 64, index % 64);
        let low = self.words.get(word).copied().unwrap_or(0) >> shift;
        if shift == 0 {
            return low;
        }
        low | self.words.get(word + 1).copied().unwrap_or(0) << (64 - shift)
    }
}

/// The words that hold the numbers of a range.
fn words_of(range: &Range<u32>) -> Range<usize> {
    let end = range.end.max(range.start).div_ceil(64);
    (range.start / 64).min(end) as usize..end as usize
}

/// The bits of a range in each of its words.
fn masks(range: Range<u32>) -> impl Iterator<Item = u64> {
    let (first, end) = (range.start, range.end.max(range.start));
    (first / 64..end.div_ceil(64)).map(move |word| {
        let low = u64::MAX << first.saturating_sub(word * 64);
        let above = (word * 64 + 64).saturating_sub(end);
        low & u64::MAX >> above
    })
}

struct Walk<'a> {
    bitmap: &'a Bitmap,
    next: u32,
    flip: u64,
}

impl Iterator for Walk<'_> {
    type Item = u32;
    fn next(&mut self) -> Option<u32> {
        let found = self.bitmap.first(self.next, self.flip);
        self.next = found + 1;
        (found < self.bitmap.len).then_some(found)
    }
}

/// Reads a window of `bits` bits as encoded by [`Bitmap::encode`] and calls `on_run` for every run
/// of ones with its first bit, counted from the window's start, and its length. Arbitrary bytes are
/// read as far as they are valid; no run leaves the window.
pub fn decode_runs(encoded: &[u8], bits: u32, mut on_run: impl FnMut(u32, u32)) {
    match encoded.split_first() {
        Some((&RAW, words)) => decode_raw(words, bits, on_run),
        Some((&RUNS, mut rest)) => {
            let (mut at, mut ones) = (0_u32, false);
            while let Some((run, tail)) = take_leb128(rest) {
                let run = run.min(bits - at);
                if ones && run > 0 {
                    on_run(at, run);
                }
                at += run;
                ones = !ones;
                rest = tail;
                if at == bits {
                    return;
                }
            }
        }
        _ => {}
    }
}

fn decode_raw(words: &[u8], bits: u32, mut on_run: impl FnMut(u32, u32)) {
    let (mut start, mut length) = (0, 0);
    for (index, chunk) in words.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
        for bit in 0..64 {
            let at = index as u32 * 64 + bit;
            if at >= bits {
                break;
            }
            if word >> bit & 1 == 1 {
                if length == 0 {
                    start = at;
                }
                length += 1;
            } else if length > 0 {
                on_run(start, length);
                length = 0;
            }
        }
    }
    if length > 0 {
        on_run(start, length);
    }
}

fn put_leb128(out: &mut Vec<u8>, mut value: u32) {
    while value >= 128 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_leb128(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0_u32;
    for (index, &byte) in bytes.iter().take(5).enumerate() {
        value |= u32::from(byte & 127).checked_shl(7 * index as u32)?;
        if byte < 128 {
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_equal_their_numbers_one_by_one() {
        for (first, end) in [
            (0, 0),
            (0, 1),
            (3, 64),
            (63, 65),
            (64, 128),
            (5, 200),
            (199, 200),
        ] {
            let mut one_by_one = Bitmap::new(200);
            for index in (0..200).step_by(3) {
                one_by_one.insert(index);
            }
            let mut ranged = one_by_one.clone();
            let new = (first..end).filter(|&index| one_by_one.insert(index));
            let new = new.count() as u32;
            assert_eq!(ranged.insert_range(first..end), new, "{first}..{end}");
            assert_eq!(ranged, one_by_one, "{first}..{end}");
            let had = (first..end).filter(|&index| one_by_one.remove(index));
            let had = had.count() as u32;
            assert_eq!(ranged.remove_range(first..end), had, "{first}..{end}");
            assert_eq!(ranged, one_by_one, "{first}..{end}");
        }
    }

    fn bitmap_of(len: u32, ones: &[u32]) -> Bitmap {
        let mut bitmap = Bitmap::new(len);
        for &one in ones {
            bitmap.insert(one % len);
        }
        bitmap
    }

    fn decoded(encoded: &[u8], first: u32, bits: u32, len: u32) -> Bitmap {
        let mut bitmap = Bitmap::new(len);
        decode_runs(encoded, bits, |at, run| {
            for index in at..at + run {
                bitmap.insert(first + index);
            }
        });
        bitmap
    }

    proptest! {
        #[test]
        fn a_window_survives_the_wire(
            len in 1_u32..5000,
            ones in prop::collection::vec(any::<u32>(), 0..400),
            first in 0_u32..5000,
            room in 16_usize..2000,
        ) {
            let first = first % len;
            let bitmap = bitmap_of(len, &ones);
            let mut encoded = Vec::new();
            let bits = bitmap.encode(first, room, &mut encoded);
            prop_assert!(encoded.len() <= room && bits > 0 && first + bits <= len);
            let there = decoded(&encoded, first, bits, len);
            for index in first..first + bits {
                prop_assert_eq!(there.has(index), bitmap.has(index));
            }
        }

        #[test]
        fn arbitrary_bytes_name_no_bit_outside_the_window(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            bits in any::<u32>(),
        ) {
            decode_runs(&bytes, bits, |at, run| {
                assert!(run > 0 && u64::from(at) + u64::from(run) <= u64::from(bits));
            });
        }

        #[test]
        fn searches_agree_with_a_walk(
            len in 1_u32..300,
            ones in prop::collection::vec(any::<u32>(), 0..200),
            from in 0_u32..320,
        ) {
            let bitmap = bitmap_of(len, &ones);
            let one = (from..len).find(|&index| bitmap.has(index)).unwrap_or(len);
            let zero = (from..len).find(|&index| !bitmap.has(index)).unwrap_or(len);
            prop_assert_eq!((bitmap.first_one(from), bitmap.first_zero(from)), (one, zero));
            let walked: Vec<u32> = bitmap.iter_ones().collect();
            prop_assert_eq!(walked.len(), bitmap.ones() as usize);
            prop_assert_eq!(bitmap.iter_zeros().count(), bitmap.zeros() as usize);
        }
    }
}

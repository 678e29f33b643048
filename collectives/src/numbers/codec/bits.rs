//! Small codes packed into bytes, element 0 in the lowest bits; sums, peaks and draws that more
//! than one codec needs.

/// Elements whose codes are packed at a time.
const LANES: usize = 32;

/// Packs a code of `WIDTH` bits per element, 1 or 2. `code` also leaves the element's residual.
#[inline(always)]
pub(super) fn pack<const WIDTH: usize>(
    values: &mut [f32],
    codes: &mut [u8],
    code: impl Fn(usize, &mut f32) -> u32,
) {
    let per_word = LANES / WIDTH;
    let (words, rest) = codes.as_chunks_mut::<4>();
    let mut groups = values.chunks_exact_mut(per_word);
    let mut first = 0;
    for (word, group) in words.iter_mut().zip(&mut groups) {
        let mut packed = 0;
        for (lane, value) in group.iter_mut().enumerate() {
            packed |= code(first + lane, value) << (WIDTH * lane);
        }
        *word = packed.to_le_bytes();
        first += per_word;
    }
    let mut packed = 0;
    for (lane, value) in groups.into_remainder().iter_mut().enumerate() {
        packed |= code(first + lane, value) << (WIDTH * lane);
    }
    let full = words.len().min(first / per_word);
    let tail = words[full..].as_flattened_mut().iter_mut().chain(rest);
    for (byte, packed) in tail.zip(u32::to_le_bytes(packed)) {
        *byte = packed;
    }
}

/// Unpacks the codes of all values.
#[inline(always)]
pub(super) fn unpack<const WIDTH: usize>(
    codes: &[u8],
    values: &mut [f32],
    value_of: impl Fn(u32) -> f32,
) {
    let mask = (1 << WIDTH) - 1;
    let per_word = LANES / WIDTH;
    for (group, code) in values.chunks_mut(per_word).zip(codes.chunks(4)) {
        let mut word = [0; 4];
        word[..code.len()].copy_from_slice(code);
        let word = u32::from_le_bytes(word);
        for (lane, value) in group.iter_mut().enumerate() {
            *value = value_of((word >> (WIDTH * lane)) & mask);
        }
    }
}

/// The bits of |x|, which order as magnitudes do; those of NaN are larger than all others.
#[inline(always)]
pub(super) fn magnitude_bits(value: f32) -> i32 {
    (value.to_bits() & !(1 << 31)) as i32
}

/// The largest of [`magnitude_bits`].
#[inline(always)]
pub(super) fn peak_bits(values: &[f32]) -> i32 {
    let larger = |peak: i32, &value: &f32| peak.max(magnitude_bits(value));
    values.iter().fold(0, larger)
}

/// The mean of |x|; not finite if any value is not.
#[inline(always)]
pub(super) fn mean_abs(values: &[f32]) -> f32 {
    const SUMS: usize = 16;
    let mut sums = [0_f32; SUMS];
    let groups = values.chunks_exact(SUMS);
    let rest: f32 = groups.remainder().iter().map(|value| value.abs()).sum();
    for group in groups {
        for (sum, value) in sums.iter_mut().zip(group) {
            *sum += value.abs();
        }
    }
    let sum = sums.iter().sum::<f32>() + rest;
    if values.is_empty() {
        0.0
    } else {
        sum / values.len() as f32
    }
}

/// Scrambles a seed (the finaliser of SplitMix64).
pub(super) fn mix(seed: u64) -> u64 {
    let mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A draw between 0 and 1 for an element, from 24 bits of a hash of its number.
#[inline(always)]
pub(super) fn draw(seed: u32, element: usize) -> f32 {
    let mut hash = (element as u32 ^ seed).wrapping_mul(0x9e37_79b1);
    hash = (hash ^ (hash >> 15)).wrapping_mul(0x85eb_ca77);
    hash ^= hash >> 13;
    (hash >> 8) as f32 * (1.0 / (1 << 24) as f32)
}

/// The number at the start of a block; zero if it is cut off.
#[inline(always)]
pub(super) fn float_at(block: &[u8], offset: usize) -> f32 {
    let bytes = block[offset..].first_chunk();
    bytes.map_or(0.0, |bytes| f32::from_le_bytes(*bytes))
}

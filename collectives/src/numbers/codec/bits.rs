//! Small codes packed into bytes, element 0 in the lowest bits; sums, peaks and draws that more
//! than one codec needs.

/// Elements whose codes are computed at a time, a multiple of those in a byte.
const GROUP: usize = 64;

/// Packs a code of `WIDTH` bits per element, 1 or 2. `code` also leaves the element's residual.
#[inline(always)]
pub(super) fn pack<const WIDTH: usize>(
    values: &mut [f32],
    codes: &mut [u8],
    code: impl Fn(usize, &mut f32) -> u8,
) {
    let in_group = GROUP * WIDTH / 8;
    let (groups, rest) = values.as_chunks_mut::<GROUP>();
    let mut single = [0; GROUP];
    let mut first = 0;
    let (whole, tail) = codes.split_at_mut(groups.len() * in_group);
    for (group, packed) in groups.iter_mut().zip(whole.chunks_exact_mut(in_group)) {
        for (lane, value) in group.iter_mut().enumerate() {
            single[lane] = code(first + lane, value);
        }
        gather::<WIDTH>(&single, packed);
        first += GROUP;
    }
    single = [0; GROUP];
    for (lane, value) in rest.iter_mut().enumerate() {
        single[lane] = code(first + lane, value);
    }
    gather::<WIDTH>(&single, tail);
}

/// Moves codes of one byte each next to each other. A product shifts each code to its place; no two
/// of its terms share a bit.
#[inline(always)]
fn gather<const WIDTH: usize>(single: &[u8; GROUP], packed: &mut [u8]) {
    if WIDTH == 1 {
        for (byte, codes) in packed.iter_mut().zip(single.as_chunks::<8>().0) {
            let product = u64::from_le_bytes(*codes).wrapping_mul(0x0102_0408_1020_4080);
            *byte = (product >> 56) as u8;
        }
    } else {
        for (byte, codes) in packed.iter_mut().zip(single.as_chunks::<4>().0) {
            let product = u32::from_le_bytes(*codes).wrapping_mul(0x0104_1040);
            *byte = (product >> 24) as u8;
        }
    }
}

/// Unpacks the codes of all values.
#[inline(always)]
pub(super) fn unpack<const WIDTH: usize>(
    codes: &[u8],
    values: &mut [f32],
    value_of: impl Fn(u32) -> f32,
) {
    const LANES: usize = 16;
    let mask = (1 << WIDTH) - 1;
    let in_lanes = LANES * WIDTH / 8;
    let (groups, rest) = values.as_chunks_mut::<LANES>();
    let (whole, tail) = codes.split_at(groups.len() * in_lanes);
    for (group, codes) in groups.iter_mut().zip(whole.chunks_exact(in_lanes)) {
        let word = match *codes {
            [a, b] => u32::from_le_bytes([a, b, 0, 0]),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            _ => unreachable!("codes of one or two bits"),
        };
        for (lane, value) in group.iter_mut().enumerate() {
            *value = value_of((word >> (WIDTH * lane)) & mask);
        }
    }
    let word = tail
        .iter()
        .rev()
        .fold(0, |word, code| word << 8 | u32::from(*code));
    for (lane, value) in rest.iter_mut().enumerate() {
        *value = value_of((word >> (WIDTH * lane)) & mask);
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
    let (groups, rest) = values.as_chunks::<SUMS>();
    let rest: f32 = rest.iter().map(|value| value.abs()).sum();
    for group in groups {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum += group[lane].abs();
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

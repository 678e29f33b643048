//! Transforms the columns of a few rows: random signs, and the fast Walsh-Hadamard transform.

use std::array::from_fn;
use std::ops::Mul;

use pulp::Simd;

/// Columns that are worked on at once: the rows of a group lie in the nearest cache.
pub(super) const LANES: usize = 32;

/// Which way rows are transformed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TransformDirection {
    Forward,
    Back,
}

/// The multiplier of a row's values: a factor, and random signs.
#[derive(Clone, Copy)]
pub(super) struct Signs<T> {
    factor: T,
    bits: u32,
}

impl<T: RealNumber> Signs<T> {
    /// Leaves values as they are.
    #[inline(always)]
    pub(super) fn plain() -> Self {
        Self {
            factor: T::inverse_power(0),
            bits: 0,
        }
    }

    /// Before a transform of 2^stages rows, scaled so that the values do not grow.
    #[inline(always)]
    pub(super) fn forward(seed: u64, row: usize, stages: u32) -> Self {
        Self::drawn(seed, row, stages.div_ceil(2))
    }

    /// After the transform back: transform and signs are their own inverses but for a factor.
    #[inline(always)]
    pub(super) fn back(seed: u64, row: usize, stages: u32) -> Self {
        Self::drawn(seed, row, stages / 2)
    }

    #[inline(always)]
    fn drawn(seed: u64, row: usize, exponent: u32) -> Self {
        let of_pair = drawn(seed, row as u64 / 2);
        Self {
            factor: T::inverse_power(exponent),
            bits: (of_pair >> (row % 2 * 32)) as u32,
        }
    }

    #[inline(always)]
    pub(super) fn on(self, lane: usize, value: T) -> T {
        (value * self.factor).with_sign(self.bits << (LANES - 1 - lane))
    }
}

/// Transforms the columns of two or more rows, or transforms them back. The caller applies the
/// signs of the first 2^k rows.
#[inline(always)]
pub(super) fn turn<T: RealNumber, S: Simd>(
    level: S,
    rows: &mut [[T; LANES]],
    direction: TransformDirection,
    seed: u64,
) {
    let power = 1 << rows.len().ilog2();
    let left_over = rows.len() - power;
    let stages = power.ilog2();
    match direction {
        TransformDirection::Forward => {
            walsh_hadamard(level, &mut rows[..power]);
            if left_over > 0 {
                let again = &mut rows[left_over..];
                sign(again, |row| Signs::forward(!seed, row, stages));
                walsh_hadamard(level, again);
            }
        }
        TransformDirection::Back => {
            if left_over > 0 {
                let again = &mut rows[left_over..];
                walsh_hadamard(level, again);
                sign(again, |row| Signs::back(!seed, row, stages));
            }
            walsh_hadamard(level, &mut rows[..power]);
        }
    }
}

#[inline(always)]
fn sign<T: RealNumber>(rows: &mut [[T; LANES]], signs: impl Fn(usize) -> Signs<T>) {
    for (number, row) in rows.iter_mut().enumerate() {
        let signs = signs(number);
        for (lane, value) in row.iter_mut().enumerate() {
            *value = signs.on(lane, *value);
        }
    }
}

/// The fast Walsh-Hadamard transform of every column, of 2^k rows, without a factor. Three stages
/// at a time, so that a value is fetched once for all of them.
#[inline(always)]
fn walsh_hadamard<T: RealNumber, S: Simd>(level: S, rows: &mut [[T; LANES]]) {
    let count = rows.len();
    let values = T::vectors::<S>(rows);
    let row = values.len() / count;
    let mut done = 1;
    while done < count {
        let apart = done * row;
        done *= match count / done {
            2 => stages::<T, S, 2>(level, values, apart),
            4 => stages::<T, S, 4>(level, values, apart),
            _ => stages::<T, S, 8>(level, values, apart),
        };
    }
}

/// Transforms every `ROWS` values that are `apart` from each other; returns `ROWS`.
#[inline(always)]
fn stages<T: RealNumber, S: Simd, const ROWS: usize>(
    level: S,
    values: &mut [T::Vector<S>],
    apart: usize,
) -> usize {
    for block in values.chunks_exact_mut(ROWS * apart) {
        let mut chunks = block.chunks_exact_mut(apart);
        let mut parts: [_; ROWS] = from_fn(|_| chunks.next().expect("there are as many"));
        for at in 0..apart {
            let mut taken: [_; ROWS] = from_fn(|part| parts[part][at]);
            butterflies::<T, S, ROWS>(level, &mut taken);
            for (part, value) in parts.iter_mut().zip(taken) {
                part[at] = value;
            }
        }
    }
    ROWS
}

#[inline(always)]
fn butterflies<T: RealNumber, S: Simd, const ROWS: usize>(
    level: S,
    values: &mut [T::Vector<S>; ROWS],
) {
    let mut half = 1;
    while half < ROWS {
        for upper in (0..ROWS).filter(|row| row & half == 0) {
            let (a, b) = (values[upper], values[upper + half]);
            (values[upper], values[upper + half]) = T::butterfly(level, a, b);
        }
        half *= 2;
    }
}

/// A random number: splitmix64 (Steele, Lea and Flood, 2014) at one place of its sequence.
#[inline(always)]
pub(super) fn drawn(seed: u64, place: u64) -> u64 {
    let state = seed.wrapping_add(place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A number type that the transform computes with.
pub(super) trait RealNumber: Copy + Default + Mul<Output = Self> {
    /// The processor's vector of them; a row is a multiple.
    type Vector<S: Simd>: Copy;
    /// All values of some rows, row by row.
    fn vectors<S: Simd>(rows: &mut [[Self; LANES]]) -> &mut [Self::Vector<S>];
    /// Sum and difference.
    fn butterfly<S: Simd>(
        level: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
    ) -> (Self::Vector<S>, Self::Vector<S>);
    /// 2^-exponent.
    fn inverse_power(exponent: u32) -> Self;
    /// The other sign where the highest bit is set.
    fn with_sign(self, bits: u32) -> Self;
}

impl RealNumber for f32 {
    type Vector<S: Simd> = S::f32s;

    #[inline(always)]
    fn vectors<S: Simd>(rows: &mut [[Self; LANES]]) -> &mut [S::f32s] {
        S::as_mut_simd_f32s(rows.as_flattened_mut()).0
    }

    #[inline(always)]
    fn butterfly<S: Simd>(level: S, a: S::f32s, b: S::f32s) -> (S::f32s, S::f32s) {
        (level.add_f32s(a, b), level.sub_f32s(a, b))
    }

    #[inline(always)]
    fn inverse_power(exponent: u32) -> Self {
        1.0 / (1_u32 << exponent) as Self
    }

    #[inline(always)]
    fn with_sign(self, bits: u32) -> Self {
        Self::from_bits(self.to_bits() ^ bits & 1 << 31)
    }
}

impl RealNumber for f64 {
    type Vector<S: Simd> = S::f64s;

    #[inline(always)]
    fn vectors<S: Simd>(rows: &mut [[Self; LANES]]) -> &mut [S::f64s] {
        S::as_mut_simd_f64s(rows.as_flattened_mut()).0
    }

    #[inline(always)]
    fn butterfly<S: Simd>(level: S, a: S::f64s, b: S::f64s) -> (S::f64s, S::f64s) {
        (level.add_f64s(a, b), level.sub_f64s(a, b))
    }

    #[inline(always)]
    fn inverse_power(exponent: u32) -> Self {
        1.0 / Self::from(1_u32 << exponent)
    }

    #[inline(always)]
    fn with_sign(self, bits: u32) -> Self {
        Self::from_bits(self.to_bits() ^ u64::from(bits & 1 << 31) << 32)
    }
}

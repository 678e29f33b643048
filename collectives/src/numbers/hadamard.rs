//! A randomised Hadamard transform that spreads the loss of a segment over the segments around it.
//!
//! A lost segment is a hole of about a thousand neighbouring values. If the message was
//! transformed, it held one of up to [`ROWS_MAX`] coefficients of each of many more values: each of
//! these values is a little off, and none is gone (as in OptiReduce, NSDI 2025, and before it in
//! DRIVE and EDEN, NeurIPS 2021 and ICML 2022).
//!
//! # Layout
//! The message is a matrix with a segment in each row. A row is lost as a whole, so it must be
//! mixed with other rows: the transform runs down the columns.
//!
//! ```text
//!              column 0        1        2   ...
//!  segment 0       x0.0     x0.1     x0.2     \  group 0: segments 0, 2, 4, ...
//!  segment 1       x1.0     x1.1     x1.2      > group 1: segments 1, 3, 5, ...
//!  segment 2       x2.0     x2.1     x2.2     /  (with two groups)
//!  ...                                           the last segment may be short: its columns have
//!  segment n       xn.0     xn.1                 one row more than the others
//! ```
//!
//! 1. The rows are dealt out in turn to as few groups as have at most [`ROWS_MAX`] rows each, so
//!    that a burst of losses hits each group about once.
//! 2. The values of the first 2^k rows of a group get random signs and are transformed, with the
//!    largest k that fits.
//! 3. If rows are left over, the last 2^k rows get other signs and are transformed once more. The
//!    product of two orthogonal transforms is orthogonal, so any number of rows works.
//!
//! A message of one segment stays as it is.
//!
//! # Cost
//! Factors are powers of two, so only the additions round: values come back to within a few units
//! in the last place of the largest of their group, and not exactly. Half-precision types are
//! computed in f32 and rounded once per direction, to the precision of a typical value of the
//! group: small values beside large ones lose digits. A coefficient can be up to 8 times the
//! largest value of its group, which f16 must have room for. One NaN or infinity becomes NaNs in
//! its whole group.
//!
//! The transform is linear: contributions are transformed and summed, holes are settled, and the
//! sum is transformed back. Missing contributions are counted per segment, as without the
//! transform.

mod rows;

use pulp::{Arch, Simd, WithSimd};

use crate::numbers::dtype::DType;
use crate::numbers::kernels::halves;
use rows::{LANES, RealNumber, Signs, TransformDirection, drawn, turn};

/// The most segments that are mixed with each other.
pub const ROWS_MAX: usize = 64;

/// How the values of one message are mixed; equal wherever its contributions come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mixing {
    /// The type of the elements, a float.
    pub dtype: DType,
    /// Bytes of every segment but the last; whole elements.
    pub segment_bytes: usize,
    /// Seed of the signs.
    pub seed: u64,
}

impl Mixing {
    /// Turns values into coefficients.
    ///
    /// # Panics
    /// When the type is not a float or `message` or the segments are not whole elements.
    pub fn mix(&self, message: &mut [u8]) {
        self.run(message, TransformDirection::Forward);
    }

    /// Turns coefficients into values again.
    ///
    /// # Panics
    /// As [`Mixing::mix`].
    pub fn unmix(&self, message: &mut [u8]) {
        self.run(message, TransformDirection::Back);
    }

    fn run(self, message: &mut [u8], direction: TransformDirection) {
        let element = self.dtype.bytes();
        assert!(self.dtype.is_float(), "{} is not transformed", self.dtype);
        assert_eq!(message.len() % element, 0, "whole {} elements", self.dtype);
        assert!(
            self.segment_bytes > 0 && self.segment_bytes.is_multiple_of(element),
            "segments of {} bytes hold whole {}",
            self.segment_bytes,
            self.dtype
        );
        Arch::new().dispatch(TransformPass {
            mixing: self,
            message,
            direction,
        });
    }

    /// The columns that have the last segment, and those that end before it.
    fn strips(&self, message: usize) -> [ColumnStrip; 2] {
        let rows = message.div_ceil(self.segment_bytes);
        let last = message - rows.saturating_sub(1) * self.segment_bytes;
        let strip = |rows: usize, from, to| ColumnStrip {
            rows,
            groups: rows.div_ceil(ROWS_MAX),
            from,
            to,
        };
        [
            strip(rows, 0, last.min(self.segment_bytes)),
            strip(rows.saturating_sub(1), last, self.segment_bytes),
        ]
    }
}

/// Columns with the same number of rows, by the bytes of a segment that they are.
#[derive(Clone, Copy, Debug)]
struct ColumnStrip {
    rows: usize,
    groups: usize,
    from: usize,
    to: usize,
}

/// Some columns of one group of rows.
struct ColumnTile {
    /// Byte of the first element.
    at: usize,
    /// Bytes from one row to the next.
    stride: usize,
    rows: usize,
    columns: usize,
    /// Differs from tile to tile.
    seed: u64,
}

struct TransformPass<'a> {
    mixing: Mixing,
    message: &'a mut [u8],
    direction: TransformDirection,
}

impl WithSimd for TransformPass<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, level: S) {
        match self.mixing.dtype {
            DType::F32 => self.run::<f32, S, 4>(level, f32::from_le_bytes, f32::to_le_bytes),
            DType::F64 => self.run::<f64, S, 8>(level, f64::from_le_bytes, f64::to_le_bytes),
            DType::F16 => self.run::<f32, S, 2>(level, halves::f16_at, halves::to_f16),
            DType::BF16 => self.run::<f32, S, 2>(level, halves::bf16_at, halves::to_bf16),
            _ => unreachable!("checked by the caller"),
        }
    }
}

impl TransformPass<'_> {
    #[inline(always)]
    fn run<T: RealNumber, S: Simd, const BYTES: usize>(
        self,
        level: S,
        load: impl Fn([u8; BYTES]) -> T,
        store: impl Fn(T) -> [u8; BYTES],
    ) {
        let mut rows = [[T::default(); LANES]; ROWS_MAX];
        let direction = self.direction;
        for strip in self.mixing.strips(self.message.len()) {
            for group in 0..strip.groups {
                for from in (strip.from..strip.to).step_by(LANES * BYTES) {
                    let tile = strip.tile::<BYTES>(self.mixing, group, from);
                    if tile.rows < 2 {
                        continue;
                    }
                    let rows = &mut rows[..tile.rows];
                    tile.read(rows, self.message, &load, |row| tile.before(direction, row));
                    turn(level, rows, direction, tile.seed);
                    tile.write(rows, self.message, &store, |row| tile.after(direction, row));
                }
            }
        }
    }
}

impl ColumnStrip {
    #[inline(always)]
    fn tile<const BYTES: usize>(self, mixing: Mixing, group: usize, from: usize) -> ColumnTile {
        let at = group * mixing.segment_bytes + from;
        ColumnTile {
            at,
            stride: self.groups * mixing.segment_bytes,
            rows: (self.rows - group).div_ceil(self.groups),
            columns: LANES.min((self.to - from) / BYTES),
            seed: drawn(mixing.seed, at as u64),
        }
    }
}

impl ColumnTile {
    /// Factor and signs of a row's values when they are read.
    #[inline(always)]
    fn before<T: RealNumber>(&self, direction: TransformDirection, row: usize) -> Signs<T> {
        let stages = self.rows.ilog2();
        match direction {
            TransformDirection::Forward if row < 1 << stages => {
                Signs::forward(self.seed, row, stages)
            }
            _ => Signs::plain(),
        }
    }

    /// Factor and signs of a row's values when they are written back.
    #[inline(always)]
    fn after<T: RealNumber>(&self, direction: TransformDirection, row: usize) -> Signs<T> {
        let stages = self.rows.ilog2();
        match direction {
            TransformDirection::Back if row < 1 << stages => Signs::back(self.seed, row, stages),
            _ => Signs::plain(),
        }
    }

    /// Fills rows with values, each times its factor and sign.
    #[inline(always)]
    fn read<T: RealNumber, const BYTES: usize>(
        &self,
        rows: &mut [[T; LANES]],
        message: &[u8],
        load: impl Fn([u8; BYTES]) -> T,
        signs: impl Fn(usize) -> Signs<T>,
    ) {
        let columns = self.columns * BYTES;
        let strided = message[self.at..].chunks(self.stride);
        for ((number, row), bytes) in rows.iter_mut().enumerate().zip(strided) {
            let (elements, _) = bytes[..columns].as_chunks::<BYTES>();
            let signs = signs(number);
            match elements.first_chunk::<LANES>() {
                Some(elements) => {
                    for lane in 0..LANES {
                        row[lane] = signs.on(lane, load(elements[lane]));
                    }
                }
                None => {
                    for (lane, (value, element)) in row.iter_mut().zip(elements).enumerate() {
                        *value = signs.on(lane, load(*element));
                    }
                }
            }
        }
    }

    /// Writes values back, each times its factor and sign.
    #[inline(always)]
    fn write<T: RealNumber, const BYTES: usize>(
        &self,
        rows: &[[T; LANES]],
        message: &mut [u8],
        store: impl Fn(T) -> [u8; BYTES],
        signs: impl Fn(usize) -> Signs<T>,
    ) {
        let columns = self.columns * BYTES;
        let strided = message[self.at..].chunks_mut(self.stride);
        for ((number, row), bytes) in rows.iter().enumerate().zip(strided) {
            let (elements, _) = bytes[..columns].as_chunks_mut::<BYTES>();
            let signs = signs(number);
            match elements.first_chunk_mut::<LANES>() {
                Some(elements) => {
                    for lane in 0..LANES {
                        elements[lane] = store(signs.on(lane, row[lane]));
                    }
                }
                None => {
                    for (lane, (element, value)) in elements.iter_mut().zip(row).enumerate() {
                        *element = store(signs.on(lane, *value));
                    }
                }
            }
        }
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::dtype::ReduceOp;
    use crate::numbers::kernels::accumulate;

    /// Values that look like a gradient's: most are small, one in 500 is a hundred times larger.
    fn gradient(elements: usize, seed: u64) -> Vec<f64> {
        let value = |at: usize| {
            let bits = drawn(seed, at as u64);
            let unit = (bits >> 11) as f64 / (1_u64 << 53) as f64 - 0.5;
            unit * if bits.is_multiple_of(500) { 100.0 } else { 1.0 }
        };
        (0..elements).map(value).collect()
    }

    fn bytes_of(dtype: DType, values: &[f64]) -> Vec<u8> {
        let bytes = |value: &f64| match dtype {
            DType::F64 => value.to_le_bytes().to_vec(),
            DType::F32 => (*value as f32).to_le_bytes().to_vec(),
            DType::F16 => halves::to_f16(*value as f32).to_vec(),
            _ => halves::to_bf16(*value as f32).to_vec(),
        };
        values.iter().flat_map(bytes).collect()
    }

    fn values_of(dtype: DType, bytes: &[u8]) -> Vec<f64> {
        let value = |element: &[u8]| match (dtype, element) {
            (DType::F64, _) => f64::from_le_bytes(element.try_into().expect("8 bytes")),
            (DType::F32, _) => f32::from_le_bytes(element.try_into().expect("4 bytes")).into(),
            (DType::F16, &[a, b]) => halves::f16_at([a, b]).into(),
            (_, &[a, b]) => halves::bf16_at([a, b]).into(),
            _ => unreachable!("two bytes"),
        };
        bytes.chunks_exact(dtype.bytes()).map(value).collect()
    }

    fn mixing(dtype: DType, segment_bytes: usize, seed: u64) -> Mixing {
        Mixing {
            dtype,
            segment_bytes,
            seed,
        }
    }

    fn greatest(values: &[f64]) -> f64 {
        values.iter().fold(0.0, |most, value| most.max(value.abs()))
    }

    fn most_apart(a: &[f64], b: &[f64]) -> f64 {
        let apart: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
        greatest(&apart)
    }

    /// Half a unit in the last place of 1, and how many of these a value moves by at most on its
    /// way there and back, of the largest one: a few for each addition of two passes, or two
    /// roundings.
    const PRECISIONS: [(DType, f64, f64); 4] = [
        (DType::F64, f64::EPSILON / 2.0, 24.0),
        (DType::F32, f32::EPSILON as f64 / 2.0, 24.0),
        (DType::F16, 1.0 / 2048.0, 8.0),
        (DType::BF16, 1.0 / 256.0, 8.0),
    ];

    /// Numbers of elements, bytes of a segment and a seed.
    fn shapes() -> impl Iterator<Item = (usize, usize, u64)> {
        (0..60_u64).map(|seed| {
            let elements = drawn(seed, 0) as usize % if seed % 2 == 0 { 20_000 } else { 600 };
            let segment = 1 + drawn(seed, 1) as usize % 40;
            (elements, segment * 16, seed)
        })
    }

    #[test]
    fn mixed_values_come_back_within_rounding() {
        for (elements, segment_bytes, seed) in shapes() {
            for (dtype, unit, units) in PRECISIONS {
                let values = values_of(dtype, &bytes_of(dtype, &gradient(elements, seed)));
                let mut bytes = bytes_of(dtype, &values);
                let mixing = mixing(dtype, segment_bytes, seed);
                mixing.mix(&mut bytes);
                mixing.unmix(&mut bytes);
                let apart = most_apart(&values, &values_of(dtype, &bytes));
                let bound = units * unit * greatest(&values);
                assert!(
                    apart <= bound,
                    "seed {seed}, {dtype}: {apart} apart, at most {bound}"
                );
            }
        }
    }

    #[test]
    fn sums_of_coefficients_are_coefficients_of_sums() {
        for (elements, segment_bytes, seed) in shapes() {
            let (a, b) = (gradient(elements, seed), gradient(elements, !seed));
            let sums: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
            let [mut a, mut b] = [a, b].map(|values| bytes_of(DType::F64, &values));
            let mixing = mixing(DType::F64, segment_bytes, seed);
            mixing.mix(&mut a);
            mixing.mix(&mut b);
            accumulate(DType::F64, ReduceOp::Sum, &mut a, &b);
            mixing.unmix(&mut a);
            let apart = most_apart(&sums, &values_of(DType::F64, &a));
            assert!(apart <= 1e-12, "seed {seed}: {apart}");
        }
    }

    #[test]
    fn one_value_spreads_over_all_segments() {
        let (rows, columns) = (64, 4);
        for place in [0, 7, 255] {
            let mut values = vec![0.0; rows * columns];
            values[place] = 1.0;
            let mut bytes = bytes_of(DType::F32, &values);
            mixing(DType::F32, columns * 4, 3).mix(&mut bytes);
            let mixed = values_of(DType::F32, &bytes);
            for (at, value) in mixed.iter().enumerate() {
                let expected = if at % columns == place % columns {
                    0.125
                } else {
                    0.0
                };
                assert_eq!(value.abs(), expected, "{at}");
            }
        }
    }

    #[test]
    fn values_spread_over_a_quarter_of_their_group() {
        for rows in 2..=200_usize {
            for place in [0, rows / 2, rows - 1] {
                let mut values = vec![0.0; rows * 4];
                values[place * 4] = 1.0;
                let mut bytes = bytes_of(DType::F64, &values);
                mixing(DType::F64, 32, rows as u64).mix(&mut bytes);
                let mixed = values_of(DType::F64, &bytes);
                let touched = mixed.iter().filter(|value| value.abs() > 1e-9).count();
                let group = rows / rows.div_ceil(ROWS_MAX);
                assert!(
                    touched * 4 >= group,
                    "{touched} of {group} in {rows} segments"
                );
            }
        }
    }

    #[test]
    fn messages_of_one_segment_are_not_mixed() {
        let bytes = bytes_of(DType::F32, &gradient(31, 1));
        let mut mixed = bytes.clone();
        mixing(DType::F32, 128, 1).mix(&mut mixed);
        assert_eq!(mixed, bytes);
    }

    #[test]
    fn every_vector_level_gives_the_same_bits() {
        for (dtype, ..) in PRECISIONS {
            let bytes = bytes_of(dtype, &gradient(7001, 5));
            let mixed = |level: Arch, seed| {
                let mut message = bytes.clone();
                let mixing = mixing(dtype, 112, seed);
                for direction in [
                    TransformDirection::Forward,
                    TransformDirection::Back,
                    TransformDirection::Forward,
                ] {
                    level.dispatch(TransformPass {
                        mixing,
                        message: &mut message,
                        direction,
                    });
                }
                message
            };
            assert!(mixed(Arch::Scalar, 1) == mixed(Arch::new(), 1), "{dtype}");
            assert!(mixed(Arch::new(), 1) != mixed(Arch::new(), 2), "{dtype}");
        }
    }
}

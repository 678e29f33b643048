//! The loops that touch every element: reduce, scale, measure.
//!
//! Elements are little-endian bytes at any address, since a payload starts wherever its packet
//! landed. Each loop loads fixed arrays from both sides, which compilers turn into vector code
//! without alignment. Half-precision types are computed in f32, block by block, and rounded once
//! per reduction. What is reduced with what, and when, is [`crate::operation`]'s to say.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::dtype::{DType, ReduceOp};

/// Elements of a half-precision block: three arrays of it stay in the L1 cache.
const BLOCK: usize = 256;

/// Reduces `incoming` into `target`, element by element. [`ReduceOp::Avg`] adds, as
/// [`ReduceOp::Sum`] does; the division comes at the end, by [`scale`].
///
/// # Panics
/// When the lengths differ, when they are not whole elements, or when `op` is not defined for
/// `dtype`.
pub fn accumulate(dtype: DType, op: ReduceOp, target: &mut [u8], incoming: &[u8]) {
    assert_eq!(
        target.len(),
        incoming.len(),
        "both sides have the same elements"
    );
    assert_eq!(
        target.len() % dtype.bytes(),
        0,
        "{} bytes are whole {dtype}",
        target.len()
    );
    assert!(op.is_defined_for(dtype), "{op} is not defined for {dtype}");
    match dtype {
        DType::U8 => u8::reduce(op, target, incoming),
        DType::I8 => i8::reduce(op, target, incoming),
        DType::I16 => i16::reduce(op, target, incoming),
        DType::U16 => u16::reduce(op, target, incoming),
        DType::I32 => i32::reduce(op, target, incoming),
        DType::U32 => u32::reduce(op, target, incoming),
        DType::I64 => i64::reduce(op, target, incoming),
        DType::U64 => u64::reduce(op, target, incoming),
        DType::F32 => f32::reduce(op, target, incoming),
        DType::F64 => f64::reduce(op, target, incoming),
        DType::F16 => reduce_halves::<f16>(op, target, incoming),
        DType::BF16 => reduce_halves::<bf16>(op, target, incoming),
    }
}

/// A factor that is a fraction, so that a division stays one: `value * multiply / divide`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ratio {
    /// What values are multiplied by first.
    pub multiply: u16,
    /// What they are divided by then; not zero.
    pub divide: u16,
}

impl Ratio {
    /// Whether the ratio changes nothing.
    pub const fn is_one(self) -> bool {
        self.multiply == self.divide
    }
}

/// Multiplies every element by `ratio`.
///
/// # Panics
/// When `dtype` is not a float type or `target` is not whole elements.
pub fn scale(dtype: DType, target: &mut [u8], ratio: Ratio) {
    assert_eq!(
        target.len() % dtype.bytes(),
        0,
        "{} bytes are whole {dtype}",
        target.len()
    );
    if ratio.is_one() {
        return;
    }
    let (multiply, divide) = (f32::from(ratio.multiply), f32::from(ratio.divide));
    match dtype {
        DType::F32 => f32::map(target, |value| value * multiply / divide),
        DType::F64 => {
            let (multiply, divide) = (f64::from(multiply), f64::from(divide));
            f64::map(target, |value| value * multiply / divide);
        }
        DType::F16 => map_halves::<f16>(target, |value| value * multiply / divide),
        DType::BF16 => map_halves::<bf16>(target, |value| value * multiply / divide),
        _ => panic!("{dtype} is not scaled: only floats are averaged"),
    }
}

/// The mean of |x| over the elements; 0 when there are none.
///
/// # Panics
/// When `dtype` is not a float type or `bytes` is not whole elements.
pub fn mean_abs(dtype: DType, bytes: &[u8]) -> f32 {
    assert_eq!(
        bytes.len() % dtype.bytes(),
        0,
        "{} bytes are whole {dtype}",
        bytes.len()
    );
    if bytes.is_empty() {
        return 0.0;
    }
    let sum = match dtype {
        DType::F32 => sum_abs(bytes, |value: [u8; 4]| f32::from_le_bytes(value)),
        DType::F64 => sum_abs(bytes, |value: [u8; 8]| f64::from_le_bytes(value) as f32),
        DType::F16 => sum_abs_halves::<f16>(bytes),
        DType::BF16 => sum_abs_halves::<bf16>(bytes),
        _ => panic!("{dtype} has no magnitude: only floats may be lost"),
    };
    sum / (bytes.len() / dtype.bytes()) as f32
}

/// An element that is reduced in its own type.
trait Element: Copy {
    fn reduce(op: ReduceOp, target: &mut [u8], incoming: &[u8]);
}

macro_rules! combine {
    ($type:ty, $target:ident, $incoming:ident, $combine:expr) => {{
        const BYTES: usize = size_of::<$type>();
        let combine: fn($type, $type) -> $type = $combine;
        let (target, _) = $target.as_chunks_mut::<BYTES>();
        let (incoming, _) = $incoming.as_chunks::<BYTES>();
        for (target, incoming) in target.iter_mut().zip(incoming) {
            let sum = combine(
                <$type>::from_le_bytes(*target),
                <$type>::from_le_bytes(*incoming),
            );
            *target = sum.to_le_bytes();
        }
    }};
}

macro_rules! integer {
    ($($type:ty),*) => {$(
        impl Element for $type {
            fn reduce(op: ReduceOp, target: &mut [u8], incoming: &[u8]) {
                match op {
                    ReduceOp::Sum => combine!($type, target, incoming, |a, b| a.wrapping_add(b)),
                    ReduceOp::Product => {
                        combine!($type, target, incoming, |a, b| a.wrapping_mul(b));
                    }
                    ReduceOp::Min => combine!($type, target, incoming, |a, b| a.min(b)),
                    ReduceOp::Max => combine!($type, target, incoming, |a, b| a.max(b)),
                    ReduceOp::BitAnd => combine!($type, target, incoming, |a, b| a & b),
                    ReduceOp::BitOr => combine!($type, target, incoming, |a, b| a | b),
                    ReduceOp::BitXor => combine!($type, target, incoming, |a, b| a ^ b),
                    ReduceOp::Avg => unreachable!("integers have no average, checked by callers"),
                }
            }
        }
    )*};
}

macro_rules! float {
    ($($type:ty),*) => {$(
        impl Element for $type {
            fn reduce(op: ReduceOp, target: &mut [u8], incoming: &[u8]) {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg => {
                        combine!($type, target, incoming, |a, b| a + b);
                    }
                    ReduceOp::Product => combine!($type, target, incoming, |a, b| a * b),
                    ReduceOp::Min => combine!($type, target, incoming, |a, b| {
                        if a < b || a.is_nan() { a } else { b }
                    }),
                    ReduceOp::Max => combine!($type, target, incoming, |a, b| {
                        if a > b || a.is_nan() { a } else { b }
                    }),
                    _ => unreachable!("floats have no bit operations, checked by callers"),
                }
            }
        }

        impl Float for $type {
            fn map(target: &mut [u8], map: impl Fn(Self) -> Self) {
                let (elements, _) = target.as_chunks_mut::<{ size_of::<$type>() }>();
                for element in elements {
                    *element = map(Self::from_le_bytes(*element)).to_le_bytes();
                }
            }
        }
    )*};
}

/// A float that is scaled in its own type.
trait Float: Element {
    fn map(target: &mut [u8], map: impl Fn(Self) -> Self);
}

integer!(u8, i8, u16, i16, u32, i32, u64, i64);
float!(f32, f64);

/// A 16-bit float that is computed in f32.
trait Half: bytemuck::Pod {
    fn widen(from: &[Self], to: &mut [f32]);
    fn narrow(from: &[f32], to: &mut [Self]);
}

impl Half for f16 {
    fn widen(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }

    fn narrow(from: &[f32], to: &mut [Self]) {
        to.convert_from_f32_slice(from);
    }
}

/// Written out because these loops become vector code, unlike those of the `half` crate.
impl Half for bf16 {
    fn widen(from: &[Self], to: &mut [f32]) {
        for (from, to) in from.iter().zip(to) {
            *to = f32::from_bits(u32::from(from.to_bits()) << 16);
        }
    }

    fn narrow(from: &[f32], to: &mut [Self]) {
        for (from, to) in from.iter().zip(to) {
            let bits = from.to_bits();
            let nearest_even = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
            let quiet_nan = bits | 0x40_0000;
            let rounded = if from.is_nan() {
                quiet_nan
            } else {
                nearest_even
            };
            *to = Self::from_bits((rounded >> 16) as u16);
        }
    }
}

/// One block of 16-bit floats, widened.
struct Block<T: Half> {
    narrow: [T; BLOCK],
    wide: [f32; BLOCK],
    len: usize,
}

impl<T: Half> Block<T> {
    fn empty() -> Self {
        Self {
            narrow: [T::zeroed(); BLOCK],
            wide: [0.0; BLOCK],
            len: 0,
        }
    }

    fn load(&mut self, bytes: &[u8]) {
        self.len = bytes.len() / 2;
        let narrow = &mut self.narrow[..self.len];
        bytemuck::cast_slice_mut(narrow).copy_from_slice(bytes);
        T::widen(narrow, &mut self.wide[..self.len]);
    }

    fn store(&mut self, bytes: &mut [u8]) {
        let narrow = &mut self.narrow[..self.len];
        T::narrow(&self.wide[..self.len], narrow);
        bytes.copy_from_slice(bytemuck::cast_slice(narrow));
    }

    fn wide_bytes(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.wide[..self.len])
    }
}

fn reduce_halves<T: Half>(op: ReduceOp, target: &mut [u8], incoming: &[u8]) {
    let (mut ours, mut theirs) = (Block::<T>::empty(), Block::<T>::empty());
    for (target, incoming) in target.chunks_mut(BLOCK * 2).zip(incoming.chunks(BLOCK * 2)) {
        ours.load(target);
        theirs.load(incoming);
        f32::reduce(op, ours.wide_bytes(), theirs.wide_bytes());
        ours.store(target);
    }
}

fn map_halves<T: Half>(target: &mut [u8], map: impl Fn(f32) -> f32) {
    let mut block = Block::<T>::empty();
    for target in target.chunks_mut(BLOCK * 2) {
        block.load(target);
        for value in &mut block.wide[..block.len] {
            *value = map(*value);
        }
        block.store(target);
    }
}

fn sum_abs_halves<T: Half>(bytes: &[u8]) -> f32 {
    let mut block = Block::<T>::empty();
    let blocks = bytes.chunks(BLOCK * 2).map(|bytes| {
        block.load(bytes);
        sum_abs(block.wide_bytes(), |value: [u8; 4]| {
            f32::from_ne_bytes(value)
        })
    });
    blocks.sum()
}

/// Sums in sixteen lanes: one after the other, floats could not be added as vectors.
fn sum_abs<const BYTES: usize>(bytes: &[u8], load: impl Fn([u8; BYTES]) -> f32) -> f32 {
    let (elements, _) = bytes.as_chunks::<BYTES>();
    let (rows, rest) = elements.as_chunks::<16>();
    let mut lanes = [0.0_f32; 16];
    for row in rows {
        for (lane, element) in lanes.iter_mut().zip(row) {
            *lane += load(*element).abs();
        }
    }
    let rest: f32 = rest.iter().map(|element| load(*element).abs()).sum();
    lanes.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that every type holds exactly.
    fn small(index: usize) -> i64 {
        (index as i64 * 7 + 3) % 11 + 1
    }

    fn bytes_of(dtype: DType, value: i64) -> Vec<u8> {
        match dtype {
            DType::U8 | DType::I8 => vec![value as u8],
            DType::I16 | DType::U16 => (value as i16).to_le_bytes().to_vec(),
            DType::I32 | DType::U32 => (value as i32).to_le_bytes().to_vec(),
            DType::I64 | DType::U64 => value.to_le_bytes().to_vec(),
            DType::F16 => f16::from_f64(value as f64).to_le_bytes().to_vec(),
            DType::BF16 => bf16::from_f64(value as f64).to_le_bytes().to_vec(),
            DType::F32 => (value as f32).to_le_bytes().to_vec(),
            DType::F64 => (value as f64).to_le_bytes().to_vec(),
        }
    }

    fn tensor(dtype: DType, values: impl Iterator<Item = i64>) -> Vec<u8> {
        values.flat_map(|value| bytes_of(dtype, value)).collect()
    }

    fn naive(op: ReduceOp, a: i64, b: i64) -> i64 {
        match op {
            ReduceOp::Sum | ReduceOp::Avg => a + b,
            ReduceOp::Product => a * b,
            ReduceOp::Min => a.min(b),
            ReduceOp::Max => a.max(b),
            ReduceOp::BitAnd => a & b,
            ReduceOp::BitOr => a | b,
            ReduceOp::BitXor => a ^ b,
        }
    }

    fn pairs() -> impl Iterator<Item = (DType, ReduceOp)> {
        let all = DType::ALL
            .into_iter()
            .flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op)));
        all.filter(|(dtype, op)| op.is_defined_for(*dtype))
    }

    #[test]
    fn every_reduction_of_every_type_equals_the_naive_one_at_any_length_and_alignment() {
        for (dtype, op) in pairs() {
            for (len, shift) in [
                (0, 0),
                (1, 1),
                (3, 2),
                (17, 3),
                (255, 1),
                (256, 0),
                (777, 5),
            ] {
                let ours = tensor(dtype, (0..len).map(small));
                let theirs = tensor(dtype, (0..len).map(|index| small(index + 5)));
                let sums = (0..len).map(|index| naive(op, small(index), small(index + 5)));
                let mut target = [vec![0; shift], ours].concat();
                let incoming = [vec![0; shift + 1], theirs].concat();
                accumulate(dtype, op, &mut target[shift..], &incoming[shift + 1..]);
                assert_eq!(
                    target[shift..],
                    tensor(dtype, sums),
                    "{op} of {len} {dtype}"
                );
            }
        }
    }

    #[test]
    fn integers_wrap_around() {
        let mut target = 250_u8.to_le_bytes();
        accumulate(DType::U8, ReduceOp::Sum, &mut target, &10_u8.to_le_bytes());
        assert_eq!(target, [4]);
    }

    #[test]
    fn a_nan_survives_minimum_and_maximum_from_either_side() {
        for op in [ReduceOp::Min, ReduceOp::Max] {
            for (a, b) in [(f32::NAN, 1.0_f32), (1.0, f32::NAN)] {
                let mut target = a.to_le_bytes();
                accumulate(DType::F32, op, &mut target, &b.to_le_bytes());
                assert!(f32::from_le_bytes(target).is_nan(), "{op} of {a} and {b}");
            }
        }
    }

    #[test]
    fn scaling_by_a_ratio_is_one_multiplication_and_one_division() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
            let mut target = tensor(dtype, (0..301).map(|index| 6 * small(index)));
            scale(
                dtype,
                &mut target,
                Ratio {
                    multiply: 2,
                    divide: 3,
                },
            );
            assert_eq!(
                target,
                tensor(dtype, (0..301).map(|index| 4 * small(index))),
                "{dtype}"
            );
        }
        let mut third = 1.0_f32.to_le_bytes();
        scale(
            DType::F32,
            &mut third,
            Ratio {
                multiply: 1,
                divide: 3,
            },
        );
        assert_eq!(f32::from_le_bytes(third), 1.0 / 3.0);
    }

    #[test]
    fn bf16_rounds_as_the_half_crate_does() {
        let bits = (0..0x1_0000_u32).map(|high| high << 16 | high.wrapping_mul(0x9e37) & 0xffff);
        let odd = [
            0x3f80_8000,
            0x3f81_8000,
            0x7f7f_ffff,
            0x7fff_ffff,
            0x7f80_0001,
        ];
        let values: Vec<f32> = bits.chain(odd).map(f32::from_bits).collect();
        let mut narrow = vec![bf16::ZERO; values.len()];
        <bf16 as Half>::narrow(&values, &mut narrow);
        for (value, narrow) in values.iter().zip(narrow) {
            assert_eq!(
                narrow.to_bits(),
                bf16::from_f32(*value).to_bits(),
                "{value}"
            );
        }
    }

    #[test]
    fn the_mean_of_absolute_values_ignores_signs() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
            for len in [1, 15, 16, 33, 600] {
                let values = (0..len).map(|index| small(index) * [1, -1][index % 2]);
                let naive = (0..len).map(small).sum::<i64>() as f32 / len as f32;
                let mean = mean_abs(dtype, &tensor(dtype, values));
                assert!(
                    (mean - naive).abs() < naive * 1e-6,
                    "{dtype}: {mean}, not {naive}"
                );
            }
        }
        assert_eq!(mean_abs(DType::F32, &[]), 0.0);
    }
}

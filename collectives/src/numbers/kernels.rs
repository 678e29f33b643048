//! The loops that touch every element: reduce, scale, measure.
//!
//! Elements are little-endian bytes at any address, since a payload starts wherever its packet
//! landed. Each loop is written once, over fixed arrays of bytes that compilers turn into vector
//! code without alignment; `pulp` compiles it for each level of the processor's vector units and
//! chooses the best available one. All levels give the same bits, but for the payloads of NaNs.
//! Half-precision types are computed in f32 and rounded once per reduction; their conversions are
//! in `halves`.

pub(crate) mod halves;

use half::{bf16, f16};
use pulp::{Arch, Simd, WithSimd};

use crate::numbers::dtype::{DType, ReduceOp};

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
    assert_whole(dtype, target);
    assert!(op.is_defined_for(dtype), "{op} is not defined for {dtype}");
    Arch::new().dispatch(ReduceKernel {
        dtype,
        op,
        target,
        incoming,
    });
}

fn assert_whole(dtype: DType, bytes: &[u8]) {
    assert_eq!(
        bytes.len() % dtype.bytes(),
        0,
        "{} bytes are whole {dtype}",
        bytes.len()
    );
}

/// A factor that is a fraction, so that a division stays one: `value * multiply / divide`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ScaleRatio {
    /// Values are multiplied by this first.
    pub multiply: u16,
    /// Then they are divided by this; not zero.
    pub divide: u16,
}

impl ScaleRatio {
    /// Whether the ratio is 1.
    pub const fn is_one(self) -> bool {
        self.multiply == self.divide
    }
}

/// Multiplies every element by `ratio`.
///
/// # Panics
/// When `dtype` is not a float type or `target` is not whole elements.
pub fn scale(dtype: DType, target: &mut [u8], ratio: ScaleRatio) {
    assert_whole(dtype, target);
    assert!(
        dtype.is_float(),
        "{dtype} is not scaled: only floats are averaged"
    );
    if !ratio.is_one() {
        Arch::new().dispatch(ScaleKernel {
            dtype,
            target,
            ratio,
        });
    }
}

/// Multiplies every element by `factor`.
///
/// # Panics
/// When `dtype` is not a float type or `target` is not whole elements.
pub fn multiply(dtype: DType, target: &mut [u8], factor: f64) {
    assert_whole(dtype, target);
    let scaled = |value: f32| (f64::from(value) * factor) as f32;
    match dtype {
        DType::F32 => each(target, |value| {
            scaled(f32::from_le_bytes(value)).to_le_bytes()
        }),
        DType::F64 => each(target, |value| {
            (f64::from_le_bytes(value) * factor).to_le_bytes()
        }),
        DType::F16 => each(target, |value| {
            halves::to_f16(scaled(halves::f16_at(value)))
        }),
        DType::BF16 => each(target, |value| {
            halves::to_bf16(scaled(halves::bf16_at(value)))
        }),
        _ => panic!("{dtype} is not scaled: only floats are lost"),
    }
}

/// Replaces infinities and NaNs by zero. Returns how many there were.
///
/// # Panics
/// When `dtype` is not a float type or `target` is not whole elements.
pub fn drop_not_finite(dtype: DType, target: &mut [u8]) -> u64 {
    assert_whole(dtype, target);
    match dtype {
        DType::F32 => drop_if(target, |value| !f32::from_le_bytes(value).is_finite()),
        DType::F64 => drop_if(target, |value| !f64::from_le_bytes(value).is_finite()),
        DType::F16 => drop_if(target, |value| !f16::from_le_bytes(value).is_finite()),
        DType::BF16 => drop_if(target, |value| !bf16::from_le_bytes(value).is_finite()),
        _ => panic!("{dtype} has no infinities: only floats are lost"),
    }
}

fn each<const BYTES: usize>(target: &mut [u8], map: impl Fn([u8; BYTES]) -> [u8; BYTES]) {
    let (elements, _) = target.as_chunks_mut::<BYTES>();
    elements
        .iter_mut()
        .for_each(|element| *element = map(*element));
}

fn drop_if<const BYTES: usize>(target: &mut [u8], drops: impl Fn([u8; BYTES]) -> bool) -> u64 {
    let (elements, _) = target.as_chunks_mut::<BYTES>();
    let dropped = elements.iter_mut().filter(|element| drops(**element));
    dropped.map(|element| *element = [0; BYTES]).count() as u64
}

/// The mean of |x| over the elements; 0 without elements.
///
/// # Panics
/// When `dtype` is not a float type or `bytes` is not whole elements.
pub fn mean_abs(dtype: DType, bytes: &[u8]) -> f32 {
    assert_whole(dtype, bytes);
    assert!(
        dtype.is_float(),
        "{dtype} has no magnitude: only floats may be lost"
    );
    if bytes.is_empty() {
        return 0.0;
    }
    let sum = Arch::new().dispatch(MagnitudeKernel { dtype, bytes });
    sum / (bytes.len() / dtype.bytes()) as f32
}

/// The sum of the squares of the elements, in double precision: the same on every processor.
///
/// # Panics
/// When `dtype` is not a float type or `bytes` is not whole elements.
pub fn sum_squares(dtype: DType, bytes: &[u8]) -> f64 {
    assert_whole(dtype, bytes);
    assert!(dtype.is_float(), "{dtype} has no norm: only floats have");
    Arch::new().dispatch(SquareKernel { dtype, bytes })
}

struct ReduceKernel<'a> {
    dtype: DType,
    op: ReduceOp,
    target: &'a mut [u8],
    incoming: &'a [u8],
}

impl WithSimd for ReduceKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _level: S) {
        let (op, target, incoming) = (self.op, self.target, self.incoming);
        match self.dtype {
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
            DType::F16 => f16::reduce(op, target, incoming),
            DType::BF16 => bf16::reduce(op, target, incoming),
        }
    }
}

struct ScaleKernel<'a> {
    dtype: DType,
    target: &'a mut [u8],
    ratio: ScaleRatio,
}

impl WithSimd for ScaleKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _level: S) {
        let (target, ratio) = (self.target, self.ratio);
        match self.dtype {
            DType::F32 => f32::scale(target, ratio),
            DType::F64 => f64::scale(target, ratio),
            DType::F16 => f16::scale(target, ratio),
            DType::BF16 => bf16::scale(target, ratio),
            _ => unreachable!("checked by the caller"),
        }
    }
}

struct MagnitudeKernel<'a> {
    dtype: DType,
    bytes: &'a [u8],
}

impl WithSimd for MagnitudeKernel<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _level: S) -> f32 {
        match self.dtype {
            DType::F32 => sum_abs(self.bytes, f32::from_le_bytes),
            DType::F64 => sum_abs(self.bytes, |value| f64::from_le_bytes(value) as f32),
            DType::F16 => sum_abs(self.bytes, halves::f16_at),
            DType::BF16 => sum_abs(self.bytes, halves::bf16_at),
            _ => unreachable!("checked by the caller"),
        }
    }
}

struct SquareKernel<'a> {
    dtype: DType,
    bytes: &'a [u8],
}

impl WithSimd for SquareKernel<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _level: S) -> f64 {
        let bytes = self.bytes;
        match self.dtype {
            DType::F32 => sum_of_squares(bytes, |value| f64::from(f32::from_le_bytes(value))),
            DType::F64 => sum_of_squares(bytes, f64::from_le_bytes),
            DType::F16 => sum_of_squares(bytes, |value| f64::from(halves::f16_at(value))),
            DType::BF16 => sum_of_squares(bytes, |value| f64::from(halves::bf16_at(value))),
            _ => unreachable!("checked by the caller"),
        }
    }
}

/// An element that can be reduced.
trait Element {
    fn reduce(op: ReduceOp, target: &mut [u8], incoming: &[u8]);
}

/// An element that can be scaled.
trait Float: Element {
    fn scale(target: &mut [u8], ratio: ScaleRatio);
}

/// An element as it lies in memory, and as it is computed with.
#[derive(Clone, Copy)]
struct SimdForm<L, S> {
    load: L,
    store: S,
}

impl<L, S> SimdForm<L, S> {
    #[inline(always)]
    fn combine<const BYTES: usize, T>(
        self,
        target: &mut [u8],
        incoming: &[u8],
        combine: impl Fn(T, T) -> T,
    ) where
        L: Fn([u8; BYTES]) -> T,
        S: Fn(T) -> [u8; BYTES],
    {
        let (target, _) = target.as_chunks_mut::<BYTES>();
        let (incoming, _) = incoming.as_chunks::<BYTES>();
        for (target, incoming) in target.iter_mut().zip(incoming) {
            *target = (self.store)(combine((self.load)(*target), (self.load)(*incoming)));
        }
    }

    #[inline(always)]
    fn map<const BYTES: usize, T>(self, target: &mut [u8], map: impl Fn(T) -> T)
    where
        L: Fn([u8; BYTES]) -> T,
        S: Fn(T) -> [u8; BYTES],
    {
        let (target, _) = target.as_chunks_mut::<BYTES>();
        for element in target {
            *element = (self.store)(map((self.load)(*element)));
        }
    }
}

macro_rules! integer {
    ($($type:ty),*) => {$(
        impl Element for $type {
            #[inline(always)]
            fn reduce(op: ReduceOp, target: &mut [u8], incoming: &[u8]) {
                let form = SimdForm { load: <$type>::from_le_bytes, store: <$type>::to_le_bytes };
                match op {
                    ReduceOp::Sum => form.combine(target, incoming, |a, b| a.wrapping_add(b)),
                    ReduceOp::Product => form.combine(target, incoming, |a, b| a.wrapping_mul(b)),
                    ReduceOp::Min => form.combine(target, incoming, |a, b| a.min(b)),
                    ReduceOp::Max => form.combine(target, incoming, |a, b| a.max(b)),
                    ReduceOp::BitAnd => form.combine(target, incoming, |a, b| a & b),
                    ReduceOp::BitOr => form.combine(target, incoming, |a, b| a | b),
                    ReduceOp::BitXor => form.combine(target, incoming, |a, b| a ^ b),
                    ReduceOp::Avg => unreachable!("integers have no average, checked by callers"),
                }
            }
        }
    )*};
}

macro_rules! float {
    ($($type:ty as $computed:ty: $load:expr, $store:expr;)*) => {$(
        impl Element for $type {
            #[inline(always)]
            fn reduce(op: ReduceOp, target: &mut [u8], incoming: &[u8]) {
                let form = SimdForm { load: $load, store: $store };
                match op {
                    ReduceOp::Sum | ReduceOp::Avg => form.combine(target, incoming, |a, b| a + b),
                    ReduceOp::Product => form.combine(target, incoming, |a, b| a * b),
                    ReduceOp::Min => form.combine(target, incoming, |a, b| {
                        if a < b || a.is_nan() { a } else { b }
                    }),
                    ReduceOp::Max => form.combine(target, incoming, |a, b| {
                        if a > b || a.is_nan() { a } else { b }
                    }),
                    _ => unreachable!("floats have no bit operations, checked by callers"),
                }
            }
        }

        impl Float for $type {
            #[inline(always)]
            fn scale(target: &mut [u8], ratio: ScaleRatio) {
                let multiply = <$computed>::from(ratio.multiply);
                let divide = <$computed>::from(ratio.divide);
                let form = SimdForm { load: $load, store: $store };
                form.map(target, |value| value * multiply / divide);
            }
        }
    )*};
}

integer!(u8, i8, u16, i16, u32, i32, u64, i64);
float! {
    f32 as f32: f32::from_le_bytes, f32::to_le_bytes;
    f64 as f64: f64::from_le_bytes, f64::to_le_bytes;
    f16 as f32: halves::f16_at, halves::to_f16;
    bf16 as f32: halves::bf16_at, halves::to_bf16;
}

/// Sums in sixteen lanes: one after the other, floats could not be added as vectors.
#[inline(always)]
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

/// Sums in sixteen lanes, as [`sum_abs`] does.
#[inline(always)]
fn sum_of_squares<const BYTES: usize>(bytes: &[u8], load: impl Fn([u8; BYTES]) -> f64) -> f64 {
    let (elements, _) = bytes.as_chunks::<BYTES>();
    let (rows, rest) = elements.as_chunks::<16>();
    let square = |element| {
        let value = load(element);
        value * value
    };
    let mut lanes = [0.0_f64; 16];
    for row in rows {
        for (lane, element) in lanes.iter_mut().zip(row) {
            *lane += square(*element);
        }
    }
    let rest: f64 = rest.iter().map(|element| square(*element)).sum();
    lanes.iter().sum::<f64>() + rest
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
    fn every_reduction_equals_the_naive_one() {
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
    fn only_signed_types_have_a_sign_bit() {
        for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_float()) {
            let is_signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
            for (op, wants_ones) in [(ReduceOp::Min, is_signed), (ReduceOp::Max, !is_signed)] {
                for order in [[-1, 1], [1, -1]] {
                    let [mut target, incoming] = order.map(|value| bytes_of(dtype, value));
                    accumulate(dtype, op, &mut target, &incoming);
                    let expected = if wants_ones { -1 } else { 1 };
                    assert_eq!(target, bytes_of(dtype, expected), "{op} of {dtype}");
                }
            }
            let (mut sum, two) = (bytes_of(dtype, -1), bytes_of(dtype, 2));
            accumulate(dtype, ReduceOp::Sum, &mut sum, &two);
            assert_eq!(sum, bytes_of(dtype, 1), "{dtype} wraps around");
        }
    }

    #[test]
    fn nan_survives_minimum_and_maximum() {
        for op in [ReduceOp::Min, ReduceOp::Max] {
            for (a, b) in [(f32::NAN, 1.0_f32), (1.0, f32::NAN)] {
                let mut target = a.to_le_bytes();
                accumulate(DType::F32, op, &mut target, &b.to_le_bytes());
                assert!(f32::from_le_bytes(target).is_nan(), "{op} of {a} and {b}");
            }
        }
    }

    #[test]
    fn scaling_multiplies_once_and_divides_once() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
            let mut target = tensor(dtype, (0..301).map(|index| 6 * small(index)));
            scale(
                dtype,
                &mut target,
                ScaleRatio {
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
            ScaleRatio {
                multiply: 1,
                divide: 3,
            },
        );
        assert_eq!(f32::from_le_bytes(third), 1.0 / 3.0);
    }

    /// The levels of this processor, the plainest first.
    fn levels() -> Vec<Arch> {
        let mut levels = vec![Arch::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            levels.extend(pulp::x86::V3::try_new().map(Arch::V3));
            levels.extend(pulp::x86::V4::try_new().map(Arch::V4));
        }
        levels
    }

    /// Arbitrary bytes, with NaNs, infinities and subnormal numbers among them.
    fn noise(seed: u64, bytes: usize) -> Vec<u8> {
        let mut state = seed;
        let mut word = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(99);
            (state >> 33) as u32
        };
        let mut noise: Vec<u8> = (0..bytes).map(|_| (word() >> 11) as u8).collect();
        for chunk in noise.chunks_mut(8).filter(|chunk| chunk.len() == 8) {
            match word() % 4 {
                0 => chunk[word() as usize % 8..].fill(0xff),
                1 => chunk[1..].fill(0x7f),
                2 => chunk[word() as usize % 8..].fill(0),
                _ => {}
            }
        }
        noise
    }

    fn is_nan(dtype: DType, bytes: &[u8]) -> bool {
        match *bytes {
            [a, b] if dtype == DType::F16 => f16::from_le_bytes([a, b]).is_nan(),
            [a, b] if dtype == DType::BF16 => bf16::from_le_bytes([a, b]).is_nan(),
            [a, b, c, d] if dtype == DType::F32 => f32::from_le_bytes([a, b, c, d]).is_nan(),
            _ => dtype == DType::F64 && f64::from_le_bytes(bytes.try_into().expect("8")).is_nan(),
        }
    }

    #[test]
    fn every_level_reduces_to_the_same_bits() {
        let lengths = (0..70).chain([255, 1000]);
        for (seed, count) in lengths.enumerate() {
            for (dtype, op) in pairs() {
                let (size, shift) = (dtype.bytes(), seed % 7);
                let ours = noise(seed as u64, count * size + shift);
                let incoming = noise(!(seed as u64), count * size + shift);
                let (ours, incoming) = (&ours[shift..], &incoming[shift..]);
                let mut one_by_one = ours.to_vec();
                for at in 0..count {
                    let element = at * size..(at + 1) * size;
                    let target = &mut one_by_one[element.clone()];
                    accumulate(dtype, op, target, &incoming[element]);
                }
                for level in levels() {
                    let mut at_once = [vec![0; shift], ours.to_vec()].concat();
                    let target = &mut at_once[shift..];
                    level.dispatch(ReduceKernel {
                        dtype,
                        op,
                        target,
                        incoming,
                    });
                    let elements = at_once[shift..].chunks(size).zip(one_by_one.chunks(size));
                    for (got, expected) in elements {
                        let nans = is_nan(dtype, got) && is_nan(dtype, expected);
                        assert!(
                            got == expected || nans,
                            "seed {seed}: {op} {dtype} {level:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn every_level_measures_the_same_bits() {
        let floats = DType::ALL.into_iter().filter(|dtype| dtype.is_float());
        for (dtype, count) in floats.flat_map(|dtype| (0..70).map(move |count| (dtype, count))) {
            let values = tensor(dtype, (0..count).map(|index| small(index) - 6));
            let ratio = ScaleRatio {
                multiply: 5,
                divide: 7,
            };
            let results = levels().into_iter().map(|level| {
                let mut scaled = values.clone();
                let target = &mut scaled[..];
                level.dispatch(ScaleKernel {
                    dtype,
                    target,
                    ratio,
                });
                let bytes = &scaled;
                let sum = level.dispatch(MagnitudeKernel { dtype, bytes });
                let squares = level.dispatch(SquareKernel { dtype, bytes });
                (sum.to_bits(), squares.to_bits(), scaled)
            });
            let results: Vec<_> = results.collect();
            let same = results.windows(2).all(|pair| pair[0] == pair[1]);
            assert!(same, "{count} {dtype}");
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

    #[test]
    fn sums_of_whole_squares_are_exact() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
            for len in [0, 1, 15, 16, 33, 600] {
                let values = (0..len).map(|index| small(index) * [1, -1][index % 2]);
                let naive: i64 = values.clone().map(|value| value * value).sum();
                assert_eq!(
                    sum_squares(dtype, &tensor(dtype, values)),
                    naive as f64,
                    "{dtype}"
                );
            }
        }
        let huge = 1e30_f32.to_le_bytes();
        assert_eq!(sum_squares(DType::F32, &huge), f64::from(1e30_f32).powi(2));
    }
}

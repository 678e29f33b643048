//! Floats as integers of 32 bits, whose sum is the same in every order: SwitchML's numbers.
//!
//! - A block of a tensor has one exponent: that of the largest magnitude in it, on any rank. Before
//!   the integers are sent, all ranks know it.
//! - Of n members each gets 31 - log2 n bits, rounded up, so that no sum overflows. Each value is
//!   rounded once, by half a step at most: 2^-(32 - log2 n) of twice the block's largest value. An
//!   f32 that is smaller than that value by fewer than 8 - log2 n binary places loses no bit.
//! - The sum of the integers is exact; it is rounded once more, to the tensor's type.
//! - A block with an infinity or a NaN has no integers: its tensor is summed in another way.
//!
//! Integers are big-endian, as switches compute.

use pulp::Arch;

use super::codec::elements::{load, store};
use super::dtype::DType;

/// The exponent of a block with a value that is not finite; that of an IEEE single.
pub const NOT_FINITE: u8 = u8::MAX;
/// Bytes of an integer.
pub const INTEGER_BYTES: usize = 4;
/// Values at a time.
const GROUP: usize = 256;
/// Adding this to a float whose magnitude is below 2^31 rounds it to the nearest integer, ties to
/// even, and leaves that integer in the low 32 bits.
const ROUNDING: f64 = 1.5 * (1_u64 << 52) as f64;
/// The exponent field of numbers from 1/2 to 1.
const HALF: i32 = 126;

/// The integers of a tensor's values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FixedPoint {
    dtype: DType,
    /// How many members are summed.
    members: u32,
    /// Bits of a member's magnitudes.
    bits: i32,
}

impl FixedPoint {
    /// The integers for values of a type, for sums of this many members; `None` if the type has
    /// none.
    pub fn new(dtype: DType, members: usize) -> Option<Self> {
        let members = u32::try_from(members).ok()?.max(1);
        let spare = (u32::BITS - (members - 1).leading_zeros()) as i32;
        matches!(dtype, DType::F32 | DType::F16 | DType::BF16).then_some(Self {
            dtype,
            members,
            bits: 31 - spare,
        })
    }

    /// Bytes of a tensor whose integers fill `bytes`.
    pub const fn tensor_bytes(&self, bytes: usize) -> usize {
        bytes / INTEGER_BYTES * self.dtype.bytes()
    }

    /// The exponent of a block.
    pub fn exponent(&self, block: &[u8]) -> u8 {
        let dtype = self.dtype;
        Arch::new().dispatch(|| {
            let (mut floats, mut peak) = ([0.0; GROUP], 0);
            for group in block.chunks(GROUP * dtype.bytes()) {
                let floats = &mut floats[..group.len() / dtype.bytes()];
                load(dtype, group, floats);
                let bits = floats.iter().map(|value| value.to_bits() & 0x7fff_ffff);
                peak = bits.fold(peak, u32::max);
            }
            (peak >> 23) as u8
        })
    }

    /// Writes the integers of a block; those behind its end are zero.
    pub fn encode(&self, exponent: u8, block: &[u8], integers: &mut [u8]) {
        let (dtype, scale) = (self.dtype, power(self.bits + HALF - i32::from(exponent)));
        Arch::new().dispatch(|| {
            let mut floats = [0.0; GROUP];
            let mut groups = block.chunks(GROUP * dtype.bytes());
            for integers in integers.chunks_mut(GROUP * INTEGER_BYTES) {
                let group = groups.next().unwrap_or_default();
                floats = match group.len() / dtype.bytes() {
                    GROUP => floats,
                    _ => [0.0; GROUP],
                };
                load(dtype, group, &mut floats[..group.len() / dtype.bytes()]);
                let (integers, _) = integers.as_chunks_mut::<INTEGER_BYTES>();
                for (integer, value) in integers.iter_mut().zip(&floats) {
                    let rounded = f64::from(*value) * scale + ROUNDING;
                    *integer = (rounded.to_bits() as i32).to_be_bytes();
                }
            }
        });
    }

    /// Writes the values of a block's sum: all of it, or divided by the number of members.
    pub fn decode(&self, exponent: u8, part: SumPart, integers: &[u8], block: &mut [u8]) {
        let (dtype, step) = (self.dtype, power(i32::from(exponent) - HALF - self.bits));
        let divisor = match part {
            SumPart::Whole => 1.0,
            SumPart::Mean => f64::from(self.members),
        };
        Arch::new().dispatch(|| {
            let mut floats = [0.0; GROUP];
            let groups = block.chunks_mut(GROUP * dtype.bytes());
            for (group, integers) in groups.zip(integers.chunks(GROUP * INTEGER_BYTES)) {
                let floats = &mut floats[..group.len() / dtype.bytes()];
                let (integers, _) = integers.as_chunks::<INTEGER_BYTES>();
                for (value, integer) in floats.iter_mut().zip(integers) {
                    let integer = f64::from(i32::from_be_bytes(*integer));
                    *value = (integer * step / divisor) as f32;
                }
                store(dtype, floats, group);
            }
        });
    }
}

/// Whether ranks want the sum itself or its mean.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SumPart {
    /// The sum.
    Whole,
    /// The sum divided by the number of members.
    Mean,
}

/// Adds integers to others; sums wrap around.
pub fn add_integers(sum: &mut [u8], other: &[u8]) {
    Arch::new().dispatch(|| {
        let (sum, _) = sum.as_chunks_mut::<INTEGER_BYTES>();
        let (other, _) = other.as_chunks::<INTEGER_BYTES>();
        for (sum, other) in sum.iter_mut().zip(other) {
            let added = i32::from_be_bytes(*sum).wrapping_add(i32::from_be_bytes(*other));
            *sum = added.to_be_bytes();
        }
    });
}

/// Two to the power of `exponent`, which is an exponent of f64.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::numbers::kernels::halves;

    /// The sum of members' values, in any order of members.
    fn summed(point: &FixedPoint, members: &[Vec<u8>], part: SumPart) -> Vec<u8> {
        let exponent = members.iter().map(|member| point.exponent(member)).max();
        let exponent = exponent.expect("members");
        let bytes = members[0].len() / point.dtype.bytes() * INTEGER_BYTES;
        let mut sum = vec![0; bytes];
        for member in members {
            let mut integers = vec![0xee; bytes];
            point.encode(exponent, member, &mut integers);
            add_integers(&mut sum, &integers);
        }
        let mut values = vec![0; members[0].len()];
        point.decode(exponent, part, &sum, &mut values);
        values
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        let (floats, _) = bytes.as_chunks::<4>();
        floats
            .iter()
            .map(|float| f32::from_le_bytes(*float))
            .collect()
    }

    #[test]
    fn sums_are_equal_in_every_order_and_near() {
        for seed in 0..300 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let count = random.random_range(2..=128);
            let scale = 2_f32.powi(random.random_range(-140..120));
            let mut member = || -> Vec<u8> {
                let values = (0..300).map(|_| random.random_range(-1.0_f32..1.0) * scale);
                values.flat_map(f32::to_le_bytes).collect()
            };
            let mut members: Vec<_> = (0..count).map(|_| member()).collect();
            let point = FixedPoint::new(DType::F32, count).expect("floats have integers");
            let sum = summed(&point, &members, SumPart::Whole);
            members.shuffle(&mut random);
            assert_eq!(summed(&point, &members, SumPart::Whole), sum, "seed {seed}");
            let all: Vec<_> = members.iter().map(|member| floats(member)).collect();
            let peak = all
                .iter()
                .flatten()
                .fold(0.0_f64, |a, b| a.max(f64::from(b.abs())));
            // Each member rounds by half a step, and the last rounding is that of f32.
            let step = 2.0 * peak * 2_f64.powi(-point.bits);
            for (at, value) in floats(&sum).into_iter().enumerate() {
                let exact: f64 = all.iter().map(|member| f64::from(member[at])).sum();
                let most = step * count as f64 / 2.0 + exact.abs() * 2_f64.powi(-23) + 1e-45;
                let error = (f64::from(value) - exact).abs();
                assert!(
                    error <= most,
                    "seed {seed}: {value} for {exact}, step {step}"
                );
            }
        }
    }

    #[test]
    fn values_of_one_magnitude_are_exact() {
        let point = FixedPoint::new(DType::F32, 4).expect("floats have integers");
        let member: Vec<u8> = [1.5_f32, -1.25, 1.0 + f32::EPSILON, 0.0]
            .into_iter()
            .flat_map(f32::to_le_bytes)
            .collect();
        let members = vec![member.clone(); 4];
        assert_eq!(summed(&point, &members, SumPart::Mean), member);
    }

    #[test]
    fn halves_are_summed_too() {
        let halves = |value: f32| [halves::to_bf16(value), halves::to_bf16(-value)].concat();
        let point = FixedPoint::new(DType::BF16, 3).expect("floats have integers");
        let members = [halves(1.0), halves(2.0), halves(4.5)];
        assert_eq!(summed(&point, &members, SumPart::Whole), halves(7.5));
        assert_eq!(summed(&point, &members, SumPart::Mean), halves(2.5));
    }

    #[test]
    fn what_has_no_integers_is_told() {
        assert_eq!(FixedPoint::new(DType::F64, 4), None);
        assert_eq!(FixedPoint::new(DType::I32, 4), None);
        let point = FixedPoint::new(DType::F32, 4).expect("floats have integers");
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(point.exponent(&value.to_le_bytes()), NOT_FINITE);
        }
        assert!(point.exponent(&f32::MAX.to_le_bytes()) < NOT_FINITE);
    }
}

//! Half-precision numbers to f32 and back, in whole-number arithmetic without branches.
//!
//! Written out because these become vector code on every processor, unlike conversions that need
//! an instruction of their own or a branch per element. Rounding is to the nearest, ties to even;
//! NaNs stay NaNs. After Giesen, "Half to float done quic" (2012).

/// Bits of a fraction that f32 has and f16 has not.
const SHIFT: u32 = 23 - 10;
/// Difference of the exponents' biases, at the place of an f32's exponent.
const REBIAS: u32 = (127 - 15) << 23;
/// An f16's exponent of infinities and NaNs, shifted to an f32's place.
const TOP: u32 = 0x7c00 << SHIFT;
/// 2^-14, the least normal f16.
const LEAST_NORMAL: u32 = (127 - 14) << 23;
/// 2^16, which is beyond every f16.
const BEYOND: u32 = (127 + 16) << 23;
/// One half: the last bit of its fraction is worth as much as that of an f16 that is not normal.
const HALF: u32 = 126 << 23;
const INFINITY: u32 = 0xff << 23;

/// The f16 with these bytes.
#[inline(always)]
pub(crate) fn f16_at(bytes: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bytes));
    let (sign, size) = ((bits & 0x8000) << 16, (bits & 0x7fff) << SHIFT);
    let normal = size + REBIAS;
    let subnormal = (f32::from_bits(size + LEAST_NORMAL) - f32::from_bits(LEAST_NORMAL)).to_bits();
    let special = size | INFINITY;
    let finite = if size < 0x400 << SHIFT {
        subnormal
    } else {
        normal
    };
    let size = if size < TOP { finite } else { special };
    f32::from_bits(size | sign)
}

/// The bytes of the f16 nearest to a value.
#[inline(always)]
pub(crate) fn to_f16(value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    let (sign, size) = (bits & 0x8000_0000, bits & 0x7fff_ffff);
    let odd = size >> SHIFT & 1;
    let normal = size.wrapping_sub(REBIAS).wrapping_add(0xfff + odd) >> SHIFT;
    let subnormal = (f32::from_bits(size) + f32::from_bits(HALF)).to_bits();
    let subnormal = subnormal.wrapping_sub(HALF);
    let special = if size > INFINITY { 0x7e00 } else { 0x7c00 };
    let finite = if size < LEAST_NORMAL {
        subnormal
    } else {
        normal
    };
    let size = if size < BEYOND { finite } else { special };
    ((size | sign >> 16) as u16).to_le_bytes()
}

/// The bf16 with these bytes.
#[inline(always)]
pub(crate) fn bf16_at(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

/// The bytes of the bf16 nearest to a value.
#[inline(always)]
pub(crate) fn to_bf16(value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    let nearest_even = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let quiet_nan = bits | 0x40_0000;
    let rounded = if value.is_nan() {
        quiet_nan
    } else {
        nearest_even
    };
    ((rounded >> 16) as u16).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    /// Every upper half of an f32, with lower halves at and around the ties.
    fn values() -> impl Iterator<Item = f32> {
        let lower = [
            0, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff,
        ];
        let upper = (0..0x1_0000_u32).flat_map(move |upper| lower.map(|low| upper << 16 | low));
        upper.map(f32::from_bits)
    }

    #[test]
    fn f16_rounds_as_the_half_crate_does() {
        for value in values() {
            let (ours, theirs) = (f16::from_le_bytes(to_f16(value)), f16::from_f32(value));
            let same = ours.to_bits() == theirs.to_bits();
            assert!(same || ours.is_nan() && theirs.is_nan(), "{value}");
        }
    }

    #[test]
    fn bf16_rounds_as_the_half_crate_does() {
        for value in values() {
            let (ours, theirs) = (bf16::from_le_bytes(to_bf16(value)), bf16::from_f32(value));
            assert_eq!(ours.to_bits(), theirs.to_bits(), "{value}");
        }
    }

    #[test]
    fn halves_are_widened_as_in_the_half_crate() {
        for bits in 0..=u16::MAX {
            let bytes = bits.to_le_bytes();
            let pairs = [
                (f16_at(bytes), f16::from_bits(bits).to_f32()),
                (bf16_at(bytes), bf16::from_bits(bits).to_f32()),
            ];
            for (ours, theirs) in pairs {
                let same = ours.to_bits() == theirs.to_bits();
                assert!(same || ours.is_nan() && theirs.is_nan(), "{bits:#x}");
            }
        }
    }
}

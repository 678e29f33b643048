//! Block floating point: one exponent, and a signed integer of 8 bits per value.

use super::bits::peak_bits;
use super::block_codec::BlockCodec;

const HEADER: usize = 1;
/// The exponent field of numbers that are not finite.
const NOT_FINITE: u8 = 255;
/// Bits of a magnitude.
const MAGNITUDE_BITS: i32 = 7;
const MOST: f32 = 127.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct BlockFloat;

impl BlockCodec for BlockFloat {
    fn encoded_bytes(self, elements: usize) -> usize {
        HEADER + elements
    }

    fn elements_within(self, bytes: usize) -> usize {
        bytes.saturating_sub(HEADER)
    }

    #[inline(always)]
    fn encode(self, values: &mut [f32], block: &mut [u8], _seed: u64) {
        // The peak's own exponent field: every value is less than two to the next one.
        let exponent = (peak_bits(values) >> 23) as u8;
        block[0] = exponent;
        let step = step_of(exponent);
        let per_step = 1.0 / step;
        for (value, code) in values.iter_mut().zip(&mut block[HEADER..]) {
            let rounded = (*value * per_step).round_ties_even().clamp(-MOST, MOST);
            *code = (rounded as i8) as u8;
            *value -= rounded * step;
        }
    }

    #[inline(always)]
    fn decode(self, block: &[u8], values: &mut [f32]) {
        let step = step_of(block[0]);
        for (value, code) in values.iter_mut().zip(&block[HEADER..]) {
            *value = f32::from(*code as i8) * step;
        }
    }
}

/// The value of the integer 1; NaN if a value of the block was not finite. The step of tiny values
/// is the least whose inverse is finite, so they wait in the residual.
#[inline(always)]
fn step_of(exponent: u8) -> f32 {
    match exponent {
        NOT_FINITE => f32::NAN,
        _ => {
            let field = (i32::from(exponent) + 1 - MAGNITUDE_BITS).max(1);
            f32::from_bits((field as u32) << 23)
        }
    }
}

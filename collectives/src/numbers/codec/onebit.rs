//! Onebit: the sign of each value, and one scale, the mean of |x|.

use super::bits::{float_at, mean_abs, pack, unpack};
use super::block_codec::BlockCodec;

const HEADER: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct Onebit;

impl BlockCodec for Onebit {
    fn encoded_bytes(self, elements: usize) -> usize {
        HEADER + elements.div_ceil(8)
    }

    fn elements_within(self, bytes: usize) -> usize {
        bytes.saturating_sub(HEADER) * 8
    }

    #[inline(always)]
    fn encode(self, values: &mut [f32], block: &mut [u8], _seed: u64) {
        let scale = mean_abs(values);
        let (header, codes) = block.split_at_mut(HEADER);
        header.copy_from_slice(&scale.to_le_bytes());
        pack::<1>(values, codes, |_, value| {
            let sign = (value.to_bits() >> 31) as u8;
            *value -= scale.copysign(*value);
            sign
        });
    }

    #[inline(always)]
    fn decode(self, block: &[u8], values: &mut [f32]) {
        let scale = float_at(block, 0).to_bits();
        unpack::<1>(&block[HEADER..], values, |sign| {
            f32::from_bits(scale ^ (sign << 31))
        });
    }
}

//! TBQ: values beyond a threshold become plus or minus the threshold, the others zero.
//!
//! The threshold is twice the block's mean of |x|, so it follows the gradients. Codes: 1 is zero, 2
//! is plus, 0 is minus.

use super::bits::{float_at, mean_abs, pack, unpack};
use super::block_codec::BlockCodec;

const HEADER: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct Tbq;

impl BlockCodec for Tbq {
    fn encoded_bytes(self, elements: usize) -> usize {
        HEADER + elements.div_ceil(4)
    }

    fn elements_within(self, bytes: usize) -> usize {
        bytes.saturating_sub(HEADER) * 4
    }

    #[inline(always)]
    fn encode(self, values: &mut [f32], block: &mut [u8], _seed: u64) {
        let threshold = 2.0 * mean_abs(values);
        let (header, codes) = block.split_at_mut(HEADER);
        header.copy_from_slice(&threshold.to_le_bytes());
        pack::<2>(values, codes, |_, value| {
            let code = 1 + u8::from(*value >= threshold) - u8::from(*value <= -threshold);
            *value -= decoded(code.into(), threshold);
            code
        });
    }

    #[inline(always)]
    fn decode(self, block: &[u8], values: &mut [f32]) {
        let threshold = float_at(block, 0);
        unpack::<2>(&block[HEADER..], values, |code| decoded(code, threshold));
    }
}

/// Not finite if the threshold is not.
#[inline(always)]
fn decoded(code: u32, threshold: f32) -> f32 {
    (code as i32 - 1) as f32 * threshold
}

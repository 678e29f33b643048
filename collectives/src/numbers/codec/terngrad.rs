//! TernGrad with two bits: four even levels from the least to the largest value. Each value goes to
//! one of the two levels around it, drawn so that the mean of many draws is the value.

use super::bits::{draw, float_at, pack, unpack};
use super::block_codec::BlockCodec;

/// The least value, and the gap between levels.
const HEADER: usize = 8;
const LEVELS: f32 = 4.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct TernGrad;

impl BlockCodec for TernGrad {
    fn encoded_bytes(self, elements: usize) -> usize {
        HEADER + elements.div_ceil(4)
    }

    fn elements_within(self, bytes: usize) -> usize {
        bytes.saturating_sub(HEADER) * 4
    }

    #[inline(always)]
    fn encode(self, values: &mut [f32], block: &mut [u8], seed: u64) {
        let (least, gap) = levels_of(values);
        let (header, codes) = block.split_at_mut(HEADER);
        header[..4].copy_from_slice(&least.to_le_bytes());
        header[4..].copy_from_slice(&gap.to_le_bytes());
        let per_gap = if gap > 0.0 { 1.0 / gap } else { 0.0 };
        pack::<2>(values, codes, |element, value| {
            let level = (*value - least) * per_gap + draw(seed as u32, element);
            // A NaN becomes level 0; the gap tells.
            let code = level.clamp(0.0, LEVELS - 1.0) as u8;
            *value -= least + f32::from(code) * gap;
            code
        });
    }

    #[inline(always)]
    fn decode(self, block: &[u8], values: &mut [f32]) {
        let (least, gap) = (float_at(block, 0), float_at(block, 4));
        unpack::<2>(&block[HEADER..], values, |code| least + code as f32 * gap);
    }
}

/// The least value and the gap; a NaN as gap if any value is not finite.
#[inline(always)]
fn levels_of(values: &[f32]) -> (f32, f32) {
    let (mut least, mut most, mut poison) = (f32::INFINITY, f32::NEG_INFINITY, 0.0);
    for &value in values.iter() {
        least = if value < least { value } else { least };
        most = if value > most { value } else { most };
        // Zero, or NaN once a value is not finite.
        poison += value * 0.0;
    }
    if values.is_empty() {
        return (0.0, 0.0);
    }
    // Halves first: the range of finite values may overflow.
    let gap = (most * 0.5 - least * 0.5) * (2.0 / (LEVELS - 1.0));
    (least, gap + poison)
}

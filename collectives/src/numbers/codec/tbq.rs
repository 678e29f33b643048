//! TBQ: values beyond a threshold become plus or minus one level, the others zero.
//!
//! The threshold is twice the block's mean of |x|, so it follows the gradients; the level is the
//! mean of |x| beyond it, which carries more of large values than the threshold itself. Codes: 1 is
//! zero, 2 is plus, 0 is minus.

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
        let (threshold, level) = threshold_and_level(values);
        let (header, codes) = block.split_at_mut(HEADER);
        header.copy_from_slice(&level.to_le_bytes());
        pack::<2>(values, codes, |_, value| {
            let code = 1 + u8::from(*value >= threshold) - u8::from(*value <= -threshold);
            *value -= decoded(code.into(), level);
            code
        });
    }

    #[inline(always)]
    fn decode(self, block: &[u8], values: &mut [f32]) {
        let level = float_at(block, 0);
        unpack::<2>(&block[HEADER..], values, |code| decoded(code, level));
    }
}

/// Not finite if the level is not.
#[inline(always)]
fn decoded(code: u32, level: f32) -> f32 {
    (code as i32 - 1) as f32 * level
}

/// The level is not finite if a value is not.
#[inline(always)]
fn threshold_and_level(values: &[f32]) -> (f32, f32) {
    let mean = mean_abs(values);
    let threshold = 2.0 * mean;
    match mean_beyond(values, threshold) {
        Some(level) => (threshold, level + mean * 0.0),
        // Magnitudes are almost equal: all of them are sent, or none would ever be.
        None => (0.5 * mean, mean),
    }
}

/// The mean of |x| that reach a threshold, if any does.
#[inline(always)]
fn mean_beyond(values: &[f32], threshold: f32) -> Option<f32> {
    const SUMS: usize = 16;
    let (mut sums, mut counts) = ([0_f32; SUMS], [0_u32; SUMS]);
    let mut add = |lane: usize, value: f32| {
        let reaches = value.abs() >= threshold;
        sums[lane] += if reaches { value.abs() } else { 0.0 };
        counts[lane] += u32::from(reaches);
    };
    let (groups, rest) = values.as_chunks::<SUMS>();
    for group in groups {
        for (lane, value) in group.iter().enumerate() {
            add(lane, *value);
        }
    }
    for (lane, value) in rest.iter().enumerate() {
        add(lane, *value);
    }
    let (sum, count) = (sums.iter().sum::<f32>(), counts.iter().sum::<u32>());
    (count > 0).then(|| sum / count as f32)
}

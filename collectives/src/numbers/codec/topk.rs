//! Top-k by MSTopK (arXiv 2010.10458): bisection for a threshold, no sort, exactly k values.
//!
//! 1. Bisect between the mean and the largest magnitude for a threshold that k values reach:
//!    over all values until few of them are left, then over those. Thresholds are bit patterns,
//!    which order as magnitudes do, so infinities and NaNs need no rule of their own.
//! 2. Take all values above the upper bound, and fill up with values between the bounds:
//!    consecutive ones from a random start, so that equal magnitudes take turns.
//!
//! Layout: k positions of 4 bytes, then k values of 4 bytes.

use gradwire_protocol::units::Share;

use super::bits::{magnitude_bits, mean_abs, peak_bits};
use super::block_codec::BlockCodec;

/// A position and a value.
pub(super) const VALUE_BYTES: usize = 8;
/// The most halvings of the threshold's range, over all values and over those that are left.
const ROUNDS: usize = 20;
/// Values are few when they are this many times k.
const FEW: usize = 2;
/// Values that are compared at once.
const GROUP: usize = 16;

/// Sends this share of the values, at least one.
#[derive(Clone, Copy, Debug)]
pub(super) struct TopK(pub(super) Share);

impl TopK {
    fn kept(self, elements: usize) -> usize {
        let share = (self.0.get() * elements as f64).ceil() as usize;
        share.clamp(elements.min(1), elements)
    }
}

impl BlockCodec for TopK {
    fn encoded_bytes(self, elements: usize) -> usize {
        self.kept(elements) * VALUE_BYTES
    }

    fn elements_within(self, bytes: usize) -> usize {
        let kept = bytes / VALUE_BYTES;
        let most = (kept as f64 / self.0.get().max(1e-9)) as usize;
        // The division may round up to one element too many.
        most - usize::from(most > 0 && self.kept(most) > kept)
    }

    #[inline(always)]
    fn encode(self, values: &mut [f32], block: &mut [u8], seed: u64) {
        let kept = self.kept(values.len());
        let mut bounds = ThresholdBounds::around(values, kept);
        let mean = i64::from(magnitude_bits(mean_abs(values)));
        bounds.bisect(values, mean, FEW * kept);
        let candidates = bounds.candidates(values);
        let left: Vec<f32> = candidates.iter().map(|&at| values[at as usize]).collect();
        bounds.bisect(&left, bounds.middle(), kept);
        let (positions, numbers) = block.split_at_mut(kept * 4);
        let (positions, _) = positions.as_chunks_mut::<4>();
        let (numbers, _) = numbers.as_chunks_mut::<4>();
        let chosen: Vec<u32> = bounds.choose(&candidates, values, seed).collect();
        for ((at, position), number) in chosen.into_iter().zip(positions).zip(numbers) {
            *position = at.to_le_bytes();
            let value = std::mem::take(&mut values[at as usize]);
            *number = value.to_le_bytes();
        }
    }

    #[inline(always)]
    fn decode(self, block: &[u8], values: &mut [f32]) {
        values.fill(0.0);
        let kept = self.kept(values.len());
        let (positions, numbers) = block.split_at(kept * 4);
        let (positions, _) = positions.as_chunks::<4>();
        let (numbers, _) = numbers.as_chunks::<4>();
        for (position, number) in positions.iter().zip(numbers) {
            if let Some(value) = values.get_mut(u32::from_le_bytes(*position) as usize) {
                *value = f32::from_le_bytes(*number);
            }
        }
    }
}

/// Two thresholds: at least k values reach the lower one, fewer or as many the upper one.
#[derive(Clone, Copy, Debug)]
struct ThresholdBounds {
    kept: usize,
    lower: i64,
    reach_lower: usize,
    upper: i64,
    reach_upper: usize,
}

impl ThresholdBounds {
    /// All values reach the lower one, and none the upper one.
    #[inline(always)]
    fn around(values: &[f32], kept: usize) -> Self {
        Self {
            kept,
            lower: 0,
            reach_lower: values.len(),
            upper: i64::from(peak_bits(values)) + 1,
            reach_upper: 0,
        }
    }

    /// Tries thresholds, `first` before others, until `enough` values or fewer reach the lower one.
    /// `values` are at least those that reach it now.
    #[inline(always)]
    fn bisect(&mut self, values: &[f32], first: i64, enough: usize) {
        let mut threshold = first;
        for _ in 0..ROUNDS {
            if !(self.lower + 1..self.upper).contains(&threshold) {
                threshold = self.middle();
            }
            if self.reach_lower <= enough || threshold == self.lower {
                return;
            }
            let reach = count(values, threshold as i32);
            if reach >= self.kept {
                (self.lower, self.reach_lower) = (threshold, reach);
            } else {
                (self.upper, self.reach_upper) = (threshold, reach);
            }
            threshold = self.middle();
        }
    }

    fn middle(&self) -> i64 {
        self.lower + (self.upper - self.lower) / 2
    }

    /// The positions of all values that reach the lower threshold.
    #[inline(always)]
    fn candidates(&self, values: &[f32]) -> Vec<u32> {
        let mut found = Vec::with_capacity(self.reach_lower);
        let lower = self.lower as i32; // below a value's bits, or equal to them
        let mut at = 0;
        let (groups, rest) = values.as_chunks::<GROUP>();
        for group in groups {
            let mut reached = false;
            for value in group {
                reached |= magnitude_bits(*value) >= lower;
            }
            if !reached {
                at += GROUP as u32; // as most groups
                continue;
            }
            for value in group {
                if magnitude_bits(*value) >= lower {
                    found.push(at);
                }
                at += 1;
            }
        }
        for value in rest {
            if magnitude_bits(*value) >= lower {
                found.push(at);
            }
            at += 1;
        }
        found
    }

    /// The positions of exactly k of the candidates, which may be more than reach the lower one.
    fn choose<'a>(
        self,
        candidates: &'a [u32],
        values: &'a [f32],
        seed: u64,
    ) -> impl Iterator<Item = u32> + 'a {
        let between = self.reach_lower - self.reach_upper;
        let wanted = self.kept - self.reach_upper;
        let start = seed.checked_rem(between as u64).unwrap_or(0) as usize;
        let mut number = 0;
        let is_chosen = move |at: &u32| {
            let bits = i64::from(magnitude_bits(values[*at as usize]));
            if !(self.lower..self.upper).contains(&bits) {
                return bits >= self.upper;
            }
            number += 1;
            (number - 1 + between - start) % between < wanted
        };
        candidates.iter().copied().filter(is_chosen)
    }
}

/// Values that reach a threshold.
#[inline(always)]
fn count(values: &[f32], threshold: i32) -> usize {
    let reaches = |value: &f32| u32::from(magnitude_bits(*value) >= threshold);
    values.iter().map(reaches).sum::<u32>() as usize
}

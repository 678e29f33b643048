//! Top-k by MSTopK (arXiv 2010.10458): bisection for a threshold, no sort, exactly k values.
//!
//! 1. Bisect between the mean and the largest magnitude, at most [`ROUNDS`] times, for a threshold
//!    that k values reach. Thresholds are bit patterns, which order as magnitudes do, so infinities
//!    and NaNs need no rule of their own.
//! 2. Take all values above the upper bound, and fill up with values between the bounds:
//!    consecutive ones from a random start, so that equal magnitudes take turns.
//!
//! Layout: k positions of 4 bytes, then k values of 4 bytes.

use gradwire_protocol::units::Share;

use super::bits::{magnitude_bits, mean_abs, peak_bits};
use super::block_codec::BlockCodec;

/// A position and a value.
pub(super) const VALUE_BYTES: usize = 8;
/// Halvings of the threshold's range.
const ROUNDS: usize = 20;
/// Values that are tested at once for being large, which few are.
const GROUP: usize = 32;

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
        let bounds = ThresholdBounds::find(values, kept);
        let candidates = bounds.candidates(values);
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
    #[inline(always)]
    fn find(values: &[f32], kept: usize) -> Self {
        let mut bounds = Self {
            kept,
            lower: 0,
            reach_lower: values.len(),
            upper: i64::from(peak_bits(values)) + 1,
            reach_upper: 0,
        };
        let mut middle = i64::from(magnitude_bits(mean_abs(values)));
        for _ in 0..ROUNDS {
            if !(bounds.lower + 1..bounds.upper).contains(&middle) {
                middle = bounds.lower + (bounds.upper - bounds.lower) / 2;
            }
            if bounds.reach_lower == kept || middle == bounds.lower {
                break;
            }
            let reach = count(values, middle as i32);
            if reach >= kept {
                (bounds.lower, bounds.reach_lower) = (middle, reach);
            } else {
                (bounds.upper, bounds.reach_upper) = (middle, reach);
            }
            middle = bounds.lower + (bounds.upper - bounds.lower) / 2;
        }
        bounds
    }

    /// The positions of all values that reach the lower threshold.
    #[inline(always)]
    fn candidates(&self, values: &[f32]) -> Vec<u32> {
        let mut found = Vec::with_capacity(self.reach_lower);
        let lower = self.lower as i32; // below a value's bits, or equal to them
        let mut first = 0;
        let (groups, rest) = values.as_chunks::<GROUP>();
        let groups = groups.iter().map(<[f32; GROUP]>::as_slice);
        for group in groups.chain([rest]) {
            if peak_bits(group) >= lower {
                let reaches = |(_, value): &(u32, &f32)| magnitude_bits(**value) >= lower;
                found.extend((first..).zip(group).filter(reaches).map(|(at, _)| at));
            }
            first += GROUP as u32;
        }
        found
    }

    /// The positions of exactly k of the candidates.
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
            if i64::from(magnitude_bits(values[*at as usize])) >= self.upper {
                return true;
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

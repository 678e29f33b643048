//! Which segments of a message are protected because their gradients are large.
//!
//! They are protected in stretches: single ones would cut the others into short pieces, and a host
//! neither sends nor receives pieces as one run.

use std::cmp::Reverse;

use crate::bitmap::Bitmap;
use crate::units::{Magnitude, Share};

/// The maximum number of segments of a stretch.
pub(crate) const STRETCH_MAX: usize = 16;
/// Large segments are protected in at least so many stretches, if there are so many segments.
const STRETCHES_LEAST: usize = 4;

/// Protects this share of the segments with these magnitudes: the stretches whose mean of |g| is
/// largest.
pub(super) fn protect_largest(share: Share, magnitudes: &[Magnitude], protected: &mut Bitmap) {
    let mut left = share.of_rounded_up(magnitudes.len() as u64) as usize;
    let length = (left / STRETCHES_LEAST).clamp(1, STRETCH_MAX);
    let stretches = magnitudes.chunks(length).enumerate();
    // Of equal ones, the first.
    let key = |(at, of): (usize, &[Magnitude])| (Reverse(mean_size(of)), at);
    let mut stretches: Vec<_> = stretches.map(key).collect();
    // One more than there would be of full length: the last one may be shorter.
    let most = left.div_ceil(length) + 1;
    if most < stretches.len() {
        stretches.select_nth_unstable(most);
        stretches.truncate(most);
    }
    stretches.sort_unstable();
    for (_, at) in stretches {
        if left == 0 {
            break;
        }
        let start = at * length;
        let end = magnitudes.len().min(start + length.min(left));
        protected.insert_range(start as u32..end as u32);
        left -= end - start;
    }
}

/// In proportion to the mean of |g| in segments with these magnitudes: it doubles every four.
fn mean_size(magnitudes: &[Magnitude]) -> u128 {
    // Powers of 2 in steps of a quarter, times 4.
    let size = |of: &Magnitude| [4, 5, 6, 7][usize::from(of.0 & 3)] << (of.0 >> 2);
    magnitudes.iter().map(size).sum::<u128>() / magnitudes.len() as u128
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The protected segments among 1,000 with these magnitudes.
    fn protected(share: f64, magnitude: impl Fn(u32) -> u8) -> Vec<u32> {
        let mut protected = Bitmap::new(1_000);
        let magnitudes: Vec<Magnitude> = (0..1_000).map(magnitude).map(Magnitude).collect();
        let share = Share::new(share).expect("a share");
        protect_largest(share, &magnitudes, &mut protected);
        protected.iter_ones().collect()
    }

    #[test]
    fn stretches_of_large_mean_are_protected() {
        // A single one is 16 times as large as those of a long stretch.
        let magnitude = |segment| match segment {
            20 => 140,
            64..80 => 124,
            _ => 100,
        };
        let stretches: Vec<u32> = (20..25).chain(65..80).collect();
        assert_eq!(
            protected(0.02, magnitude),
            stretches,
            "20, in stretches of five"
        );
    }

    #[test]
    fn the_share_is_protected_exactly() {
        for share in [0.0, 0.001, 0.01, 0.1, 0.333, 1.0] {
            for equal in [0, 255] {
                let found = protected(share, |at| equal ^ (at % 7) as u8);
                assert_eq!(found.len(), (1_000.0 * share) as usize, "{share}");
            }
        }
    }
}

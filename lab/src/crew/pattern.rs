//! The numbers that ranks sum: whole, small, and different on every rank, so that every sum of
//! them is exact in 32-bit floats and every missing contribution shows.

use std::ops::Range;

/// Values lie below this; sums of 65,536 of them are exact in a 32-bit float.
const VALUES: u64 = 251;
const RANK_STRIDE: u64 = 13;
const ELEMENT_STRIDE: u64 = 7;

/// Relative error of a few roundings of a 32-bit float.
const ROUNDING: f32 = 1e-5;

fn value(rank: u16, element: u64) -> f32 {
    ((element * ELEMENT_STRIDE + u64::from(rank) * RANK_STRIDE) % VALUES) as f32
}

/// One rank's contribution for some elements: little-endian floats.
pub fn contribution(rank: u16, elements: Range<u64>) -> Vec<u8> {
    bytes_of(elements, |element| value(rank, element))
}

/// The sum over all ranks of some elements.
pub fn sum(world: u16, elements: Range<u64>) -> Vec<u8> {
    let sum = |element| (0..world).map(|rank| value(rank, element)).sum();
    bytes_of(elements, sum)
}

/// The pattern repeats after `VALUES` elements.
fn bytes_of(elements: Range<u64>, value: impl Fn(u64) -> f32) -> Vec<u8> {
    let count = elements.end - elements.start;
    let period: Vec<u8> = (elements.start..elements.start + VALUES.min(count))
        .flat_map(|element| value(element).to_le_bytes())
        .collect();
    let periods = count.div_ceil(VALUES);
    let mut bytes = period.repeat(usize::try_from(periods).expect("it fits in memory"));
    bytes.truncate(count as usize * 4);
    bytes
}

/// The right result of a rank after a collective.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Expected {
    /// The exact elements.
    pub exact: Vec<u8>,
    /// Number of the first one in the whole tensor.
    pub first: u64,
}

/// Counts of elements that differ from the exact sum.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Deviations {
    /// Elements that are not the exact sum.
    pub estimated: u64,
    /// Of these, elements that cannot come from a subset of the ranks.
    pub wrong: u64,
}

/// How an inexact element can have come about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InexactSum {
    /// The mean of some ranks' values, times the number of ranks.
    Rescaled,
    /// The sum of some ranks' values, or that with a part of the previous result.
    Partial,
}

/// Values of one tensor that the results so far lack: with error feedback, their senders add them
/// to the next step. A rank never gets more of them than it is owed.
#[derive(Clone, Debug, Default)]
pub struct OwedSums {
    /// Number of the first element in the whole tensor.
    first: u64,
    /// Of each element, the exact sums of all steps so far less the results.
    owed: Vec<f32>,
}

impl OwedSums {
    /// Compares the result of one more step with the right one. An element counts as estimated if
    /// values of it are still owed after the step, and as wrong if it is negative or has more than
    /// was owed. A tensor of another size is owed nothing at first.
    pub fn deviations(&mut self, result: &[u8], expected: &Expected) -> Deviations {
        let elements = expected.exact.len() / 4;
        if (self.first, self.owed.len()) != (expected.first, elements) {
            (self.first, self.owed) = (expected.first, vec![0.0; elements]);
        }
        let mut found = Deviations::default();
        let pairs = result.chunks_exact(4).zip(expected.exact.chunks_exact(4));
        for (owed, (is, exact)) in self.owed.iter_mut().zip(pairs) {
            let (is, exact) = (float(is), float(exact));
            *owed += exact - is;
            let slack = (exact.abs() + 1.0) * ROUNDING;
            found.estimated += u64::from(owed.abs() > slack);
            found.wrong += u64::from(!(*owed >= -slack && is >= -slack));
        }
        found
    }
}

/// Compares a result with the right one.
pub fn deviations(
    result: &[u8],
    expected: &Expected,
    world: u16,
    estimate: InexactSum,
) -> Deviations {
    let mut found = Deviations::default();
    if result == expected.exact {
        return found;
    }
    let pairs = (expected.first..).zip(result.chunks_exact(4).zip(expected.exact.chunks_exact(4)));
    for (element, (is, should_be)) in pairs.filter(|(_, (is, should_be))| is != should_be) {
        found.estimated += 1;
        let (is, exact) = (float(is), float(should_be));
        let values = (0..world).map(|rank| value(rank, element));
        let (least, most) = match estimate {
            InexactSum::Rescaled => {
                let bound = |picked: f32| picked * f32::from(world);
                let least = values.clone().fold(f32::MAX, f32::min);
                (bound(least), bound(values.fold(0.0, f32::max)))
            }
            InexactSum::Partial => (0.0, 2.0 * exact),
        };
        let slack = (exact.abs() + 1.0) * ROUNDING;
        found.wrong += u64::from(!(least - slack..=most + slack).contains(&is));
    }
    found
}

fn float(bytes: &[u8]) -> f32 {
    f32::from_le_bytes(bytes.try_into().expect("chunks of four"))
}

/// A hash of a result (FNV-1a over words of eight bytes).
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(world: u16, elements: Range<u64>) -> Expected {
        Expected {
            first: elements.start,
            exact: sum(world, elements),
        }
    }

    #[test]
    fn ranks_contribute_different_values_everywhere() {
        let (a, b) = (contribution(0, 0..600), contribution(1, 0..600));
        assert!(a.chunks(4).zip(b.chunks(4)).all(|(a, b)| a != b));
    }

    #[test]
    fn a_block_is_a_part_of_the_whole() {
        let whole = contribution(3, 0..3000);
        assert_eq!(contribution(3, 700..1400), whole[2800..5600]);
        assert!(contribution(3, 700..700).is_empty());
    }

    #[test]
    fn the_exact_sum_has_no_deviation() {
        let expected = expected(3, 500..1000);
        assert_eq!(
            deviations(&expected.exact, &expected, 3, InexactSum::Rescaled),
            Deviations::default()
        );
    }

    #[test]
    fn rescaled_subsets_are_estimates_others_are_wrong() {
        let expected = expected(2, 500..1500);
        let mut result = expected.exact.clone();
        let own = contribution(0, 500..1500);
        result[400..404].copy_from_slice(&(2.0 * float(&own[400..404])).to_le_bytes());
        let found = deviations(&result, &expected, 2, InexactSum::Rescaled);
        assert_eq!((found.estimated, found.wrong), (1, 0));
        result[404..408].copy_from_slice(&1e6_f32.to_le_bytes());
        let found = deviations(&result, &expected, 2, InexactSum::Rescaled);
        assert_eq!((found.estimated, found.wrong), (2, 1));
    }

    #[test]
    fn with_error_feedback_only_owed_values_may_come_later() {
        let expected = expected(2, 500..1500);
        let (exact, mut owed) = (expected.exact.clone(), OwedSums::default());
        let with = |of_rank_0: f32| {
            let mut result = exact.clone();
            let own = float(&contribution(0, 501..502));
            let other = float(&contribution(1, 501..502));
            result[4..8].copy_from_slice(&(other + of_rank_0 * own).to_le_bytes());
            result
        };
        // Rank 0 is missing in two steps; in the third one it adds both.
        let found = [0.0, 0.0, 3.0, 1.0].map(|times| owed.deviations(&with(times), &expected));
        let counts = found.map(|found| (found.estimated, found.wrong));
        assert_eq!(counts, [(1, 0), (1, 0), (0, 0), (0, 0)]);
        let found = owed.deviations(&with(2.0), &expected);
        assert_eq!((found.estimated, found.wrong), (1, 1));
    }

    #[test]
    fn a_tensor_of_another_size_is_owed_nothing() {
        let mut owed = OwedSums::default();
        let (long, short) = (expected(2, 0..600), expected(2, 0..300));
        assert_eq!(owed.deviations(&[0; 2400], &long).estimated, 600);
        let found = owed.deviations(&short.exact, &short);
        assert_eq!(found, Deviations::default());
    }
}

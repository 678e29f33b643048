//! Numbers of queues as keys have them: `3`, or `0-6` for several.

use std::ops::RangeInclusive;

/// Reads `3` or `0-6`; `None` when it is neither, or runs backwards.
pub(crate) fn read(text: &str) -> Option<RangeInclusive<u8>> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u8>().ok()).flatten()
    };
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(text)?, number(text)?),
    };
    (first <= last).then_some(first..=last)
}

/// Writes a range as short as it can be.
pub(crate) fn write(range: &RangeInclusive<u8>) -> String {
    match (range.start(), range.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    }
}

/// Whether two ranges have a number in common.
pub(crate) fn overlap(one: &RangeInclusive<u8>, other: &RangeInclusive<u8>) -> bool {
    one.start() <= other.end() && other.start() <= one.end()
}

/// The rest of a range without the numbers of another.
pub(crate) fn without(
    range: &RangeInclusive<u8>,
    taken: &RangeInclusive<u8>,
) -> Vec<RangeInclusive<u8>> {
    let mut left = Vec::new();
    if range.start() < taken.start() {
        left.push(*range.start()..=(*range.end()).min(taken.start() - 1));
    }
    if range.end() > taken.end() {
        left.push((*range.start()).max(taken.end() + 1)..=*range.end());
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_number_or_two_that_ascend() {
        assert_eq!(read("3"), Some(3..=3));
        assert_eq!(read("0-6"), Some(0..=6));
        for wrong in ["", "-", "6-0", "abc", "+3", "300", "1-2-3"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_left_of_a_range_is_before_and_behind_what_was_taken() {
        assert_eq!(without(&(0..=7), &(2..=4)), [0..=1, 5..=7]);
        assert_eq!(without(&(5..=6), &(0..=5)), [6..=6]);
        assert_eq!(without(&(0..=2), &(0..=5)), []);
        assert_eq!(without(&(6..=7), &(0..=5)), [6..=7]);
        assert!(overlap(&(0..=2), &(2..=3)) && !overlap(&(0..=2), &(3..=4)));
    }
}

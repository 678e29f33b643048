//! The replay window: recovers packet numbers from their low 32 bits and accepts each number once.
//!
//! The packet numbers of a directed pair of ranks have 64 bits, and a packet carries the low 32 (as
//! in ESP with extended sequence numbers, RFC 4304, and in QUIC, RFC 9000, appendix A.3). The
//! window remembers which of the newest numbers were accepted. Only packets with a correct tag move
//! it.

/// At least this many numbers below the newest are remembered. Sprayed packets overtake each other
/// by many places.
pub(super) const WINDOW: u64 = 65_472;
/// One word more than the window, so that a word is cleared whole before it is used again: a power
/// of two, which is fast to divide by.
const WORDS: u64 = WINDOW / 64 + 1;

/// Whether a window has accepted a number before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Freshness {
    /// It is the first packet with this number.
    New,
    /// A packet with this number was accepted before.
    Again,
    /// It is older than the window, which cannot tell.
    TooOld,
}

/// The numbers accepted so far, for the newest [`WINDOW`] or more.
#[derive(Debug, Default)]
pub(super) struct ReplayWindow {
    /// One more than the newest number accepted.
    next: u64,
    /// One bit per number, in a ring. Allocated with the first packet, since most peers never send.
    words: Vec<u64>,
}

impl ReplayWindow {
    /// The full number with these low bits that is nearest to the next one expected.
    pub(super) fn whole(&self, low: u32) -> u64 {
        const ROUND: u64 = 1 << 32;
        let near = self.next & !(ROUND - 1) | u64::from(low);
        if near + ROUND / 2 <= self.next {
            near + ROUND
        } else if near > self.next + ROUND / 2 && near >= ROUND {
            near - ROUND
        } else {
            near
        }
    }

    /// Records a number whose packet had a correct tag.
    #[inline]
    pub(super) fn take(&mut self, number: u64) -> Freshness {
        // Most packets follow the one before, in the same word.
        if number == self.next
            && !number.is_multiple_of(64)
            && let Some(bits) = self.words.get_mut((number / 64 % WORDS) as usize)
        {
            *bits |= 1 << (number % 64);
            self.next += 1;
            return Freshness::New;
        }
        self.take_any(number)
    }

    fn take_any(&mut self, number: u64) -> Freshness {
        if self.words.is_empty() {
            self.words.resize(WORDS as usize, 0);
        }
        let word = number / 64;
        if number >= self.next {
            let unused = self.next.div_ceil(64);
            for fresh in unused.max((word + 1).saturating_sub(WORDS))..=word {
                self.words[(fresh % WORDS) as usize] = 0;
            }
            self.next = number + 1;
        } else if word + WORDS <= (self.next - 1) / 64 {
            return Freshness::TooOld;
        }
        let (bits, bit) = (&mut self.words[(word % WORDS) as usize], 1 << (number % 64));
        if *bits & bit != 0 {
            return Freshness::Again;
        }
        *bits |= bit;
        Freshness::New
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn at(next: u64) -> ReplayWindow {
        ReplayWindow {
            next,
            words: Vec::new(),
        }
    }

    #[test]
    fn the_first_numbers_of_a_pair_are_small() {
        assert_eq!(at(0).whole(0), 0);
        assert_eq!(at(0).whole(u32::MAX), u64::from(u32::MAX));
        assert_eq!(at(1 << 32).whole(u32::MAX), u64::from(u32::MAX));
        assert_eq!(at((1 << 32) - 1).whole(0), 1 << 32);
    }

    #[test]
    fn the_window_is_as_long_as_it_says() {
        let mut window = ReplayWindow::default();
        assert_eq!(window.take(WINDOW + 63), Freshness::New);
        assert_eq!(window.take(63), Freshness::New);
        assert_eq!(window.take(WINDOW + 64), Freshness::New);
        assert_eq!(window.take(63), Freshness::TooOld);
        assert_eq!(window.take(64), Freshness::New);
    }

    proptest! {
        #[test]
        fn numbers_are_recovered_from_their_low_half(
            next in prop_oneof![0..1_u64 << 34, (1_u64 << 60)..(1 << 61)],
            away in -(1_i64 << 31) + 1..1_i64 << 31,
        ) {
            let number = next.saturating_add_signed(away);
            prop_assert_eq!(at(next).whole(number as u32), number);
        }

        #[test]
        fn a_window_agrees_with_a_set(
            start in prop_oneof![Just(0_u64), 0..1_u64 << 40],
            steps in prop::collection::vec(
                prop_oneof![
                    8 => -300..300_i64,
                    2 => -(WINDOW as i64) - 200..300_i64,
                    1 => 0..3 * WINDOW as i64,
                ],
                1..400,
            ),
        ) {
            let (mut window, mut taken) = (ReplayWindow::default(), BTreeSet::new());
            let mut newest = start;
            for step in steps {
                let number = newest.saturating_add_signed(step);
                let known = window.take(number);
                if known == Freshness::TooOld {
                    prop_assert!(number + WINDOW < newest, "{number} is not far behind {newest}");
                    continue;
                }
                let new = taken.insert(number);
                prop_assert_eq!(known, if new { Freshness::New } else { Freshness::Again });
                newest = newest.max(number);
            }
        }
    }
}

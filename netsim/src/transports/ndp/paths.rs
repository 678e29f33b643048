//! The order in which a sender of NDP takes its paths: all of them once, then all in a new order.
//!
//! The order is i -> first + step * i (mod [`PATHS`]) with random `first` and odd `step`, which is
//! a permutation because [`PATHS`] is a power of two; it takes no memory.

use rand::Rng;

/// Entropies that a flow uses.
const PATHS: u16 = 128;

/// The paths of a flow.
#[derive(Clone, Debug)]
pub(crate) struct PathOrder {
    /// Distinguishes the entropies of the flows of a pair; its low bits are zero.
    base: u16,
    first: u16,
    step: u16,
    taken: u16,
}

impl PathOrder {
    /// PathOrder in a random order.
    pub(crate) fn new(random: &mut impl Rng) -> Self {
        let base = random.next_u32() as u16 & !(PATHS - 1);
        Self {
            base,
            first: 0,
            step: 1,
            taken: PATHS,
        }
    }

    /// Entropy of the next packet.
    pub(crate) fn next(&mut self, random: &mut impl Rng) -> u16 {
        if self.taken == PATHS {
            let draw = random.next_u32();
            (self.first, self.step, self.taken) = ((draw >> 16) as u16, draw as u16 | 1, 0);
        }
        let place = self.first.wrapping_add(self.step.wrapping_mul(self.taken));
        self.taken += 1;
        self.base | place & (PATHS - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn every_path_is_taken_once_before_any_is_taken_again() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut paths = PathOrder::new(&mut random);
        let mut round = || -> Vec<u16> { (0..PATHS).map(|_| paths.next(&mut random)).collect() };
        let (first, second) = (round(), round());
        assert_ne!(first, second);
        let (first, second) = (BTreeSet::from_iter(first), BTreeSet::from_iter(second));
        assert_eq!(first.len(), usize::from(PATHS));
        assert_eq!(first, second);
    }
}

//! The order in which a sender takes its paths: all of them once, then all in a new order. A path
//! that is to be spared sits out one turn (EQDS).
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
    /// A bit for each path that sits out its next turn.
    spared: u128,
}

impl PathOrder {
    /// Paths in a random order.
    pub(crate) fn new(random: &mut impl Rng) -> Self {
        let base = random.next_u32() as u16 & !(PATHS - 1);
        Self {
            base,
            first: 0,
            step: 1,
            taken: PATHS,
            spared: 0,
        }
    }

    /// Lets the path of an entropy sit out its next turn.
    pub(crate) fn spare(&mut self, entropy: u16) {
        self.spared |= 1 << (entropy & (PATHS - 1));
    }

    /// Entropy of the next packet.
    pub(crate) fn next(&mut self, random: &mut impl Rng) -> u16 {
        loop {
            let path = self.turn(random);
            let bit = 1 << path;
            if self.spared & bit == 0 {
                return self.base | path;
            }
            self.spared &= !bit;
        }
    }

    fn turn(&mut self, random: &mut impl Rng) -> u16 {
        if self.taken == PATHS {
            let draw = random.next_u32();
            (self.first, self.step, self.taken) = ((draw >> 16) as u16, draw as u16 | 1, 0);
        }
        let place = self.first.wrapping_add(self.step.wrapping_mul(self.taken));
        self.taken += 1;
        place & (PATHS - 1)
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

    #[test]
    fn a_spared_path_sits_out_one_turn() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut paths = PathOrder::new(&mut random);
        let first = paths.next(&mut random);
        paths.spare(first);
        let mut round =
            |count| -> Vec<u16> { (0..count).map(|_| paths.next(&mut random)).collect() };
        // The rest of this order, then the next one without the spared path.
        assert!(!round(127 + 127).contains(&first));
        assert!(round(128).contains(&first));
    }
}

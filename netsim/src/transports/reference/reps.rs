//! REPS: a sender recycles the entropies of packets that came back unmarked.
//!
//! Bonato et al., "REPS: Recycled Entropies for Packet Spraying", arXiv 2407.21625. An unmarked ACK
//! puts its entropy into a buffer of 8; each packet takes the oldest fresh one, or a random one if
//! there is none. After a timeout the buffer freezes for a while: packets take the entropies that
//! came back last, in turn, fresh or not, and explore no others, since a path may be dead. After
//! that, packets explore first.

use gradwire_protocol::units::{Instant, Span};
use rand::Rng;

/// Entropies that a flow draws from.
const PATHS: u16 = 64;
/// Entropies that a flow remembers (section 3).
const REMEMBERED: usize = 8;
/// Time for which a flow explores no paths after a timeout, as in htsim of the Ultra Ethernet
/// Consortium.
const FREEZE: Span = Span::from_millis(10);
/// Packets that explore after that.
const EXPLORING: u32 = 16;

/// The paths of a flow.
#[derive(Debug)]
pub(crate) struct RecycledPaths {
    /// Distinguishes the entropies of the flows of a pair; its low bits are zero.
    base: u16,
    ring: [u16; REMEMBERED],
    /// Where the next entropy goes; the fresh ones are just before it.
    head: usize,
    known: usize,
    fresh: usize,
    frozen_until: Option<Instant>,
    /// The next entropy of a frozen ring.
    turn: usize,
    exploring: u32,
}

impl RecycledPaths {
    /// A flow without answers yet.
    pub(crate) fn new(random: &mut impl Rng) -> Self {
        Self {
            base: random.next_u32() as u16 & !(PATHS - 1),
            ring: [0; REMEMBERED],
            head: 0,
            known: 0,
            fresh: 0,
            frozen_until: None,
            turn: 0,
            exploring: 0,
        }
    }

    /// Entropy of the next packet.
    pub(crate) fn next(&mut self, random: &mut impl Rng) -> u16 {
        if self.exploring > 0 {
            self.exploring -= 1;
        } else if self.frozen_until.is_some() && self.known > 0 {
            self.turn = (self.turn + 1) % self.known;
            return self.ring[self.turn];
        } else if self.fresh > 0 {
            let oldest = (self.head + REMEMBERED - self.fresh) % REMEMBERED;
            self.fresh -= 1;
            return self.ring[oldest];
        }
        self.base | random.next_u32() as u16 & (PATHS - 1)
    }

    /// A packet of this entropy has arrived unmarked.
    pub(crate) fn good(&mut self, now: Instant, entropy: u16) {
        if self.frozen_until.is_some_and(|until| until < now) {
            (self.frozen_until, self.exploring) = (None, EXPLORING);
            (self.known, self.fresh, self.head) = (0, 0, 0);
        }
        self.ring[self.head] = entropy;
        self.head = (self.head + 1) % REMEMBERED;
        self.known = (self.known + 1).min(REMEMBERED);
        self.fresh = (self.fresh + 1).min(REMEMBERED);
    }

    /// A packet got no answer.
    pub(crate) fn timed_out(&mut self, now: Instant) {
        if self.frozen_until.is_none() && self.exploring == 0 {
            self.frozen_until = Some(now + FREEZE);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const NOW: Instant = Instant::START;

    #[test]
    fn a_good_entropy_is_used_once_more_the_oldest_first() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut paths = RecycledPaths::new(&mut random);
        for entropy in 1000..1010 {
            paths.good(NOW, entropy);
        }
        let recycled: Vec<u16> = (0..8).map(|_| paths.next(&mut random)).collect();
        assert_eq!(recycled, (1002..1010).collect::<Vec<_>>());
        let base = paths.base;
        assert!((0..100).all(|_| paths.next(&mut random) & !(PATHS - 1) == base));
    }

    #[test]
    fn only_known_paths_are_taken_after_a_timeout_until_it_ends() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut paths = RecycledPaths::new(&mut random);
        paths.good(NOW, 1000);
        paths.good(NOW, 1001);
        paths.timed_out(NOW);
        assert!((0..100).all(|_| [1000, 1001].contains(&paths.next(&mut random))));
        let later = NOW + FREEZE + Span::from_picos(1);
        paths.good(later, 1002);
        let explored = (0..EXPLORING).map(|_| paths.next(&mut random));
        assert!(explored.into_iter().all(|entropy| entropy != 1002));
        assert_eq!(paths.next(&mut random), 1002);
    }
}

//! Chooses the path of the next run of packets.
//!
//! 1. A path whose packet has come back no later than the average one, and unmarked, is taken
//!    again: the paths that have returned first go first (the idea of REPS, Bonato et al., arXiv
//!    2407.21625, with the time of the answer beside its mark).
//! 2. Without such a path, paths are taken in turn, except those on which a packet is in flight: a
//!    long queue holds its packets longer, so it gets fewer of them.
//! 3. A path that returned CE rests for a turn of all paths, and one that lost a packet for
//!    many, but all are tried again: the others may become worse. If all rest or have packets in
//!    flight, the next one that does not rest is taken, else the one that has rested most.

use std::collections::VecDeque;

use crate::units::{Entropy, Span, Stamp};

/// Turns for which a path rests after a CE mark. More would herd packets onto the others where all
/// are marked, as in an oversubscribed core.
const MARK_TURNS: u64 = 1;
/// Turns for which a path rests after a loss, and at most.
const LOSS_TURNS: u64 = 32;
/// Paths that wait to be taken again, at most.
const RETURNED_MAX: usize = 8;
/// Weight of a new time in the average, as a divisor.
const TIME_WEIGHT: u64 = 32;

/// One path to a peer.
#[derive(Clone, Copy, Debug, Default)]
struct SprayPath {
    /// Number of the run from which on it may be taken.
    rests_until: u64,
    /// When its last run left.
    sent: Stamp,
    /// When the last one left of those that have arrived, or are lost.
    landed: Stamp,
}

/// The paths to one peer.
#[derive(Clone, Debug)]
pub struct Spray {
    paths: Vec<SprayPath>,
    next: usize,
    /// Runs so far.
    taken: u64,
    /// Paths to be taken again, in this order.
    returned: VecDeque<u8>,
    /// Average time until a packet is known to have arrived; zero before the first.
    usual: Span,
}

impl Spray {
    /// `paths` paths, at least one, beginning at `start` so that ranks do not move in step.
    pub fn new(paths: u8, start: u64) -> Self {
        let paths = usize::from(paths.max(1));
        Self {
            paths: vec![SprayPath::default(); paths],
            next: (start % paths as u64) as usize,
            taken: 0,
            returned: VecDeque::new(),
            usual: Span::ZERO,
        }
    }

    /// The path for the next run.
    pub fn take(&mut self) -> Entropy {
        self.taken += 1;
        while let Some(path) = self.returned.pop_front() {
            if !self.rests(usize::from(path)) {
                return Entropy(path);
            }
        }
        let path = self.take_in_turn();
        self.next = (path + 1) % self.paths.len();
        Entropy(path as u8)
    }

    fn take_in_turn(&self) -> usize {
        let turn = (self.next..self.paths.len()).chain(0..self.next);
        let mut in_flight = None;
        for at in turn.clone().filter(|&at| !self.rests(at)) {
            let path = self.paths[at];
            if path.sent <= path.landed {
                return at;
            }
            in_flight.get_or_insert(at);
        }
        let rested = || turn.min_by_key(|&at| self.paths[at].rests_until);
        in_flight.or_else(rested).unwrap_or(self.next)
    }

    fn rests(&self, path: usize) -> bool {
        self.paths[path].rests_until > self.taken
    }

    /// A run leaves on this path.
    pub fn on_sent(&mut self, entropy: Entropy, at: Stamp) {
        if let Some(path) = self.paths.get_mut(usize::from(entropy.0)) {
            path.sent = at;
        }
    }

    /// A packet of this path, sent at `sent`, is known by `now` to have arrived. Marks of the same
    /// report come first.
    pub fn on_arrival(&mut self, entropy: Entropy, sent: Stamp, now: Stamp) {
        let at = usize::from(entropy.0);
        let Some(path) = self.paths.get_mut(at) else {
            return;
        };
        let is_newest = sent > path.landed;
        path.landed = path.landed.max(sent);
        let took = now.since(sent);
        if self.usual == Span::ZERO {
            self.usual = took;
        }
        let is_fast = took <= self.usual;
        self.usual = self.usual.beyond(self.usual.divided(TIME_WEIGHT)) + took.divided(TIME_WEIGHT);
        if is_newest && is_fast && !self.rests(at) && !self.returned.contains(&entropy.0) {
            if self.returned.len() == RETURNED_MAX {
                self.returned.pop_front();
            }
            self.returned.push_back(entropy.0);
        }
    }

    /// Packets on these paths (bit e for entropy e) arrived with CE.
    pub fn on_marks(&mut self, entropies: u64) {
        for path in 0..self.paths.len().min(64) {
            if entropies >> path & 1 == 1 {
                self.rest(path, MARK_TURNS);
            }
        }
    }

    /// A packet on this path was lost.
    pub fn on_loss(&mut self, entropy: Entropy) {
        let at = usize::from(entropy.0);
        if let Some(path) = self.paths.get_mut(at) {
            path.landed = path.sent;
            self.rest(at, LOSS_TURNS);
        }
    }

    /// A path rests for this many turns more.
    fn rest(&mut self, path: usize, turns: u64) {
        let turn = self.paths.len() as u64;
        let until = self.paths[path].rests_until.max(self.taken) + turns * turn;
        self.paths[path].rests_until = until.min(self.taken + LOSS_TURNS * turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Instant;

    fn stamp(micros: u64) -> Stamp {
        (Instant::START + Span::from_micros(micros)).stamp()
    }

    fn taken(spray: &mut Spray, runs: usize) -> Vec<u8> {
        (0..runs).map(|_| spray.take().0).collect()
    }

    #[test]
    fn idle_paths_are_taken_in_turn() {
        let mut spray = Spray::new(4, 2);
        assert_eq!(taken(&mut spray, 5), [2, 3, 0, 1, 2]);
    }

    #[test]
    fn a_path_with_a_packet_in_flight_waits_for_the_others() {
        let mut spray = Spray::new(3, 0);
        spray.on_sent(Entropy(1), stamp(10));
        assert_eq!(taken(&mut spray, 4), [0, 2, 0, 2]);
        (0..3).for_each(|path| spray.on_sent(Entropy(path), stamp(10)));
        assert_eq!(taken(&mut spray, 3), [0, 1, 2], "all have one");
    }

    #[test]
    fn a_path_that_answers_fast_is_taken_again() {
        let mut spray = Spray::new(8, 0);
        for (path, took) in [(5, 20), (6, 30), (7, 10)] {
            spray.on_sent(Entropy(path), stamp(10));
            spray.on_arrival(Entropy(path), stamp(10), stamp(10 + took));
        }
        assert_eq!(taken(&mut spray, 3), [5, 7, 0]);
    }

    #[test]
    fn a_marked_path_is_not_taken_again_at_once() {
        let mut spray = Spray::new(4, 0);
        spray.on_sent(Entropy(2), stamp(10));
        spray.on_marks(1 << 2);
        spray.on_arrival(Entropy(2), stamp(10), stamp(20));
        assert_eq!(taken(&mut spray, 6), [0, 1, 3, 0, 1, 2]);
    }

    #[test]
    fn a_lossy_path_is_tried_again_later() {
        let mut spray = Spray::new(4, 0);
        spray.on_loss(Entropy(1));
        let taken = taken(&mut spray, 200);
        assert!(!taken[..100].contains(&1));
        assert!(taken.contains(&1));
    }

    #[test]
    fn one_of_only_bad_paths_is_taken() {
        let mut spray = Spray::new(2, 0);
        spray.on_marks(3);
        spray.on_loss(Entropy(0));
        assert_eq!(spray.take(), Entropy(1));
    }
}

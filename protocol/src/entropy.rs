//! Chooses the path of the next run of packets.
//!
//! 1. A path whose packet has come back no later than the average one, and unmarked, is taken
//!    again: the paths that have returned first go first (the idea of REPS, Bonato et al., arXiv
//!    2407.21625, with the time of the answer beside its mark).
//! 2. Without such a path, paths are taken in turn, except those on which a packet is in flight: a
//!    long queue holds its packets longer, so it gets fewer of them.
//! 3. Control packets take all paths in turn, most of them without those that rest.
//! 4. A path that returned CE rests for a turn of all paths, and one that lost a packet for
//!    many, but all are tried again: the others may become worse. If all rest or have packets in
//!    flight, the next one that does not rest is taken, else the one that has rested most.

use std::collections::VecDeque;

use crate::units::{Entropy, Span, Stamp};

/// Maximum number of paths to a peer.
const PATHS_MAX: u8 = 64;

/// Turns for which a path rests after a CE mark. More would herd packets onto the others where all
/// are marked, as in an oversubscribed core.
const MARK_TURNS: u32 = 1;
/// Turns for which a path rests after a loss, and at most.
const LOSS_TURNS: u32 = 32;
/// Of this many turns of paths that rest, control packets take one: where no data is sent, paths
/// rest for ever, and the others may fail.
const PASSED_OVER: u8 = 4;
/// Paths that wait to be taken again, at most.
const RETURNED_MAX: usize = 8;
/// Weight of a new time in the average, as a divisor.
const TIME_WEIGHT: u64 = 32;

/// The paths to one peer. What it keeps of each begins with the first run, or the first mark or
/// loss: a fabric has millions of pairs, most of them idle.
#[derive(Clone, Debug)]
pub struct Spray {
    paths: u8,
    next: usize,
    next_control: u8,
    /// Turns of paths that rested when a control packet was sent. It wraps.
    passed_over: u8,
    /// Runs so far. It wraps.
    taken: u32,
    /// By path, the run from which on it may be taken; empty before the first mark or loss.
    rests_until: Vec<u32>,
    /// By path, when its last run left, as packets are stamped; empty before the first run.
    sent: Vec<u32>,
    /// Bit p: the last run of path p is in flight.
    in_flight: u64,
    /// Paths to be taken again, in this order.
    returned: VecDeque<u8>,
    /// Average time until a packet is known to have arrived; zero before the first.
    usual: Span,
}

impl Spray {
    /// `paths` paths, 1 to 64, beginning at `start` so that ranks do not move in step.
    pub fn new(paths: u8, start: u64) -> Self {
        let paths = paths.clamp(1, PATHS_MAX);
        Self {
            paths,
            next: (start % u64::from(paths)) as usize,
            next_control: (start % u64::from(paths)) as u8,
            passed_over: 0,
            taken: 0,
            rests_until: Vec::new(),
            sent: Vec::new(),
            in_flight: 0,
            returned: VecDeque::new(),
            usual: Span::ZERO,
        }
    }

    /// The path for the next run.
    pub fn take(&mut self) -> Entropy {
        self.taken = self.taken.wrapping_add(1);
        while let Some(path) = self.returned.pop_front() {
            if !self.rests(usize::from(path)) {
                return Entropy(path);
            }
        }
        let path = self.take_in_turn();
        self.next = (path + 1) % self.count();
        Entropy(path as u8)
    }

    /// The path for a control packet. Whether it is lost is not noted.
    pub fn take_any(&mut self) -> Entropy {
        let next = self.next_control;
        let mut turn = (next..self.paths).chain(0..next);
        let sound = turn.find(|&path| !self.passes_over(path));
        let path = sound.unwrap_or(next);
        self.next_control = (path + 1) % self.paths;
        Entropy(path)
    }

    /// Whether a control packet leaves out this path, whose turn it is.
    fn passes_over(&mut self, path: u8) -> bool {
        let rests = self.rests(path.into());
        self.passed_over = self.passed_over.wrapping_add(rests.into());
        rests && !self.passed_over.is_multiple_of(PASSED_OVER)
    }

    fn count(&self) -> usize {
        usize::from(self.paths)
    }

    fn take_in_turn(&self) -> usize {
        let sound = u64::MAX >> (64 - self.paths) & !self.resting();
        let idle = self.first_in_turn(sound & !self.in_flight);
        let first = idle.or_else(|| self.first_in_turn(sound));
        let turn = (self.next..self.count()).chain(0..self.next);
        let rested = || turn.min_by_key(|&path| self.runs_to_rest(path));
        first.or_else(rested).unwrap_or(self.next)
    }

    /// The path of this set (bit p for path p) whose turn comes first.
    fn first_in_turn(&self, paths: u64) -> Option<usize> {
        let ahead = paths >> self.next << self.next;
        let first = [ahead, paths].into_iter().find(|&set| set != 0)?;
        Some(first.trailing_zeros() as usize)
    }

    /// The paths that rest: bit p for path p.
    fn resting(&self) -> u64 {
        let paths = 0..self.rests_until.len();
        let resting = paths.filter(|&path| self.rests(path));
        resting.fold(0, |set, path| set | 1 << path)
    }

    fn rests(&self, path: usize) -> bool {
        self.runs_to_rest(path) > 0
    }

    /// Runs for which a path rests still. What lies further ahead is long ago.
    fn runs_to_rest(&self, path: usize) -> u32 {
        let until = self.rests_until.get(path);
        let left = until.map_or(0, |until| until.wrapping_sub(self.taken));
        match left <= LOSS_TURNS * u32::from(self.paths) {
            true => left,
            false => 0,
        }
    }

    /// A run leaves on this path.
    pub fn on_sent(&mut self, entropy: Entropy, at: Stamp) {
        if self.sent.is_empty() {
            self.sent = vec![0; self.count()];
        }
        if let Some(sent) = self.sent.get_mut(usize::from(entropy.0)) {
            *sent = at.on_wire();
            self.in_flight |= 1 << entropy.0;
        }
    }

    /// A packet of this path, sent at `sent`, is known by `now` to have arrived. Marks of the same
    /// report come first.
    pub fn on_arrival(&mut self, entropy: Entropy, sent: Stamp, now: Stamp) {
        let path = usize::from(entropy.0);
        let took = now.since(sent);
        if self.usual == Span::ZERO {
            self.usual = took;
        }
        let is_fast = took <= self.usual;
        self.usual = self.usual.beyond(self.usual.divided(TIME_WEIGHT)) + took.divided(TIME_WEIGHT);
        if self.sent.get(path) == Some(&sent.on_wire()) {
            self.in_flight &= !(1 << path);
        }
        if is_fast && !self.rests(path) && !self.returned.contains(&entropy.0) {
            if self.returned.len() == RETURNED_MAX {
                self.returned.pop_front();
            }
            self.returned.push_back(entropy.0);
        }
    }

    /// Packets on these paths (bit e for entropy e) arrived with CE.
    pub fn on_marks(&mut self, entropies: u64) {
        for path in 0..self.count() {
            if entropies >> path & 1 == 1 {
                self.rest(path, MARK_TURNS);
            }
        }
    }

    /// A packet on this path was lost.
    pub fn on_loss(&mut self, entropy: Entropy) {
        let path = usize::from(entropy.0);
        if path < self.count() {
            self.in_flight &= !(1 << path);
            self.rest(path, LOSS_TURNS);
        }
    }

    /// A path rests for this many turns more.
    fn rest(&mut self, path: usize, turns: u32) {
        let turn = u32::from(self.paths);
        let runs = (self.runs_to_rest(path) + turns * turn).min(LOSS_TURNS * turn);
        if self.rests_until.is_empty() {
            self.rests_until = vec![self.taken; self.count()];
        }
        self.rests_until[path] = self.taken.wrapping_add(runs);
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
    fn control_packets_try_all_paths_although_some_rest() {
        let mut spray = Spray::new(3, 1);
        (0..3).for_each(|path| spray.on_loss(Entropy(path)));
        let taken: Vec<u8> = (0..4).map(|_| spray.take_any().0).collect();
        assert_eq!(taken, [1, 2, 0, 1]);
    }

    #[test]
    fn few_control_packets_take_a_path_that_rests() {
        let mut spray = Spray::new(4, 0);
        spray.on_loss(Entropy(2));
        let mut counts = [0; 4];
        (0..400).for_each(|_| counts[usize::from(spray.take_any().0)] += 1);
        assert!((1..=40).contains(&counts[2]), "{counts:?}");
    }

    #[test]
    fn one_of_only_bad_paths_is_taken() {
        let mut spray = Spray::new(2, 0);
        spray.on_marks(3);
        spray.on_loss(Entropy(0));
        assert_eq!(spray.take(), Entropy(1));
    }
}

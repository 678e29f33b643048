//! Chooses the path of the next run of packets.
//!
//! 1. A path whose packet has come back no later than the average one, and unmarked, is taken
//!    again: the paths that have returned first go first (the idea of REPS, Bonato et al., arXiv
//!    2407.21625, with the time of the answer beside its mark).
//! 2. Without such a path, the run takes the one on which it would arrive first, of those that the
//!    search sees. It begins with a path that was never used, as if that took the average time, and
//!    goes on in turn. It ends at a free path that takes no longer than the average, if the run
//!    would arrive there sooner than on all paths seen before. A run arrives after the packets in
//!    flight on its path and its own, times the time that one takes there. That is the time of the
//!    packet that came back last, or the age of the oldest one in flight if that is longer: nothing
//!    comes back from a path whose queue grows. A time that is long past says nothing more.
//! 3. A path that returned CE, or dropped a packet early, *rests* for a turn of all paths, one
//!    where a switch cut a packet for some, and one that lost a packet for many. For each turn of
//!    its rest it counts as so much slower, so it is taken only where the others are slower still:
//!    where all are marked, the fast ones go on.
//! 4. Control packets take all paths in turn, most of them without those that rest.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::units::{Class, Entropy, Span, Stamp};

/// Packets that left together on a path and have arrived.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LandedRun {
    /// Their path.
    pub path: Entropy,
    /// When they left.
    pub sent_at: Stamp,
    /// How many they are.
    pub packets: u32,
    /// The highest class that they may have.
    pub class: Class,
}

/// Maximum number of paths to a peer.
const PATHS_MAX: u8 = 64;

/// Turns for which a path rests after a CE mark. More would herd packets onto the others where all
/// are marked, as in an oversubscribed core.
const MARK_TURNS: u32 = 1;
/// Turns for which a path rests after a packet was cut: its queue is longer than those that mark.
const TRIM_TURNS: u32 = 8;
/// Turns for which a path rests after a loss, and at most.
const LOSS_TURNS: u32 = 32;
/// Of this many turns of paths that rest, control packets take one: where no data is sent, paths
/// rest for ever, and the others may fail.
const PASSED_OVER: u8 = 4;
/// Paths that wait to be taken again, at most.
const RETURNED_MAX: usize = 8;
/// Weight of a new time in the average, as a divisor.
const TIME_WEIGHT: u64 = 32;
/// The time that a packet took on a path counts until it is this many times as old.
const TIMES_REMEMBERED: u64 = 8;

/// The paths to one peer. What it keeps of each begins with the first run there: a fabric has
/// millions of pairs, most of them idle.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Spray {
    paths: u8,
    /// The path whose turn came first.
    start: u8,
    /// The path whose turn is next, counted from `start`.
    next: usize,
    next_control: u8,
    /// Turns of paths that rested when a control packet was sent. It wraps.
    passed_over: u8,
    /// Runs so far. It wraps.
    taken: u32,
    /// The paths that were used, counted from `start`.
    used: Vec<PathState>,
    /// Paths to be taken again, in this order.
    returned: VecDeque<u8>,
    /// Average time until a packet is known to have arrived; zero before the first.
    usual: Span,
}

/// One path.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct PathState {
    /// Packets in flight.
    in_flight: u32,
    /// Microseconds that the last packet took which came back; 0 before the first.
    took: u32,
    /// No packet in flight left before; without any, when the last one came back.
    since: Stamp,
    /// When the newest packet that has arrived was sent, and its class.
    passed: (Stamp, Class),
    /// The run from which on it no longer rests.
    rests_until: u32,
}

impl PathState {
    /// Microseconds that a packet takes here; `usual` if that is not known.
    fn expected(&self, now: Stamp, usual: u64) -> u64 {
        let age = now.since(self.since).as_micros();
        let took = match u64::from(self.took) {
            0 => usual,
            took => took,
        };
        let expected = match self.in_flight {
            0 if age > took * TIMES_REMEMBERED => took.min(usual),
            0 => took,
            _ => took.max(age),
        };
        expected.max(1)
    }

    /// Runs for which it rests still, after `taken` of them, if its rest is at most `longest`. What
    /// lies further ahead is long ago.
    fn runs_to_rest(&self, taken: u32, longest: u32) -> u32 {
        let left = self.rests_until.wrapping_sub(taken);
        if left <= longest { left } else { 0 }
    }
}

impl Spray {
    /// `paths` paths, 1 to 64, beginning at `start` so that ranks do not move in step.
    pub fn new(paths: u8, start: u64) -> Self {
        let paths = paths.clamp(1, PATHS_MAX);
        let start = (start % u64::from(paths)) as u8;
        Self {
            paths,
            start,
            next: 0,
            next_control: start,
            passed_over: 0,
            taken: 0,
            used: Vec::new(),
            returned: VecDeque::new(),
            usual: Span::ZERO,
        }
    }

    /// The path for the next run, of this many packets.
    pub fn take(&mut self, now: Stamp, packets: u32) -> Entropy {
        self.taken = self.taken.wrapping_add(1);
        while let Some(path) = self.returned.pop_front() {
            if self.rest_of(Entropy(path)) == 0 {
                return Entropy(path);
            }
        }
        let place = self.next_place(now, packets);
        self.next = (place + 1) % usize::from(self.paths);
        self.path_at(place)
    }

    /// The place of the path for a run of this many packets, by rule 2. A look at all 64 paths
    /// would be a large part of the work for a short run, so the search ends early.
    fn next_place(&self, now: Stamp, packets: u32) -> usize {
        let (usual, longest) = (self.usual.as_micros(), self.longest_rest());
        let cost = |path: &PathState| {
            let rest = path.runs_to_rest(self.taken, longest);
            let turns = u64::from(u32::from(self.paths) + rest);
            u64::from(path.in_flight + packets) * path.expected(now, usual) * turns
        };
        // The cost of a free path of average time.
        let enough = u64::from(packets) * usual.max(1) * u64::from(self.paths);
        // Of equal ones, those that were never used are first.
        let mut least = match self.used.len() < usize::from(self.paths) {
            true => (cost(&PathState::default()), self.used.len()),
            false => (u64::MAX, 0),
        };
        let next = self.next.min(self.used.len());
        for place in (next..self.used.len()).chain(0..next) {
            let path = &self.used[place];
            // Most are seen at once to be worse.
            let at_least = u64::from(path.in_flight + packets) * u64::from(path.took);
            if path.in_flight > 0 && at_least * u64::from(self.paths) >= least.0 {
                continue;
            }
            let cost = cost(path);
            if cost < least.0 {
                least = (cost, place);
                if path.in_flight == 0 && cost <= enough {
                    break;
                }
            }
        }
        least.1
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
        let rests = self.rest_of(Entropy(path)) > 0;
        self.passed_over = self.passed_over.wrapping_add(rests.into());
        rests && !self.passed_over.is_multiple_of(PASSED_OVER)
    }

    /// The longest rest, in runs.
    fn longest_rest(&self) -> u32 {
        LOSS_TURNS * u32::from(self.paths)
    }

    /// Runs for which a path rests still.
    fn rest_of(&self, path: Entropy) -> u32 {
        let state = self.used.get(self.place_of(path));
        state.map_or(0, |path| path.runs_to_rest(self.taken, self.longest_rest()))
    }

    fn place_of(&self, path: Entropy) -> usize {
        let paths = u16::from(self.paths);
        usize::from((u16::from(path.0) + paths - u16::from(self.start)) % paths)
    }

    fn path_at(&self, place: usize) -> Entropy {
        Entropy(((usize::from(self.start) + place) % usize::from(self.paths)) as u8)
    }

    /// The state of a path that was used.
    fn state_mut(&mut self, path: Entropy) -> Option<&mut PathState> {
        let place = self.place_of(path);
        self.used.get_mut(place)
    }

    /// A run of this many packets leaves on this path.
    pub fn on_sent(&mut self, path: Entropy, at: Stamp, packets: u32) {
        let place = self.place_of(path);
        if self.used.len() <= place {
            self.used.resize(place + 1, PathState::default());
        }
        let path = &mut self.used[place];
        if path.in_flight == 0 {
            path.since = at;
        }
        path.in_flight += packets;
    }

    /// Packets of this path are known by now to have arrived. Marks of the same report come first.
    /// If these left less than `least` ago, an earlier packet with their segments has arrived,
    /// which says nothing about this path.
    pub fn on_arrival(&mut self, landed: LandedRun, now: Stamp, least: Span) {
        let took = now.since(landed.sent_at);
        let (is_own, path) = (took >= least, landed.path);
        let Some(state) = self.state_mut(path) else {
            return;
        };
        state.in_flight = state.in_flight.saturating_sub(landed.packets);
        if !is_own {
            return;
        }
        state.took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        state.since = match state.in_flight {
            0 => now,
            _ => landed.sent_at,
        };
        if landed.sent_at >= state.passed.0 {
            state.passed = (landed.sent_at, landed.class);
        }
        if self.usual == Span::ZERO {
            self.usual = took;
        }
        let is_fast = took <= self.usual;
        self.usual = self.usual.beyond(self.usual.divided(TIME_WEIGHT)) + took.divided(TIME_WEIGHT);
        if is_fast && self.rest_of(path) == 0 && !self.returned.contains(&path.0) {
            if self.returned.len() == RETURNED_MAX {
                self.returned.pop_front();
            }
            self.returned.push_back(path.0);
        }
    }

    /// Whether a packet that left on this path after `sent_at` has arrived, and no queue lets it
    /// overtake one of this class.
    pub fn has_passed(&self, path: Entropy, class: Class, sent_at: Stamp) -> bool {
        let state = self.used.get(self.place_of(path));
        state.is_some_and(|path| path.passed.0 > sent_at && path.passed.1 >= class)
    }

    /// Packets on these paths (bit e for entropy e) arrived with CE.
    pub fn on_marks(&mut self, entropies: u64) {
        for path in 0..self.paths {
            if entropies >> path & 1 == 1 {
                self.rest(Entropy(path), MARK_TURNS);
            }
        }
    }

    /// A packet on this path was dropped because a queue was long, which says as much as a mark.
    pub fn on_dropped(&mut self, path: Entropy) {
        self.on_gone(path, 1);
        self.rest(path, MARK_TURNS);
    }

    /// A packet on this path was cut.
    pub fn on_trimmed(&mut self, path: Entropy) {
        self.on_gone(path, 1);
        self.rest(path, TRIM_TURNS);
    }

    /// A packet on this path was lost.
    pub fn on_loss(&mut self, path: Entropy) {
        self.on_gone(path, 1);
        self.rest(path, LOSS_TURNS);
    }

    /// Packets of this path are in flight no longer, and nothing is known of them.
    pub fn on_gone(&mut self, path: Entropy, packets: u32) {
        if let Some(state) = self.state_mut(path) {
            state.in_flight = state.in_flight.saturating_sub(packets);
        }
    }

    /// A path rests for this many turns more.
    fn rest(&mut self, path: Entropy, turns: u32) {
        let turn = u32::from(self.paths);
        let runs = (self.rest_of(path) + turns * turn).min(self.longest_rest());
        let until = self.taken.wrapping_add(runs);
        if let Some(state) = self.state_mut(path) {
            state.rests_until = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Instant;

    const LEAST: Span = Span::from_micros(8);

    fn stamp(micros: u64) -> Stamp {
        (Instant::START + Span::from_micros(micros)).stamp()
    }

    /// One packet of class 1 that left at `sent_at` microseconds.
    fn landed(path: u8, sent_at: u64) -> LandedRun {
        LandedRun {
            path: Entropy(path),
            sent_at: stamp(sent_at),
            packets: 1,
            class: Class(1),
        }
    }

    /// Takes a path at this microsecond for each of these runs of one packet, which leave at once.
    fn sent(spray: &mut Spray, micros: u64, runs: usize) -> Vec<u8> {
        let mut send = || {
            let path = spray.take(stamp(micros), 1);
            spray.on_sent(path, stamp(micros), 1);
            path.0
        };
        (0..runs).map(|_| send()).collect()
    }

    /// A spray over as many paths, each of which has carried a packet that took `took`.
    fn used(took: &[u64]) -> Spray {
        let mut spray = Spray::new(took.len() as u8, 0);
        let paths = sent(&mut spray, 100, took.len());
        assert_eq!(paths, (0..took.len() as u8).collect::<Vec<u8>>());
        for (path, &took) in (0..).zip(took) {
            spray.on_arrival(landed(path, 100), stamp(100 + took), LEAST);
        }
        spray.returned.clear();
        spray
    }

    #[test]
    fn unused_paths_are_taken_in_turn() {
        let mut spray = Spray::new(4, 2);
        assert_eq!(sent(&mut spray, 10, 6), [2, 3, 0, 1, 2, 3]);
    }

    #[test]
    fn a_path_that_answers_fast_is_taken_again() {
        let mut spray = Spray::new(8, 5);
        assert_eq!(sent(&mut spray, 10, 3), [5, 6, 7]);
        for (path, took) in [(5, 20), (6, 30), (7, 10)] {
            spray.on_arrival(landed(path, 10), stamp(10 + took), LEAST);
        }
        assert_eq!(sent(&mut spray, 40, 2), [5, 7]);
    }

    #[test]
    fn a_path_gets_the_more_packets_the_faster_it_is() {
        let mut spray = used(&[10, 40, 20]);
        let taken = sent(&mut spray, 141, 7);
        let counts = [0, 1, 2].map(|path| taken.iter().filter(|&&taken| taken == path).count());
        assert_eq!(counts, [4, 1, 2], "{taken:?}");
    }

    #[test]
    fn the_next_free_path_of_average_time_is_good_enough() {
        let mut spray = used(&[20, 10, 12, 8]);
        let paths = sent(&mut spray, 121, 4);
        assert_eq!(
            paths,
            [1, 2, 3, 3],
            "path 0 is slower than two packets on path 3"
        );
    }

    #[test]
    fn a_path_from_which_nothing_comes_back_is_slow() {
        let mut spray = used(&[10, 10]);
        assert_eq!(sent(&mut spray, 120, 2), [0, 1]);
        spray.on_arrival(landed(1, 120), stamp(130), LEAST);
        spray.returned.clear();
        assert_eq!(sent(&mut spray, 180, 4), [1, 1, 1, 1]);
    }

    #[test]
    fn a_time_of_long_ago_counts_no_longer() {
        let mut spray = used(&[10, 90]);
        assert_eq!(sent(&mut spray, 200, 2), [0, 0]);
        let mut spray = used(&[10, 90]);
        assert_eq!(sent(&mut spray, 2_000, 2), [0, 1]);
    }

    #[test]
    fn a_path_where_a_packet_was_cut_rests_longer_than_one_that_returned_a_mark() {
        let mut spray = used(&[10, 10, 10, 10]);
        spray.on_marks(1);
        spray.on_trimmed(Entropy(1));
        let rests = [0, 1, 2].map(|path| spray.rest_of(Entropy(path)));
        assert_eq!(rests, [4, 32, 0]);
    }

    #[test]
    fn an_earlier_packet_of_a_repaired_segment_says_nothing_about_the_path() {
        let mut spray = used(&[20, 20]);
        assert_eq!(sent(&mut spray, 130, 1), [0]);
        spray.on_arrival(landed(0, 130), stamp(133), LEAST);
        assert!(spray.returned.is_empty());
        assert_eq!(sent(&mut spray, 134, 3), [1, 0, 1]);
    }

    #[test]
    fn a_marked_path_counts_as_twice_as_slow_for_a_turn() {
        let mut spray = used(&[10, 10]);
        spray.on_marks(1);
        assert_eq!(sent(&mut spray, 115, 2), [1, 0]);
        assert_eq!(sent(&mut spray, 115, 3), [1, 0, 1], "no longer");
    }

    #[test]
    fn where_all_are_marked_the_fast_ones_go_on() {
        let mut spray = used(&[10, 80]);
        spray.on_marks(3);
        assert_eq!(sent(&mut spray, 181, 2), [0, 0]);
    }

    #[test]
    fn a_lossy_path_is_tried_again_later() {
        let mut spray = used(&[10, 10, 10, 10]);
        spray.on_loss(Entropy(1));
        let mut taken = Vec::new();
        for run in 0..200 {
            let at = 120 + 20 * run;
            let path = sent(&mut spray, at, 1)[0];
            spray.on_arrival(landed(path, at), stamp(at + 10), LEAST);
            spray.returned.clear();
            taken.push(path);
        }
        assert!(!taken[..100].contains(&1));
        assert!(taken.contains(&1));
    }

    #[test]
    fn a_path_has_passed_what_was_sent_before_a_packet_that_arrived() {
        let mut spray = Spray::new(2, 0);
        sent(&mut spray, 10, 2);
        assert_eq!(sent(&mut spray, 20, 1), [0]);
        spray.on_arrival(landed(0, 20), stamp(40), LEAST);
        let passed = |path, class, micros| {
            let class = Class(class);
            spray.has_passed(Entropy(path), class, stamp(micros))
        };
        assert!(passed(0, 1, 10), "an earlier one");
        assert!(!passed(0, 1, 20), "one of the same run");
        assert!(
            !passed(0, 2, 10),
            "one of a lower class, which others overtake"
        );
        assert!(!passed(1, 1, 10), "one of another path");
    }

    #[test]
    fn control_packets_try_all_paths_although_some_rest() {
        let mut spray = used(&[10, 10, 10]);
        (0..3).for_each(|path| spray.on_loss(Entropy(path)));
        let taken: Vec<u8> = (0..4).map(|_| spray.take_any().0).collect();
        assert_eq!(taken, [0, 1, 2, 0]);
    }

    #[test]
    fn few_control_packets_take_a_path_that_rests() {
        let mut spray = used(&[10, 10, 10, 10]);
        spray.on_loss(Entropy(2));
        let mut counts = [0; 4];
        (0..400).for_each(|_| counts[usize::from(spray.take_any().0)] += 1);
        assert!((1..=40).contains(&counts[2]), "{counts:?}");
    }

    #[test]
    fn any_path_that_a_stranger_names_is_taken_without_a_panic() {
        let mut spray = Spray::new(3, u64::MAX);
        for path in [0, 2, 3, 63, 64, 255] {
            spray.on_marks(1 << (path % 64));
            spray.on_loss(Entropy(path));
            spray.on_dropped(Entropy(path));
            spray.on_gone(Entropy(path), u32::MAX);
            spray.on_arrival(landed(path, 5), stamp(0), LEAST);
            assert!(!spray.has_passed(Entropy(path), Class(0), stamp(0)));
        }
        assert!(spray.take(stamp(0), 1).0 < 3);
    }
}

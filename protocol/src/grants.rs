//! How many segments all peers together may have on their way to this rank.
//!
//! Senders that do not know of each other overload the last link to a rank that all of them send to
//! (incast). So the receiver grants all segments of a message beyond its unscheduled start
//! (receiver-driven, as in NDP, Handley et al., SIGCOMM 2017, and Homa, Montazeri et al., SIGCOMM
//! 2018).
//!
//! 1. A segment is *expected* from its grant (or unscheduled start) until it arrives, its sender
//!    has found it lost, or its message is complete.
//! 2. While fewer segments are expected than the grant window has, the next message in turn is
//!    granted another *quantum* ([`Grants::take`]).
//! 3. Turns: older steps first, then front layers ([`GrantTurn`]). Messages of unknown urgency come
//!    before all others. The most urgent go first because messages that share a link end together,
//!    and late.
//! 4. Within a turn, peers are granted in rotation: serving one peer at a time would leave the
//!    links of the others idle. The messages of one peer follow each other by number; those of
//!    unknown urgency rotate, too.
//! 5. No peer is granted more than its window allows in flight: segments of others can arrive
//!    meanwhile.
//! 6. If no packet has arrived from a peer for some gaps, its segments are *doubted* instead of
//!    expected, until half of the window is free ([`Grants::doubt`]): others are granted as much,
//!    since one peer's losses must not delay them. When doubted segments arrive late, they settle
//!    the doubt. Unscheduled starts may exceed the window many times, so the doubt is bounded not
//!    by the window but by the segments that it leaves expected.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::priority::Urgency;
use crate::units::{Instant, MessageSerial, Span, Step, StepClock, StepSerial};

/// Quanta of a grant window. Fewer would save control packets and make bursts longer.
const QUANTA_PER_WINDOW: u64 = 6;
/// The longest quantum, in segments.
const QUANTUM_MAX: u64 = 8;
/// Gaps without a packet of a peer after which its segments are doubted.
const GAPS_SILENT: u64 = 2;
/// Doubt frees the window divided by this. Not all of it: the packets of silent peers may be lost,
/// but they may also wait in a low class and arrive all at once.
const DOUBTED_PART: u64 = 2;

/// The order in which messages are granted segments, the smallest first. `None` when the urgency of
/// a message is not known.
pub type GrantTurn = Option<(StepSerial, Urgency)>;

/// The messages that wait for grants, and the segments in flight.
#[derive(Clone, Debug)]
pub struct Grants {
    /// Segments that may be expected from all peers together.
    window: u64,
    /// Segments that are granted at a time.
    quantum: u64,
    /// Segments that one peer may have in flight.
    each: u64,
    /// Segments that are expected from all peers together.
    expected: u64,
    /// Segments of silent peers that are doubted instead of expected.
    doubted: u64,
    /// By the peer's place.
    expected_of: Vec<PeerGrants>,
    /// The waiting messages of each peer, by turn, and within a turn by the number here.
    queues: BTreeMap<(GrantTurn, u32), BTreeSet<(u64, MessageSerial)>>,
    /// For each turn the peers that have messages of it, in rotation.
    rounds: BTreeMap<GrantTurn, VecDeque<u32>>,
    steps: StepClock,
    /// Counts the messages that have started to wait.
    arrivals: u64,
    /// When silent peers were last looked for.
    looked: Instant,
}

/// One peer's segments in flight.
#[derive(Clone, Copy, Debug, Default)]
struct PeerGrants {
    expected: u64,
    /// Expected until the peer became silent.
    doubted: u64,
    /// When one was last granted or arrived.
    since: Instant,
}

impl PeerGrants {
    fn on_its_way(self) -> u64 {
        self.expected + self.doubted
    }
}

impl Grants {
    /// Grants with a window of `window` segments, of which one peer has `each` at most. `None`: all
    /// messages are granted at once.
    pub fn new(window: Option<u64>, each: u64) -> Self {
        let (window, each) = (window.unwrap_or(u64::MAX), each.max(1));
        Self {
            window,
            quantum: (window / QUANTA_PER_WINDOW).clamp(1, QUANTUM_MAX).min(each),
            each,
            expected: 0,
            doubted: 0,
            expected_of: Vec::new(),
            queues: BTreeMap::new(),
            rounds: BTreeMap::new(),
            steps: StepClock::default(),
            arrivals: 0,
            looked: Instant::START,
        }
    }

    /// A segment has arrived from the peer at this place.
    pub fn on_arrival(&mut self, now: Instant, place: u32) {
        if let Some(of_peer) = self.expected_of.get_mut(place as usize) {
            of_peer.since = now;
        }
    }

    /// When to look for silent peers, if messages wait and more may be doubted.
    pub fn look_at(&self, gap: Span) -> Option<Instant> {
        let waits = self.expected > 0 && !self.rounds.is_empty();
        (waits && self.doubted < self.most_doubted()).then(|| self.looked + gap)
    }

    /// Segments that may be doubted, so that half of the window is free.
    fn most_doubted(&self) -> u64 {
        let half = self.window / DOUBTED_PART;
        half.max((self.expected + self.doubted).saturating_sub(half))
    }

    /// Doubts the segments of peers that have been silent for some of these gaps (rule 6).
    pub fn doubt(&mut self, now: Instant, gap: Span) {
        self.looked = now;
        let most = self.most_doubted();
        for of_peer in &mut self.expected_of {
            if of_peer.since + gap * GAPS_SILENT <= now {
                let room = most.saturating_sub(self.doubted);
                let more = of_peer.expected.min(room);
                of_peer.expected -= more;
                of_peer.doubted += more;
                self.expected -= more;
                self.doubted += more;
            }
        }
    }

    /// Whether all messages are granted at once.
    pub fn is_unlimited(&self) -> bool {
        self.window == u64::MAX
    }

    /// This many more segments are in flight from the peer at this place.
    pub fn expect(&mut self, now: Instant, place: u32, segments: u32) {
        if segments == 0 || self.is_unlimited() {
            return;
        }
        let at = place as usize;
        if at >= self.expected_of.len() {
            self.expected_of.resize(at + 1, PeerGrants::default());
        }
        self.expected_of[at].expected += u64::from(segments);
        self.expected_of[at].since = now;
        self.expected += u64::from(segments);
    }

    /// This many segments have arrived, are lost, or are no longer needed.
    pub fn settle(&mut self, place: u32, segments: u32) {
        if let Some(of_peer) = self.expected_of.get_mut(place as usize) {
            // Doubted segments settle first: others were granted as many in their place.
            let late = u64::from(segments).min(of_peer.doubted);
            let less = (u64::from(segments) - late).min(of_peer.expected);
            of_peer.expected -= less;
            of_peer.doubted -= late;
            self.expected -= less;
            self.doubted -= late;
        }
    }

    /// The turn of a message of a step, with this urgency if it is known.
    pub fn turn(&mut self, step: Step, urgency: Option<Urgency>) -> GrantTurn {
        urgency.map(|urgency| (self.steps.serial(step), urgency))
    }

    /// A message of the peer at this place needs more than it was granted.
    pub fn wait(&mut self, turn: GrantTurn, place: u32, message: MessageSerial) {
        self.arrivals += 1;
        let number = match turn {
            Some(_) => message.0,
            None => self.arrivals,
        };
        let queue = self.queues.entry((turn, place)).or_default();
        if queue.is_empty() {
            self.rounds.entry(turn).or_default().push_back(place);
        }
        queue.insert((number, message));
    }

    /// The next grant, if the window has room for a quantum.
    pub fn take(&mut self) -> Option<NextGrant> {
        let room = self.window.saturating_sub(self.expected);
        if room < self.quantum {
            return None;
        }
        let (turn, at) = self.next_with_room()?;
        let round = self.rounds.get_mut(&turn)?;
        let place = round.remove(at)?;
        let queue = self.queues.get_mut(&(turn, place))?;
        let (_, message) = queue.pop_first()?;
        if !queue.is_empty() {
            round.push_back(place);
        } else {
            self.queues.remove(&(turn, place));
            if round.is_empty() {
                self.rounds.remove(&turn);
            }
        }
        Some(NextGrant {
            turn,
            place,
            message,
            most: self.quantum as u32,
        })
    }
}

impl Grants {
    /// The first turn with a peer that may have another quantum in flight, and the peer's place in
    /// that rotation.
    fn next_with_room(&self) -> Option<(GrantTurn, usize)> {
        let mut all = self.rounds.iter().flat_map(|(&turn, round)| {
            let numbered = round.iter().enumerate();
            numbered.map(move |(at, &place)| (turn, at, place))
        });
        let has_room = |&(_, _, place): &(GrantTurn, usize, u32)| {
            let expected = self.expected_of.get(place as usize);
            expected.is_none_or(|of_peer| of_peer.on_its_way() + self.quantum <= self.each)
        };
        // Peers without room fill the window, or are in doubt: there are few of them.
        let (turn, at, _) = all.find(has_room)?;
        Some((turn, at))
    }
}

/// A grant: some segments of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NextGrant {
    /// The message's turn.
    pub turn: GrantTurn,
    /// The peer that sends it.
    pub place: u32,
    /// The message.
    pub message: MessageSerial,
    /// Maximum number of segments that it is granted.
    pub most: u32,
}

/// Whether a message needs more grants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum GrantNeed {
    /// It needs more.
    More,
    /// All of it is granted.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Layer;

    fn turn(step: u32, layer: u16) -> GrantTurn {
        Some((StepSerial(step.into()), Urgency::of(Layer(layer))))
    }

    /// Which messages are granted segments until none waits, if each needs two quanta.
    fn order(waiting: &[(GrantTurn, u32, u64)]) -> Vec<(u32, u64)> {
        let mut grants = Grants::new(Some(64), 64);
        for &(turn, place, message) in waiting {
            grants.wait(turn, place, MessageSerial(message));
        }
        let mut granted: Vec<(u32, u64)> = Vec::new();
        while let Some(next) = grants.take() {
            let one = (next.place, next.message.0);
            if !granted.contains(&one) {
                grants.wait(next.turn, next.place, next.message);
            }
            granted.push(one);
        }
        assert_eq!(grants.look_at(Span::ZERO), None, "nobody waits");
        granted
    }

    #[test]
    fn older_steps_are_granted_first_where_numbers_wrap() {
        let mut grants = Grants::new(Some(64), 64);
        let steps = [u32::MAX, 0, u32::MAX - 1, 1].map(Step);
        let urgency = Some(Urgency::of(Layer(0)));
        let mut turns = steps.map(|step| grants.turn(step, urgency));
        turns.sort_unstable();
        let ordered = [2, 0, 1, 3].map(|at: usize| grants.turn(steps[at], urgency));
        assert_eq!(turns, ordered);
    }

    #[test]
    fn older_steps_and_front_layers_are_granted_first() {
        let waiting = [(turn(1, 0), 1, 1), (turn(0, 5), 2, 2), (turn(0, 3), 1, 3)];
        let expected = [(1, 3), (1, 3), (2, 2), (2, 2), (1, 1), (1, 1)];
        assert_eq!(order(&waiting), expected);
    }

    #[test]
    fn equal_peers_rotate_and_their_messages_follow_each_other() {
        let same = turn(0, 3);
        let waiting = [(same, 1, 1), (same, 1, 2), (same, 2, 1)];
        let expected = [(1, 1), (2, 1), (1, 1), (2, 1), (1, 2), (1, 2)];
        assert_eq!(order(&waiting), expected);
    }

    #[test]
    fn a_peer_with_a_full_window_lets_others_go() {
        let mut grants = Grants::new(Some(60), 24);
        grants.wait(turn(0, 0), 1, MessageSerial(1));
        grants.wait(turn(0, 9), 2, MessageSerial(1));
        let mut granted = Vec::new();
        while let Some(next) = grants.take() {
            granted.push(next.place);
            grants.expect(Instant::START, next.place, next.most);
            grants.wait(next.turn, next.place, next.message);
        }
        assert_eq!(granted, [1, 1, 1, 2, 2, 2]);
        grants.settle(1, 8);
        assert_eq!(grants.take().map(|next| next.place), Some(1));
    }

    #[test]
    fn doubted_segments_are_granted_to_others_again() {
        let (gap, start) = (Span::from_micros(50), Instant::START);
        let mut grants = Grants::new(Some(12), 12);
        grants.expect(start, 1, 8);
        grants.expect(start, 2, 4);
        grants.wait(turn(0, 0), 1, MessageSerial(1));
        grants.wait(turn(0, 1), 3, MessageSerial(1));
        assert_eq!(grants.take(), None, "the window is full");
        assert_eq!(grants.look_at(gap), Some(start + gap));
        let later = start + gap * GAPS_SILENT;
        grants.on_arrival(later, 2);
        grants.doubt(later, gap);
        assert_eq!(grants.take().map(|next| next.place), Some(1));
        grants.expect(later, 1, 4);
        grants.wait(turn(0, 0), 1, MessageSerial(1));
        let next = grants.take().map(|next| next.place);
        assert_eq!(
            next,
            Some(3),
            "the silent one has its window, though half of it is in doubt"
        );
        grants.expect(later, 3, 2);
        grants.wait(turn(0, 1), 3, MessageSerial(1));
        assert_eq!(grants.take(), None, "no more than half is in doubt");
        // Of its twelve the first six were replaced.
        grants.settle(1, 6);
        assert_eq!(grants.take(), None);
        grants.settle(1, 2);
        assert_eq!(grants.take().map(|next| next.place), Some(1));
    }

    #[test]
    fn unscheduled_starts_in_doubt_leave_half_the_window() {
        let (gap, start) = (Span::from_micros(50), Instant::START);
        let mut grants = Grants::new(Some(12), 100);
        (1..=20).for_each(|peer| grants.expect(start, peer, 100));
        grants.wait(turn(0, 0), 21, MessageSerial(1));
        assert_eq!(grants.take(), None);
        grants.doubt(start + gap * GAPS_SILENT, gap);
        assert_eq!(grants.expected, 6);
        assert_eq!(grants.take().map(|next| next.place), Some(21));
    }

    #[test]
    fn peers_without_room_never_hide_a_peer_with_room() {
        let mut grants = Grants::new(Some(1000), 8);
        for peer in 0..100 {
            grants.expect(Instant::START, peer, 8);
            grants.wait(turn(0, 0), peer, MessageSerial(1));
        }
        grants.wait(turn(0, 1), 100, MessageSerial(1));
        assert_eq!(grants.take().map(|next| next.place), Some(100));
    }

    #[test]
    fn a_window_below_a_quantum_is_granted_whole() {
        let mut grants = Grants::new(Some(59), 7);
        grants.expect(Instant::START, 1, 1);
        grants.wait(turn(0, 0), 1, MessageSerial(1));
        assert_eq!(
            grants.take(),
            None,
            "its window has no room for more of a part"
        );
        grants.settle(1, 1);
        assert_eq!(grants.take().map(|next| next.most), Some(7));
    }

    #[test]
    fn messages_of_unknown_urgency_are_granted_first() {
        let waiting = [(turn(0, 0), 3, 9), (None, 1, 1), (None, 1, 2), (None, 2, 1)];
        let expected = [
            (1, 1),
            (2, 1),
            (1, 2),
            (2, 1),
            (1, 1),
            (1, 2),
            (3, 9),
            (3, 9),
        ];
        assert_eq!(order(&waiting), expected);
    }
}

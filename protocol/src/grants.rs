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
//! 3. Turns: older steps first, then front layers, then older operations and of one operation what
//!    others wait for ([`GrantTurn`]). Messages of unknown urgency come before all others. The most
//!    urgent go first because messages that share a link end together, and late. So what is
//!    expected of later turns of the same operation leaves the window free: unscheduled starts of
//!    finished shards would hold up the contributions that are still missing.
//! 4. Within a turn, peers are granted in rotation: serving one peer at a time would leave the
//!    links of the others idle. The messages of one peer follow each other by number; those of
//!    unknown urgency rotate, too.
//! 5. Of a turn and those before it, no peer is granted more than its window allows in flight,
//!    times the peers that wait in that turn. Where one peer sends, others of later turns can use
//!    the link meanwhile. Where many do, their messages are summed, so each gets an equal part, and
//!    none may run ahead. Segments of later turns do not count: they may wait in a switch for as
//!    long as others send urgent ones, and a peer that waits for them would hold up all sums.
//! 6. If a message is a whole result ([`MessageRole::Whole`]), its peer is granted at most the
//!    window divided by the peers that wait in any turn. A parameter server sends to all workers at
//!    once, so each gets only a part of the server's link. If the most urgent servers filled a
//!    worker's window, its own link would idle while other servers wait. So it is where the
//!    messages of an operation have an order ([`ReceiveOrder`]): the last peers of a turn, which
//!    send to others, too, would fill the window and hold up the next turns.
//! 7. If no packet has arrived from a peer for some gaps, its segments are *doubted* instead of
//!    expected, until half of the window is free ([`Grants::doubt`]): others are granted as much,
//!    since one peer's losses must not delay them. When doubted segments arrive late, they settle
//!    the doubt. Unscheduled starts may exceed the window many times, so the doubt is bounded not
//!    by the window but by the segments that it leaves expected.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use crate::message::{MessageRole, ReceiveOrder, ReceiveUrgency};
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
pub type GrantTurn = Option<(StepSerial, ReceiveUrgency)>;

/// Some segments of one turn.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TurnSegments {
    /// The turn.
    pub turn: GrantTurn,
    /// How many they are.
    pub segments: u32,
}

/// The messages that wait for grants, and the segments in flight.
#[derive(Clone, Debug)]
pub struct Grants {
    /// Segments that may be expected from all peers together.
    window: u64,
    /// Segments that are granted at a time.
    quantum: u64,
    /// Segments that one peer may have in flight (rule 5).
    each: u64,
    /// Segments that are expected from all peers together.
    expected: u64,
    /// Segments of silent peers that are doubted instead of expected.
    doubted: u64,
    /// Of both together those of each turn.
    turns: BTreeMap<GrantTurn, u64>,
    /// By the peer's place.
    expected_of: Vec<PeerGrants>,
    /// The waiting messages of each peer, by turn, and within a turn by the number here.
    queues: BTreeMap<(GrantTurn, u32), BTreeSet<(u64, MessageSerial)>>,
    /// For each turn the peers that have messages of it, in rotation.
    rounds: BTreeMap<GrantTurn, VecDeque<u32>>,
    /// Peers with waiting messages.
    waiting_peers: u64,
    steps: StepClock,
    /// Counts the messages that have started to wait.
    arrivals: u64,
    /// When silent peers were last looked for.
    looked: Instant,
}

/// One peer's segments in flight.
#[derive(Clone, Debug, Default)]
struct PeerGrants {
    expected: u64,
    /// Expected until the peer became silent.
    doubted: u64,
    /// Of both together those of each turn, in order.
    turns: Vec<(GrantTurn, u64)>,
    /// Turns in which its messages wait.
    turns_awaited: u32,
    /// When one was last granted or arrived.
    since: Instant,
}

impl PeerGrants {
    /// How many of a turn and those before it are on their way.
    fn until(&self, turn: GrantTurn) -> u64 {
        let first = self.turns.iter().take_while(|&&(of, _)| of <= turn);
        first.map(|&(_, segments)| segments).sum()
    }

    fn add(&mut self, turn: GrantTurn, segments: u64) {
        match self.turns.binary_search_by_key(&turn, |&(of, _)| of) {
            Ok(at) => self.turns[at].1 += segments,
            Err(at) => self.turns.insert(at, (turn, segments)),
        }
    }

    /// Returns how many there were to remove.
    fn remove(&mut self, turn: GrantTurn, segments: u64) -> u64 {
        let Ok(at) = self.turns.binary_search_by_key(&turn, |&(of, _)| of) else {
            return 0;
        };
        let left = &mut self.turns[at].1;
        let removed = segments.min(*left);
        *left -= removed;
        if *left == 0 {
            self.turns.remove(at);
        }
        removed
    }
}

impl Grants {
    /// Grants with a window of `window` segments; one peer's window has `each`. `None`: all
    /// messages are granted at once.
    pub fn new(window: Option<u64>, each: u64) -> Self {
        let (window, each) = (window.unwrap_or(u64::MAX), each.max(1));
        Self {
            window,
            each,
            quantum: (window / QUANTA_PER_WINDOW).clamp(1, QUANTUM_MAX).min(each),
            expected: 0,
            doubted: 0,
            turns: BTreeMap::new(),
            expected_of: Vec::new(),
            queues: BTreeMap::new(),
            rounds: BTreeMap::new(),
            waiting_peers: 0,
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

    /// Doubts the segments of peers that have been silent for some of these gaps (rule 7).
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

    /// These segments are in flight from the peer at this place, too.
    pub fn expect(
        &mut self,
        now: Instant,
        place: u32,
        TurnSegments { turn, segments }: TurnSegments,
    ) {
        if segments == 0 || self.is_unlimited() {
            return;
        }
        let of_peer = self.of_peer(place);
        of_peer.expected += u64::from(segments);
        of_peer.add(turn, u64::from(segments));
        of_peer.since = now;
        self.expected += u64::from(segments);
        *self.turns.entry(turn).or_default() += u64::from(segments);
    }

    /// The turn of these segments in flight is known from now on.
    pub fn turn_is_known(&mut self, place: u32, known: TurnSegments) {
        let of_peer = self.expected_of.get_mut(place as usize);
        if let Some(of_peer) = of_peer.filter(|_| known.segments > 0) {
            let segments = of_peer.remove(None, u64::from(known.segments));
            of_peer.add(known.turn, segments);
            self.leave_turn(None, segments);
            *self.turns.entry(known.turn).or_default() += segments;
        }
    }

    /// No segment of the peer at this place is in flight any more.
    pub fn forget(&mut self, place: u32) {
        if let Some(of_peer) = self.expected_of.get_mut(place as usize) {
            self.expected -= of_peer.expected;
            self.doubted -= of_peer.doubted;
            let forgotten = std::mem::take(of_peer);
            of_peer.turns_awaited = forgotten.turns_awaited;
            for (turn, segments) in forgotten.turns {
                self.leave_turn(turn, segments);
            }
        }
    }

    /// These segments have arrived, are lost, or are no longer needed.
    pub fn settle(&mut self, place: u32, TurnSegments { turn, segments }: TurnSegments) {
        if segments == 0 {
            return;
        }
        if let Some(of_peer) = self.expected_of.get_mut(place as usize) {
            let removed = of_peer.remove(turn, u64::from(segments));
            // Doubted segments settle first: others were granted as many in their place.
            let late = u64::from(segments).min(of_peer.doubted);
            let less = (u64::from(segments) - late).min(of_peer.expected);
            of_peer.expected -= less;
            of_peer.doubted -= late;
            self.expected -= less;
            self.doubted -= late;
            self.leave_turn(turn, removed);
        }
    }

    /// So many segments of a turn are no longer in flight.
    fn leave_turn(&mut self, turn: GrantTurn, segments: u64) {
        if let Some(left) = self.turns.get_mut(&turn) {
            *left -= segments;
            if *left == 0 {
                self.turns.remove(&turn);
            }
        }
    }

    /// The turn of a message of a step, with this urgency if it is known.
    pub fn turn(&mut self, step: Step, urgency: Option<ReceiveUrgency>) -> GrantTurn {
        let urgency = urgency?;
        let serial = self.steps.serial(step);
        let step = urgency.operation.map(|_| serial);
        Some((step.unwrap_or_default(), urgency))
    }

    /// A message of the peer at this place needs more than it was granted.
    pub fn wait(&mut self, turn: GrantTurn, place: u32, message: MessageSerial) {
        self.arrivals += 1;
        let number = match turn {
            Some((_, urgency)) if urgency.operation.is_some() => message.0,
            _ => self.arrivals,
        };
        let queue = self.queues.entry((turn, place)).or_default();
        let is_first = queue.is_empty();
        queue.insert((number, message));
        if is_first {
            self.rounds.entry(turn).or_default().push_back(place);
            let of_peer = self.of_peer(place);
            of_peer.turns_awaited += 1;
            self.waiting_peers += u64::from(of_peer.turns_awaited == 1);
        }
    }

    /// The next grant, if the window has room for a quantum.
    pub fn take(&mut self) -> Option<NextGrant> {
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
            let of_peer = self.of_peer(place);
            of_peer.turns_awaited -= 1;
            self.waiting_peers -= u64::from(of_peer.turns_awaited == 0);
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
    /// The segments of a peer, which may be a new one.
    fn of_peer(&mut self, place: u32) -> &mut PeerGrants {
        let at = place as usize;
        if at >= self.expected_of.len() {
            self.expected_of.resize(at + 1, PeerGrants::default());
        }
        &mut self.expected_of[at]
    }

    /// How many segments of a turn and those before it each of the peers that wait in that turn may
    /// have in flight (rules 5 and 6). There is at least one.
    fn most_of(&self, turn: GrantTurn, peers: u64) -> u64 {
        let most = self.each.saturating_mul(peers);
        let part = self.window / self.waiting_peers;
        let is_divided = turn.is_some_and(|(_, urgency)| match urgency.role {
            MessageRole::Whole => true,
            // A quantum each must leave most of the window to the turn that is due.
            MessageRole::Part => urgency.order.is_some() && 2 * part > self.quantum,
        });
        match is_divided {
            true => most.min(self.quantum.max(part)),
            false => most,
        }
    }

    /// Segments in flight of later turns of the same operation.
    fn expected_behind(&self, turn: GrantTurn) -> u64 {
        let Some((step, urgency)) = turn else {
            return 0;
        };
        let Some(order) = urgency.order else {
            return 0;
        };
        let order = Some(ReceiveOrder {
            turn: u16::MAX,
            ..order
        });
        let last = Some((step, ReceiveUrgency { order, ..urgency }));
        if turn == last {
            return 0;
        }
        let behind = (self.turns).range((Bound::Excluded(turn), Bound::Included(last)));
        behind.map(|(_, segments)| segments).sum()
    }

    /// The first turn with a peer that may have another quantum in flight, and the peer's place in
    /// that rotation.
    fn next_with_room(&self) -> Option<(GrantTurn, usize)> {
        for (&turn, round) in &self.rounds {
            let expected = self.expected.saturating_sub(self.expected_behind(turn));
            if expected + self.quantum > self.window {
                return None;
            }
            let most = self.most_of(turn, round.len() as u64);
            let has_room = |&place: &u32| {
                let of_peer = self.expected_of.get(place as usize);
                of_peer.is_none_or(|of_peer| of_peer.until(turn) + self.quantum <= most)
            };
            // Peers without room fill the window, or are in doubt: there are few of them.
            if let Some(at) = round.iter().position(has_room) {
                return Some((turn, at));
            }
        }
        None
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
    use crate::priority::Urgency;
    use crate::units::Layer;

    fn urgency(layer: u16, role: MessageRole) -> ReceiveUrgency {
        let operation = Urgency::of(Layer(layer));
        ReceiveUrgency {
            operation: Some(operation),
            role,
            order: None,
        }
    }

    fn turn(step: u32, layer: u16) -> GrantTurn {
        let urgency = urgency(layer, MessageRole::Part);
        Some((StepSerial(step.into()), urgency))
    }

    fn some(turn: GrantTurn, segments: u32) -> TurnSegments {
        TurnSegments { turn, segments }
    }

    /// The peers that are granted segments until the window is full, if all need more.
    fn granted_to(grants: &mut Grants) -> Vec<u32> {
        let mut granted = Vec::new();
        while let Some(next) = grants.take() {
            granted.push(next.place);
            grants.expect(Instant::START, next.place, some(next.turn, next.most));
            grants.wait(next.turn, next.place, next.message);
        }
        granted
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
        let urgency = Some(urgency(0, MessageRole::Part));
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
    fn a_peer_with_a_full_window_lets_later_turns_go() {
        let mut grants = Grants::new(Some(60), 24);
        grants.wait(turn(0, 0), 1, MessageSerial(1));
        grants.wait(turn(0, 9), 2, MessageSerial(1));
        assert_eq!(granted_to(&mut grants), [1, 1, 1, 2, 2, 2]);
        grants.settle(1, some(turn(0, 0), 8));
        assert_eq!(grants.take().map(|next| next.place), Some(1));
    }

    #[test]
    fn segments_that_wait_behind_others_hold_up_no_urgent_ones() {
        let mut grants = Grants::new(Some(60), 24);
        grants.expect(Instant::START, 1, some(turn(0, 9), 24));
        grants.wait(turn(0, 0), 1, MessageSerial(1));
        grants.wait(turn(0, 9), 2, MessageSerial(1));
        assert_eq!(granted_to(&mut grants), [1, 1, 1, 2]);
    }

    /// A turn of an operation of unknown urgency.
    fn ordered(begun: u64, turn: u16) -> GrantTurn {
        let order = Some(ReceiveOrder {
            begun: Instant::START + Span::from_micros(begun),
            turn,
        });
        let urgency = ReceiveUrgency {
            operation: None,
            role: MessageRole::Part,
            order,
        };
        Some((StepSerial::default(), urgency))
    }

    /// The contributions of chunk 1 that are still missing, and the finished shards of chunk 0,
    /// which come unasked.
    #[test]
    fn what_comes_unasked_later_holds_up_no_earlier_message_of_its_operation() {
        let [contribution, shard, other] = [ordered(7, 2), ordered(7, 3), ordered(9, 0)];
        let granted = |unasked: GrantTurn| {
            let mut grants = Grants::new(Some(64), 24);
            grants.expect(Instant::START, 1, some(unasked, 1_000));
            grants.wait(shard, 3, MessageSerial(1));
            grants.wait(contribution, 2, MessageSerial(1));
            let granted = granted_to(&mut grants);
            grants.settle(1, some(unasked, 1_000));
            let after = granted_to(&mut grants);
            (granted, after[0])
        };
        assert_eq!(granted(shard), (vec![2; 3], 3));
        for unasked in [contribution, other] {
            assert_eq!(granted(unasked).0, [], "{unasked:?}");
        }
    }

    /// The last two contributions of a chunk come from peers that send to 14 others, too. Of many
    /// peers, equal parts would be too short.
    #[test]
    fn the_last_peers_of_a_turn_leave_room_for_the_next_turns() {
        let granted = |peers: u32| {
            let mut grants = Grants::new(Some(96), 60);
            for peer in 1..=2 {
                grants.wait(ordered(7, 2), peer, MessageSerial(1));
            }
            for peer in 1..=peers {
                grants.wait(ordered(7, 3), peer, MessageSerial(2));
            }
            granted_to(&mut grants)
        };
        let [few, many] = [15, 30].map(granted);
        assert_eq!(few, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(many, [1, 2].repeat(6));
    }

    #[test]
    fn peers_of_one_turn_share_the_window_and_none_runs_ahead() {
        let mut grants = Grants::new(Some(64), 24);
        for peer in [1, 2, 3] {
            grants.wait(turn(0, 0), peer, MessageSerial(1));
        }
        assert_eq!(granted_to(&mut grants), [1, 2, 3, 1, 2, 3, 1, 2]);
        // Peer 1 is slow: the others wait for it once it fills the window.
        let mut next = Vec::new();
        for _ in 0..3 {
            grants.settle(2, some(turn(0, 0), 8));
            next.extend(granted_to(&mut grants));
        }
        assert_eq!(next, [3, 1, 2]);
    }

    #[test]
    fn whole_results_leave_room_for_all_waiting_peers() {
        let of_layer = |layer| Some((StepSerial(0), urgency(layer, MessageRole::Whole)));
        let mut grants = Grants::new(Some(64), 64);
        for (layer, peer) in [(0, 1), (0, 2), (1, 3), (2, 4), (3, 4)] {
            grants.wait(of_layer(layer), peer, MessageSerial(layer.into()));
        }
        assert_eq!(granted_to(&mut grants), [1, 2, 1, 2, 3, 3, 4, 4]);
        // Once only two wait, each has half of the window.
        let mut grants = Grants::new(Some(64), 64);
        grants.wait(of_layer(0), 1, MessageSerial(0));
        grants.wait(of_layer(1), 2, MessageSerial(0));
        assert_eq!(granted_to(&mut grants), [1, 1, 1, 1, 2, 2, 2, 2]);
    }

    #[test]
    fn a_turn_that_becomes_known_counts_from_then_on() {
        let mut grants = Grants::new(Some(60), 24);
        grants.expect(Instant::START, 1, some(None, 24));
        grants.turn_is_known(1, some(turn(0, 9), 24));
        grants.wait(turn(0, 0), 1, MessageSerial(1));
        assert_eq!(grants.take().map(|next| next.place), Some(1));
        grants.forget(1);
        assert_eq!(
            (grants.expected, grants.expected_of[1].until(turn(9, 9))),
            (0, 0)
        );
    }

    #[test]
    fn doubted_segments_are_granted_to_others_again() {
        let (gap, start) = (Span::from_micros(50), Instant::START);
        let mut grants = Grants::new(Some(12), 12);
        grants.expect(start, 1, some(turn(0, 0), 8));
        grants.expect(start, 2, some(turn(0, 0), 4));
        grants.wait(turn(0, 0), 1, MessageSerial(1));
        grants.wait(turn(0, 1), 3, MessageSerial(1));
        assert_eq!(grants.take(), None, "the window is full");
        assert_eq!(grants.look_at(gap), Some(start + gap));
        let later = start + gap * GAPS_SILENT;
        grants.on_arrival(later, 2);
        grants.doubt(later, gap);
        assert_eq!(grants.take().map(|next| next.place), Some(1));
        grants.expect(later, 1, some(turn(0, 0), 4));
        grants.wait(turn(0, 0), 1, MessageSerial(1));
        let next = grants.take().map(|next| next.place);
        assert_eq!(
            next,
            Some(3),
            "the silent one has its window, though half of it is in doubt"
        );
        grants.expect(later, 3, some(turn(0, 1), 2));
        grants.wait(turn(0, 1), 3, MessageSerial(1));
        assert_eq!(grants.take(), None, "no more than half is in doubt");
        // Of its twelve the first six were replaced.
        grants.settle(1, some(turn(0, 0), 6));
        assert_eq!(grants.take(), None);
        grants.settle(1, some(turn(0, 0), 2));
        assert_eq!(grants.take().map(|next| next.place), Some(1));
    }

    #[test]
    fn unscheduled_starts_in_doubt_leave_half_the_window() {
        let (gap, start) = (Span::from_micros(50), Instant::START);
        let mut grants = Grants::new(Some(12), 100);
        (1..=20).for_each(|peer| grants.expect(start, peer, some(turn(0, 0), 100)));
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
            let turn = turn(0, peer as u16);
            grants.expect(Instant::START, peer, some(turn, 8));
            grants.wait(turn, peer, MessageSerial(1));
        }
        grants.wait(turn(0, 100), 100, MessageSerial(1));
        assert_eq!(grants.take().map(|next| next.place), Some(100));
    }

    #[test]
    fn a_window_below_a_quantum_is_granted_whole() {
        let mut grants = Grants::new(Some(59), 7);
        grants.expect(Instant::START, 1, some(turn(0, 0), 1));
        grants.wait(turn(0, 0), 1, MessageSerial(1));
        assert_eq!(
            grants.take(),
            None,
            "its window has no room for more of a part"
        );
        grants.settle(1, some(turn(0, 0), 1));
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

//! Order on a path: a lost packet is noticed as soon as a later packet of its path arrives.
//!
//! Switches hash all packets of one class and entropy to the same queues, which keep their order.
//! These packets share a *path*.
//!
//! 1. The sender numbers the DATA and PROBE packets of each path ([`PathNumbers`]).
//! 2. The receiver follows the numbers ([`ArrivalOrder`]). Numbers that are skipped belong to
//!    packets that are lost, unless the path has let others overtake them. The next report names
//!    them to the sender, which knows what these packets carried. A mistake costs a duplicate.
//! 3. When all of a message that tolerates loss was sent, PROBE names its last packet on each path.
//!    Once every path has passed it, each segment that is missing is lost, and the receiver need
//!    not wait for a gap. Here a mistake would lose a segment that only came late, so the paths are
//!    trusted only if the job says so ([`PacketOrder::Kept`]) or 4,096 packets in a row have
//!    arrived in order, each sent so soon after the one before that it could have overtaken it.
//! 4. Packets that overtake each other, because switches spray or reroute them, show at once: a
//!    number arrives after a higher one. From then on neither rule is used, and gaps and time
//!    decide as on paths that never keep order, until twice as many packets have arrived in order
//!    as the last time.

use serde::{Deserialize, Serialize};

use crate::job::PacketOrder;
use crate::settings::EndpointSettings;
use crate::units::{Class, Entropy, PathNumber};
use crate::wire::PathMark;

/// Only packets that are sent this close to the one before on their path could overtake it: the
/// order of others proves nothing. In microseconds: the default of `transport.gap`.
const CLOSE_MICROS: u32 = 1_000;
/// The proof doubles at most this often.
const PROOF_DOUBLINGS: u32 = 16;
/// Number of packets before the newest one of a path for which arrival is remembered.
const REMEMBERED: u32 = 32;

/// A path's place in a table of all paths to or from one peer.
fn place(class: Class, entropy: Entropy, entropies: u8) -> usize {
    usize::from(class.0) * usize::from(entropies) + usize::from(entropy.0)
}

/// Values of paths by [`place`], from the first to the last one that has some: most pairs use a few
/// paths that follow each other, and a fabric has millions of pairs.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct PathTable<T> {
    /// The place of the first value.
    start: usize,
    values: Vec<T>,
}

impl<T> Default for PathTable<T> {
    fn default() -> Self {
        Self {
            start: 0,
            values: Vec::new(),
        }
    }
}

impl<T: Copy> PathTable<T> {
    #[inline]
    fn get(&self, place: usize) -> Option<&T> {
        self.values.get(place.wrapping_sub(self.start))
    }

    #[inline]
    fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.values.get_mut(place.wrapping_sub(self.start))
    }

    /// Extends the table to the path at this place. If that comes before all others, it and those
    /// up to them get `before`; otherwise it and those from the last one on get `after`.
    fn reach(&mut self, place: usize, before: T, after: T) {
        if self.values.is_empty() {
            self.start = place;
        } else if let Some(more) = self.start.checked_sub(place) {
            self.values.splice(0..0, std::iter::repeat_n(before, more));
            self.start = place;
        }
        let length = self.values.len().max(place + 1 - self.start);
        self.values.resize(length, after);
    }
}

/// The numbers of the packets to one peer.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct PathNumbers {
    entropies: u8,
    first: PathNumber,
    /// The next packet's number.
    next: PathTable<PathNumber>,
}

impl PathNumbers {
    /// Of paths on which no packet was sent.
    pub(crate) fn new(settings: &EndpointSettings) -> Self {
        Self {
            entropies: settings.entropies,
            first: settings.first_number,
            next: PathTable::default(),
        }
    }

    /// Numbers `packets` packets that leave on this path; returns the number of the first.
    pub(crate) fn take(&mut self, class: Class, entropy: Entropy, packets: u32) -> PathMark {
        let at = place(class, entropy, self.entropies);
        if self.next.get(at).is_none() {
            self.next.reach(at, self.first, self.first);
        }
        let next = self.next.get_mut(at).expect("the table reaches it");
        let number = *next;
        *next = number.plus(packets);
        PathMark {
            class,
            entropy,
            number,
        }
    }

    /// The packets of a path from this one on did not leave. Later numbers that were already used
    /// stay used: the receiver sees a gap in the numbers, and its sender knows the reason.
    pub(crate) fn give_back(&mut self, first: PathMark, packets: u32) {
        let next = (self.next).get_mut(place(first.class, first.entropy, self.entropies));
        if let Some(next) = next.filter(|next| **next == first.number.plus(packets)) {
            *next = first.number;
        }
    }

    /// Whether this packet is the last one that has left on its path.
    pub(crate) fn is_last(&self, mark: PathMark) -> bool {
        let next = (self.next).get(place(mark.class, mark.entropy, self.entropies));
        next == Some(&mark.number.plus(1))
    }
}

/// What the number of an arrived packet shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PathPassage {
    /// It shows no packet before it to be missing for the first time.
    InOrder,
    /// Packets before it are missing.
    Skips,
    /// A later packet of its path has overtaken it.
    Overtaken,
}

/// One path of a peer.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct PathArrivals {
    /// The number of the next packet, if no packet is lost.
    next: PathNumber,
    /// Bit b: the packet b + 1 before `next` has arrived.
    came: u32,
    /// When its newest packet was sent, in wrapped microseconds.
    sent_at: u32,
}

impl PathArrivals {
    /// A packet arrives after `skipped` others that have not; returns whether that proves something
    /// about order.
    #[inline]
    fn advance(&mut self, skipped: u32, sent_at: u32) -> bool {
        self.next = self.next.plus(skipped + 1);
        self.came = self.came.checked_shl(skipped + 1).unwrap_or(0) | 1;
        let apart = sent_at.wrapping_sub(self.sent_at);
        self.sent_at = sent_at;
        apart <= CLOSE_MICROS
    }
}

/// Whether the packets from a peer keep their order on each path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OrderTrust {
    /// No packet was overtaken so far, but too few are known: gaps decide about holes.
    Unproven,
    /// They do: a later packet of a path shows that an earlier one is lost.
    Kept,
    /// Packets were overtaken recently: gaps and time decide.
    Broken,
}

/// The packets that have arrived from one peer, path by path.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ArrivalOrder {
    /// Packets that must arrive in order before the paths are trusted to keep it.
    proof: u32,
    /// Of paths up to the last one on which packets have arrived.
    paths: PathTable<PathArrivals>,
    /// When the first packet was sent, in wrapped microseconds.
    began: u32,
    /// Packets that have arrived close together and in order since one was overtaken.
    in_order: u32,
    overtakings: u32,
}

impl ArrivalOrder {
    /// Paths without packets, trusted after `proof` of them have arrived in order.
    pub(crate) fn new(proof: u32) -> Self {
        Self {
            proof,
            paths: PathTable::default(),
            began: 0,
            in_order: 0,
            overtakings: 0,
        }
    }

    /// Whether this packet is the next one of its path. Then those behind it in its run are, too.
    pub(crate) fn expects(&self, packet: PathMark, settings: &EndpointSettings) -> bool {
        let path = place(packet.class, packet.entropy, settings.entropies);
        packet.entropy.0 < settings.entropies
            && (self.paths.get(path)).is_some_and(|path| path.next == packet.number)
    }

    /// The packets behind the last one that has arrived follow it, in the same run.
    #[inline]
    pub(crate) fn on_followers(
        &mut self,
        last: PathMark,
        followers: u32,
        settings: &EndpointSettings,
    ) {
        let path = place(last.class, last.entropy, settings.entropies);
        if let Some(path) = self.paths.get_mut(path) {
            path.next = path.next.plus(followers);
            let came = path.came.checked_shl(followers).unwrap_or(0);
            path.came = came | u32::MAX >> (32 - followers.min(32));
            // They were sent at the same time.
            self.in_order = self.in_order.saturating_add(followers);
        }
    }

    /// A DATA or PROBE packet has arrived; `sent_at` is its sender's clock in wrapped microseconds.
    #[inline]
    pub(crate) fn on_packet(
        &mut self,
        packet: PathMark,
        sent_at: u32,
        settings: &EndpointSettings,
    ) -> PathPassage {
        let at = place(packet.class, packet.entropy, settings.entropies);
        // Most packets are the next ones of their path.
        if packet.entropy.0 < settings.entropies
            && let Some(path) = self.paths.get_mut(at)
            && path.next == packet.number
        {
            let proves = path.advance(0, sent_at);
            self.in_order = self.in_order.saturating_add(u32::from(proves));
            return PathPassage::InOrder;
        }
        self.on_surprise(packet, sent_at, settings)
    }

    /// A packet has arrived that is the first of its path, or not the expected one.
    #[inline(never)]
    fn on_surprise(
        &mut self,
        packet: PathMark,
        sent_at: u32,
        settings: &EndpointSettings,
    ) -> PathPassage {
        let entropies = settings.entropies;
        let classes = settings.policy.dscps.len();
        if packet.entropy.0 >= entropies || usize::from(packet.class.0) >= classes {
            return PathPassage::InOrder;
        }
        let at = place(packet.class, packet.entropy, entropies);
        if self.paths.get(at).is_none() {
            self.begin(at, sent_at, settings.first_number);
        }
        let path = self.paths.get_mut(at).expect("the table reaches it");
        let ahead = packet.number.ahead_of(path.next);
        if ahead >= 0 {
            let proves = path.advance(ahead.unsigned_abs(), sent_at);
            self.in_order = self.in_order.saturating_add(u32::from(proves));
            return match ahead {
                0 => PathPassage::InOrder,
                _ => PathPassage::Skips,
            };
        }
        let behind = ahead.unsigned_abs();
        if behind <= REMEMBERED {
            let bit = 1 << (behind - 1);
            if path.came & bit != 0 {
                return PathPassage::InOrder;
            }
            path.came |= bit;
        }
        self.in_order = 0;
        self.overtakings = self.overtakings.saturating_add(1);
        PathPassage::Overtaken
    }

    /// The first packet of the path at this place.
    fn begin(&mut self, at: usize, sent_at: u32, next: PathNumber) {
        let fresh = |sent_at| PathArrivals {
            next,
            came: 0,
            sent_at,
        };
        if self.paths.values.is_empty() {
            self.began = sent_at;
        }
        self.paths.reach(at, fresh(self.began), fresh(sent_at));
    }

    /// Whether the peer's paths are trusted to keep order.
    pub(crate) fn is_trusted(&self, order: PacketOrder) -> bool {
        let is_said = order == PacketOrder::Kept && self.overtakings == 0;
        is_said || self.in_order >= self.proof << self.overtakings.min(PROOF_DOUBLINGS)
    }

    /// The degree of trust, for people.
    pub(crate) fn trust(&self, order: PacketOrder) -> OrderTrust {
        match (self.is_trusted(order), self.may_be_kept()) {
            (true, _) => OrderTrust::Kept,
            (false, true) => OrderTrust::Unproven,
            (false, false) => OrderTrust::Broken,
        }
    }

    /// Whether they may keep order, as far as is known: no packet was overtaken recently.
    pub(crate) fn may_be_kept(&self) -> bool {
        self.overtakings == 0 || self.is_trusted(PacketOrder::Auto)
    }

    /// Whether a packet of its path after `mark`, or this one itself, has arrived.
    pub(crate) fn has_passed(&self, mark: PathMark, entropies: u8) -> bool {
        let path = self.paths.get(place(mark.class, mark.entropy, entropies));
        path.is_some_and(|path| path.next.ahead_of(mark.number) > 0)
    }

    /// The path with the number of its next packet.
    pub(crate) fn passed(&self, path: PathMark, entropies: u8) -> PathMark {
        let place = place(path.class, path.entropy, entropies);
        let number = self.paths.get(place).map_or(path.number, |path| path.next);
        PathMark { number, ..path }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Job;
    use crate::settings::{EndpointLimits, Identity};
    use crate::units::{JobId, Rank};

    const ORDER_PROOF: u32 = EndpointLimits::USUAL.order_proof;

    fn unproven() -> ArrivalOrder {
        ArrivalOrder::new(ORDER_PROOF)
    }

    fn settings() -> EndpointSettings {
        let identity = Identity {
            rank: Rank(0),
            world_size: 2,
            job: JobId(1),
            epoch: 0,
        };
        EndpointSettings::new(identity, &Job::default())
    }

    fn packet(number: u32) -> PathMark {
        PathMark {
            class: Class(1),
            entropy: Entropy(2),
            number: PathNumber(number),
        }
    }

    fn proven() -> ArrivalOrder {
        let mut order = unproven();
        for number in 0..ORDER_PROOF {
            assert!(!order.is_trusted(PacketOrder::Auto));
            assert_eq!(
                order.on_packet(packet(number), 0, &settings()),
                PathPassage::InOrder
            );
        }
        assert!(order.is_trusted(PacketOrder::Auto));
        order
    }

    #[test]
    fn packets_far_apart_prove_no_order() {
        let mut order = unproven();
        for number in 0..2 * ORDER_PROOF {
            let sent_at = number.wrapping_mul(CLOSE_MICROS + 1);
            order.on_packet(packet(number), sent_at, &settings());
            assert!(!order.is_trusted(PacketOrder::Auto));
        }
    }

    #[test]
    fn a_skipped_number_shows_at_the_next_packet() {
        let mut order = proven();
        assert_eq!(
            order.on_packet(packet(ORDER_PROOF + 2), 0, &settings()),
            PathPassage::Skips
        );
        assert!(order.has_passed(packet(ORDER_PROOF + 2), 8));
        assert!(!order.has_passed(packet(ORDER_PROOF + 3), 8));
        assert_eq!(order.passed(packet(0), 8), packet(ORDER_PROOF + 3));
        assert!(order.is_trusted(PacketOrder::Auto), "loss is no disorder");
    }

    #[test]
    fn an_overtaken_packet_ends_the_trust_for_longer_each_time() {
        let mut order = proven();
        let mut next = ORDER_PROOF;
        for doubled in 1..4 {
            assert_eq!(
                order.on_packet(packet(next + 1), 0, &settings()),
                PathPassage::Skips
            );
            assert_eq!(
                order.on_packet(packet(next), 0, &settings()),
                PathPassage::Overtaken
            );
            next += 2;
            for _ in 0..ORDER_PROOF << doubled {
                assert!(!order.is_trusted(PacketOrder::Auto));
                order.on_packet(packet(next), 0, &settings());
                next += 1;
            }
            assert!(order.is_trusted(PacketOrder::Auto));
        }
    }

    #[test]
    fn paths_that_a_job_trusts_lose_it_by_one_overtaking() {
        let mut order = unproven();
        assert!(order.is_trusted(PacketOrder::Kept) && order.may_be_kept());
        order.on_packet(packet(1), 0, &settings());
        assert!(order.is_trusted(PacketOrder::Kept), "loss is no disorder");
        order.on_packet(packet(0), 0, &settings());
        assert!(!order.is_trusted(PacketOrder::Kept) && !order.may_be_kept());
    }

    #[test]
    fn trust_is_unproven_then_kept_then_broken() {
        let mut order = unproven();
        assert_eq!(order.trust(PacketOrder::Auto), OrderTrust::Unproven);
        assert_eq!(order.trust(PacketOrder::Kept), OrderTrust::Kept);
        order = proven();
        assert_eq!(order.trust(PacketOrder::Auto), OrderTrust::Kept);
        order.on_packet(packet(ORDER_PROOF + 1), 0, &settings());
        order.on_packet(packet(ORDER_PROOF), 0, &settings());
        assert_eq!(order.trust(PacketOrder::Auto), OrderTrust::Broken);
        assert_eq!(order.trust(PacketOrder::Kept), OrderTrust::Broken);
    }

    #[test]
    fn a_packet_that_comes_twice_is_not_overtaken() {
        let mut order = proven();
        assert_eq!(
            order.on_packet(packet(ORDER_PROOF - 1), 0, &settings()),
            PathPassage::InOrder
        );
        assert_eq!(
            order.on_packet(packet(ORDER_PROOF - 30), 0, &settings()),
            PathPassage::InOrder
        );
        assert!(order.is_trusted(PacketOrder::Auto));
    }

    #[test]
    fn numbers_wrap_without_a_skip_or_an_overtaking() {
        let mut order = unproven();
        order.on_packet(packet(i32::MAX as u32), 0, &settings());
        order.on_packet(packet(u32::MAX - 1), 0, &settings());
        assert_eq!(
            order.on_packet(packet(u32::MAX), 0, &settings()),
            PathPassage::InOrder
        );
        assert_eq!(
            order.on_packet(packet(1), 0, &settings()),
            PathPassage::Skips
        );
        assert_eq!(
            order.on_packet(packet(0), 0, &settings()),
            PathPassage::Overtaken
        );
        assert!(order.has_passed(packet(u32::MAX), 8));
    }

    #[test]
    fn any_number_of_a_stranger_is_taken_without_a_panic() {
        for first in [0, 1, 1 << 31, u32::MAX] {
            for second in [0, 1, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, u32::MAX] {
                let mut order = unproven();
                order.on_packet(packet(first), 0, &settings());
                order.on_packet(packet(first.wrapping_add(second)), 0, &settings());
            }
        }
    }

    #[test]
    fn packets_of_no_path_of_the_job_count_for_nothing() {
        let mut order = proven();
        for (class, entropy) in [(255, 0), (0, 8), (64, 0)] {
            let stray = PathMark {
                class: Class(class),
                entropy: Entropy(entropy),
                number: PathNumber(1 << 30),
            };
            assert_eq!(order.on_packet(stray, 0, &settings()), PathPassage::InOrder);
        }
        assert_eq!(order.paths.values.len(), 1);
    }

    #[test]
    fn tables_reach_from_the_first_path_that_is_used_to_the_last() {
        let settings = settings();
        let mut few = PathNumbers::new(&settings);
        for (entropy, length) in [(4, 1), (6, 3), (5, 3), (3, 4)] {
            few.take(Class(3), Entropy(entropy), 1);
            assert_eq!(few.next.values.len(), length, "with path {entropy}");
        }
        let (mut numbers, mut order) = (PathNumbers::new(&settings), unproven());
        let mut full = std::collections::BTreeMap::new();
        for (turn, class) in [3, 3, 5, 1, 3, 1, 6, 1].into_iter().enumerate() {
            for entropy in [7, 0, 4] {
                let mark = numbers.take(Class(class), Entropy(entropy), 2);
                let next = full.entry((class, entropy)).or_insert(0);
                assert_eq!(mark.number, PathNumber(*next), "turn {turn}");
                assert_eq!(
                    order.on_packet(mark, 0, &settings),
                    PathPassage::InOrder,
                    "turn {turn}"
                );
                order.on_followers(mark, 1, &settings);
                assert!(order.has_passed(mark, settings.entropies));
                *next += 2;
            }
        }
        let entropies = usize::from(settings.entropies);
        assert_eq!(numbers.next.values.len(), 6 * entropies);
        let unused = PathMark {
            class: Class(0),
            ..packet(0)
        };
        assert!(!order.has_passed(unused, settings.entropies));
    }

    #[test]
    fn numbers_of_packets_that_did_not_leave_are_used_again() {
        let mut numbers = PathNumbers::new(&settings());
        let first = numbers.take(Class(1), Entropy(2), 5);
        assert!(numbers.is_last(packet(4)));
        let unsent = PathMark {
            number: first.number.plus(3),
            ..first
        };
        numbers.give_back(unsent, 2);
        assert_eq!(numbers.take(Class(1), Entropy(2), 1), packet(3));
        numbers.give_back(unsent, 2);
        assert_eq!(
            numbers.take(Class(1), Entropy(2), 1),
            packet(4),
            "used since"
        );
    }
}

//! The peers of an endpoint, awake or packed.
//!
//! 1. A peer has an *entry*, which the endpoint reads for every run, and a *state*: its sender, its
//!    receiver and its round trip, about 6 KB with their messages.
//! 2. An all-to-all of a thousand ranks that one computer simulates has a million peers, most of
//!    which are at rest at any time. So at most [`EndpointLimits::awake_peers`] of an endpoint are
//!    *awake*. The states of the others, those that were not used lately, are *packed* into bytes,
//!    a tenth as many. Waking restores a state exactly, so packing costs time and changes no
//!    packet. Every field is written and read, but for the traffic: while that is counted, no peer
//!    is packed. Nothing may depend on the capacity of a list.
//!
//! [`EndpointLimits::awake_peers`]: crate::settings::EndpointLimits::awake_peers

use std::collections::VecDeque;
use std::ops::{Deref, Index, IndexMut};

use super::peer::{EndpointPeer, NextTurn, PeerEntry};
use crate::priority::SendTurn;
use crate::reach::RankState;
use crate::units::Rank;

/// The peers of an endpoint, by place. Indexing gives entries.
#[derive(Debug)]
pub(super) struct Peers {
    slots: Vec<PeerSlot>,
    /// The place of each rank that has a peer, by rank.
    places: Vec<(Rank, u32)>,
    /// The peers that are awake, in the order in which they are looked at to be packed.
    awake: VecDeque<u32>,
    awake_max: usize,
    /// Whether traffic is counted, in states that are too large to be packed.
    counts_traffic: bool,
    /// Room for a state that is being packed.
    buffer: Vec<u8>,
}

/// A peer's entry, and its state in one of two forms.
#[derive(Debug)]
struct PeerSlot {
    entry: PeerEntry,
    /// `None` while it is packed.
    awake: Option<Box<EndpointPeer>>,
    /// Whether it was used since it was last looked at to be packed.
    was_used: bool,
    packed: PackedPeer,
}

/// The state of a peer that is packed.
#[derive(Debug, Default)]
struct PackedPeer {
    bytes: Box<[u8]>,
    work: PeerWork,
}

/// Whether messages to or from a peer have not ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeerWork {
    pub(super) sends: bool,
    pub(super) receives: bool,
}

/// A peer for reading: itself, or a copy while it is packed.
pub(super) enum PeerView<'a> {
    Awake(&'a EndpointPeer),
    Copy(Box<EndpointPeer>),
}

impl Deref for PeerView<'_> {
    type Target = EndpointPeer;

    fn deref(&self) -> &EndpointPeer {
        match self {
            Self::Awake(peer) => peer,
            Self::Copy(peer) => peer,
        }
    }
}

impl Peers {
    pub(super) fn new(awake_max: usize) -> Self {
        Self {
            slots: Vec::new(),
            places: Vec::new(),
            awake: VecDeque::new(),
            awake_max,
            counts_traffic: false,
            buffer: Vec::new(),
        }
    }

    /// From now on at most this many peers are awake; the one in use always is.
    pub(super) fn set_awake_max(&mut self, most: usize) {
        self.awake_max = most;
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The places of all peers, by rank.
    pub(super) fn by_rank(&self) -> impl Iterator<Item = usize> {
        self.places.iter().map(|&(_, at)| at as usize)
    }

    /// The place of a rank that has a peer.
    pub(super) fn find(&self, rank: Rank) -> Option<usize> {
        let place = self.search(rank);
        place.ok().map(|at| self.places[at].1 as usize)
    }

    /// The place of a rank, which gets a peer if it has none.
    pub(super) fn place(&mut self, rank: Rank, common: &RankState, seed: u64) -> usize {
        match self.search(rank) {
            Ok(at) => self.places[at].1 as usize,
            Err(at) => {
                let world_size = common.network.identity.world_size;
                assert!(rank.0 < world_size, "a rank of the job");
                let place = self.slots.len();
                self.places.insert(at, (rank, place as u32));
                self.make_room(place);
                let mut peer = Box::new(EndpointPeer::new(rank, common, seed));
                peer.traffic = self.counts_traffic.then(Box::default);
                self.slots.push(PeerSlot {
                    entry: PeerEntry::new(rank, common),
                    awake: Some(peer),
                    was_used: true,
                    packed: PackedPeer::default(),
                });
                place
            }
        }
    }

    fn search(&self, rank: Rank) -> Result<usize, usize> {
        self.places.binary_search_by_key(&rank, |&(rank, _)| rank)
    }

    /// The state of the peer at a place, which may be changed.
    #[inline]
    pub(super) fn wake(&mut self, at: usize) -> &mut EndpointPeer {
        if self.slots[at].awake.is_none() {
            self.unpack(at);
        }
        let slot = &mut self.slots[at];
        slot.was_used = true;
        slot.awake.as_mut().expect("it is not packed any more")
    }

    #[cold]
    fn unpack(&mut self, at: usize) {
        self.make_room(at);
        let slot = &mut self.slots[at];
        slot.awake = Some(std::mem::take(&mut slot.packed).unpacked());
    }

    /// The state of the peer at a place.
    pub(super) fn view(&self, at: usize) -> PeerView<'_> {
        let slot = &self.slots[at];
        match &slot.awake {
            Some(peer) => PeerView::Awake(peer),
            None => PeerView::Copy(slot.packed.unpacked()),
        }
    }

    /// The states of the peers that are awake.
    pub(super) fn awake(&self) -> impl Iterator<Item = &EndpointPeer> {
        self.slots.iter().filter_map(|slot| slot.awake.as_deref())
    }

    /// The states of all peers.
    pub(super) fn views(&self) -> impl Iterator<Item = PeerView<'_>> {
        (0..self.len()).map(|at| self.view(at))
    }

    /// Which peers have messages that have not ended.
    pub(super) fn works(&self) -> impl Iterator<Item = PeerWork> {
        let slots = self.slots.iter();
        slots.map(|slot| {
            let awake = slot.awake.as_ref();
            awake.map_or(slot.packed.work, |peer| peer.work())
        })
    }

    /// The turn of what is sent next to the peer at a place; `None` when there is nothing.
    pub(super) fn turn(&mut self, at: usize) -> Option<SendTurn> {
        if let NextTurn::Known(turn) = self[at].turn {
            return turn;
        }
        let turn = self.wake(at).sender.next_turn();
        self[at].turn = NextTurn::Known(turn);
        turn
    }

    /// Begins to count the traffic of each peer. None is packed from now on.
    pub(super) fn count_traffic(&mut self) {
        self.counts_traffic = true;
        for at in 0..self.len() {
            self.wake(at).traffic = Some(Box::default());
        }
    }

    /// The peer at a place is about to be awake. If there are too many, packs those that were not
    /// used lately.
    fn make_room(&mut self, at: usize) {
        while self.awake.len() >= self.awake_max
            && !self.counts_traffic
            && let Some(first) = self.awake.pop_front()
        {
            let slot = &mut self.slots[first as usize];
            match std::mem::take(&mut slot.was_used) {
                true => self.awake.push_back(first),
                false => slot.pack(&mut self.buffer),
            }
        }
        self.awake.push_back(at as u32);
    }
}

impl PeerSlot {
    fn pack(&mut self, buffer: &mut Vec<u8>) {
        let peer = self.awake.take().expect("it is listed as awake");
        let bytes = loop {
            match postcard::to_slice(&peer, buffer) {
                Ok(bytes) => break Box::from(&*bytes),
                Err(postcard::Error::SerializeBufferFull) => {
                    buffer.resize(2 * buffer.len().max(512), 0);
                }
                Err(error) => panic!("a state can be written: {error}"),
            }
        };
        let work = peer.work();
        self.packed = PackedPeer { bytes, work };
    }
}

impl PackedPeer {
    fn unpacked(&self) -> Box<EndpointPeer> {
        let peer = postcard::from_bytes(&self.bytes);
        Box::new(peer.expect("the bytes of a state"))
    }
}

impl Index<usize> for Peers {
    type Output = PeerEntry;

    #[inline]
    fn index(&self, at: usize) -> &PeerEntry {
        &self.slots[at].entry
    }
}

impl IndexMut<usize> for Peers {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut PeerEntry {
        &mut self.slots[at].entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{LengthRule, ReceiveRequest};
    use crate::reach::tests::rank_state;
    use crate::sender::tests::request;
    use crate::units::{Instant, Span};

    const NOW: Instant = Instant::START;

    /// All fields, also those that are not packed.
    fn fields(peer: &EndpointPeer) -> String {
        format!("{peer:?}")
    }

    /// Sends a message to a peer and waits for one of it.
    fn use_peer(peer: &mut EndpointPeer, common: &mut RankState) {
        let settings = common.settings(peer.reach);
        let outgoing = request(settings, 4);
        let incoming = ReceiveRequest {
            key: outgoing.key,
            signature: outgoing.signature,
            step: outgoing.step,
            bytes: outgoing.bytes,
            length: LengthRule::Exact,
            tolerance: outgoing.tolerance,
            urgency: None,
            patience_ends: None,
        };
        peer.sender.send(NOW, outgoing, settings);
        let mut lent = common.lend(NOW, 0, peer.reach, &peer.rtt);
        peer.receiver.expect(incoming, &mut lent);
        peer.rtt.sample(Span::from_micros(u64::from(peer.rank.0)));
    }

    #[test]
    fn peers_beyond_the_most_are_packed_and_are_the_same_when_they_wake() {
        let mut common = rank_state(9);
        let (mut all, mut few) = (Peers::new(usize::MAX), Peers::new(3));
        for rank in (1..9).map(Rank) {
            for peers in [&mut all, &mut few] {
                let at = peers.place(rank, &common, 5);
                use_peer(peers.wake(at), &mut common);
            }
        }
        assert_eq!((all.awake().count(), few.awake().count()), (8, 3));
        assert!(few.works().all(|work| work.sends && work.receives));
        for at in [0, 5, 0, 7, 1, 0] {
            let seen = fields(&few.view(at));
            assert_eq!(fields(all.wake(at)), seen, "read peer {at}");
            assert_eq!(few.awake().count(), 3, "a look wakes no peer");
            let (turn, other) = (all.turn(at), few.turn(at));
            assert_eq!(turn, other, "the turn of peer {at}");
            assert_eq!(fields(all.wake(at)), fields(few.wake(at)), "peer {at}");
            assert_eq!(few.awake().count(), 3);
        }
    }

    #[test]
    fn a_peer_whose_traffic_is_counted_is_not_packed() {
        let common = rank_state(9);
        let mut peers = Peers::new(1);
        for rank in [1, 2] {
            peers.place(Rank(rank), &common, 5);
        }
        peers.count_traffic();
        peers.set_awake_max(1);
        for rank in [3, 4] {
            peers.place(Rank(rank), &common, 5);
        }
        assert!(peers.views().all(|peer| peer.traffic.is_some()));
        assert_eq!(peers.awake().count(), 4);
    }
}

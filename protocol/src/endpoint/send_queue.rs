//! The queue of peers that may have data to send.
//!
//! The first is the one whose next segment has the first turn, among equal turns in rotation. All
//! share this rank's link, and urgent segments must not wait for others there. A rank may send to
//! hundreds of peers at once, so for a run only those are asked that have changed. The run goes to
//! the first peer in rotation that has the turn of the run before, or the earliest turn of those
//! that have changed if that comes first. All are compared only if no peer has that turn any more.

use std::collections::VecDeque;

use super::peer::{NextTurn, PeerEntry};
use super::peers::Peers;
use crate::priority::SendTurn;

/// The peers that may have data to send, in rotation.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    queue: VecDeque<u32>,
    /// The peers of the queue that have changed since they were asked for their turn. Some may have
    /// left the queue since.
    changed: Vec<u32>,
    /// No peer of the queue has an earlier turn, apart from those that have changed.
    first: Option<SendTurn>,
}

impl SendQueue {
    /// Adds the peer at a place, behind all others.
    pub(super) fn push(&mut self, at: usize) {
        self.queue.push_back(at as u32);
        self.changed.push(at as u32);
    }

    /// The peer at a place may have another turn from now on.
    pub(super) fn on_change(&mut self, at: usize, entry: &mut PeerEntry) {
        let before = std::mem::replace(&mut entry.turn, NextTurn::Unknown);
        if entry.sends && matches!(before, NextTurn::Known(_)) {
            self.changed.push(at as u32);
        }
    }

    /// Removes the peer to ask for a run next. One that has nothing to send precedes all others,
    /// so that it leaves the queue.
    pub(super) fn pop(&mut self, peers: &mut Peers) -> Option<usize> {
        if self.queue.len() < 2 {
            self.changed.clear();
            return self.queue.pop_front().map(|at| at as usize);
        }
        while let Some(at) = self.changed.pop() {
            match peers.turn(at as usize) {
                Some(turn) => self.first = self.first.min(Some(turn)),
                // It has often just sent its last packets, so it stands at the end.
                None => {
                    if let Some(place) = self.queue.iter().rposition(|&queued| queued == at) {
                        self.queue.remove(place);
                        return Some(at as usize);
                    }
                }
            }
        }
        let mut turns = self.queue.iter().map(|&at| peers.turn(at as usize));
        let place = match turns.position(|turn| turn <= self.first) {
            Some(place) => place,
            None => self.find_first(peers)?,
        };
        self.queue.remove(place).map(|at| at as usize)
    }

    /// The place in the queue of the peer with the first turn.
    fn find_first(&mut self, peers: &mut Peers) -> Option<usize> {
        let turns = self.queue.iter().map(|&at| peers.turn(at as usize));
        let (place, first) = turns.enumerate().min_by_key(|&(_, turn)| turn)?;
        self.first = first;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::priority::{SendAttempt, Urgency};
    use crate::reach::tests::rank_state;
    use crate::units::{Layer, Rank};

    const PEERS: usize = 6;

    fn peers() -> Peers {
        let common = rank_state(1 + PEERS as u16);
        let mut peers = Peers::new(usize::MAX);
        for rank in (1..=PEERS as u16).map(Rank) {
            peers.place(rank, &common, 1);
        }
        peers
    }

    fn turn(layer: Option<u16>) -> Option<SendTurn> {
        layer.map(|layer| SendTurn::Segments(Urgency::of(Layer(layer)), SendAttempt::First))
    }

    proptest! {
        /// `None`: a peer is taken out. Otherwise a peer gets another turn, and is in the queue.
        /// One without a turn is asked for it, and has no message.
        #[test]
        fn the_first_turn_goes_first_and_equal_ones_rotate(
            steps in prop::collection::vec(
                prop::option::of((0..PEERS, prop::option::of(0..3_u16))),
                0..200,
            ),
        ) {
            let (mut peers, mut queue) = (peers(), SendQueue::default());
            let mut model: Vec<(usize, Option<SendTurn>)> = Vec::new();
            for step in steps {
                let Some((at, layer)) = step else {
                    let popped = queue.pop(&mut peers);
                    let first = model.iter().map(|&(_, turn)| turn).min();
                    match popped {
                        Some(at) => {
                            let place = model.iter().position(|&(peer, _)| peer == at);
                            let place = place.expect("it was in the queue");
                            let alike = model.iter().position(|&(_, turn)| Some(turn) == first);
                            prop_assert!(first == Some(None) || alike == Some(place));
                            prop_assert_eq!(Some(model.remove(place).1), first);
                            peers[at].sends = false;
                        }
                        None => prop_assert!(model.is_empty()),
                    }
                    continue;
                };
                queue.on_change(at, &mut peers[at]);
                if layer.is_some() {
                    peers[at].turn = NextTurn::Known(turn(layer));
                }
                match model.iter_mut().find(|(peer, _)| *peer == at) {
                    Some((_, known)) => *known = turn(layer),
                    None => {
                        model.push((at, turn(layer)));
                        peers[at].sends = true;
                        queue.push(at);
                    }
                }
            }
        }
    }
}

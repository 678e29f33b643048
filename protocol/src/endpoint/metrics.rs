//! An endpoint's metrics: keeping them, and giving out a copy.

use super::Endpoint;
use super::peer::EndpointPeer;
use crate::event::EndpointEvent;
use crate::footprint::EndpointFootprint;
use crate::job::PacketOrder;
use crate::metrics::{CarriedBytes, EndpointMetrics, PeerMetrics, PeerStanding};
use crate::sender::SentMessage;

impl Endpoint {
    /// Keeps sums per peer and class and the times of messages and round trips from now on: about
    /// 12 KiB per peer and per class.
    pub fn keep_metrics(&mut self) {
        self.message_times = Some(Box::default());
        self.peers.count_traffic();
    }

    /// A copy of all counts and times.
    pub fn metrics(&self) -> EndpointMetrics {
        let order = self.common.network.order;
        let peers = (self.peers.by_rank()).map(|at| {
            let standing = self.peers[at].standing;
            self.peers.view(at).metrics(standing, order)
        });
        let times = self.message_times.as_ref();
        let messages = times.map(|times| {
            let classes = times.classes();
            classes
                .map(|(class, times)| (class, times.clone()))
                .collect()
        });
        EndpointMetrics {
            peers: peers.collect(),
            messages: messages.unwrap_or_default(),
            counters: self.counters(),
            ledger: self.common.ledger.total(),
        }
    }

    /// Bytes of all packets since metrics are kept; zeros if they are not.
    pub fn carried_bytes(&self) -> CarriedBytes {
        let mut all = CarriedBytes::default();
        for peer in self.peers.awake() {
            for (_, class) in peer.traffic.iter().flat_map(|traffic| traffic.classes()) {
                all.sent += class.sent_bytes;
                all.received += class.received_bytes;
            }
        }
        all
    }

    /// The amount of state kept at the moment.
    pub fn footprint(&self) -> EndpointFootprint {
        let mut sum = EndpointFootprint {
            timers: self.deadlines.len(),
            events: self.events.len(),
            ..EndpointFootprint::default()
        };
        for peer in self.peers.views() {
            peer.sender.add_footprint(&mut sum);
            peer.receiver.add_footprint(&mut sum);
        }
        sum
    }

    /// Turns a sender's reports into events. This happens once per message; inlined, it would slow
    /// down every packet.
    #[inline(never)]
    pub(super) fn collect_sent(&mut self, at: usize) {
        let to = self.peers[at].rank;
        let sender = &mut self.peers.wake(at).sender;
        while let Some(key) = sender.take_still() {
            self.events
                .push_back(EndpointEvent::StandsStill { to, key });
        }
        while let Some(fault) = sender.take_fault() {
            let rank = to;
            self.events
                .push_back(EndpointEvent::PathFault { rank, fault });
        }
        while let Some(key) = sender.take_refused() {
            self.events.push_back(EndpointEvent::Refused { to, key });
        }
        while let Some(sent) = self.peers.wake(at).sender.take_sent() {
            self.note_sent(at, &sent);
            self.events.push_back(EndpointEvent::Sent {
                to,
                key: sent.key,
                bytes: sent.bytes,
                missing: sent.missing,
                first: sent.first,
            });
        }
    }

    fn note_sent(&mut self, at: usize, sent: &SentMessage) {
        if let Some(times) = &mut self.message_times {
            times.record(sent);
        }
        let (Some(traffic), Some(missing)) = (&mut self.peers.wake(at).traffic, &sent.missing)
        else {
            return;
        };
        for segment in missing.iter_ones() {
            let (class, _) = sent
                .tags
                .class_and_ecn(&self.common.network.policy, segment);
            traffic.on_missed(class);
        }
    }
}

impl EndpointPeer {
    /// Records the round trip that the last report gave, if any.
    pub(super) fn note_round_trip(&mut self) {
        if let (Some(traffic), Some(sample)) = (&mut self.traffic, self.rtt.take_latest()) {
            traffic.round_trips.record(sample);
        }
    }

    fn metrics(&self, standing: PeerStanding, order: PacketOrder) -> PeerMetrics {
        PeerMetrics {
            rank: self.rank,
            standing,
            in_flight: self.sender.in_flight(),
            window: self.sender.window(),
            round_trip: self.rtt.is_known().then(|| self.rtt.smoothed()),
            sender: *self.sender.counters(),
            receiver: *self.receiver.counters(),
            order: self.receiver.order_trust(order),
            traffic: self.traffic.clone(),
        }
    }
}

//! The counts of an endpoint by peer and class, kept only on request.

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::Job;
use gradwire_protocol::machine::{Datagram, Ecn, Machine, Payload};
use gradwire_protocol::message::{LengthRule, ReceiveRequest, SendRequest};
use gradwire_protocol::metrics::{ClassCounters, PeerStanding};
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{
    Class, Instant, JobId, Layer, MessageKey, Rank, Share, Signature, Span, Step,
};
use gradwire_protocol::wire::{HEADER_BYTES, PacketKind};

/// Too few for marks behind them, which would be counted, too.
const BYTES: u32 = 150_000;
const LAYERS: u16 = 12;

fn endpoint(rank: u16) -> Endpoint {
    let identity = Identity {
        rank: Rank(rank),
        world_size: 2,
        job: JobId(1),
        epoch: 0,
    };
    Endpoint::new(identity, &Job::default(), 1)
}

/// Sends a message whose halves are of the front and the back layer from rank 0 to rank 1, marks
/// every data packet, and drives both until it has ended.
fn transfer(ends: &mut [Endpoint; 2]) {
    let (key, step, tolerance) = (MessageKey::new(0, 1, 0), Step(1), Share::NONE);
    let segments = Segmentation::new(BYTES, ends[0].segment_bytes()).segments();
    let shape = MessageShape {
        segments,
        layer_count: LAYERS,
    };
    let spans = [(0, Layer(0)), (segments / 2, Layer(LAYERS - 1))];
    let tags = ends[0].settings().policy.lossless(shape, &spans);
    let mut now = Instant::START;
    let incoming = ReceiveRequest {
        key,
        signature: Signature::NONE,
        step,
        bytes: BYTES,
        length: LengthRule::Exact,
        tolerance,
        urgency: None,
        patience_ends: None,
    };
    ends[1].expect(now, Rank(0), incoming);
    let outgoing = SendRequest {
        key,
        signature: Signature::NONE,
        step,
        bytes: BYTES,
        tolerance,
        contributors: 1,
        tags,
    };
    ends[0].send(now, Rank(1), outgoing);
    for _ in 0..10_000 {
        now = now + Span::from_micros(100);
        let [sender, receiver] = ends;
        carry(sender, receiver, now);
        carry(receiver, sender, now);
        for end in [&mut *sender, &mut *receiver] {
            end.handle_timeout(now);
        }
        let ended = std::iter::from_fn(|| sender.poll_event());
        if ended
            .filter(|event| matches!(event, EndpointEvent::Sent { .. }))
            .count()
            > 0
        {
            carry(sender, receiver, now);
            return;
        }
    }
    panic!("the message never ends");
}

fn carry(from: &mut Endpoint, to: &mut Endpoint, now: Instant) {
    while let Some(transmit) = from.poll_transmit(now) {
        for index in 0..transmit.packets() {
            let header = transmit.header(index);
            let (payload, ecn) = match header.kind {
                PacketKind::Data => (Payload::Length(usize::from(header.length)), Ecn::Ce),
                _ => (transmit.payload(&header), Ecn::Ect),
            };
            to.accept(
                now,
                &Datagram {
                    header,
                    payload,
                    ecn,
                },
            );
        }
    }
}

#[test]
fn an_endpoint_keeps_no_metrics_unless_told() {
    let mut ends = [endpoint(0), endpoint(1)];
    transfer(&mut ends);
    for end in &ends {
        let metrics = end.metrics();
        assert!(metrics.peers[0].traffic.is_none() && metrics.messages.is_empty());
    }
    assert!(ends[0].metrics().peers[0].sender.sent_segments > 0);
}

#[test]
fn both_sides_count_the_same_packets_in_the_classes_of_their_layers() {
    let mut ends = [endpoint(0), endpoint(1)];
    ends.iter_mut().for_each(Endpoint::keep_metrics);
    transfer(&mut ends);
    let segments = u64::from(Segmentation::new(BYTES, ends[0].segment_bytes()).segments());
    let of = |end: &Endpoint| -> Vec<(Class, ClassCounters)> {
        let peer = end.metrics().peers.remove(0);
        let traffic = peer.traffic.expect("it was told to keep it");
        let classes = traffic.classes();
        classes
            .map(|(class, counters)| (class, *counters))
            .collect()
    };
    let (sent, received) = (of(&ends[0]), of(&ends[1]));
    let classes: Vec<Class> = sent.iter().map(|(class, _)| *class).collect();
    assert_eq!(classes, [Class(0), Class(1), Class(6)]);
    for ((_, out), (_, back)) in sent.iter().zip(&received) {
        assert_eq!(out.sent_packets, back.received_packets);
        assert_eq!(out.sent_bytes, back.received_bytes);
        assert_eq!(out.received_packets, back.sent_packets);
        assert_eq!(out.received_bytes, back.sent_bytes);
    }
    let data = &sent[1..];
    let packets: u64 = data.iter().map(|(_, class)| class.sent_packets).sum();
    let bytes: u64 = data.iter().map(|(_, class)| class.sent_bytes).sum();
    assert_eq!(packets, segments);
    assert_eq!(bytes, u64::from(BYTES) + segments * HEADER_BYTES as u64);
    let marks: u64 = received.iter().map(|(_, class)| class.marks).sum();
    assert_eq!((marks, received[0].1.marks), (segments, 0));
    let metrics = ends[0].metrics();
    let (class, times) = &metrics.messages[0];
    assert_eq!((*class, times.count()), (Class(1), 1));
    let round_trips = &metrics.peers[0].traffic.as_ref().expect("kept").round_trips;
    assert!(round_trips.count() > 0 && times.sum() >= round_trips.quantile(0.0));
    assert_eq!(metrics.counters.sender.marks, segments);
}

#[test]
fn a_lost_peer_keeps_its_counts() {
    let mut ends = [endpoint(0), endpoint(1)];
    ends.iter_mut().for_each(Endpoint::keep_metrics);
    transfer(&mut ends);
    let before = ends[0].metrics();
    ends[0].fail_peer(Rank(1));
    ends[0].fail_peer(Rank(1));
    let after = ends[0].metrics();
    assert_eq!(after.peers[0].standing, PeerStanding::Failed);
    assert_eq!(after.peers[0].sender, before.peers[0].sender);
    assert_eq!(after.counters, before.counters);
    assert!(after.peers[0].traffic.is_some());
}

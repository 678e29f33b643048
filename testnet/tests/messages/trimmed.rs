//! Headers of packets that a switch has cut: the sender learns of the loss at once.

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::machine::{Datagram, Ecn, Machine, Payload};
use gradwire_protocol::units::{Instant, Span};
use gradwire_protocol::wire::{Header, PacketKind};

use crate::pair::{LEFT, RIGHT, TestMessage, endpoint, job, share};

/// Time of a packet on its way.
const WAY: Span = Span::from_micros(10);

/// A packet with its body, to an end.
type Posted = (usize, Header, Vec<u8>);

/// Two ends without a network: all packets take equally long.
struct Ends {
    ends: [Endpoint; 2],
    now: Instant,
    posted: Vec<Posted>,
}

impl Ends {
    fn new(message: TestMessage) -> Self {
        let mut ends = [LEFT, RIGHT].map(|rank| endpoint(rank, &job()));
        let now = Instant::START + Span::from_millis(1);
        ends[1].expect(now, LEFT, message.incoming());
        let outgoing = message.outgoing(&ends[0]);
        ends[0].send(now, RIGHT, outgoing);
        Self {
            ends,
            now,
            posted: Vec::new(),
        }
    }

    /// Brings the packets on their way, trimmed if `cuts` says so, and sends the next ones.
    fn step(&mut self, cuts: &mut impl FnMut(&Header) -> bool) {
        self.now = self.now + WAY;
        for (to, header, body) in std::mem::take(&mut self.posted) {
            let is_data = header.kind == PacketKind::Data;
            if is_data && cuts(&header) {
                self.ends[to].handle_trimmed(self.now, &header);
                continue;
            }
            let payload = match is_data {
                true => Payload::Length(usize::from(header.length)),
                false => Payload::Bytes(&body),
            };
            let ecn = Ecn::Ect;
            let datagram = Datagram {
                header,
                payload,
                ecn,
            };
            self.ends[to].handle_datagram(self.now, datagram);
        }
        for (from, end) in self.ends.iter_mut().enumerate() {
            end.handle_timeout(self.now);
            while let Some(transmit) = end.poll_transmit(self.now) {
                let body = transmit.message.bytes().unwrap_or_default().to_vec();
                let headers = (0..transmit.packets()).map(|index| transmit.header(index));
                let posted = headers.map(|header| (1 - from, header, body.clone()));
                self.posted.extend(posted);
            }
        }
    }

    /// The segments that the message ended without, and how long it took.
    fn run(&mut self, mut cuts: impl FnMut(&Header) -> bool) -> (Vec<u32>, Span) {
        let begun = self.now;
        for _ in 0..100_000 {
            self.step(&mut cuts);
            while let Some(event) = self.ends[1].poll_event() {
                if let EndpointEvent::Received { holes, .. } = event {
                    let holes = holes.iter().flat_map(|holes| holes.iter_ones());
                    return (holes.collect(), self.now - begun);
                }
            }
        }
        panic!("the message does not end");
    }
}

/// Cuts these segments the first time that they come.
fn first(segments: &[u32]) -> impl FnMut(&Header) -> bool {
    let mut left = segments.to_vec();
    move |header| {
        let at = left.iter().position(|&segment| segment == header.segment);
        at.map(|at| left.remove(at)).is_some()
    }
}

#[test]
fn a_trimmed_segment_is_repaired_a_round_trip_later() {
    let message = TestMessage::lossless(1, 14_000);
    let (_, whole) = Ends::new(message).run(|_| false);
    let mut ends = Ends::new(message);
    let (holes, took) = ends.run(first(&[3, 9]));
    assert_eq!((holes.len(), took), (0, whole + WAY * 2));
    let sender = ends.ends[0].counters().sender;
    let counts = (sender.trimmed_segments, sender.repaired_segments);
    assert_eq!((counts, sender.found_lost), ((2, 2), 0));
    assert_eq!(ends.ends[1].counters().receiver.duplicate_segments, 0);
}

#[test]
fn trimmed_segments_within_the_tolerance_stay_missing() {
    let message = TestMessage::lossless(1, 140_000).tolerating(share(0.2));
    let mut ends = Ends::new(message);
    let mut cut = Vec::new();
    let (holes, _) = ends.run(|header| {
        let cuts = header.segment % 10 == 4 && !cut.contains(&header.segment);
        if cuts {
            cut.push(header.segment);
        }
        cuts
    });
    assert!(!holes.is_empty() && holes.iter().all(|hole| cut.contains(hole)));
    // Protected segments are repaired.
    let repaired = ends.ends[0].counters().sender.repaired_segments as usize;
    assert_eq!(holes.len() + repaired, cut.len());
}

#[test]
fn a_segment_trimmed_again_and_again_arrives_in_the_end() {
    let mut ends = Ends::new(TestMessage::lossless(1, 14_000));
    let mut cuts = 0;
    let (holes, _) = ends.run(|header| {
        cuts += u32::from(header.segment == 5);
        header.segment == 5 && cuts < 20
    });
    assert_eq!((holes.len(), cuts), (0, 20));
}

#[test]
fn a_header_that_no_switch_has_cut_changes_nothing() {
    let mut ends = Ends::new(TestMessage::lossless(1, 14_000));
    let mut seen: Vec<Header> = Vec::new();
    ends.run(|header| {
        seen.push(*header);
        false
    });
    (0..100).for_each(|_| ends.step(&mut |_| false));
    for header in seen {
        let now = ends.now;
        for stale in [header.sent_at, header.sent_at.wrapping_add(1)] {
            let kind = PacketKind::Trimmed;
            let forged = Header {
                kind,
                source: RIGHT,
                sent_at: stale,
                length: 0,
                ..header
            };
            let (payload, ecn) = (Payload::Bytes(&[]), Ecn::Ect);
            let datagram = Datagram {
                header: forged,
                payload,
                ecn,
            };
            ends.ends[0].handle_datagram(now, datagram);
        }
        ends.ends[1].handle_trimmed(now, &header);
    }
    (0..100).for_each(|_| ends.step(&mut |_| false));
    let sender = ends.ends[0].counters().sender;
    assert_eq!((sender.repaired_segments, sender.trimmed_segments), (0, 0));
    assert_eq!(ends.ends[1].counters().receiver.trimmed_segments, 0);
}

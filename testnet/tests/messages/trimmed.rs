//! Headers of packets that a switch has cut: the sender learns of the loss at once.

use std::collections::BTreeSet;

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::{GrantWindow, Job};
use gradwire_protocol::machine::{Datagram, Ecn, Machine, Payload};
use gradwire_protocol::priority::CONTROL;
use gradwire_protocol::units::{ByteCount, Class, Instant, Span};
use gradwire_protocol::wire::{Flags, Header, PacketKind, SegmentReport};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::pair::{LEFT, RIGHT, TestMessage, endpoint, job, share};

/// Time of a packet on its way.
const WAY: Span = Span::from_micros(10);

/// What happens to a packet on its way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Arrives,
    /// Only its header arrives, if it is DATA.
    Cut,
    Lost,
}

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
        Self::of_job(&job(), message)
    }

    /// The same of a job whose receivers grant few segments at a time.
    fn granting(message: TestMessage) -> Self {
        let mut job = job();
        job.transport.grant_window = Some(GrantWindow::Bytes(ByteCount::kib(16)));
        Self::of_job(&job, message)
    }

    fn of_job(job: &Job, message: TestMessage) -> Self {
        let mut ends = [LEFT, RIGHT].map(|rank| endpoint(rank, job));
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

    /// Brings the packets on their way, as far as `fate` says so, and sends the next ones.
    fn step(&mut self, fate: &mut impl FnMut(&Header) -> Fate) {
        self.now = self.now + WAY;
        for (to, header, body) in std::mem::take(&mut self.posted) {
            let is_data = header.kind == PacketKind::Data;
            match fate(&header) {
                Fate::Arrives => {}
                Fate::Lost => continue,
                Fate::Cut if is_data => {
                    self.ends[to].handle_trimmed(self.now, &header);
                    continue;
                }
                Fate::Cut => {}
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

    /// The segments that the message ended without, and how long it took, if these DATA packets
    /// are cut.
    fn run(&mut self, mut cuts: impl FnMut(&Header) -> bool) -> (Vec<u32>, Span) {
        self.run_with(
            |header| match header.kind == PacketKind::Data && cuts(header) {
                true => Fate::Cut,
                false => Fate::Arrives,
            },
        )
    }

    fn run_with(&mut self, mut fate: impl FnMut(&Header) -> Fate) -> (Vec<u32>, Span) {
        let begun = self.now;
        for _ in 0..100_000 {
            self.step(&mut fate);
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

/// Where grants have no limit, a repair would have to be sent at once.
#[test]
fn trimmed_segments_within_the_tolerance_stay_missing_if_grants_have_no_limit() {
    let message = TestMessage::lossless(1, 140_000).tolerating(share(0.2));
    let mut job = job();
    job.transport.grant_window = Some(GrantWindow::Unlimited);
    let mut ends = Ends::of_job(&job, message);
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

/// Segments that the receivers of these tests grant at a time, at most: a window.
const GRANTED: usize = 16;

#[test]
fn repairs_of_trimmed_packets_wait_for_grants() {
    let mut ends = Ends::granting(TestMessage::lossless(1, 140_000));
    let (mut cut, mut repairs) = (BTreeSet::new(), Vec::new());
    let (holes, _) = ends.run(|header| {
        if header.flags.has(Flags::REPAIR) {
            repairs.push(header.sent_at);
        }
        header.segment > 0 && cut.insert(header.segment)
    });
    assert_eq!((holes.len(), repairs.len()), (0, cut.len()));
    let together = repairs.chunk_by(|one, next| one == next).map(<[u32]>::len);
    let most = together.max().unwrap_or_default();
    assert!((1..=GRANTED).contains(&most), "{most} repairs at once");
    assert_eq!(ends.ends[1].counters().receiver.duplicate_segments, 0);
}

#[test]
fn trimmed_segments_of_a_tolerant_message_are_granted_again() {
    let message = TestMessage::lossless(1, 140_000).tolerating(share(0.2));
    let mut ends = Ends::granting(message);
    let mut cut = BTreeSet::new();
    let mut repairs = 0;
    let (holes, _) = ends.run(|header| {
        repairs += usize::from(header.flags.has(Flags::REPAIR));
        header.segment % 10 == 4 && cut.insert(header.segment)
    });
    assert_eq!((holes.len(), cut.len(), repairs), (0, 10, 10));
}

/// The header may have overtaken whole packets of its class, so none of these counts as lost
/// because it has come.
#[test]
fn a_header_that_opens_a_message_proves_no_loss_of_data() {
    let mut ends = Ends::granting(TestMessage::lossless(1, 14_000));
    let mut cut = BTreeSet::new();
    ends.step(&mut |_| Fate::Arrives);
    ends.step(&mut |header| match cut.insert(header.segment) {
        true => Fate::Cut,
        false => Fate::Arrives,
    });
    let reports = ends.posted.iter().filter(|(to, ..)| *to == 0);
    let reports = reports.filter_map(|(_, header, body)| {
        let is_report = header.kind == PacketKind::Ack;
        let report = is_report.then(|| SegmentReport::decode(body)).flatten();
        report.map(|(report, _)| report.echo_class)
    });
    let classes: Vec<Class> = reports.collect();
    assert!(!classes.is_empty() && classes.iter().all(|&class| class == CONTROL));
}

/// A header opens its message, so nobody waits until the sender asks.
#[test]
fn a_message_whose_packets_are_all_trimmed_takes_a_round_trip_more() {
    for bytes in [1_000, 14_000] {
        let (_, whole) = Ends::granting(TestMessage::lossless(1, bytes)).run(|_| false);
        let mut ends = Ends::granting(TestMessage::lossless(1, bytes));
        let mut cut = BTreeSet::new();
        let (holes, took) = ends.run(|header| cut.insert(header.segment));
        assert_eq!((holes.len(), took), (0, whole + WAY * 2), "{bytes} bytes");
    }
}

#[test]
fn a_long_message_whose_packets_are_all_trimmed_arrives() {
    for bytes in [140_000, 1_400_000] {
        let mut ends = Ends::granting(TestMessage::lossless(1, bytes));
        let mut cut = BTreeSet::new();
        let (holes, _) = ends.run(|header| cut.insert(header.segment));
        assert_eq!(holes.len(), 0, "{bytes} bytes");
    }
}

#[test]
fn whatever_is_trimmed_or_lost_a_message_arrives_within_its_tolerance() {
    let mut all_holes = 0;
    for seed in 0..4_000 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let bytes = random.random_range(1..400_000);
        let (cut, lost) = (random.random_range(0.0..0.7), random.random_range(0.0..0.2));
        let tolerance = [0.0, random.random_range(0.0..0.5)][seed as usize % 2];
        let lossless = TestMessage::lossless(1, bytes);
        let mut ends = Ends::granting(match tolerance {
            0.0 => lossless,
            tolerance => lossless.tolerating(share(tolerance)),
        });
        let mut segments = 0;
        let (holes, took) = ends.run_with(|header| {
            segments = segments.max(header.segments);
            match random.random_range(0.0..1.0) {
                draw if draw < lost => Fate::Lost,
                draw if draw < lost + cut => Fate::Cut,
                _ => Fate::Arrives,
            }
        });
        all_holes += holes.len();
        let allowed = tolerance * f64::from(segments);
        assert!(
            holes.len() as f64 <= allowed,
            "seed {seed}: {holes:?} of {segments}"
        );
        let most = Span::from_millis(2_000);
        assert!(took < most, "seed {seed}: {took} for {bytes} bytes");
    }
    assert!(all_holes > 1_000, "{all_holes} holes of tolerant messages");
}

#[test]
fn a_header_that_no_switch_has_cut_changes_nothing() {
    let mut ends = Ends::new(TestMessage::lossless(1, 14_000));
    let mut seen: Vec<Header> = Vec::new();
    ends.run(|header| {
        seen.push(*header);
        false
    });
    (0..100).for_each(|_| ends.step(&mut |_| Fate::Arrives));
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
    (0..100).for_each(|_| ends.step(&mut |_| Fate::Arrives));
    let sender = ends.ends[0].counters().sender;
    assert_eq!((sender.repaired_segments, sender.trimmed_segments), (0, 0));
    assert_eq!(ends.ends[1].counters().receiver.trimmed_segments, 0);
}

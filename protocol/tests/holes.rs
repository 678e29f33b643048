//! The holes that a receiver accepts when more is missing than the message tolerates, and the
//! segments that it requests.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use gradwire_protocol::bitmap::{Bitmap, decode_runs};
use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::{Job, SendWindow};
use gradwire_protocol::machine::{Datagram, Ecn, Machine, Payload};
use gradwire_protocol::message::{LengthRule, ReceiveRequest, SendRequest};
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{
    ByteCount, Instant, JobId, Magnitude, MessageKey, Rank, Share, Signature, Span, Step,
};
use gradwire_protocol::wire::{Flags, Header, PacketKind, ProbeBody, SegmentReport};

const SEGMENTS: u32 = 300;
const KEY: MessageKey = MessageKey::new(0, 1, 0);

fn share(value: f64) -> Share {
    Share::new(value).expect("a share")
}

fn job() -> Job {
    let mut job = Job::default();
    job.transport.initial_window = ByteCount::mib(1);
    job.transport.window = SendWindow::Bytes(ByteCount::mib(1));
    job.transport.unscheduled = ByteCount::mib(1);
    job
}

fn endpoint(rank: u16, job: &Job) -> Endpoint {
    let identity = Identity {
        rank: Rank(rank),
        world_size: 2,
        job: JobId(1),
        epoch: 0,
    };
    Endpoint::new(identity, job, 1)
}

/// One message of [`SEGMENTS`] from rank 0 to rank 1, and the packets that were seen on the way.
struct Transfer {
    ends: [Endpoint; 2],
    now: Instant,
    protected: Bitmap,
    /// How often each segment was sent.
    sent: Vec<u32>,
    /// The segments that each BITMAP showed as arrived, as far as it reached.
    shown: Vec<Vec<(u32, bool)>>,
    /// Runs of segments that were sent.
    data_runs: usize,
    holes: Option<Option<Bitmap>>,
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Comes,
    IsLost,
}

impl Transfer {
    fn new(job: &Job, tolerance: Share, magnitudes: Vec<Magnitude>) -> Self {
        let mut ends = [endpoint(0, job), endpoint(1, job)];
        let bytes = SEGMENTS * ends[0].segment_bytes();
        let shape = MessageShape {
            segments: SEGMENTS,
            layer_count: 0,
        };
        let tags = ends[0].settings().policy.lossy(shape, &[], magnitudes);
        let mut protected = Bitmap::new(SEGMENTS);
        for segment in (0..SEGMENTS).filter(|&segment| tags.is_protected(segment)) {
            protected.insert(segment);
        }
        let incoming = ReceiveRequest {
            key: KEY,
            signature: Signature::NONE,
            step: Step(1),
            bytes,
            length: LengthRule::Exact,
            tolerance,
            urgency: None,
            patience_ends: None,
        };
        let outgoing = SendRequest {
            key: KEY,
            signature: Signature::NONE,
            step: Step(1),
            bytes,
            tolerance,
            contributors: 1,
            tags,
        };
        ends[1].expect(Instant::START, Rank(0), incoming);
        ends[0].send(Instant::START, Rank(1), outgoing);
        Self {
            ends,
            now: Instant::START,
            protected,
            sent: vec![0; SEGMENTS as usize],
            shown: Vec::new(),
            data_runs: 0,
            holes: None,
        }
    }

    /// Runs until the sender has heard that the message is complete; returns the holes.
    fn finish(&mut self, mut fate: impl FnMut(&Self, &Header) -> Fate) -> Bitmap {
        for _ in 0..2_000_000 {
            self.turn(&mut fate);
            let told = std::iter::from_fn(|| self.ends[0].poll_event());
            let missing = told.filter_map(|event| match event {
                EndpointEvent::Sent { missing, .. } => Some(missing),
                _ => None,
            });
            if let Some(missing) = missing.last() {
                let holes = self.holes.take().expect("it is complete before it is sent");
                assert_eq!(holes, missing, "both ends know of the same holes");
                let total = self.ends[1].ledger().total();
                assert_eq!(total.reserved_bytes, 0);
                let holes = holes.unwrap_or_else(|| Bitmap::new(SEGMENTS));
                assert_eq!(total.lost_segments, u64::from(holes.ones()));
                return holes;
            }
        }
        panic!("the message never ends");
    }

    /// Lets a tenth of a millisecond pass: every packet of either end reaches the other or is lost.
    fn turn(&mut self, fate: &mut impl FnMut(&Self, &Header) -> Fate) {
        self.now = self.now + Span::from_micros(100);
        for from in 0..2 {
            for (header, body) in self.said_by(from) {
                if fate(self, &header) == Fate::Comes {
                    self.bring(1 - from, header, &body);
                }
            }
            self.ends[from].handle_timeout(self.now);
        }
        while let Some(event) = self.ends[1].poll_event() {
            if let EndpointEvent::Received { holes, .. } = event {
                self.holes = Some(holes);
            }
        }
    }

    fn bring(&mut self, to: usize, header: Header, body: &[u8]) {
        let payload = match header.kind {
            PacketKind::Data => Payload::Length(header.length.into()),
            _ => Payload::Bytes(body),
        };
        let datagram = Datagram {
            header,
            payload,
            ecn: Ecn::Ect,
        };
        self.ends[to].accept(self.now, &datagram);
    }

    fn said_by(&mut self, from: usize) -> Vec<(Header, Vec<u8>)> {
        let mut said = Vec::new();
        while let Some(transmit) = self.ends[from].poll_transmit(self.now) {
            self.data_runs += usize::from(transmit.header(0).kind == PacketKind::Data);
            for index in 0..transmit.packets() {
                let header = transmit.header(index);
                let body = match header.kind {
                    PacketKind::Data => Vec::new(),
                    _ => (transmit.payload(&header).bytes()).map_or_else(Vec::new, <[u8]>::to_vec),
                };
                said.push((header, body));
            }
        }
        for (header, body) in &said {
            match header.kind {
                PacketKind::Data => self.sent[header.segment as usize] += 1,
                PacketKind::Bitmap => self.shown.push(shown(body)),
                _ => {}
            }
        }
        said
    }
}

/// The segments that a BITMAP covers, and whether it shows them as arrived.
fn shown(body: &[u8]) -> Vec<(u32, bool)> {
    let (report, encoded) = SegmentReport::decode(body).expect("made by an endpoint");
    let mut arrived = Bitmap::new(SEGMENTS);
    arrived.insert_range(0..report.cumulative);
    decode_runs(encoded, report.bits, |at, run| {
        arrived.insert_range(report.first + at..report.first + at + run);
    });
    let end = report.first + report.bits;
    let seen = (0..report.cumulative).chain(report.first..end);
    seen.map(|segment| (segment, arrived.has(segment)))
        .collect()
}

fn allowed(tolerance: f64) -> u32 {
    (f64::from(SEGMENTS) * tolerance + 1e-6) as u32
}

#[test]
fn excess_holes_are_repaired_once_and_others_never() {
    for tolerance in [0.01, 0.033, 0.1, 0.3] {
        let mut transfer = Transfer::new(&job(), share(tolerance), Vec::new());
        // Every second segment is lost once, and every ACK: only BITMAP informs the sender.
        let mut lost = 0;
        let holes = transfer.finish(|transfer, header| {
            let first =
                header.kind == PacketKind::Data && transfer.sent[header.segment as usize] == 1;
            let is_lost = header.kind == PacketKind::Ack || (first && header.segment % 2 == 1);
            lost += u32::from(is_lost && first);
            if is_lost { Fate::IsLost } else { Fate::Comes }
        });
        assert_eq!((lost, holes.ones()), (SEGMENTS / 2, allowed(tolerance)));
        for (segment, &times) in (0..).zip(&transfer.sent) {
            let repaired = segment % 2 == 1 && !holes.has(segment);
            assert_eq!(times, 1 + u32::from(repaired), "segment {segment}");
        }
        assert_eq!(transfer.shown.len(), 1, "it asks once");
    }
}

/// Sends a message while the network loses many packets of both ends; returns its holes.
fn under_heavy_loss(seed: u64, tolerance: f64, magnitudes: Vec<Magnitude>) -> u32 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let rate = rng.random_range(0.3..0.7);
    let mut transfer = Transfer::new(&job(), share(tolerance), magnitudes);
    let holes = transfer.finish(|_, _| match rng.random_bool(rate) {
        true => Fate::IsLost,
        false => Fate::Comes,
    });
    assert!(holes.ones() <= allowed(tolerance), "seed {seed}");
    let protected = |hole| transfer.protected.has(hole);
    assert!(!holes.iter_ones().any(protected), "seed {seed}");
    let mut arrived = Bitmap::new(SEGMENTS);
    for (segment, has_arrived) in transfer.shown.into_iter().flatten() {
        assert!(
            has_arrived || !arrived.has(segment),
            "seed {seed}: {segment} was done without and is asked for"
        );
        if has_arrived {
            arrived.insert(segment);
        }
    }
    holes.ones()
}

#[test]
fn heavy_loss_is_accepted_up_to_the_tolerance() {
    for seed in 0..40 {
        let tolerance = [0.0, 0.01, 0.033, 0.1][seed as usize % 4];
        let holes = under_heavy_loss(seed, tolerance, Vec::new());
        // Where reports are lost, a segment that has arrived may look like a hole to the sender,
        // which then repairs another one.
        let least = allowed(tolerance) * 9 / 10;
        assert!((least..=allowed(tolerance)).contains(&holes), "seed {seed}");
    }
}

#[test]
fn protected_segments_always_arrive_under_heavy_loss() {
    let (mut holes, mut most) = (0, 0);
    for seed in 0..40 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let magnitudes = (0..SEGMENTS).map(|_| Magnitude(rng.random())).collect();
        holes += under_heavy_loss(seed, 0.1, magnitudes);
        most += allowed(0.1);
    }
    assert!(holes * 10 >= most * 9, "{holes} of {most}");
}

#[test]
fn the_largest_lost_magnitudes_are_repaired() {
    let magnitudes: Vec<_> = (0..SEGMENTS)
        .map(|n| Magnitude((n * 7 % 251) as u8))
        .collect();
    let mut transfer = Transfer::new(&job(), share(0.1), magnitudes.clone());
    let lost = |segment: u32| segment.is_multiple_of(3);
    let holes = transfer.finish(|transfer, header| {
        let first = header.kind == PacketKind::Data && transfer.sent[header.segment as usize] == 1;
        match first && lost(header.segment) {
            true => Fate::IsLost,
            false => Fate::Comes,
        }
    });
    assert_eq!(holes.ones(), allowed(0.1));
    let of = |segment: u32| magnitudes[segment as usize];
    let largest = holes.iter_ones().map(of).max().expect("there are holes");
    let repaired = (0..SEGMENTS).filter(|&segment| lost(segment) && !holes.has(segment));
    let smaller = repaired.filter(|&segment| of(segment) < largest).count();
    // A packet that no other has passed on its path is repaired, however small its magnitude.
    assert!(
        smaller <= transfer.data_runs,
        "{smaller} are smaller than {largest:?}"
    );
}

#[test]
fn an_accepted_hole_may_arrive_before_the_repairs() {
    let mut transfer = Transfer::new(&job(), share(0.1), Vec::new());
    let mut kept: Vec<Header> = Vec::new();
    // The last 60 are late and every ACK is lost, so that 30 are accepted and 30 requested.
    for _ in 0..1000 {
        transfer.turn(&mut |_, header| match header.kind {
            PacketKind::Ack => Fate::IsLost,
            PacketKind::Data if header.segment >= SEGMENTS - 60 => {
                kept.push(*header);
                Fate::IsLost
            }
            _ => Fate::Comes,
        });
        if !transfer.shown.is_empty() {
            break;
        }
    }
    let reserved = transfer.ends[1].ledger().total().reserved_bytes;
    let segment_bytes = u64::from(transfer.ends[0].segment_bytes());
    assert_eq!(reserved, 30 * segment_bytes);
    let asked: Vec<u32> = (transfer.shown[0].iter())
        .filter_map(|&(segment, arrived)| (!arrived).then_some(segment))
        .collect();
    assert_eq!(asked.len(), 30);
    let accepted = |header: &&Header| !asked.contains(&header.segment);
    for late in kept.iter().filter(accepted).take(12) {
        transfer.bring(1, *late, &[]);
    }
    let reserved = transfer.ends[1].ledger().total().reserved_bytes;
    assert_eq!(reserved, 18 * segment_bytes);
    let holes = transfer.finish(|_, _| Fate::Comes);
    assert_eq!(holes.ones(), 18);
}

/// A PROBE that names segments as lost, after some DATA of its message.
fn probe_of(data: &Header, named: &[u32], flags: Flags) -> (Header, Vec<u8>) {
    let mut lost = Bitmap::new(SEGMENTS);
    for &segment in named {
        lost.insert(segment);
    }
    let mut body = Vec::new();
    ProbeBody::encode(&[], &lost, 1000, &mut body);
    let header = Header {
        kind: PacketKind::Probe,
        flags,
        segment: SEGMENTS - 1,
        length: body.len() as u16,
        ..*data
    };
    (header, body)
}

#[test]
fn a_segment_that_is_repaired_after_all_is_awaited() {
    let mut transfer = Transfer::new(&job(), share(0.01), Vec::new());
    let mut data: Vec<Header> = Vec::new();
    while data.len() < SEGMENTS as usize {
        transfer.turn(&mut |_, header| {
            data.extend((header.kind == PacketKind::Data).then_some(*header));
            Fate::IsLost
        });
    }
    let (repaired, lost) = (10, [290, 291, 292]);
    let comes = |header: &&Header| header.segment != repaired && !lost.contains(&header.segment);
    for header in data.iter().filter(comes) {
        transfer.bring(1, *header, &[]);
    }
    // Four are more than the three that it tolerates, so that its sender repairs the one that it
    // named first.
    for (named, flags) in [(&[repaired][..], Flags::NONE), (&lost, Flags::ALL_SENT)] {
        let (header, body) = probe_of(&data[0], named, flags);
        transfer.bring(1, header, &body);
        transfer.ends[1].handle_timeout(transfer.now);
    }
    assert_eq!(
        transfer.ends[1].poll_event(),
        None,
        "one that is named by none may come"
    );
    let repair = data.iter().find(|header| header.segment == repaired);
    transfer.bring(1, *repair.expect("it was sent"), &[]);
    transfer.ends[1].handle_timeout(transfer.now);
    let Some(EndpointEvent::Received { holes, .. }) = transfer.ends[1].poll_event() else {
        panic!("all that is missing is lost");
    };
    let holes = holes.expect("three are missing");
    assert_eq!(holes.iter_ones().collect::<Vec<_>>(), lost);
    assert!(transfer.shown.is_empty(), "nothing was asked for");
}

#[test]
fn each_report_of_a_complete_message_is_its_stop() {
    let mut transfer = Transfer::new(&job(), Share::NONE, Vec::new());
    let mut last = None;
    for _ in 0..1000 {
        transfer.turn(&mut |_, header| match header.kind {
            PacketKind::Data => {
                last = Some(*header);
                Fate::Comes
            }
            PacketKind::Stop => Fate::IsLost,
            _ => Fate::Comes,
        });
        if transfer.holes.is_some() {
            break;
        }
    }
    assert!(transfer.holes.is_some(), "the message is complete");
    let reports = |transfer: &mut Transfer| {
        let said = transfer.said_by(1).into_iter();
        said.map(|(header, _)| header.kind).collect::<Vec<_>>()
    };
    reports(&mut transfer);
    // A mark shows that the packet before it is lost, of which a report has to tell.
    let last = last.expect("all segments have come");
    let mark = Header {
        kind: PacketKind::Probe,
        flags: Flags::MARKER,
        number: last.number.plus(2),
        length: 0,
        ..last
    };
    transfer.bring(1, mark, &[]);
    assert_eq!(reports(&mut transfer), [PacketKind::Stop]);
}

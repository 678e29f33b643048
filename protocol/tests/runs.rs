//! A run of packets does to an endpoint what its packets do one by one.

use proptest::prelude::*;

use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::Job;
use gradwire_protocol::machine::{
    ArrivedRun, Datagram, Ecn, Machine, Payload, RunLength, RunPayloads,
};
use gradwire_protocol::message::{LengthRule, ReceiveRequest, SendRequest};
use gradwire_protocol::parity::ParityRule;
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::receiver::Placement;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{
    Entropy, Instant, JobId, Layer, Magnitude, MessageKey, PathNumber, Rank, Share, Signature,
    Span, Step,
};
use gradwire_protocol::wire::{
    Flags, HEADER_BYTES, Header, PASSED_MAX, PacketKind, PathMark, SegmentReport,
};

const BYTES: u32 = 200_000;
const KEY: MessageKey = MessageKey::new(1, 1, 0);

fn endpoint(rank: u16, job: &Job) -> Endpoint {
    let identity = Identity {
        rank: Rank(rank),
        world_size: 2,
        job: JobId(1),
        epoch: 0,
    };
    let mut endpoint = Endpoint::new(identity, job, 1);
    endpoint.keep_metrics();
    endpoint
}

/// An endpoint that is about to send a message.
fn sender(tolerance: Share) -> (Endpoint, u32) {
    sender_of(tolerance, ParityRule::Auto)
}

fn sender_of(tolerance: Share, parity: ParityRule) -> (Endpoint, u32) {
    let mut job = Job::default();
    job.transport.parity = parity;
    let mut sender = endpoint(1, &job);
    let segments = Segmentation::new(BYTES, sender.segment_bytes()).segments();
    let shape = MessageShape {
        segments,
        layer_count: 4,
    };
    let (policy, layers) = (&sender.settings().policy, [(0, Layer(0))]);
    let magnitudes = || (0..segments).map(|segment| Magnitude(segment as u8 / 16));
    let tags = match tolerance.is_none() {
        true => policy.lossless(shape, &layers),
        false => policy.lossy(shape, &layers, magnitudes().collect()),
    };
    let request = SendRequest {
        key: KEY,
        signature: Signature::NONE,
        step: Step(0),
        bytes: BYTES,
        tolerance,
        contributors: 1,
        tags,
    };
    sender.send(Instant::START, Rank(0), request);
    (sender, segments)
}

/// The DATA packets of a message, in the order in which they leave.
fn packets(tolerance: Share, parity: ParityRule) -> Vec<Header> {
    let (mut sender, segments) = sender_of(tolerance, parity);
    let mut headers = Vec::new();
    while let Some(transmit) = sender.poll_transmit(Instant::START) {
        let run = (0..transmit.packets()).map(|index| transmit.header(index));
        headers.extend(run.filter(|header| header.kind == PacketKind::Data));
    }
    assert_eq!(
        headers.len(),
        segments as usize,
        "the window has room for all"
    );
    headers
}

fn encoded(header: &Header) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    header.encode(&mut bytes);
    bytes
}

/// A receiver, and the segments that it has placed.
struct Receiving {
    endpoint: Endpoint,
    placed: Vec<u32>,
    calls: u32,
}

impl Receiving {
    fn new() -> Self {
        Self::with(&Job::default())
    }

    fn with(job: &Job) -> Self {
        Self {
            endpoint: endpoint(0, job),
            placed: Vec::new(),
            calls: 0,
        }
    }

    fn post(&mut self, now: Instant, tolerance: Share) {
        let request = ReceiveRequest {
            key: KEY,
            signature: Signature::NONE,
            step: Step(0),
            bytes: BYTES,
            length: LengthRule::Exact,
            tolerance,
            urgency: None,
            patience_ends: None,
        };
        self.endpoint.expect(now, Rank(1), request);
    }

    fn place(&mut self, placement: Option<Placement>) {
        self.calls += 1;
        let Some(placement) = placement else { return };
        let each = self.endpoint.segment_bytes();
        assert_eq!(placement.offset, placement.segment * each);
        let end = placement.segment + placement.length.div_ceil(each);
        self.placed.extend(placement.segment..end);
    }

    fn take_singles(&mut self, now: Instant, headers: &[Header], ecn: Ecn) {
        for &header in headers {
            let payload = Payload::Length(usize::from(header.length));
            let datagram = Datagram {
                header,
                payload,
                ecn,
            };
            let placement = self.endpoint.accept(now, &datagram);
            self.place(placement);
        }
    }

    /// Takes packets in runs as long as they continue each other.
    fn take_runs(&mut self, now: Instant, mut headers: &[Header], ecn: Ecn) {
        let memory = vec![0; headers.len() * 2_000];
        while let Some(&header) = headers.first() {
            let start = encoded(&header);
            let continues = |&at: &usize| {
                headers[at - 1].length == header.length
                    && Header::continues(&start, at as u32, &encoded(&headers[at]))
            };
            let count = 1 + (1..headers.len()).take_while(continues).count();
            let last = headers[count - 1].length;
            let bytes = &memory[..(count - 1) * 2_000 + usize::from(last)];
            let payload = Payload::Bytes(&bytes[..usize::from(header.length)]);
            let mut rest = Some(ArrivedRun {
                first: Datagram {
                    header,
                    payload,
                    ecn,
                },
                length: RunLength {
                    packets: count as u32,
                    last,
                },
                payloads: RunPayloads::new(bytes, header.length, 2_000),
            });
            while let Some(run) = rest {
                let taken = self.endpoint.accept_run(now, &run);
                let parts = run.payloads.parts(taken.packets);
                let parts: usize = parts.map(|part| part.len()).sum();
                let placed = taken.placement.map_or(parts, |place| place.length as usize);
                assert_eq!(parts, placed, "a placement has the bytes of its packets");
                self.place(taken.placement);
                rest = run.after(taken.packets);
            }
            headers = &headers[count..];
        }
    }

    /// Everything that its caller, its peer and its driver see of it.
    fn outcome(&mut self, now: Instant) -> impl PartialEq + std::fmt::Debug + use<> {
        let mut reports = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(now) {
            let body = transmit.message.bytes().map(<[u8]>::to_vec);
            reports.push((transmit.template, body));
        }
        let events: Vec<_> = std::iter::from_fn(|| self.endpoint.poll_event()).collect();
        let counters = self.endpoint.counters();
        let due = self.endpoint.poll_timeout();
        let traffic = format!("{:?}", self.endpoint.metrics());
        (reports, events, counters, due, traffic)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_run_does_what_its_packets_do(
        arrivals in prop::collection::vec((0_usize..146, 1_usize..60, any::<bool>()), 1..24),
        posted in 0_usize..24,
        tolerated in any::<bool>(),
        covered in any::<bool>(),
    ) {
        let share = |is_some| Share::new(if is_some { 0.1 } else { 0.0 }).expect("a share");
        let (tolerance, parity) = (share(tolerated), ParityRule::Share(share(covered)));
        let headers = packets(tolerance, parity);
        prop_assert_eq!(headers.iter().any(|header| header.parity.is_some()), covered);
        let (mut singles, mut runs) = (Receiving::new(), Receiving::new());
        let mut now = Instant::START;
        for (at, &(first, count, marked)) in arrivals.iter().enumerate() {
            now = now + Span::from_micros(30);
            if at == posted {
                singles.post(now, tolerance);
                runs.post(now, tolerance);
            }
            let ecn = if marked { Ecn::Ce } else { Ecn::Ect };
            let first = first.min(headers.len() - 1);
            let arrived = &headers[first..headers.len().min(first + count)];
            singles.take_singles(now, arrived, ecn);
            runs.take_runs(now, arrived, ecn);
            prop_assert_eq!(&singles.placed, &runs.placed);
            prop_assert_eq!(singles.outcome(now), runs.outcome(now));
        }
        let mut placed = runs.placed.clone();
        placed.sort_unstable();
        placed.dedup();
        prop_assert_eq!(placed.len(), runs.placed.len(), "each segment is placed once");
    }
}

#[test]
fn a_run_is_processed_by_few_calls() {
    let headers = packets(Share::NONE, ParityRule::Auto);
    let mut runs = Receiving::new();
    runs.post(Instant::START, Share::NONE);
    runs.take_runs(Instant::START, &headers, Ecn::Ect);
    assert_eq!(runs.placed.len(), headers.len());
    // The packet that opens the message comes alone, and each run of the sender is one call, or two
    // where its path is new.
    assert!(
        runs.calls <= 10,
        "{} calls for {} packets",
        runs.calls,
        headers.len()
    );
}

#[test]
fn repairs_and_new_segments_leave_in_one_run() {
    let (mut sender, _) = sender(Share::NONE);
    let first = sender.poll_transmit(Instant::START).expect("a run");
    let sent = first.packets();
    let unsent = first.unsent_from(sent - 2);
    sender.handle_unsent(Instant::START, &unsent);

    let run = sender.poll_transmit(Instant::START).expect("a run");
    assert!(run.packets() > 2, "{:?}", run.run);
    let headers = run.headers();
    for index in 0..run.packets() {
        let header = run.header(index);
        assert_eq!(header.segment as usize, sent - 2 + index);
        assert_eq!(header.flags.has(Flags::REPAIR), index < 2, "packet {index}");
        let mut written = [0; HEADER_BYTES];
        headers.write(index, &mut written);
        assert_eq!(written, encoded(&header), "packet {index}");
    }
    assert_eq!(sender.counters().sender.repaired_segments, 2);
}

#[test]
fn reports_name_all_paths_that_have_skipped_packets_and_name_them_twice() {
    const PATHS: u8 = 20;
    let mut job = Job::default();
    job.transport.entropies = PATHS;
    let mut receiving = Receiving::with(&job);
    receiving.post(Instant::START, Share::NONE);
    let packets = packets(Share::NONE, ParityRule::Auto);
    let (before, last) = packets.split_at(packets.len() - usize::from(PATHS));
    receiving.take_singles(Instant::START, &before[1..], Ecn::Ect);
    while receiving.endpoint.poll_transmit(Instant::START).is_some() {}
    let skipping = |(path, header): (u8, &Header)| Header {
        entropy: Entropy(path),
        number: PathNumber(1_000),
        ..*header
    };
    let arrived: Vec<Header> = (0..PATHS).zip(last).map(skipping).collect();
    receiving.take_singles(Instant::START, &arrived, Ecn::Ect);
    let mut named: Vec<Vec<u8>> = Vec::new();
    for micros in 0..10 {
        let now = Instant::START + Span::from_micros(micros);
        while let Some(transmit) = receiving.endpoint.poll_transmit(now) {
            let body = transmit.message.bytes().expect("a report has a body");
            let (report, rest) = SegmentReport::decode(body).expect("it is whole");
            let paths = report.passed_paths(rest);
            named.push(paths.map(|PathMark { entropy, .. }| entropy.0).collect());
        }
    }
    assert!(named.iter().all(|paths| paths.len() <= PASSED_MAX));
    assert_eq!(
        named.len(),
        4,
        "as many as 20 paths need, and one more: {named:?}"
    );
    let mut all = named.concat();
    let again = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, (0..PATHS).collect::<Vec<u8>>());
    assert!(again > all.len(), "{named:?}");
}

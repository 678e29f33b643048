//! The promises of the protocol, over thousands of seeded networks that lose, reorder, duplicate
//! and mark. A failure prints the seed; `GRADWIRE_SEED=<seed> cargo test -p gradwire-testnet`
//! repeats that one.

use std::collections::BTreeMap;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use gradwire_protocol::bitmap::Bitmap;
use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::{GrantWindow, Job, Mtu, PacketSecurity, SendWindow};
use gradwire_protocol::machine::{ArrivedRun, Machine, Transmit, UnsentRun};
use gradwire_protocol::message::{LengthRule, ReceiveRequest, SendRequest};
use gradwire_protocol::parity::ParityRule;
use gradwire_protocol::path::PathFault;
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::receiver::{Placement, Restoration};
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{
    ByteCount, Instant, JobId, Layer, Magnitude, MessageKey, Rank, Rate, Share, Signature, Span,
    Step,
};
use gradwire_protocol::wire::PacketKind;
use gradwire_testnet::link::{Profile, Queue};
use gradwire_testnet::network::{Ended, Network};

/// An endpoint that records where every segment was placed and which messages ended.
struct Recorder {
    endpoint: Endpoint,
    placed: BTreeMap<(Rank, MessageKey), Bitmap>,
    received: BTreeMap<(Rank, MessageKey), Option<Bitmap>>,
    sent: BTreeMap<(Rank, MessageKey), Option<Bitmap>>,
    in_flight: Vec<ByteCount>,
    /// When the first packet of each message arrived.
    begun: BTreeMap<(Rank, MessageKey), Instant>,
    /// Segments and bytes of each message.
    sizes: BTreeMap<(Rank, MessageKey), (u32, u32)>,
    /// When holes were accepted.
    accepted: Vec<Instant>,
    /// How often a path was said to lose most packets.
    lost_most: u32,
}

impl Machine for Recorder {
    fn handle_run(&mut self, now: Instant, run: &ArrivedRun<'_>) {
        let datagram = run.first; // the links carry single packets
        self.check_window();
        if matches!(datagram.header.kind, PacketKind::Data | PacketKind::Probe) {
            let key = (datagram.header.source, datagram.header.key);
            self.begun.entry(key).or_insert(now);
        }
        let header = &datagram.header;
        if header.kind.has_segments() {
            let sizes = (header.segments, header.message_bytes);
            self.sizes.insert((header.source, header.key), sizes);
        }
        if let Some(placement) = self.endpoint.accept(now, &datagram) {
            self.place(&placement);
        }
        self.restore();
        self.collect();
    }

    fn handle_timeout(&mut self, now: Instant) {
        let before = self.accepted_bytes();
        self.endpoint.handle_timeout(now);
        self.restore();
        self.collect();
        if self.accepted_bytes() > before {
            self.accepted.push(now);
        }
    }

    fn handle_host_drops(&mut self, now: Instant) {
        self.endpoint.handle_host_drops(now);
    }

    fn handle_unsent(&mut self, now: Instant, unsent: &UnsentRun) {
        self.endpoint.handle_unsent(now, unsent);
    }

    fn tolerates_loss(&self) -> bool {
        self.endpoint.tolerates_loss()
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        self.check_window();
        self.in_flight = self.windows().map(|(in_flight, _)| in_flight).collect();
        self.endpoint.poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }
}

impl Recorder {
    fn restore(&mut self) {
        while let Some(restoration) = self.endpoint.poll_restoration() {
            if let Restoration::Segment { placement, .. } = restoration {
                self.place(&placement);
            }
        }
    }

    fn place(&mut self, placement: &Placement) {
        let key = (placement.from, placement.key);
        let (segments, bytes) = self.sizes[&key];
        let placed = self
            .placed
            .entry(key)
            .or_insert_with(|| Bitmap::new(segments));
        assert!(
            placed.insert(placement.segment),
            "{key:?} placed twice: {placement:?}"
        );
        let cut = Segmentation::new(bytes, self.endpoint.segment_bytes());
        assert_eq!(placement.offset, cut.offset(placement.segment));
        assert_eq!(placement.length, cut.length(placement.segment));
    }

    fn new(rank: u16, world_size: u16, job: &Job) -> Self {
        let identity = Identity {
            rank: Rank(rank),
            world_size,
            job: JobId(77),
            epoch: 1,
        };
        Self {
            endpoint: Endpoint::new(identity, job, u64::from(rank)),
            placed: BTreeMap::new(),
            received: BTreeMap::new(),
            sent: BTreeMap::new(),
            in_flight: vec![ByteCount::default(); usize::from(world_size)],
            begun: BTreeMap::new(),
            sizes: BTreeMap::new(),
            accepted: Vec::new(),
            lost_most: 0,
        }
    }

    /// Bytes accepted as lost, also by messages that are not complete.
    fn accepted_bytes(&self) -> u64 {
        let total = self.endpoint.ledger().total();
        total.lost_bytes + total.reserved_bytes
    }

    fn windows(&self) -> impl Iterator<Item = (ByteCount, ByteCount)> {
        let ranks = self.endpoint.settings().identity.world_size;
        (0..ranks).map(|rank| self.endpoint.in_flight(Rank(rank)))
    }

    /// The bytes that the last `poll_transmit` put in flight fitted the window.
    fn check_window(&self) {
        for (&before, (after, window)) in self.in_flight.iter().zip(self.windows()) {
            assert!(
                after <= before || after <= window,
                "{after} in flight above {window}"
            );
        }
    }

    fn collect(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                EndpointEvent::Received {
                    from, key, holes, ..
                } => {
                    assert_eq!(
                        self.received.insert((from, key), holes),
                        None,
                        "received twice"
                    );
                }
                EndpointEvent::Sent {
                    to, key, missing, ..
                } => {
                    assert_eq!(self.sent.insert((to, key), missing), None, "sent twice");
                }
                EndpointEvent::Announced { .. } | EndpointEvent::StandsStill { .. } => {}
                EndpointEvent::PathFault {
                    fault: PathFault::LosesMost { .. },
                    ..
                } => self.lost_most += 1,
                other => panic!("unexpected {other:?}"),
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Message {
    from: Rank,
    to: Rank,
    key: MessageKey,
    bytes: u32,
    tolerance: Share,
    send_at: Instant,
    expect_at: Instant,
    protected: Bitmap,
    outgoing: SendRequest,
}

#[derive(Clone, Debug)]
struct Scenario {
    seed: u64,
    ranks: u16,
    job: Job,
    profile: Profile,
    messages: Vec<Message>,
    /// The time at which every host learns that its own kernel dropped packets.
    host_drops_at: Option<Instant>,
}

fn share(value: f64) -> Share {
    Share::new(value).expect("a share")
}

fn random_profile(rng: &mut impl Rng, gap: Span) -> Profile {
    let pick = |rng: &mut dyn Rng, values: &[f64]| values[rng.random_range(0..values.len())];
    let queue = rng.random_bool(0.4).then(|| Queue {
        rate: Rate::from_gbps(rng.random_range(1..=25)),
        threshold: ByteCount::kib(rng.random_range(16..=128)),
        limit: ByteCount::kib(rng.random_range(256..=1024)),
    });
    Profile {
        queue,
        latency: Span::from_micros(rng.random_range(1..2000)),
        jitter: Span::from_picos(rng.random_range(0..gap.as_picos())),
        drop: share(pick(rng, &[0.0, 0.0, 0.001, 0.01, 0.05, 0.2, 0.4])),
        burst: pick(rng, &[1.0, 1.0, 4.0, 16.0]),
        duplicate: share(pick(rng, &[0.0, 0.0, 0.01, 0.2])),
    }
}

fn random_job(rng: &mut impl Rng) -> Job {
    let mut job = Job {
        security: PacketSecurity::None,
        ..Job::default()
    };
    job.transport.mtu = Mtu::Bytes([576, 1500, 9000][rng.random_range(0..3)]);
    job.transport.entropies = rng.random_range(1..=8);
    job.transport.spray_burst = rng.random_range(1..=64);
    let unscheduled = rng.random_range(1..=256);
    job.transport.unscheduled = ByteCount::kib(unscheduled);
    if rng.random_bool(0.5) {
        let window = rng.random_range(unscheduled.max(64)..=1024);
        job.transport.window = SendWindow::Bytes(ByteCount::kib(window));
    }
    // In long bursts of loss both ways a peer may be silent for seconds without being lost.
    job.transport.peer_timeout = Span::from_millis(60_000);
    if rng.random_bool(0.5) {
        let window = ByteCount::kib(rng.random_range(16..=512));
        job.transport.grant_window = Some(GrantWindow::Bytes(window));
    }
    job
}

impl Scenario {
    fn random(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut job = random_job(&mut rng);
        job.transport.parity = match seed % 4 {
            0 => ParityRule::Share(Share::ALL),
            1 => ParityRule::None,
            _ => ParityRule::Auto,
        };
        let ranks = rng.random_range(2..=4);
        let profile = random_profile(&mut rng, job.transport.gap);
        let mut scenario = Self {
            seed,
            ranks,
            job,
            profile,
            messages: Vec::new(),
            host_drops_at: None,
        };
        for index in 0..rng.random_range(1..=12) {
            let message = scenario.random_message(&mut rng, index);
            scenario.messages.push(message);
        }
        scenario
    }

    fn random_message(&self, rng: &mut impl Rng, index: u32) -> Message {
        let from = rng.random_range(0..self.ranks);
        let to = (from + rng.random_range(1..self.ranks)) % self.ranks;
        let sizes = [0, 1, 1000, 20_000, 100_000, 400_000];
        let most = sizes[rng.random_range(0..sizes.len())];
        let bytes = rng.random_range(0..=most);
        let tolerance = share([0.0, 0.0, 0.02, 0.1, 0.5][rng.random_range(0..5)]);
        let key = MessageKey::new(1, index, 0);
        let Mtu::Bytes(mtu) = self.job.transport.mtu else {
            unreachable!("set above")
        };
        let overhead = self.job.packet_overhead();
        let segment_bytes = gradwire_protocol::segment::segment_bytes(mtu, overhead);
        let segments = Segmentation::new(bytes, segment_bytes).segments();
        let shape = MessageShape {
            segments,
            layer_count: 10,
        };
        let policy = self.job.policy();
        let middle = (segments / 2, Layer(rng.random_range(0..10)));
        let spans = [(0, Layer(rng.random_range(0..10))), middle];
        let magnitudes = (0..segments).map(|_| Magnitude(rng.random())).collect();
        let tags = match tolerance.is_none() {
            true => policy.lossless(shape, &spans),
            false => policy.lossy(shape, &spans, magnitudes),
        };
        let mut protected = Bitmap::new(segments);
        for segment in (0..segments).filter(|&segment| tags.is_protected(segment)) {
            protected.insert(segment);
        }
        let outgoing = SendRequest {
            key,
            signature: Signature::NONE,
            step: Step(index % 3),
            bytes,
            tolerance,
            contributors: 1,
            tags,
        };
        let instant = |micros: u64| Instant::START + Span::from_micros(micros);
        let (send_at, expect_at) = (
            instant(rng.random_range(0..5000)),
            instant(rng.random_range(0..5000)),
        );
        let (from, to) = (Rank(from), Rank(to));
        Message {
            from,
            to,
            key,
            bytes,
            tolerance,
            send_at,
            expect_at,
            protected,
            outgoing,
        }
    }

    fn announce_host_drops(&self, network: &mut Network<Recorder>) {
        let Some(at) = self.host_drops_at else { return };
        network.run_until(at);
        for rank in 0..self.ranks {
            network.command(Rank(rank), Machine::handle_host_drops);
        }
    }

    fn run(&self) -> Network<Recorder> {
        let hosts = (0..self.ranks).map(|rank| Recorder::new(rank, self.ranks, &self.job));
        let mut network = Network::new(hosts.collect(), self.profile, self.seed);
        network.record();
        let mut commands: Vec<(Instant, bool, &Message)> = Vec::new();
        for message in &self.messages {
            commands.push((message.send_at, true, message));
            commands.push((message.expect_at, false, message));
        }
        commands.sort_by_key(|&(at, ..)| at);
        for (at, sends, message) in commands {
            network.run_until(at);
            if sends {
                network.command(message.from, |host, now| {
                    host.endpoint
                        .send(now, message.to, message.outgoing.clone());
                });
            } else {
                let &Message {
                    key,
                    bytes,
                    tolerance,
                    ..
                } = message;
                let incoming = ReceiveRequest {
                    key,
                    signature: Signature::NONE,
                    step: message.outgoing.step,
                    bytes,
                    length: LengthRule::Exact,
                    tolerance,
                    urgency: None,
                    patience_ends: None,
                };
                network.command(message.to, |host, now| {
                    host.endpoint.expect(now, message.from, incoming);
                    host.collect();
                });
            }
        }
        self.announce_host_drops(&mut network);
        // A burst of losses is counted in packets, and STOP is repeated once a second.
        let deadline = Instant::START + Span::from_millis(600_000);
        let ended = network.run(deadline, |_| false);
        let tail: Vec<&str> = network.trace().lines().rev().take(20).collect();
        let seed = self.seed;
        assert_eq!(
            ended,
            Ended::Idle,
            "seed {seed}: not everything ended: {tail:#?}"
        );
        // Of 40 % in bursts some seconds lose more than half.
        let may_lose_most = self.profile.drop >= share(0.4) && self.profile.burst > 1.0;
        let lost_most: u32 = network.hosts().iter().map(|host| host.lost_most).sum();
        assert!(lost_most == 0 || may_lose_most, "seed {seed}: path faults");
        network
    }

    fn check(&self) {
        let network = self.run();
        let (seed, hosts) = (self.seed, network.hosts());
        let mut holes_total = 0;
        for message in &self.messages {
            let receiver = &hosts[usize::from(message.to.0)];
            let key = (message.from, message.key);
            let holes = receiver.received.get(&key).unwrap_or_else(|| {
                panic!("seed {seed}: {key:?} did not complete");
            });
            let sender = &hosts[usize::from(message.from.0)];
            let missing = &sender.sent[&(message.to, message.key)];
            assert_eq!(
                missing, holes,
                "seed {seed}: the sender learned other holes"
            );
            let placed = &receiver.placed[&key];
            let Some(holes) = holes else {
                assert_eq!(
                    placed.zeros(),
                    0,
                    "seed {seed}: complete, yet not all was placed"
                );
                continue;
            };
            holes_total += u64::from(holes.ones());
            self.check_holes(message, placed, holes);
        }
        let lost: u64 = hosts
            .iter()
            .map(|host| host.endpoint.ledger().total().lost_segments)
            .sum();
        assert_eq!(
            lost, holes_total,
            "seed {seed}: the ledger counts other holes"
        );
        let kept = |host: &Recorder| host.endpoint.ledger().total().reserved_bytes;
        let reserved: u64 = hosts.iter().map(kept).sum();
        assert_eq!(reserved, 0, "seed {seed}: complete, yet holes are reserved");
    }

    fn check_holes(&self, message: &Message, placed: &Bitmap, holes: &Bitmap) {
        let seed = self.seed;
        let Mtu::Bytes(mtu) = self.job.transport.mtu else {
            unreachable!("set above")
        };
        let cut = Segmentation::new(
            message.bytes,
            gradwire_protocol::segment::segment_bytes(mtu, self.job.packet_overhead()),
        );
        let missing: u64 = holes
            .iter_ones()
            .map(|hole| u64::from(cut.length(hole)))
            .sum();
        let allowed = message.tolerance.of(u64::from(message.bytes));
        assert!(
            missing <= allowed,
            "seed {seed}: {missing} of {allowed} bytes are missing"
        );
        for segment in 0..cut.segments() {
            assert_ne!(
                placed.has(segment),
                holes.has(segment),
                "seed {seed}: {segment}"
            );
            let protected = message.protected.has(segment) && holes.has(segment);
            assert!(
                !protected,
                "seed {seed}: protected segment {segment} is missing"
            );
        }
    }

    fn loses_nothing(&self) -> bool {
        self.profile.drop.is_none() && self.profile.queue.is_none()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a failing seed is repeated by hand"
)]
fn seeds(cases: u64) -> std::ops::Range<u64> {
    let slow = std::env::var_os("GRADWIRE_SLOW").is_some();
    match std::env::var("GRADWIRE_SEED")
        .ok()
        .and_then(|seed| seed.parse::<u64>().ok())
    {
        Some(seed) => seed..seed + 1,
        None => 0..if slow { cases * 10 } else { cases },
    }
}

/// Prints the seed when its case panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("GRADWIRE_SEED={} repeats this", self.0);
        }
    }
}

#[test]
fn messages_complete_within_their_tolerance_on_any_network() {
    for seed in seeds(1500) {
        let _seed = Seed(seed);
        Scenario::random(seed).check();
    }
}

#[test]
fn nothing_is_lost_on_a_path_that_loses_nothing() {
    for seed in seeds(1000) {
        let _seed = Seed(seed);
        let mut scenario = Scenario::random(seed);
        scenario.profile.drop = Share::NONE;
        scenario.profile.queue = None;
        assert!(scenario.loses_nothing());
        let network = scenario.run();
        for host in network.hosts() {
            let counters = host.endpoint.counters();
            assert_eq!(counters.receiver.lost_segments, 0, "seed {seed}");
            assert_eq!(counters.receiver.late_segments, 0, "seed {seed}");
        }
    }
}

/// The holes that a host accepted before some instant and after it.
struct HolesAround {
    before: usize,
    after: usize,
    /// When the last message began that the host received.
    last_begun: Instant,
}

fn holes_around(scenario: &Scenario, at: Instant) -> Vec<HolesAround> {
    let network = scenario.run();
    let of_host = |host: &Recorder| HolesAround {
        before: host.accepted.iter().filter(|&&time| time <= at).count(),
        after: host.accepted.iter().filter(|&&time| time > at).count(),
        last_begun: host.begun.values().copied().max().unwrap_or_default(),
    };
    network.hosts().iter().map(of_host).collect()
}

/// Messages that begin more than 200 ms after the drops were announced may lose segments again.
#[test]
fn what_the_host_dropped_is_never_accepted_as_lost() {
    let (mut kept, mut repaired) = (0, 0);
    let seeds = seeds(300);
    let many = seeds.end - seeds.start > 1;
    for seed in seeds {
        let _seed = Seed(seed);
        let mut scenario = Scenario::random(seed);
        let at = Instant::START + Span::from_micros(5_000 + seed * 7919 % 20_000);
        let unannounced = holes_around(&scenario, at);
        scenario.host_drops_at = Some(at);
        scenario.check();
        let announced = holes_around(&scenario, at);
        for (announced, unannounced) in announced.iter().zip(&unannounced) {
            if announced.last_begun > at + Span::from_millis(200) {
                continue;
            }
            let holes = (announced.before, announced.after);
            assert_eq!(holes, (unannounced.before, 0), "seed {seed}");
            kept += announced.before;
            repaired += unannounced.after;
        }
    }
    assert!(
        !many || (kept > 10 && repaired > 10),
        "{kept} kept, {repaired} repaired"
    );
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 2, 3] {
        let traces = [(); 2].map(|()| Scenario::random(seed).run().trace().to_owned());
        assert!(traces[0].lines().count() > 1);
        assert_eq!(traces[0], traces[1], "seed {seed}");
    }
    let other = Scenario::random(4).run().trace().to_owned();
    assert_ne!(Scenario::random(1).run().trace(), other);
}

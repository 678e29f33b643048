//! Two ranks: rank 0 sends messages, rank 1 posts them.

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::{GrantWindow, Job};
use gradwire_protocol::message::{LengthRule, ReceiveRequest, SendRequest};
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::settings::{EndpointLimits, Identity};
use gradwire_protocol::units::{
    ByteCount, JobId, Layer, Magnitude, MessageKey, Rank, Rate, Share, Signature, Span, Step,
};
use gradwire_testnet::link::{Profile, Queue};
use gradwire_testnet::network::{Ended, Network};

/// A path that loses no packet, with this latency in microseconds.
pub(crate) fn wire(micros: u64) -> Profile {
    Profile::perfect(Span::from_micros(micros))
}

/// A path that loses every packet.
pub(crate) fn cut() -> Profile {
    Profile {
        drop: Share::ALL,
        ..wire(20)
    }
}

/// A wire behind a port of 10 Gb/s that drops no packet.
pub(crate) fn port(micros: u64) -> Profile {
    Profile {
        queue: Some(Queue {
            rate: Rate::from_gbps(10),
            threshold: ByteCount::mib(64),
            limit: ByteCount::mib(64),
        }),
        ..wire(micros)
    }
}

/// The default job, and one whose receivers grant this much at a time.
pub(crate) fn jobs(grant_window: ByteCount) -> [Job; 2] {
    let mut granting = Job::default();
    granting.transport.grant_window = Some(GrantWindow::Bytes(grant_window));
    [Job::default(), granting]
}

/// The layers of the pair's model; layer 0 is the most urgent.
pub(crate) const LAYERS: u16 = 10;

/// The properties of a message that both of its ends know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairMessage {
    pub(crate) bytes: u32,
    pub(crate) tolerance: Share,
    pub(crate) layer: Layer,
}

impl PairMessage {
    /// A lossless message of the last layer.
    pub(crate) fn lossless(bytes: u32) -> Self {
        Self {
            bytes,
            tolerance: Share::NONE,
            layer: Layer(LAYERS - 1),
        }
    }

    /// A message that may miss `share`, of a layer that tolerates loss.
    pub(crate) fn tolerant(bytes: u32, share: f64) -> Self {
        Self {
            bytes,
            tolerance: Share::new(share).expect("a share"),
            layer: Layer(LAYERS / 2),
        }
    }
}

/// Rank 0 and rank 1, joined by a link each way.
pub(crate) struct Pair {
    pub(crate) network: Network<Endpoint>,
    job: Job,
    sent: u32,
    posted: u32,
    pub(crate) events: Vec<EndpointEvent>,
}

impl Pair {
    /// Two ranks whose clocks start at zero.
    pub(crate) fn new(job: Job, profile: Profile) -> Self {
        Self::with_clocks(job, profile, [Span::ZERO; 2])
    }

    /// Two ranks whose clocks read this at the start.
    pub(crate) fn with_clocks(job: Job, profile: Profile, readings: [Span; 2]) -> Self {
        Self::with_limits(job, profile, EndpointLimits::USUAL, readings)
    }

    /// Two ranks that remember this much.
    pub(crate) fn with_limits(
        job: Job,
        profile: Profile,
        limits: EndpointLimits,
        readings: [Span; 2],
    ) -> Self {
        let hosts = (0..2).map(|rank| {
            let identity = Identity {
                rank: Rank(rank),
                world_size: 2,
                job: JobId(1),
                epoch: 0,
            };
            Endpoint::new(identity, &job, 1).with_limits(limits)
        });
        let network = Network::new(hosts.collect(), profile, 1).with_clocks(readings.to_vec());
        Self {
            network,
            job,
            sent: 0,
            posted: 0,
            events: Vec::new(),
        }
    }

    /// Rank 0 sends its next message.
    pub(crate) fn send(&mut self, message: PairMessage) {
        self.sent += 1;
        let segment_bytes = self.network.hosts()[0].segment_bytes();
        let shape = MessageShape {
            segments: Segmentation::new(message.bytes, segment_bytes).segments(),
            layer_count: LAYERS,
        };
        let (policy, spans) = (self.job.policy(), [(0, message.layer)]);
        let request = SendRequest {
            key: MessageKey::new(1, self.sent, 0),
            signature: Signature::NONE,
            step: Step(self.sent),
            bytes: message.bytes,
            tolerance: message.tolerance,
            contributors: 1,
            tags: match message.tolerance.is_none() {
                true => policy.lossless(shape, &spans),
                false => {
                    let magnitudes = vec![Magnitude(1); shape.segments as usize];
                    policy.lossy(shape, &spans, magnitudes)
                }
            },
        };
        self.network.command(Rank(0), |host, now| {
            host.send(now, Rank(1), request);
        });
    }

    /// Rank 1 posts its next message.
    pub(crate) fn post(&mut self, message: PairMessage) {
        self.posted += 1;
        let request = ReceiveRequest {
            key: MessageKey::new(1, self.posted, 0),
            signature: Signature::NONE,
            step: Step(self.posted),
            bytes: message.bytes,
            length: LengthRule::Exact,
            tolerance: message.tolerance,
            urgency: None,
            patience_ends: None,
        };
        self.network.command(Rank(1), |host, now| {
            host.expect(now, Rank(0), request);
        });
    }

    /// Posts and sends a message; returns the time until its sender knows that it has arrived.
    pub(crate) fn transfer(&mut self, message: PairMessage) -> Span {
        self.post(message);
        self.send(message);
        self.finish()
    }

    /// Runs until every message has ended; returns the time that it took.
    pub(crate) fn finish(&mut self) -> Span {
        let begun = self.network.now();
        let deadline = begun + Span::from_millis(60_000);
        let is_over = |hosts: &[Endpoint]| !hosts.iter().any(Endpoint::is_busy);
        let ended = self.network.run(deadline, is_over);
        assert_ne!(ended, Ended::TimedOut, "a message takes a minute");
        self.collect();
        self.network.now() - begun
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Span) {
        self.network.run_until(self.network.now() + time);
        self.collect();
    }

    /// Takes the events of both ranks.
    pub(crate) fn collect(&mut self) {
        for rank in [Rank(0), Rank(1)] {
            let events = &mut self.events;
            self.network.command(rank, |host, _| {
                events.extend(std::iter::from_fn(|| host.poll_event()));
            });
        }
    }

    /// Segments that rank 0 has sent again.
    pub(crate) fn repairs(&self) -> u64 {
        self.network.hosts()[0].counters().sender.repaired_segments
    }

    /// Segments that rank 1 has accepted as lost.
    pub(crate) fn holes(&self) -> u64 {
        self.network.hosts()[1].counters().receiver.lost_segments
    }

    /// Changes the links of both directions.
    pub(crate) fn set_links(&mut self, profile: Profile) {
        self.network.set_link(Rank(0), Rank(1), profile);
        self.network.set_link(Rank(1), Rank(0), profile);
    }
}

/// How long a fresh pair takes for a message.
pub(crate) fn clean_time(job: &Job, profile: Profile, message: PairMessage) -> Span {
    Pair::new(job.clone(), profile).transfer(message)
}

/// Seconds.
pub(crate) fn seconds(n: u64) -> Span {
    Span::from_millis(n * 1_000)
}

/// Control packets that were delivered in each of the next `n` seconds.
pub(crate) fn control_by_second(pair: &mut Pair, n: u64) -> Vec<u64> {
    let data = |pair: &Pair| {
        pair.network.hosts()[1]
            .counters()
            .receiver
            .received_segments
    };
    let count = (0..n).map(|_| {
        let before = pair.network.delivered() - data(pair);
        pair.pass(seconds(1));
        pair.network.delivered() - data(pair) - before
    });
    count.collect()
}

//! Endpoints that are joined by a network, and messages for them.

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::{Job, PacketSecurity};
use gradwire_protocol::message::{LengthRule, ReceiveRequest, SendRequest};
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{
    Instant, JobId, Magnitude, MessageKey, Rank, Share, Signature, Span, Step,
};
use gradwire_testnet::link::Profile;
use gradwire_testnet::network::Network;

/// The rank that sends, unless a test says otherwise.
pub(crate) const LEFT: Rank = Rank(0);
/// The rank that receives.
pub(crate) const RIGHT: Rank = Rank(1);

pub(crate) fn share(value: f64) -> Share {
    Share::new(value).expect("a share")
}

pub(crate) fn job() -> Job {
    Job {
        security: PacketSecurity::None,
        ..Job::default()
    }
}

pub(crate) fn endpoint(rank: Rank, job: &Job) -> Endpoint {
    let identity = Identity {
        rank,
        world_size: 2,
        job: JobId(77),
        epoch: 1,
    };
    Endpoint::new(identity, job, u64::from(rank.0))
}

/// A network that loses, reorders and duplicates.
pub(crate) fn rough(drop: f64) -> Profile {
    Profile::rough(share(drop))
}

/// A network that loses every packet.
pub(crate) fn cut() -> Profile {
    Profile {
        drop: Share::ALL,
        ..Profile::perfect(Span::from_micros(10))
    }
}

pub(crate) fn key(sequence: u32) -> MessageKey {
    MessageKey::new(1, sequence, 0)
}

/// A message as one of its ends knows it: the ends may tolerate different losses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestMessage {
    pub(crate) key: MessageKey,
    pub(crate) step: Step,
    pub(crate) bytes: u32,
    pub(crate) tolerance: Share,
}

impl TestMessage {
    /// A lossless message of step 0.
    pub(crate) fn lossless(sequence: u32, bytes: u32) -> Self {
        Self {
            key: key(sequence),
            step: Step(0),
            bytes,
            tolerance: Share::NONE,
        }
    }

    pub(crate) fn tolerating(self, tolerance: Share) -> Self {
        Self { tolerance, ..self }
    }

    pub(crate) fn outgoing(self, endpoint: &Endpoint) -> SendRequest {
        let cut = Segmentation::new(self.bytes, endpoint.segment_bytes());
        let shape = MessageShape {
            segments: cut.segments(),
            layer_count: 0,
        };
        let policy = &endpoint.settings().policy;
        let tags = match self.tolerance.is_none() {
            true => policy.lossless(shape, &[]),
            false => {
                let magnitudes = (0..cut.segments()).map(|n| Magnitude((n * 37 % 251) as u8));
                policy.lossy(shape, &[], magnitudes.collect())
            }
        };
        SendRequest {
            key: self.key,
            signature: Signature::NONE,
            step: self.step,
            bytes: self.bytes,
            tolerance: self.tolerance,
            contributors: 1,
            tags,
        }
    }

    pub(crate) fn incoming(self) -> ReceiveRequest {
        ReceiveRequest {
            key: self.key,
            signature: Signature::NONE,
            step: self.step,
            bytes: self.bytes,
            length: LengthRule::Exact,
            tolerance: self.tolerance,
            urgency: None,
            patience_ends: None,
        }
    }
}

/// Two endpoints and the network between them.
pub(crate) struct Pair {
    pub(crate) network: Network<Endpoint>,
}

impl Pair {
    pub(crate) fn new(ends: [Endpoint; 2], profile: Profile, seed: u64) -> Self {
        Self {
            network: Network::new(ends.into(), profile, seed),
        }
    }

    /// Two endpoints of a default job, joined by a network that loses so much, reorders and
    /// duplicates.
    pub(crate) fn rough(drop: f64, seed: u64) -> Self {
        let ends = [LEFT, RIGHT].map(|rank| endpoint(rank, &job()));
        Self::new(ends, rough(drop), seed)
    }

    pub(crate) fn send(&mut self, from: Rank, message: TestMessage) {
        self.network.command(from, |endpoint, now| {
            let outgoing = message.outgoing(endpoint);
            endpoint.send(now, Rank(1 - from.0), outgoing);
        });
    }

    pub(crate) fn expect(&mut self, at: Rank, message: TestMessage) {
        self.network.command(at, |endpoint, now| {
            endpoint.expect(now, Rank(1 - at.0), message.incoming());
        });
    }

    pub(crate) fn events(&mut self, of: Rank) -> Vec<EndpointEvent> {
        self.network.command(of, |endpoint, _| {
            std::iter::from_fn(|| endpoint.poll_event()).collect()
        })
    }

    /// The endpoint of a rank.
    pub(crate) fn end(&self, of: Rank) -> &Endpoint {
        &self.network.hosts()[usize::from(of.0)]
    }

    pub(crate) fn run_for(&mut self, span: Span) {
        let until = self.network.now() + span;
        self.network.run_until(until);
    }

    /// Runs until neither end waits for a message; returns whether that happened in time.
    pub(crate) fn settles_within(&mut self, span: Span) -> bool {
        let until: Instant = self.network.now() + span;
        let is_done = |ends: &[Endpoint]| ends.iter().all(|end| !end.is_busy());
        self.network.run(until, is_done) == gradwire_testnet::network::Ended::Reached
    }
}

//! Two endpoints joined back to back: the cost of the protocol itself, without a network.

pub mod group;

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::{Job, Mtu};
use gradwire_protocol::machine::{Datagram, Ecn, Machine, Payload};
use gradwire_protocol::message::{LengthRule, ReceiveRequest, SendRequest};
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{
    Instant, JobId, Layer, MessageKey, Rank, Share, Signature, Span, Step,
};
use gradwire_protocol::wire::Header;

/// Two ranks of one job, and their common clock.
#[derive(Debug)]
pub struct EndpointPair {
    ends: [Endpoint; 2],
    now: Instant,
    sequence: u32,
    carried: Vec<(Header, Vec<u8>)>,
}

impl EndpointPair {
    /// A pair whose packets have `mtu` bytes.
    pub fn new(mtu: u32) -> Self {
        let mut job = Job::default();
        job.transport.mtu = Mtu::Bytes(mtu);
        let end = |rank: u16| {
            let identity = Identity {
                rank: Rank(rank),
                world_size: 2,
                job: JobId(1),
                epoch: 0,
            };
            let mut endpoint = Endpoint::new(identity, &job, 1);
            endpoint.keep_metrics();
            endpoint
        };
        let ends = [end(0), end(1)];
        Self {
            ends,
            now: Instant::START,
            sequence: 0,
            carried: Vec::new(),
        }
    }

    /// Sends one lossless message of `bytes` from rank 0 to rank 1 and drives both until it has
    /// ended; returns the number of packets.
    pub fn transfer(&mut self, bytes: u32) -> u64 {
        self.transfer_at_once(1, bytes)
    }

    /// Sends `count` lossless messages of `bytes` from rank 0 to rank 1, all of them open from the
    /// start, and drives both until they have ended; returns the number of packets.
    pub fn transfer_at_once(&mut self, count: u32, bytes: u32) -> u64 {
        for _ in 0..count {
            self.begin(bytes);
        }
        let (mut packets, mut open) = (0, count);
        while open > 0 {
            self.now = self.now + Span::from_micros(10);
            packets += self.carry(0) + self.carry(1);
            while self.ends[1].poll_event().is_some() {}
            while let Some(event) = self.ends[0].poll_event() {
                open -= u32::from(matches!(event, EndpointEvent::Sent { .. }));
            }
        }
        packets
    }

    /// Posts a message at rank 1, and gives it to rank 0 to send.
    fn begin(&mut self, bytes: u32) {
        self.sequence += 1;
        let (key, step) = (MessageKey::new(0, self.sequence, 0), Step(self.sequence));
        let tolerance = Share::NONE;
        let cut = Segmentation::new(bytes, self.ends[0].segment_bytes());
        let shape = MessageShape {
            segments: cut.segments(),
            layer_count: 0,
        };
        let tags = self.ends[0]
            .settings()
            .policy
            .lossless(shape, &[(0, Layer(0))]);
        let incoming = ReceiveRequest {
            key,
            signature: Signature::NONE,
            step,
            bytes,
            length: LengthRule::Exact,
            tolerance,
            urgency: None,
            patience_ends: None,
        };
        self.ends[1].expect(self.now, Rank(0), incoming);
        let outgoing = SendRequest {
            key,
            signature: Signature::NONE,
            step,
            bytes,
            tolerance,
            contributors: 1,
            tags,
        };
        self.ends[0].send(self.now, Rank(1), outgoing);
    }

    fn carry(&mut self, from: usize) -> u64 {
        let mut packets = 0;
        while let Some(transmit) = self.ends[from].poll_transmit(self.now) {
            for index in 0..transmit.packets() {
                let header = transmit.header(index);
                let body = transmit.payload(&header).bytes().map(<[u8]>::to_vec);
                self.carried.push((header, body.unwrap_or_default()));
            }
            packets += transmit.packets() as u64;
        }
        for (header, body) in self.carried.drain(..) {
            let payload = match body.is_empty() {
                true => Payload::Length(usize::from(header.length)),
                false => Payload::Bytes(&body),
            };
            self.ends[1 - from].accept(
                self.now,
                &Datagram {
                    header,
                    payload,
                    ecn: Ecn::Ect,
                },
            );
        }
        packets
    }
}

/// A tensor of f32 with values as gradients have them: of both signs, most of them small.
pub fn gradients(bytes: usize) -> Vec<u8> {
    let value = |at: usize| {
        // Bits of a hash (Murmur3's finaliser); the sum of four numbers is nearly normal.
        let mut hash = (at as u64).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        let parts = [0, 16, 32, 48].map(|shift| (hash >> shift & 0xffff) as f32 / 65_536.0);
        parts.iter().sum::<f32>() - 2.0
    };
    (0..bytes / 4)
        .flat_map(|at| value(at).to_le_bytes())
        .collect()
}

//! Arbitrary datagrams, posts and waits against one endpoint: it does not panic, and the bytes that
//! it accepts and loses stay within the posted messages.
//!
//! Random bytes rarely carry the right version, job or length, so the first byte of each datagram
//! says which of these fields to correct before the endpoint gets it.

#![no_main]

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::Job;
use gradwire_protocol::machine::{Datagram, Ecn, Machine, Payload};
use gradwire_protocol::message::{LengthRule, ReceiveRequest, SendRequest};
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{Instant, JobId, MessageKey, Rank, Share, Signature, Span, Step};
use gradwire_protocol::wire::{HEADER_BYTES, Header, PacketKind, VERSION};
use libfuzzer_sys::fuzz_target;

const IDENTITY: Identity = Identity {
    rank: Rank(0),
    world_size: 3,
    job: JobId(7),
    epoch: 1,
};
/// Small messages, so that few datagrams fill one.
const BYTES_MAX: u32 = 20_000;

struct Scene {
    endpoint: Endpoint,
    now: Instant,
    allowed_bytes: u64,
}

impl Scene {
    fn new() -> Self {
        let endpoint = Endpoint::new(IDENTITY, &Job::default(), 1);
        Self {
            endpoint,
            now: Instant::START + Span::from_millis(1),
            allowed_bytes: 0,
        }
    }

    fn wait(&mut self, micros: u64) {
        self.now = self.now + Span::from_micros(micros);
        self.endpoint.handle_timeout(self.now);
        for _ in 0..1000 {
            if self.endpoint.poll_transmit(self.now).is_none() {
                break;
            }
        }
    }

    fn post(&mut self, key: u8, bytes: u32) {
        let tolerance = Share::new(f64::from(key % 4) / 10.0).expect("within 0 to 1");
        let incoming = ReceiveRequest {
            key: MessageKey(key.into()),
            signature: Signature::NONE,
            step: Step(0),
            bytes,
            length: match key & 8 {
                0 => LengthRule::Exact,
                _ => LengthRule::AtMost,
            },
            tolerance,
            urgency: None,
            patience_ends: None,
        };
        self.allowed_bytes += tolerance.of(bytes.into());
        self.endpoint.expect(self.now, Rank(1), incoming);
    }

    fn send(&mut self, key: u8, bytes: u32) {
        let segments = Segmentation::new(bytes, self.endpoint.segment_bytes()).segments();
        let shape = MessageShape {
            segments,
            layer_count: 0,
        };
        let tags = self.endpoint.settings().policy.lossless(shape, &[]);
        let (key, step, tolerance) = (MessageKey(key.into()), Step(0), Share::NONE);
        let outgoing = SendRequest {
            key,
            signature: Signature::NONE,
            step,
            bytes,
            tolerance,
            contributors: 1,
            tags,
        };
        self.endpoint.send(self.now, Rank(1), outgoing);
    }

    fn deliver(&mut self, choice: u8, datagram: &mut [u8]) {
        if let Some(header) = datagram.first_chunk_mut::<HEADER_BYTES>() {
            header[0] = VERSION;
            let (kind, ended) = (1 + (header[1] & 0x0F) % 10, header[1] & 0xF0);
            let says_ended = [
                PacketKind::Data,
                PacketKind::Parity,
                PacketKind::Probe,
                PacketKind::Close,
                PacketKind::Reset,
            ]
            .map(|kind| kind as u8);
            header[1] = kind | if says_ended.contains(&kind) { ended } else { 0 };
        }
        let payload_bytes = datagram.len().saturating_sub(HEADER_BYTES);
        if datagram.len() >= HEADER_BYTES && choice & 1 != 0 {
            datagram[44..46].copy_from_slice(&(payload_bytes as u16).to_le_bytes());
        }
        let Ok((mut header, payload)) = Header::decode(datagram) else {
            return;
        };
        if choice & 2 != 0 {
            (header.job, header.epoch, header.source) = (JobId(7), 1, Rank(1));
            header.key = MessageKey(header.key.0 % 8);
        }
        let mut payload = Payload::Bytes(payload);
        let of_sender = matches!(
            header.kind,
            PacketKind::Data | PacketKind::Parity | PacketKind::Probe | PacketKind::Reset
        );
        if choice & 4 != 0 && of_sender {
            payload = make_consistent(&mut header, self.endpoint.segment_bytes());
        }
        if choice & 8 != 0 {
            self.endpoint.handle_trimmed(self.now, &header);
            return;
        }
        let ecn = Ecn::from_bits(choice >> 4);
        self.endpoint.handle_datagram(
            self.now,
            Datagram {
                header,
                payload,
                ecn,
            },
        );
    }
}

/// Makes the header describe a segment of its message, as a sender would have cut it.
fn make_consistent(header: &mut Header, segment_bytes: u32) -> Payload<'static> {
    header.message_bytes %= BYTES_MAX;
    header.message.0 = header.message.0 % 16 + 1;
    let cut = Segmentation::new(header.message_bytes, segment_bytes);
    header.segments = cut.segments();
    header.segment %= header.segments;
    let like = match header.kind {
        PacketKind::Parity => 0,
        _ => header.segment,
    };
    header.length = cut.length(like) as u16;
    Payload::Length(header.length.into())
}

fn check(scene: &mut Scene) {
    while let Some(event) = scene.endpoint.poll_event() {
        if let EndpointEvent::Received {
            holes: Some(holes), ..
        } = event
        {
            assert!(holes.ones() > 0, "holes are told only where there are some");
        }
    }
    let total = scene.endpoint.ledger().total();
    assert!(
        total.lost_bytes <= scene.allowed_bytes,
        "no more is lost than was tolerated"
    );
}

fuzz_target!(|input: &[u8]| {
    let mut scene = Scene::new();
    let mut rest = input;
    while let Some((&[verb, choice, size], tail)) = rest.split_first_chunk::<3>() {
        let bytes = u32::from(size) * 64;
        rest = tail;
        match verb % 8 {
            0 => scene.wait(u64::from(choice) * u64::from(size) * 8),
            1 => scene.post(choice % 8, bytes),
            2 => scene.send(choice % 8, bytes),
            3 if choice % 8 < 6 => scene.wait(50),
            3 if choice % 8 == 6 => scene
                .endpoint
                .cancel(Rank(1), MessageKey((size % 8).into())),
            3 => scene
                .endpoint
                .refuse(Rank(1), MessageKey((size % 8).into())),
            _ => {
                let (datagram, tail) = rest.split_at(rest.len().min(usize::from(size)));
                scene.deliver(choice, &mut datagram.to_vec());
                rest = tail;
            }
        }
        check(&mut scene);
    }
});

//! Packets that no correct peer sends: an endpoint counts them and continues.

use proptest::prelude::*;

use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::Job;
use gradwire_protocol::machine::{Datagram, Ecn, Machine, Payload};
use gradwire_protocol::message::{LengthRule, ReceiveRequest, SendRequest};
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{
    Instant, JobId, Layer, Magnitude, MessageId, MessageKey, Rank, Share, Signature, Span, Step,
};
use gradwire_protocol::wire::{CHECKSUM_AT, HEADER_BYTES, Header, PacketKind, VERSION};

const JOB: JobId = JobId(0x0102_0304);

fn busy_endpoint() -> Endpoint {
    let identity = Identity {
        rank: Rank(0),
        world_size: 3,
        job: JOB,
        epoch: 0,
    };
    let mut endpoint = Endpoint::new(identity, &Job::default(), 1);
    let bytes = 50_000;
    let tolerance = Share::new(0.1).expect("a share");
    let segments = Segmentation::new(bytes, endpoint.segment_bytes()).segments();
    let shape = MessageShape {
        segments,
        layer_count: 4,
    };
    let magnitudes = vec![Magnitude(1); segments as usize];
    let tags = endpoint
        .settings()
        .policy
        .lossy(shape, &[(0, Layer(0))], magnitudes);
    for peer in [Rank(1), Rank(2)] {
        let key = MessageKey::new(1, 1, peer.0);
        let step = Step(0);
        let tags = tags.clone();
        let outgoing = SendRequest {
            key,
            signature: Signature::NONE,
            step,
            bytes,
            tolerance,
            contributors: 1,
            tags,
        };
        endpoint.send(Instant::START, peer, outgoing);
        endpoint.expect(
            Instant::START,
            peer,
            ReceiveRequest {
                key,
                signature: Signature::NONE,
                step,
                bytes,
                length: LengthRule::Exact,
                tolerance,
                urgency: None,
                patience_ends: None,
            },
        );
    }
    endpoint
}

/// Bytes that pass the first checks often enough to reach the deeper ones.
fn plausible_packet() -> impl Strategy<Value = Vec<u8>> {
    let header = prop::array::uniform32(any::<u8>());
    let payload = prop::collection::vec(any::<u8>(), 0..120);
    (header, any::<[u8; 32]>(), payload, any::<bool>()).prop_map(|(front, back, payload, small)| {
        let mut packet = [front, back].concat();
        packet[0] = VERSION;
        packet[1] = 1 + packet[1] % 8;
        packet[4..8].copy_from_slice(&JOB.0.to_le_bytes());
        let source = 1 + packet[10] % 2;
        packet[8..12].copy_from_slice(&[0, 0, source, 0]);
        if small {
            let key = MessageKey::new(1, 1, u16::from(source)).0.to_le_bytes();
            packet[16..24].copy_from_slice(&key);
            for at in [24, 28, 32, 36, 40] {
                packet[at + 1..at + 4].fill(0);
            }
        }
        packet[44..46].copy_from_slice(&(payload.len() as u16).to_le_bytes());
        packet[CHECKSUM_AT..HEADER_BYTES].fill(0);
        packet.extend_from_slice(&payload);
        packet
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_packets_never_panic_an_endpoint(
        packets in prop::collection::vec(plausible_packet(), 1..60),
    ) {
        let mut endpoint = busy_endpoint();
        let mut now = Instant::START;
        for packet in &packets {
            now = now + Span::from_micros(200);
            if let Ok((header, payload)) = Header::decode(packet) {
                let payload = Payload::Bytes(payload);
                endpoint.handle_datagram(now, Datagram { header, payload, ecn: Ecn::Ce });
            }
            endpoint.handle_timeout(now);
            while endpoint.poll_event().is_some() {}
            let mut transmits = 0;
            while endpoint.poll_transmit(now).is_some() {
                transmits += 1;
                prop_assert!(transmits < 10_000, "a packet makes an endpoint talk forever");
            }
            let (in_flight, _) = endpoint.in_flight(Rank(1));
            prop_assert!(in_flight <= endpoint.settings().window.most());
        }
    }

    #[test]
    fn decoding_arbitrary_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((header, payload)) = Header::decode(&bytes) {
            let mut again = vec![0; HEADER_BYTES];
            header.encode(&mut again);
            again.extend_from_slice(payload);
            prop_assert_eq!(&again[4..], &bytes[4..]);
        }
    }
}

/// Delivers all packets that `from` has to send to `to`, and keeps them.
fn carry(now: Instant, [from, to]: [&mut Endpoint; 2], kept: &mut Vec<(Header, Vec<u8>)>) {
    while let Some(transmit) = from.poll_transmit(now) {
        for index in 0..transmit.packets() {
            let header = transmit.header(index);
            let body = transmit.payload(&header).bytes();
            kept.push((header, body.unwrap_or_default().to_vec()));
            deliver(now, to, kept.last().expect("pushed just now"));
        }
    }
}

/// Whether the packet brought a segment that was missing.
fn deliver(now: Instant, to: &mut Endpoint, (header, body): &(Header, Vec<u8>)) -> bool {
    let payload = match header.kind {
        PacketKind::Data => Payload::Length(header.length.into()),
        _ => Payload::Bytes(body),
    };
    let (header, ecn) = (*header, Ecn::Ect);
    let datagram = Datagram {
        header,
        payload,
        ecn,
    };
    to.accept(now, &datagram).is_some()
}

#[test]
fn invented_resets_take_little_memory() {
    let mut endpoint = busy_endpoint();
    let (mut reset, now) = (None, Instant::START);
    while let Some(transmit) = endpoint.poll_transmit(now) {
        reset = Some(transmit.header(0));
    }
    let reset = reset.expect("it sends to both peers");
    let mut answers = 0;
    for number in 0..100_000_u32 {
        let header = Header {
            kind: PacketKind::Reset,
            source: Rank(1),
            message: MessageId(number.wrapping_mul(0x9E37_79B1)),
            key: MessageKey::new(9, number, 0),
            segment: 0,
            length: 0,
            ..reset
        };
        deliver(now, &mut endpoint, &(header, Vec::new()));
        while endpoint.poll_transmit(now).is_some() {
            answers += 1;
        }
    }
    let kept = endpoint.footprint();
    assert!(kept.closed_ranges <= 1 << 16, "{kept:?}");
    assert!(answers <= 100_000, "one answer each");
    assert_eq!(endpoint.poll_event(), None);
}

#[test]
fn replayed_segments_of_a_finished_message_start_no_message() {
    let end = |rank| {
        let identity = Identity {
            rank: Rank(rank),
            world_size: 2,
            job: JOB,
            epoch: 0,
        };
        Endpoint::new(identity, &Job::default(), 1)
    };
    let (mut left, mut right) = (end(0), end(1));
    let (mut now, mut sent) = (Instant::START, Vec::new());
    let (bytes, step, tolerance) = (50_000, Step(0), Share::NONE);
    let segments = Segmentation::new(bytes, left.segment_bytes()).segments();
    let shape = MessageShape {
        segments,
        layer_count: 1,
    };
    for sequence in 1..4 {
        let key = MessageKey::new(1, sequence, 0);
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
        right.expect(now, Rank(0), incoming);
        let tags = left.settings().policy.lossless(shape, &[(0, Layer(0))]);
        let outgoing = SendRequest {
            key,
            signature: Signature::NONE,
            step,
            bytes,
            tolerance,
            contributors: 1,
            tags,
        };
        left.send(now, Rank(1), outgoing);
        for _ in 0..20 {
            carry(now, [&mut left, &mut right], &mut sent);
            carry(now, [&mut right, &mut left], &mut Vec::new());
            now = now + Span::from_micros(100);
            left.handle_timeout(now);
            right.handle_timeout(now);
        }
        // The last message is complete; those before it are closed and forgotten.
        while right.poll_event().is_some() {}
        for packet in sent
            .iter()
            .filter(|(header, _)| header.kind == PacketKind::Data)
        {
            assert!(!deliver(now, &mut right, packet), "it was there before");
        }
        assert_eq!(right.poll_event(), None, "nothing is announced");
    }
    let received = right.counters().receiver.received_segments;
    assert_eq!(received, 3 * u64::from(segments));
}

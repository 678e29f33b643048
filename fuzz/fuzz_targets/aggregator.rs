//! Arbitrary datagrams from arbitrary members against an aggregator: it does not panic, and it
//! answers only members that it has admitted, with sums that a member can read.
//!
//! Random bytes rarely carry the right version, kind or length, so the first byte of each datagram
//! says which of these fields to correct before the aggregator gets it.

#![no_main]

use gradwire_collectives::aggregation::aggregator::AggregatorMachine;
use gradwire_collectives::aggregation::packets::{MEMBER, SLOTS, SumHeader, SumPath};
use gradwire_protocol::job::Job;
use gradwire_protocol::machine::{Datagram, Ecn, Machine, Payload};
use gradwire_protocol::units::{Instant, JobId, Layer, Step};
use gradwire_protocol::wire::{HEADER_BYTES, Header, PacketKind, VERSION};
use libfuzzer_sys::fuzz_target;

/// Pairs of a member and the aggregator that packets name.
const PAIRS: u32 = 4;

struct Scene {
    aggregator: AggregatorMachine,
    /// Whether the pair with each number is admitted.
    admitted: [bool; PAIRS as usize],
}

impl Scene {
    fn new() -> Self {
        Self {
            aggregator: AggregatorMachine::new(SumPath::of(&Job::default())),
            admitted: [false; PAIRS as usize],
        }
    }

    fn admit(&mut self, pair: u32) {
        self.aggregator.admit(JobId(pair));
        self.admitted[pair as usize] = true;
    }

    fn forget(&mut self, pair: u32) {
        self.aggregator.forget(JobId(pair));
        self.admitted[pair as usize] = false;
    }

    fn deliver(&mut self, choice: u8, datagram: &mut [u8]) {
        let payload_bytes = datagram.len().saturating_sub(HEADER_BYTES);
        if let Some(header) = datagram.first_chunk_mut::<HEADER_BYTES>()
            && choice & 1 != 0
        {
            header[0] = VERSION;
            header[1] = PacketKind::Sum as u8 + header[1] % 2;
            header[44..46].copy_from_slice(&(payload_bytes as u16).to_le_bytes());
        }
        let Ok((mut header, payload)) = Header::decode(datagram) else {
            return;
        };
        header.job.0 %= PAIRS;
        if choice & 2 != 0 {
            make_consistent(&mut header);
        }
        let datagram = Datagram {
            header,
            payload: Payload::Bytes(payload),
            ecn: Ecn::from_bits(choice >> 4),
        };
        self.aggregator.handle_datagram(Instant::START, datagram);
    }

    fn send_answers(&mut self, runs: u8) {
        for _ in 0..runs {
            let Some(transmit) = self.aggregator.poll_transmit(Instant::START) else {
                return;
            };
            assert_eq!(transmit.to, MEMBER, "an aggregator only answers");
            for index in 0..transmit.packets() {
                let header = transmit.header(index);
                assert!(
                    self.admitted[header.job.0 as usize],
                    "an answer to {:?}, which is no member",
                    header.job
                );
                assert!(SumHeader::read(&header, 0).is_some(), "{header:?}");
            }
        }
    }
}

/// Makes the header describe a packet of one of a few small sums, as a member would write it.
fn make_consistent(header: &mut Header) {
    header.segments = SLOTS;
    header.segment %= SLOTS;
    header.message.0 %= 4;
    header.message_bytes = SLOTS * u32::from(header.length);
    header.contributors = 2 + header.contributors % 2;
    header.layer = Layer(header.layer.0 % header.contributors);
    header.step = Step(header.step.0 % 2);
    header.key.0 &= 1 << 48 | 1 << 16 | 1;
}

fuzz_target!(|input: &[u8]| {
    let mut scene = Scene::new();
    let mut rest = input;
    while let Some((&[verb, choice, size], tail)) = rest.split_first_chunk::<3>() {
        rest = tail;
        match verb % 8 {
            0 => scene.admit(u32::from(choice) % PAIRS),
            1 => scene.forget(u32::from(choice) % PAIRS),
            2 => scene.send_answers(choice),
            _ => {
                let (datagram, tail) = rest.split_at(rest.len().min(usize::from(size)));
                scene.deliver(choice, &mut datagram.to_vec());
                rest = tail;
            }
        }
    }
    scene.send_answers(u8::MAX);
});

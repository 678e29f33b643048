//! Sends messages from one rank to another over real wires, under an instruction counter.
//! Arguments: wire (`udp`, or `rdma` on a device within this process), bytes of a message, number
//! of messages.
//!
//! ```text
//! cargo build --release -p gradwire-benches --example wires
//! valgrind --tool=callgrind --callgrind-out-file=wires.out target/release/examples/wires \
//!     rdma 1048576 100
//! callgrind_annotate --threshold=100 wires.out
//! ```
//!
//! The functions of `rdma::rehearsal` belong to the device, not to the driver.

use std::net::{IpAddr, Ipv4Addr};

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::{Job, Mtu, WireChoice};
use gradwire_protocol::machine::{Datagram, Machine, Payload};
use gradwire_protocol::message::{LengthRule, ReceiveRequest, SendRequest};
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{
    Instant, JobId, Layer, MessageKey, Rank, Share, Signature, Span, Step,
};
use gradwire_protocol::wire::HEADER_BYTES;
use gradwire_transport::address::Address;
use gradwire_transport::control::PairSecrets;
use gradwire_transport::lanes::AegisLanes;
use gradwire_transport::rdma::rehearsal;
use gradwire_transport::seal::{Destination, Seal};
use gradwire_transport::slot::PacketSlot;
use gradwire_transport::wires::Wires;

/// Time from one look at both ranks to the next.
const TICK: Span = Span::from_micros(5);
/// The packet size of both wires: a port of 4096 bytes.
const MTU: u32 = 4144;

/// A rank with its wire.
struct End {
    endpoint: Endpoint,
    wires: Wires,
    seal: Seal,
    peer: Vec<Address>,
    slot: PacketSlot,
    packets: u64,
    ended: u64,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [wire, bytes, count] = words.as_slice() else {
        println!("usage: wires udp|rdma BYTES MESSAGES");
        return;
    };
    let wire = if wire == "rdma" {
        WireChoice::Rdma
    } else {
        WireChoice::Udp
    };
    let number = |text: &String| text.parse().expect("a number");
    let (bytes, count): (u32, u32) = (number(bytes), number(count));
    let mut ends = ends(wire);
    let mut now = Instant::START;
    for sequence in 0..count {
        offer(&mut ends, now, (sequence, bytes));
        let before = [0, 1].map(|rank: usize| ends[rank].ended);
        while (0..2).any(|rank| ends[rank].ended == before[rank]) {
            now = now + TICK;
            for end in &mut ends {
                end.round(now);
            }
        }
    }
    let [sent, received] = ends.map(|end| {
        let counters = end.wires.counters();
        println!(
            "{} packets sent by {} calls, {} received",
            counters.sent_packets, counters.send_calls, end.packets
        );
        if let Wires::Rdma(rdma) = &end.wires {
            println!("{:?}", rdma.tally());
        }
        end.packets
    });
    println!("{} packets", sent + received);
}

fn ends(wire: WireChoice) -> [End; 2] {
    let mut job = Job::default();
    job.transport.wire = wire;
    job.transport.mtu = Mtu::Bytes(MTU);
    let open = |rank| match wire {
        WireChoice::Rdma => {
            let device = rehearsal::open(&job.transport, Rank(rank)).expect("it is sound");
            Wires::Rdma(Box::new(device))
        }
        _ => {
            let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
            Wires::open(&job.transport, loopback, Rank(rank)).expect("loopback has ports")
        }
    };
    let wires = [0, 1].map(open);
    let addresses = [1, 0].map(|rank: usize| wires[rank].addresses().to_vec());
    let secrets = PairSecrets::try_from("5a".repeat(64)).expect("two secrets of 32 bytes");
    let mut both = wires.into_iter().zip(addresses).zip(0..);
    [(); 2].map(|()| {
        let ((wires, peer), rank) = both.next().expect("two of them");
        let identity = Identity {
            rank: Rank(rank),
            world_size: 2,
            job: JobId(1),
            epoch: 0,
        };
        End {
            endpoint: Endpoint::new(identity, &job, 1),
            wires,
            seal: Seal::of(&job, identity, &secrets, AegisLanes::of_this_host()),
            peer,
            slot: PacketSlot::new(),
            packets: 0,
            ended: 0,
        }
    })
}

fn offer(ends: &mut [End; 2], now: Instant, (sequence, bytes): (u32, u32)) {
    let key = MessageKey::new(0, sequence, 0);
    let incoming = ReceiveRequest {
        key,
        signature: Signature::NONE,
        step: Step(0),
        bytes,
        length: LengthRule::Exact,
        tolerance: Share::NONE,
        urgency: None,
        patience_ends: None,
    };
    ends[1].endpoint.expect(now, Rank(0), incoming);
    let cut = Segmentation::new(bytes, ends[0].endpoint.segment_bytes());
    let shape = MessageShape {
        segments: cut.segments(),
        layer_count: 0,
    };
    let policy = &ends[0].endpoint.settings().policy;
    let outgoing = SendRequest {
        key,
        signature: Signature::NONE,
        step: Step(0),
        bytes,
        tolerance: Share::NONE,
        contributors: 1,
        tags: policy.lossless(shape, &[(0, Layer(0))]),
    };
    ends[0].endpoint.send(now, Rank(1), outgoing);
}

impl End {
    fn round(&mut self, now: Instant) {
        loop {
            let readable = self.wires.readable().expect("sound wires");
            if readable.is_empty() {
                break;
            }
            for index in readable {
                self.read(now, index);
            }
        }
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(transmit) = self.endpoint.poll_transmit(now) {
            let to = Destination {
                addresses: &self.peer,
                seal: &mut self.seal,
            };
            let sent = self.wires.send(&transmit, to).expect("sound wires");
            assert_eq!(sent, transmit.packets(), "windows fit the rings");
        }
        while let Some(event) = self.endpoint.poll_event() {
            self.ended += u64::from(matches!(
                event,
                EndpointEvent::Received { .. } | EndpointEvent::Sent { .. }
            ));
        }
    }

    fn read(&mut self, now: Instant, index: usize) {
        let arrival = self.wires.receive(index, &mut self.slot);
        let Some(arrival) = arrival.expect("sound wires") else {
            return;
        };
        for packet in arrival.packets(&mut self.slot) {
            let header = self.seal.read(packet).expect("a packet of ours");
            let opened = self.seal.open(&header, packet);
            opened.expect("sealed by the other one");
            self.packets += 1;
            let payload = Payload::Bytes(&packet[HEADER_BYTES..][..usize::from(header.length)]);
            let datagram = Datagram {
                header,
                payload,
                ecn: arrival.ecn,
            };
            self.endpoint.handle_datagram(now, datagram);
        }
    }
}

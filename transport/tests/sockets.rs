//! Runs of packets pass the kernel with their sizes, DSCP, ECN and headers unchanged.

#[expect(dead_code, reason = "other facts need more of it")]
mod members;

use std::net::UdpSocket;

use gradwire_protocol::bitmap::Bitmap;
use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::{Checksum, Job, PacketSecurity, WireChoice};
use gradwire_protocol::machine::{Ecn, Machine, Payload};
use gradwire_protocol::message::SendRequest;
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{
    Instant, JobId, Layer, Magnitude, MessageKey, Rank, Share, Signature, Step,
};
use gradwire_protocol::wire::{EPOCH_AT, Flags, HEADER_BYTES, Header, JOB_AT, PacketKind, VERSION};
use gradwire_transport::seal::{Destination, Seal};
use gradwire_transport::slot::PacketSlot;
use gradwire_transport::wires::Wires;

use members::{LOOPBACK, open, sockets_of, wires};

/// A received super-packet: its DSCP, its ECN bits and its packets' headers.
type Arrived = (u8, u8, Vec<Header>);

fn identity(rank: u16) -> Identity {
    Identity {
        rank: Rank(rank),
        world_size: 2,
        job: JobId(9),
        epoch: 0,
    }
}

fn arrivals(wires: &mut Wires) -> Vec<Arrived> {
    let mut slot = PacketSlot::new();
    let mut seal = Seal::none(identity(1), Checksum::On);
    let mut all = Vec::new();
    loop {
        let readable = wires.readable().expect("sound sockets");
        if readable.is_empty() {
            return all;
        }
        for index in readable {
            let arrival = wires.receive(index, &mut slot).expect("a sound socket");
            let Some(arrival) = arrival else { continue };
            let mut headers = Vec::new();
            for packet in arrival.packets(&mut slot) {
                let header = seal.read(packet).expect("a packet of ours");
                assert_eq!(seal.open(&header, packet), Ok(()));
                headers.push(header);
            }
            all.push((arrival.dscp, arrival.ecn as u8, headers));
        }
    }
}

#[test]
fn only_sockets_with_packets_are_readable() {
    for wire in wires() {
        let mut to = open(wire, LOOPBACK, 12).expect("loopback has ports");
        assert!(to.readable().expect("sound sockets").is_empty());
        #[expect(clippy::disallowed_methods, reason = "somebody who sends")]
        let from = UdpSocket::bind((LOOPBACK, 0)).expect("loopback has ports");
        for index in [11, 3] {
            let taken = from.send_to(b"noise", sockets_of(to.addresses())[index]);
            assert_eq!(taken.expect("loopback takes it"), 5);
        }
        let readable = to.readable().expect("sound sockets");
        assert_eq!(readable.collect::<Vec<_>>(), [3, 11]);
        let mut slot = PacketSlot::new();
        for index in readable {
            let arrival = to.receive(index, &mut slot).expect("a sound socket");
            assert_eq!(arrival.map(|arrival| arrival.bytes), Some(5));
        }
        assert!(to.readable().expect("sound sockets").is_empty());
    }
}

#[test]
fn the_last_drops_are_known() {
    for wire in wires() {
        let mut to = open(wire, LOOPBACK, 2).expect("loopback has ports");
        let sockets = to.sockets_mut().expect("wires of sockets");
        let limited = sockets.limit_receive_buffers(1);
        limited.expect("the kernel takes any size");
        #[expect(clippy::disallowed_methods, reason = "somebody who sends")]
        let from = UdpSocket::bind((LOOPBACK, 0)).expect("loopback has ports");
        for _ in 0..50 {
            let taken = from.send_to(&[0; 1000], sockets_of(to.addresses())[1]);
            assert_eq!(taken.expect("loopback takes it"), 1000);
        }
        let (mut slot, mut came) = (PacketSlot::new(), 0);
        while let Some(index) = to.readable().expect("sound sockets").next() {
            let arrival = to.receive(index, &mut slot).expect("a sound socket");
            came += u64::from(arrival.is_some());
        }
        assert!((1..50).contains(&came), "{came} of 50 came");
        assert_eq!(to.counters().kernel_drops, 0, "no packet could tell");
        assert_eq!(to.ask_for_drops(), 50 - came);
        assert_eq!(to.counters().kernel_drops, 50 - came);
    }
}

/// The datagrams that have arrived.
fn datagrams(wires: &mut Wires) -> Vec<Vec<u8>> {
    let (mut slot, mut all) = (PacketSlot::new(), Vec::new());
    while let Some(index) = wires.readable().expect("sound sockets").next() {
        let arrival = wires.receive(index, &mut slot).expect("a sound socket");
        if let Some(arrival) = arrival {
            all.extend(arrival.packets(&mut slot).map(|packet| packet.to_vec()));
        }
    }
    all
}

/// Packets that found a full socket of any program on this host.
fn full_sockets() -> u64 {
    let text = std::fs::read_to_string("/proc/self/net/snmp").expect("a kernel with counts");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let [names, values] = [(); 2].map(|()| lines.next().unwrap_or_default().split(' '));
    let full = names.zip(values).find(|(name, _)| *name == "RcvbufErrors");
    full.and_then(|(_, value)| value.parse().ok())
        .expect("a count")
}

#[test]
fn a_filter_passes_packets_of_its_job_only() {
    let (job, epoch) = (JobId(0x0102_0304), 0x0506_u16);
    let mut own = vec![7; HEADER_BYTES];
    own[0] = VERSION;
    own[JOB_AT..JOB_AT + 4].copy_from_slice(&job.0.to_le_bytes());
    own[EPOCH_AT..EPOCH_AT + 2].copy_from_slice(&epoch.to_le_bytes());
    let mut all = vec![vec![VERSION], own.clone()];
    for at in [0, JOB_AT, JOB_AT + 3, EPOCH_AT, EPOCH_AT + 1] {
        let mut foreign = own.clone();
        foreign[at] ^= 1;
        all.push(foreign);
    }
    for wire in wires() {
        let mut to = open(wire, LOOPBACK, 1).expect("loopback has ports");
        let address = sockets_of(to.addresses())[0];
        #[expect(clippy::disallowed_methods, reason = "somebody who sends")]
        let from = UdpSocket::bind((LOOPBACK, 0)).expect("loopback has ports");
        let send = || {
            for packet in &all {
                from.send_to(packet, address).expect("loopback takes it");
            }
        };
        let before = full_sockets();
        let sockets = to.sockets_mut().expect("wires of sockets");
        let kept_out = sockets.keep_foreign_out(job, epoch);
        kept_out.expect("filters need no privilege");
        send();
        assert_eq!(datagrams(&mut to), [own.clone()]);
        let drops = to.ask_for_drops();
        assert!(
            drops <= full_sockets() - before,
            "{drops} drops, and none at a full socket"
        );
        to.sockets_mut().expect("wires of sockets").let_foreign_in();
        send();
        assert_eq!(datagrams(&mut to), all);
    }
}

#[test]
fn runs_arrive_whole_with_their_class_and_protection() {
    wires().into_iter().for_each(runs_arrive_whole);
}

fn runs_arrive_whole(wire: WireChoice) {
    let job = Job {
        security: PacketSecurity::None,
        ..Job::default()
    };
    let mut endpoint = Endpoint::new(identity(0), &job, 1);
    let bytes = 40 * endpoint.segment_bytes() + 100;
    let magnitudes: Vec<Magnitude> = (0..41).map(Magnitude).collect();
    let spans = [(0, Layer(0)), (20, Layer(5))];
    let shape = MessageShape {
        segments: 41,
        layer_count: 12,
    };
    let tags = endpoint.settings().policy.lossy(shape, &spans, magnitudes);
    let (key, tolerance) = (MessageKey::new(0, 1, 0), Share::new(0.5).expect("a share"));
    let protected: Vec<u32> = (0..41)
        .filter(|&segment| tags.is_protected(segment))
        .collect();
    let outgoing = SendRequest {
        key,
        signature: Signature::NONE,
        step: Step(3),
        bytes,
        tolerance,
        contributors: 1,
        tags,
    };
    endpoint.send(Instant::START, Rank(1), outgoing);

    let opened = || open(wire, LOOPBACK, 4).expect("loopback has ports");
    let (mut from, mut to) = (opened(), opened());
    let peer = to.addresses().to_vec();
    let mut seal = Seal::none(identity(0), Checksum::On);
    let tensor: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
    while let Some(mut transmit) = endpoint.poll_transmit(Instant::START) {
        if transmit.template.kind == PacketKind::Data {
            transmit.message = Payload::Bytes(&tensor);
        }
        let (addresses, seal) = (&peer, &mut seal);
        let sent = from.send(&transmit, Destination { addresses, seal });
        assert_eq!(sent.expect("loopback takes it"), transmit.packets());
    }

    let (mut seen, mut tail) = (Bitmap::new(41), 0);
    let policy = job.policy();
    for (dscp, ecn, headers) in arrivals(&mut to) {
        for header in headers
            .iter()
            .filter(|header| header.kind == PacketKind::Data)
        {
            assert!(seen.insert(header.segment));
            let is_protected = protected.contains(&header.segment);
            assert_eq!(header.flags.has(Flags::PROTECTED), is_protected);
            // The last eighth sent is ECT even if it is not protected, so no queue drops it early.
            let of_tail = !is_protected && ecn == 2;
            tail += u32::from(of_tail);
            assert!(of_tail || ecn == if is_protected { 2 } else { 0 });
            assert_eq!(dscp, policy.dscp_of(header.class, Ecn::Ect).0);
            let layer = Layer(if header.segment < 20 { 0 } else { 5 });
            assert_eq!(header.class, policy.class_of(layer, 12));
            assert_eq!(header.magnitude, Magnitude(header.segment as u8));
        }
        // PROBE has the class of the data that it asks about.
        let as_data = |header: &Header| matches!(header.kind, PacketKind::Data | PacketKind::Probe);
        assert!(headers.iter().all(as_data) || dscp == 40);
    }
    assert_eq!(seen.zeros(), 0);
    assert_eq!(tail, 6);
}

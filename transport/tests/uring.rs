//! What is special to io_uring: slots that are used up and returned, one thread, many messages. The
//! tests of `sockets` and `driver` cover its common behaviour with plain sockets.

#[expect(dead_code, reason = "other facts need more of it")]
mod members;

use std::collections::BTreeSet;
use std::net::UdpSocket;

use gradwire_protocol::endpoint::EndpointEvent;
use gradwire_protocol::job::WireChoice;
use gradwire_protocol::units::{MessageKey, Rank, Share};
use gradwire_transport::address::Address;
use gradwire_transport::slot::PacketSlot;
use gradwire_transport::uring;
use gradwire_transport::wires::{WireThreads, Wires};

use members::{LOOPBACK, Message, WAIT, job, open, pair_on, sockets_of, wires};

fn is_allowed() -> bool {
    wires().contains(&WireChoice::Uring)
}

fn ring(entropies: u8) -> Wires {
    open(WireChoice::Uring, LOOPBACK, entropies).expect("the probe has found it possible")
}

#[expect(clippy::disallowed_methods, reason = "somebody who sends")]
fn stranger() -> UdpSocket {
    UdpSocket::bind((LOOPBACK, 0)).expect("loopback has ports")
}

/// The first bytes of everything that has arrived, in the order in which it is handed over.
fn drain(wires: &mut Wires) -> Vec<(usize, u8)> {
    let (mut slot, mut all) = (PacketSlot::new(), Vec::new());
    loop {
        let readable = wires.readable().expect("sound sockets");
        if readable.is_empty() {
            return all;
        }
        for index in readable {
            let arrival = wires.receive(index, &mut slot).expect("a sound socket");
            let arrival = arrival.expect("it was readable");
            all.extend(arrival.packets(&mut slot).map(|packet| (index, packet[0])));
        }
    }
}

#[test]
fn the_probe_and_the_opening_agree() {
    let opened = open(WireChoice::Uring, LOOPBACK, 3);
    match (uring::probe(), opened) {
        (Ok(features), Ok(wires)) => {
            assert!(features.kernel.contains('.'), "{features:?}");
            assert_eq!(
                (wires.name(), wires.threads()),
                ("uring", WireThreads::First)
            );
        }
        (Err(reason), Err(error)) => {
            let (reason, error) = (reason.to_string(), error.to_string());
            assert!(error.ends_with(&reason), "{error}: {reason}");
            assert!(error.contains("transport.wire"), "{error}");
        }
        (probed, opened) => panic!("the probe says {probed:?}, but {opened:?}"),
    }
}

#[test]
fn wires_are_plain_sockets_unless_the_job_wants_io_uring() {
    for wire in [WireChoice::Auto, WireChoice::Udp, WireChoice::SharedMemory] {
        let wires = open(wire, LOOPBACK, 1).expect("loopback has ports");
        assert_eq!((wires.name(), wires.threads()), ("udp", WireThreads::Any));
    }
}

#[test]
fn slots_that_are_used_up_come_back() {
    if !is_allowed() {
        return;
    }
    let (mut wires, from) = (ring(1), stranger());
    for round in 0..20_u8 {
        let sent: Vec<(usize, u8)> = (0..100).map(|n| (0, n ^ round)).collect();
        for (_, byte) in &sent {
            let taken = from.send_to(&[*byte; 999], sockets_of(wires.addresses())[0]);
            assert_eq!(taken.expect("loopback takes it"), 999);
        }
        assert_eq!(drain(&mut wires), sent, "round {round}");
    }
    assert_eq!(wires.counters().kernel_drops, 0);
}

#[test]
fn a_flood_through_one_socket_does_not_starve_another() {
    if !is_allowed() {
        return;
    }
    let (mut wires, from) = (ring(2), stranger());
    let addresses = sockets_of(wires.addresses());
    for _ in 0..200 {
        from.send_to(b"flood", addresses[0])
            .expect("loopback takes it");
    }
    from.send_to(b"drop", addresses[1])
        .expect("loopback takes it");
    let order = drain(&mut wires);
    let turn = order.iter().position(|&(index, _)| index == 1);
    assert_eq!(order.len(), 201);
    assert!(turn.is_some_and(|turn| turn < 64), "{turn:?}");
}

#[test]
fn packets_without_bytes_and_of_the_largest_size_arrive() {
    if !is_allowed() {
        return;
    }
    let (mut wires, from) = (ring(1), stranger());
    let mut slot = PacketSlot::new();
    for bytes in [0, 65_507, 1, 0, 9000] {
        let packet: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
        from.send_to(&packet, sockets_of(wires.addresses())[0])
            .expect("loopback takes it");
        let index = wires.readable().expect("sound sockets").next();
        let arrival = wires.receive(index.expect("it has arrived"), &mut slot);
        let arrival = arrival.expect("a sound socket").expect("it was readable");
        let own = from.local_addr().expect("a bound socket");
        assert_eq!(arrival.from, Address::Socket(own));
        let came: Vec<u8> = arrival
            .packets(&mut slot)
            .flatten()
            .map(|byte| *byte)
            .collect();
        assert_eq!(came, packet);
    }
}

#[test]
fn ten_thousand_messages_arrive_whole_in_spite_of_faults() {
    if !is_allowed() {
        return;
    }
    let mut job = job(1500);
    job.transport.wire = WireChoice::Uring;
    job.faults.drop = Share::new(0.002).expect("a share");
    job.faults.corrupt = Share::new(0.001).expect("a share");
    job.faults.reorder = Share::new(0.002).expect("a share");
    let members = pair_on(LOOPBACK, &job, |_| ());
    let size = |sequence: u32| sequence.wrapping_mul(2_654_435_761) >> 18;
    let [left, right] = &members;
    for batch in 0..100 {
        let sequences = batch * 100..batch * 100 + 100;
        let mut missing: BTreeSet<MessageKey> = BTreeSet::new();
        for message in sequences.map(|sequence| Message::whole(sequence, size(sequence))) {
            missing.insert(message.key);
            right.expect(Rank(0), message);
            left.send(Rank(1), message);
        }
        while !missing.is_empty() {
            let event = right.events.recv_timeout(WAIT).expect("all arrive");
            let EndpointEvent::Received { key, holes, .. } = event else {
                panic!("{event:?} at a receiver");
            };
            assert!(
                missing.remove(&key) && holes.is_none(),
                "{key:?}: {holes:?}"
            );
        }
    }
    let counters = members[1].link.counters();
    assert!(counters.faults_dropped > 50, "{counters:?}");
    assert_eq!(counters.kernel_drops, 0, "{counters:?}");
}

//! Real sockets on loopback: two driver threads, each with an endpoint, exchange messages, over
//! every kind of wire.

mod members;

use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use gradwire_protocol::job::{Job, PacketCipher, PacketSecurity};
use gradwire_protocol::units::{ByteCount, MessageKey, Rank, Share, Span};
use gradwire_transport::udp::Sockets;

use members::{
    LOOPBACK, Member, Message, WAIT, await_whole, job, open, pair_on, pairs, pairs_of_sockets,
    transfer, wires,
};

#[test]
fn messages_of_any_size_arrive_in_super_packets() {
    for members in pairs(&job(1500)) {
        for (sequence, bytes) in (0..).zip([0, 1, 1360, 1361, 100_000, 3_000_000]) {
            transfer(&members, sequence, bytes);
        }
        let counters = members[0].link.counters();
        assert!(counters.sent_packets > 2250);
        assert!(
            counters.send_calls < counters.sent_packets / 8,
            "{counters:?}"
        );
    }
}

#[test]
fn jumbo_packets_arrive_in_super_packets_too() {
    for members in pairs(&job(9000)) {
        transfer(&members, 1, 5_000_000);
    }
}

#[test]
fn packets_sealed_by_another_cipher_arrive_too() {
    let mut job = job(1500);
    assert_eq!(job.cipher, PacketCipher::Aegis);
    job.cipher = PacketCipher::Aes128Gcm;
    for members in pairs(&job) {
        transfer(&members, 1, 3_000_000);
    }
}

#[test]
fn packets_of_a_job_without_security_arrive_too() {
    for (sequence, mtu) in (0..).zip([1500, 9000]) {
        let mut job = job(mtu);
        job.security = PacketSecurity::None;
        for members in pairs(&job) {
            transfer(&members, sequence, 3_000_000);
        }
    }
}

#[test]
fn without_gso_packets_go_one_by_one() {
    for wire in wires() {
        let mut job = job(1500);
        job.transport.wire = wire;
        let members = pair_on(LOOPBACK, &job, Sockets::send_one_by_one);
        transfer(&members, 1, 500_000);
        let counters = members[0].link.counters();
        assert_eq!(counters.send_calls, counters.sent_packets);
    }
}

#[test]
fn ipv6_carries_the_same() {
    let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
    for wire in wires() {
        if open(wire, v6, 1).is_err() {
            eprintln!("skipped: this host has no IPv6 loopback");
            return;
        }
        let mut job = job(1500);
        job.transport.wire = wire;
        transfer(&pair_on(v6, &job, |_| ()), 1, 500_000);
    }
}

#[test]
fn faults_of_every_kind_are_survived() {
    let mut job = job(1500);
    let share = |value| Share::new(value).expect("a share");
    job.faults.drop = share(0.05);
    job.faults.burst = 3.0;
    job.faults.corrupt = share(0.02);
    job.faults.duplicate = share(0.02);
    job.faults.reorder = share(0.05);
    for members in pairs(&job) {
        for sequence in 0..5 {
            transfer(&members, sequence, 300_000);
        }
        let (left, right) = (members[0].link.counters(), members[1].link.counters());
        assert!(
            right.faults_dropped > 10 && right.forged_packets > 3 && right.replayed_packets > 3,
            "{right:?} {left:?}"
        );
        assert!(members[0].counters().sender.repaired_segments > 10);
    }
}

#[test]
fn late_packets_arrive_late_and_whole() {
    let mut job = job(1500);
    job.faults.delay = Span::from_millis(20);
    job.faults.duplicate = Share::new(0.1).expect("a share");
    for members in pairs(&job) {
        let before = members[1].counters().receiver.received_segments;
        #[expect(clippy::disallowed_methods, reason = "the test measures time")]
        let start = std::time::Instant::now();
        transfer(&members, 1, 100_000);
        assert!(
            start.elapsed() >= Duration::from_millis(40),
            "there and back"
        );
        let received = members[1].counters().receiver.received_segments - before;
        assert_eq!(received, 100_000_u64.div_ceil(1360));
    }
}

#[test]
fn foreign_datagrams_are_counted_and_ignored() {
    for members in pairs_of_sockets(&job(1500)) {
        #[expect(clippy::disallowed_methods, reason = "a stranger's socket")]
        let stranger = UdpSocket::bind((LOOPBACK, 0)).expect("loopback has ports");
        for n in 0..50_u8 {
            let noise = vec![n; usize::from(n) * 7];
            stranger
                .send_to(&noise, members[1].addresses[0])
                .expect("loopback takes it");
        }
        transfer(&members, 1, 100_000);
        // The transfer may use other sockets than the noise.
        let refused = || {
            let counters = members[1].link.counters();
            counters.malformed_packets + counters.unknown_senders
        };
        let read = (2..1_000).any(|sequence| {
            transfer(&members, sequence, 1_000);
            refused() >= 50
        });
        assert!(read && refused() == 50, "{} are refused", refused());
    }
}

#[test]
fn a_command_wakes_a_sleeping_driver() {
    for members in pairs(&job(1500)) {
        std::thread::sleep(Duration::from_millis(30));
        transfer(&members, 1, 1000);
    }
}

#[test]
fn a_panicking_machine_is_reported() {
    let [left, right] = pair_on(LOOPBACK, &job(1500), |_| ());
    left.link
        .submit(Box::new(|_, _| panic!("on purpose")))
        .expect("the driver runs");
    assert!(
        left.events.recv_timeout(WAIT).is_err(),
        "its progress is gone"
    );
    let mut link = left.link;
    let stopped = link.stop();
    assert!(stopped.to_string().contains("on purpose"), "{stopped}");
    assert!(link.submit(Box::new(|_, _| ())).is_err());
    drop(right);
}

/// Ten runs come packet by packet, each on another path and 2 ms after the one before, while the
/// receiver does not read. Its reports must not speak of the last run before it has read the first.
#[test]
fn a_host_that_stalls_makes_no_packet_seem_lost() {
    for wire in wires() {
        let mut job = job(1500);
        job.transport.wire = wire;
        job.transport.initial_window = ByteCount::mib(1);
        job.transport.unscheduled = ByteCount::mib(1);
        let members = pair_on(LOOPBACK, &job, Sockets::send_one_by_one);
        // From these the sender knows how short the round trip is.
        for sequence in 0..100 {
            transfer(&members, sequence, 1000);
        }
        let runs = (100..110).map(|sequence| Message::whole(sequence, 60_000));
        runs.clone().for_each(|run| members[1].expect(Rank(0), run));
        members[1].command(|_, _| std::thread::sleep(Duration::from_millis(30)));
        for run in runs.clone() {
            members[0].send(Rank(1), run);
            std::thread::sleep(Duration::from_millis(2));
        }
        for _ in runs {
            let received = members[1].events.recv_timeout(WAIT);
            assert!(received.is_ok(), "{:#?}", members[0].link.counters());
        }
        assert_eq!(members[0].counters().sender.found_lost, 0, "over {wire:?}");
    }
}

/// The receiver has buffers for a packet or two and does not read during a burst, so its kernel
/// drops most of it. The tolerance would allow more than half of the message to be missing.
fn overrun(job: &Job) -> [Member; 2] {
    let little = |sockets: &mut Sockets| {
        let set = sockets.limit_receive_buffers(1);
        set.expect("the kernel takes any size");
    };
    let members = pair_on(LOOPBACK, job, little);
    members[1].command(|_, _| std::thread::sleep(Duration::from_millis(30)));
    members
}

#[test]
fn drops_of_this_host_are_repaired_whole() {
    for wire in wires() {
        let mut job = job(1500);
        job.transport.wire = wire;
        job.transport.entropies = 1;
        job.transport.spray_burst = 8;
        let members = overrun(&job);
        let message = Message {
            key: MessageKey::new(0, 1, 0),
            bytes: 150_000,
            tolerance: Share::new(0.95).expect("a share"),
        };
        members[0].send(Rank(1), message);
        members[1].expect(Rank(0), message);
        await_whole(&members, message.key);
        let (counters, lost) = (members[1].link.counters(), members[1].lost());
        assert!(counters.kernel_drops > 0, "{counters:?}");
        assert_eq!((lost.lost_segments, lost.lost_bytes), (0, 0));
        assert!(lost.allowed_bytes >= 140_000, "{lost:?}");
    }
}

//! A host that refuses to send, for a while, to one peer or at all: between two hosts whose link
//! and routes the tests control.

mod hosts;
#[expect(dead_code, reason = "other facts need more of it")]
mod members;

use std::thread::sleep;
use std::time::{Duration, Instant};

use gradwire_protocol::job::{Job, WireChoice};
use gradwire_protocol::units::{MessageKey, Rank, Share};
use gradwire_transport::udp::Sockets;
use gradwire_transport::wires::Wires;

use hosts::{Hosts, LINKS};
use members::{Member, Message, await_whole, job, open, pair_over, transfer};

/// Two members on two hosts, whose sockets were prepared.
fn pair(hosts: &Hosts, job: &Job, prepare: fn(&mut Sockets)) -> [Member; 2] {
    pair_over([0, 1].map(|host| opened(hosts, host, job, prepare)), job)
}

fn opened(hosts: &Hosts, host: usize, job: &Job, prepare: fn(&mut Sockets)) -> Wires {
    hosts.on(host, || {
        let (wire, entropies) = (job.transport.wire, job.transport.entropies);
        let wires = open(wire, Hosts::address(host), entropies);
        let mut wires = wires.expect("the host has its address");
        wires.sockets_mut().into_iter().for_each(prepare);
        wires
    })
}

#[test]
fn a_refusing_route_is_loss_on_the_path() {
    let Some(hosts) = Hosts::linked() else { return };
    for wire in members::wires() {
        let mut job = job(1500);
        job.transport.wire = wire;
        let members = pair(&hosts, &job, |_| ());
        for (sequence, kind) in (1..).zip(["prohibit", "blackhole", "unreachable"]) {
            transfer(&members, 10 * sequence, 100_000);
            let before = members[0].link.counters().abandoned_packets;
            let message = Message::whole(10 * sequence + 1, 100_000);
            hosts.run(0, &format!("ip route add {kind} {}/32", Hosts::address(1)));
            members[1].expect(Rank(0), message);
            members[0].send(Rank(1), message);
            sleep(Duration::from_millis(1_500));
            hosts.run(0, &format!("ip route del {kind} {}/32", Hosts::address(1)));
            await_whole(&members, message.key);
            let refused = members[0].link.counters().abandoned_packets - before;
            assert!(refused > 0, "{kind}: {refused} were refused");
        }
    }
}

#[test]
fn refused_super_packets_are_tried_again_later() {
    let Some(hosts) = Hosts::linked() else { return };
    let members = pair(&hosts, &job(1500), |_| ());
    let runs = |members: &[Member; 2], sequence| {
        let before = members[0].link.counters();
        transfer(members, sequence, 3_000_000);
        let after = members[0].link.counters();
        let packets = after.sent_packets - before.sent_packets;
        packets / (after.send_calls - before.send_calls)
    };
    assert!(runs(&members, 1) >= 8);
    // The kernel fragments packets that are too large for the route, but only single ones.
    let (to, link) = (Hosts::address(1), LINKS[0]);
    hosts.run(0, &format!("ip route add {to}/32 dev {link} mtu 1000"));
    assert!(runs(&members, 2) <= 2);
    let refusals = members[0].link.counters().super_packets_refused;
    assert!((1..100).contains(&refusals), "{refusals} refusals");
    hosts.run(0, &format!("ip route del {to}/32 dev {link} mtu 1000"));
    assert!((3..8).any(|sequence| runs(&members, sequence) >= 8));
}

/// The link takes a packet a second, so that the sockets of the first host fill up.
fn block(hosts: &Hosts) {
    let tbf = "root tbf burst 1600 limit 1000000";
    hosts.run(
        0,
        &format!("tc qdisc add dev {} {tbf} rate 8kbit", LINKS[0]),
    );
}

fn unblock(hosts: &Hosts) {
    let tbf = "root tbf burst 100000 limit 1000000";
    hosts.run(
        0,
        &format!("tc qdisc change dev {} {tbf} rate 1gbit", LINKS[0]),
    );
}

#[test]
fn packets_that_this_host_keeps_are_no_loss() {
    let Some(hosts) = Hosts::linked() else { return };
    let mut job = job(1500);
    (job.transport.wire, job.transport.entropies) = (WireChoice::Udp, 2);
    job.transport.spray_burst = 8;
    // The minimum of the kernel: a run fills a socket, so the third packet finds no room, however
    // small the window has become on a busy machine.
    let little = |sockets: &mut Sockets| {
        let set = sockets.limit_send_buffers(1);
        set.expect("the kernel takes any size");
    };
    let members = pair(&hosts, &job, little);
    transfer(&members, 1, 10_000);
    block(&hosts);
    let message = Message {
        key: MessageKey::new(0, 2, 0),
        bytes: 240_000,
        tolerance: Share::new(0.95).expect("a share"),
    };
    members[1].expect(Rank(0), message);
    members[0].send(Rank(1), message);
    let ask = |_| {
        sleep(Duration::from_millis(10));
        #[expect(clippy::disallowed_methods, reason = "the test measures time")]
        let asked = Instant::now();
        members[0].counters();
        asked.elapsed()
    };
    let is_kept = || members[0].link.counters().unsent_packets > 0;
    let kept = (0..2_000).any(|_| {
        sleep(Duration::from_millis(10));
        is_kept()
    });
    assert!(kept, "this host keeps no packet");
    let mut answers: Vec<Duration> = (0..40).map(ask).collect();
    answers.sort_unstable();
    unblock(&hosts);
    await_whole(&members, message.key);
    let counters = members[0].link.counters();
    assert!(counters.unsent_packets > 0, "{counters:?}");
    assert_eq!(members[1].lost().lost_segments, 0);
    let median = answers[answers.len() / 2];
    assert!(median < Duration::from_millis(50), "pauses of {median:?}");
}

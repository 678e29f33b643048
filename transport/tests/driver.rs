//! Real sockets on loopback: two driver threads, each with an endpoint, exchange messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use gradwire_protocol::endpoint::{Counters, Endpoint, Event, Identity};
use gradwire_protocol::job::{Job, Mtu};
use gradwire_protocol::priority::Shape;
use gradwire_protocol::receiver::Incoming;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::sender::Outgoing;
use gradwire_protocol::units::{JobId, Layer, Rank, Share, Span, Step, Tag};
use gradwire_transport::driver::{self, DriverLink, Setup};
use gradwire_transport::faults::Faults;
use gradwire_transport::seal::Seal;
use gradwire_transport::udp::Sockets;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const WAIT: Duration = Duration::from_secs(20);

struct Member {
    link: DriverLink<Endpoint>,
    events: Receiver<Event>,
    addresses: Vec<SocketAddr>,
}

fn job(mtu: u32) -> Job {
    let mut job = Job::default();
    job.transport.mtu = Mtu::Bytes(mtu);
    job
}

fn pair_on(address: IpAddr, job: &Job, prepare: fn(&mut Sockets)) -> [Member; 2] {
    let entropies = job.transport.entropies;
    let mut open: Vec<Sockets> = (0..2)
        .map(|_| Sockets::open(address, entropies).expect("loopback has ports"))
        .collect();
    let peers: Vec<Vec<SocketAddr>> = open
        .iter()
        .map(|sockets| sockets.addresses().to_vec())
        .collect();
    let mut rank = 0..2_u16;
    open.drain(..)
        .map(|mut sockets| {
            prepare(&mut sockets);
            let rank = rank.next().expect("two members");
            let identity = Identity {
                rank: Rank(rank),
                world_size: 2,
                job: JobId(9),
                epoch: 0,
            };
            let machine = Endpoint::new(identity, job, u64::from(rank));
            let (tell, events) = channel();
            let setup = Setup {
                sockets,
                peers: peers.clone(),
                seal: Seal::none(job.transport.checksum),
                faults: Faults::new(&job.faults, Rank(rank)),
                neighbours: None,
                idle: job.transport.idle,
            };
            let progress = move |endpoint: &mut Endpoint| {
                while let Some(event) = endpoint.poll_event() {
                    if !matches!(event, Event::Announced { .. }) {
                        let _ = tell.send(event);
                    }
                }
            };
            let link = driver::spawn(machine, setup, progress).expect("a thread");
            Member {
                link,
                events,
                addresses: peers[usize::from(rank)].clone(),
            }
        })
        .collect::<Vec<_>>()
        .try_into()
        .ok()
        .expect("two members")
}

fn pair(job: &Job) -> [Member; 2] {
    pair_on(LOOPBACK, job, |_| ())
}

impl Member {
    fn send(&self, to: Rank, tag: Tag, bytes: u32) {
        let command = move |endpoint: &mut Endpoint, now| {
            let cut = Segmentation::new(bytes, endpoint.segment_bytes());
            let shape = Shape {
                segments: cut.segments(),
                layer_count: 0,
            };
            let tags = endpoint.settings().policy.lossless(shape, &[(0, Layer(0))]);
            let (step, tolerance, contributors) = (Step(0), Share::NONE, 1);
            endpoint.send(
                now,
                to,
                Outgoing {
                    tag,
                    step,
                    bytes,
                    tolerance,
                    contributors,
                    tags,
                },
            );
        };
        self.link
            .submit(Box::new(command))
            .expect("the driver runs");
    }

    fn expect(&self, from: Rank, tag: Tag, bytes: u32) {
        let incoming = Incoming {
            tag,
            step: Step(0),
            bytes,
            tolerance: Share::NONE,
        };
        let command = move |endpoint: &mut Endpoint, now| endpoint.expect(now, from, incoming);
        self.link
            .submit(Box::new(command))
            .expect("the driver runs");
    }

    fn counters(&self) -> Counters {
        let (tell, told) = channel();
        let command = move |endpoint: &mut Endpoint, _| {
            tell.send(endpoint.counters()).expect("the test waits");
        };
        self.link
            .submit(Box::new(command))
            .expect("the driver runs");
        told.recv_timeout(WAIT).expect("the driver answers")
    }
}

fn transfer([left, right]: &[Member; 2], sequence: u32, bytes: u32) {
    let tag = Tag::new(0, sequence, 0);
    right.expect(Rank(0), tag, bytes);
    left.send(Rank(1), tag, bytes);
    let counters = || (left.link.counters(), right.link.counters());
    let received = right.events.recv_timeout(WAIT);
    let received = received.unwrap_or_else(|_| panic!("nothing arrived: {:#?}", counters()));
    assert_eq!(
        received,
        Event::Received {
            from: Rank(0),
            tag,
            holes: None
        }
    );
    let sent = left
        .events
        .recv_timeout(WAIT)
        .expect("the sender hears of it");
    assert_eq!(
        sent,
        Event::Sent {
            to: Rank(1),
            tag,
            missing: None
        }
    );
}

#[test]
fn messages_of_any_size_arrive_in_super_packets() {
    let members = pair(&job(1500));
    for (sequence, bytes) in [0, 1, 1376, 1377, 100_000, 3_000_000]
        .into_iter()
        .enumerate()
    {
        transfer(&members, sequence as u32, bytes);
    }
    let counters = members[0].link.counters();
    assert!(counters.sent_packets > 2250);
    assert!(
        counters.send_calls < counters.sent_packets / 8,
        "{counters:?}"
    );
}

#[test]
fn jumbo_packets_are_gathered_from_where_they_lie() {
    let members = pair(&job(9000));
    transfer(&members, 1, 5_000_000);
}

#[test]
fn without_gso_packets_go_one_by_one() {
    let members = pair_on(LOOPBACK, &job(1500), Sockets::send_one_by_one);
    transfer(&members, 1, 500_000);
    let counters = members[0].link.counters();
    assert_eq!(counters.send_calls, counters.sent_packets);
}

#[test]
fn ipv6_carries_the_same() {
    let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
    if Sockets::open(v6, 1).is_err() {
        eprintln!("skipped: this host has no IPv6 loopback");
        return;
    }
    transfer(&pair_on(v6, &job(1500), |_| ()), 1, 500_000);
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
    let members = pair(&job);
    for sequence in 0..5 {
        transfer(&members, sequence, 300_000);
    }
    let (left, right) = (members[0].link.counters(), members[1].link.counters());
    assert!(
        right.faults_dropped > 10 && right.malformed_packets > 3,
        "{right:?} {left:?}"
    );
    assert!(members[0].counters().sender.repaired_segments > 10);
}

#[test]
fn late_packets_arrive_late_and_whole() {
    let mut job = job(1500);
    job.faults.delay = Span::from_millis(20);
    job.faults.duplicate = Share::new(0.1).expect("a share");
    let members = pair(&job);
    let before = members[1].counters().receiver.received_segments;
    #[expect(clippy::disallowed_methods, reason = "the test measures time")]
    let start = std::time::Instant::now();
    transfer(&members, 1, 100_000);
    assert!(
        start.elapsed() >= Duration::from_millis(40),
        "there and back"
    );
    let received = members[1].counters().receiver.received_segments - before;
    assert_eq!(received, 100_000_u64.div_ceil(1376));
}

#[test]
fn foreign_datagrams_are_counted_and_ignored() {
    let members = pair(&job(1500));
    #[expect(clippy::disallowed_methods, reason = "a stranger's socket")]
    let stranger = UdpSocket::bind((LOOPBACK, 0)).expect("loopback has ports");
    for n in 0..50_u8 {
        let noise = vec![n; usize::from(n) * 7];
        stranger
            .send_to(&noise, members[1].addresses[0])
            .expect("loopback takes it");
    }
    transfer(&members, 1, 100_000);
    let counters = members[1].link.counters();
    assert_eq!(counters.malformed_packets + counters.unknown_senders, 50);
}

#[test]
fn a_command_wakes_a_sleeping_driver() {
    let members = pair(&job(1500));
    std::thread::sleep(Duration::from_millis(30));
    transfer(&members, 1, 1000);
}

#[test]
fn a_panicking_machine_is_reported_and_hangs_nobody() {
    let [left, right] = pair(&job(1500));
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

//! AF_XDP between two network namespaces that a veth pair joins. Where this user may not make
//! namespaces, or the kernel has no AF_XDP, these tests say so and pass.
#![expect(unsafe_code, reason = "a test forks")]

#[expect(dead_code, reason = "other facts need more of it")]
mod members;

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant as WallTime};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::{Checksum, Mtu, TransportKeys, WireChoice};
use gradwire_protocol::machine::{Machine, Payload, Transmit};
use gradwire_protocol::message::SendRequest;
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{Instant, JobId, Layer, MessageKey, Rank, Share, Signature, Step};
use gradwire_protocol::wire::{Header, PacketKind};
use gradwire_transport::seal::{Destination, Seal};
use gradwire_transport::slot::PacketSlot;
use gradwire_transport::wires::{WireThreads, Wires, WiresError};

use members::{Message, WAIT, job, pair_over};

const MTU: u32 = 1500;
const ENTROPIES: u8 = 4;

/// Two namespaces, with an end of a veth pair in each.
struct Rooms([File; 2]);

impl Rooms {
    /// `None` where the tests cannot run here, after saying why.
    fn new() -> Option<Self> {
        let made = Self::make().and_then(|rooms| match rooms.open(0, MTU) {
            Ok(_) => Ok(rooms),
            Err(error) => Err(io::Error::other(error)),
        });
        made.map_err(|error| eprintln!("skipped: {error}")).ok()
    }

    fn make() -> io::Result<Self> {
        let room = || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        };
        let rooms = Self([on_a_thread(room)?, on_a_thread(room)?]);
        let other = format!("/proc/{}/fd/{}", std::process::id(), rooms.0[1].as_raw_fd());
        let pair =
            format!("link add eth0 mtu {MTU} type veth peer name eth0 mtu {MTU} netns {other}");
        rooms.ip(0, &pair)?;
        for room in 0..2 {
            rooms.ip(room, &format!("address add {}/24 dev eth0", address(room)))?;
            rooms.ip(room, "link set eth0 up")?;
            rooms.ip(room, "link set lo up")?;
        }
        Ok(rooms)
    }

    fn within<T: Send>(&self, room: usize, act: impl FnOnce() -> T + Send) -> T {
        on_a_thread(|| {
            setns(&self.0[room], CloneFlags::CLONE_NEWNET).expect("the room is there");
            act()
        })
    }

    fn ip(&self, room: usize, line: &str) -> io::Result<()> {
        let status = self.within(room, || Command::new("ip").args(line.split(' ')).status())?;
        match status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("ip {line}"))),
        }
    }

    fn open(&self, room: usize, mtu: u32) -> Result<Wires, WiresError> {
        self.open_on(room, address(room), mtu)
    }

    fn open_on(&self, room: usize, address: IpAddr, mtu: u32) -> Result<Wires, WiresError> {
        let transport = TransportKeys {
            wire: WireChoice::Xdp,
            entropies: ENTROPIES,
            mtu: Mtu::Bytes(mtu),
            ..TransportKeys::default()
        };
        self.within(room, || Wires::open(&transport, address, Rank(room as u16)))
    }
}

fn address(room: usize) -> IpAddr {
    Ipv4Addr::new(10, 83, 1, room as u8 + 1).into()
}

fn on_a_thread<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(act).join().expect("nothing in it panics"))
}

/// Packets that have gone past the kernel's network stack.
fn bypassed(wires: &Wires) -> u64 {
    match wires {
        Wires::Xdp(xdp) => xdp.bypassed_packets(),
        other => panic!("{} is no AF_XDP", other.name()),
    }
}

/// Hands every run of a message of 40 segments to `send`.
fn each_run(sequence: u32, mut send: impl FnMut(&Transmit<'_>)) {
    let job = job(MTU);
    let identity = Identity {
        rank: Rank(0),
        world_size: 2,
        job: JobId(9),
        epoch: 0,
    };
    let mut endpoint = Endpoint::new(identity, &job, 1);
    let bytes = 40 * endpoint.segment_bytes();
    let cut = Segmentation::new(bytes, endpoint.segment_bytes());
    let shape = MessageShape {
        segments: cut.segments(),
        layer_count: 0,
    };
    let tags = endpoint.settings().policy.lossless(shape, &[(0, Layer(0))]);
    let outgoing = SendRequest {
        key: MessageKey::new(0, sequence, 0),
        signature: Signature::NONE,
        step: Step(0),
        bytes,
        tolerance: Share::NONE,
        contributors: 1,
        tags,
    };
    endpoint.send(Instant::START, Rank(1), outgoing);
    let tensor = vec![sequence as u8; bytes as usize];
    while let Some(mut transmit) = endpoint.poll_transmit(Instant::START) {
        if transmit.template.kind == PacketKind::Data {
            transmit.message = Payload::Bytes(&tensor);
        }
        send(&transmit);
    }
}

/// The sequences of all DATA that arrives until there are `count`, with their traffic classes.
#[expect(clippy::disallowed_methods, reason = "the test waits for the kernel")]
fn arrivals(wires: &mut Wires, count: usize) -> Vec<(u32, u8)> {
    let (mut slot, mut all) = (PacketSlot::new(), Vec::new());
    let start = WallTime::now();
    while all.len() < count {
        assert!(
            start.elapsed() < WAIT,
            "{} of {count} packets came",
            all.len()
        );
        for index in wires.readable().expect("sound wires") {
            let Some(arrival) = wires.receive(index, &mut slot).expect("sound wires") else {
                continue;
            };
            for packet in arrival.packets(&mut slot) {
                let (header, payload) = Header::decode(packet).expect("a whole packet");
                if header.kind == PacketKind::Data {
                    let first = payload[0];
                    assert!(payload.iter().all(|&byte| byte == first));
                    all.push((u32::from(first), arrival.dscp << 2 | arrival.ecn as u8));
                }
            }
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    all
}

#[test]
fn packets_bypass_the_kernel_once_it_has_resolved_their_peer() {
    let Some(rooms) = Rooms::new() else { return };
    let [mut from, mut to] = [0, 1].map(|room| rooms.open(room, MTU).expect("free interfaces"));
    assert_eq!((from.name(), from.threads()), ("xdp", WireThreads::Any));
    let peer = to.addresses().to_vec();
    let identity = Identity {
        rank: Rank(0),
        world_size: 2,
        job: JobId(9),
        epoch: 0,
    };
    let mut seal = Seal::none(identity, Checksum::On);
    let (mut sent, mut first) = (0, 0);
    for sequence in 0..10 {
        if sequence == 8 {
            // After a second the kernel is to see the peer again.
            (first, sent) = (bypassed(&from), 0);
            std::thread::sleep(Duration::from_millis(1_100));
        }
        let mut classes = Vec::new();
        each_run(sequence, |transmit| {
            let (addresses, seal) = (&peer, &mut seal);
            let taken = from.send(transmit, Destination { addresses, seal });
            assert_eq!(taken.expect("the link is up"), transmit.packets());
            sent += transmit.packets() as u64;
            if transmit.template.kind == PacketKind::Data {
                let class = transmit.dscp.0 << 2 | transmit.ecn as u8;
                classes.extend(std::iter::repeat_n((sequence, class), transmit.packets()));
            }
        });
        let mut came = arrivals(&mut to, classes.len());
        came.sort_unstable();
        classes.sort_unstable();
        assert_eq!(came, classes);
        // The kernel may take a moment to resolve the peer.
        std::thread::sleep(Duration::from_millis(15));
    }
    let later = bypassed(&from) - first;
    assert!((1..sent).contains(&later), "{later} of {sent} packets");
    let all = from.counters().sent_packets;
    assert!(first > all / 2, "{first} of {all} packets");
}

#[test]
fn messages_arrive_both_ways_and_whole() {
    let Some(rooms) = Rooms::new() else { return };
    let wires = [0, 1].map(|room| rooms.open(room, MTU).expect("free interfaces"));
    let mut job = job(MTU);
    job.transport.wire = WireChoice::Xdp;
    job.transport.entropies = ENTROPIES;
    let pair = pair_over(wires, &job);
    for sequence in 0..20 {
        let message = Message::whole(sequence, 1 << 20);
        for (member, other) in [(0, 1), (1, 0)] {
            pair[member].expect(Rank(other), message);
            pair[member].send(Rank(other), message);
        }
        for member in &pair {
            let mut received = 0;
            while received == 0 {
                let event = member.events.recv_timeout(WAIT).expect("both ends live");
                received += u32::from(matches!(event, EndpointEvent::Received { .. }));
            }
        }
    }
    assert!(
        pair.iter()
            .all(|member| member.lost() == Default::default())
    );
}

#[test]
fn a_link_that_was_down_carries_packets_again() {
    let Some(rooms) = Rooms::new() else { return };
    let wires = [0, 1].map(|room| rooms.open(room, MTU).expect("free interfaces"));
    let mut job = job(MTU);
    job.transport.entropies = ENTROPIES;
    let pair = pair_over(wires, &job);
    for sequence in 0..6 {
        let message = Message::whole(sequence, 1 << 20);
        pair[1].expect(Rank(0), message);
        pair[0].send(Rank(1), message);
        if sequence % 2 == 1 {
            rooms.ip(1, "link set eth0 down").expect("it is there");
            std::thread::sleep(Duration::from_millis(300));
            rooms.ip(1, "link set eth0 up").expect("it is there");
        }
        let event = pair[1]
            .events
            .recv_timeout(WAIT)
            .expect("the path is mended");
        assert!(matches!(event, EndpointEvent::Received { .. }), "{event:?}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "somebody who sends")]
fn empty_packets_use_up_no_frames() {
    let Some(rooms) = Rooms::new() else { return };
    let mut wires = rooms.open(0, MTU).expect("a free interface");
    let stranger = rooms.within(1, || UdpSocket::bind((address(1), 0)));
    let stranger = stranger.expect("the room has ports");
    let to = wires.addresses()[0].socket().expect("sockets");
    let mut slot = PacketSlot::new();
    let mut arrivals = |count: usize, bytes: usize| {
        let mut came = 0;
        let start = WallTime::now();
        while came < count && start.elapsed() < WAIT {
            for index in wires.readable().expect("sound wires") {
                let arrival = wires.receive(index, &mut slot).expect("sound wires");
                came += usize::from(arrival.is_some_and(|arrival| arrival.bytes == bytes));
            }
        }
        came
    };
    // Some times as many as there are frames, but never more at a time.
    for _ in 0..100 {
        for _ in 0..100 {
            stranger.send_to(&[], to).expect("the link is up");
        }
        assert_eq!(arrivals(100, 0), 100);
    }
    stranger.send_to(b"whole", to).expect("the link is up");
    assert_eq!(arrivals(1, 5), 1);
}

#[test]
fn a_forked_child_lets_go_of_the_interface() {
    let Some(rooms) = Rooms::new() else { return };
    let wires = rooms.open(0, MTU).expect("a free interface");
    // SAFETY: the child does nothing but wait for its end.
    let child = match unsafe { libc::fork() } {
        0 => loop {
            // SAFETY: it takes no argument.
            unsafe { libc::pause() };
        },
        child => Pid::from_raw(child),
    };
    drop(wires);
    let again = rooms.open(0, MTU);
    kill(child, Signal::SIGKILL).expect("it waits");
    waitpid(child, None).expect("it is a child");
    again.expect("the child has nothing of it");
}

#[test]
fn an_interface_has_one_rank_at_a_time() {
    let Some(rooms) = Rooms::new() else { return };
    let first = rooms.open(0, MTU).expect("a free interface");
    let second = rooms.open(0, MTU).expect_err("it is taken").to_string();
    assert!(
        second.starts_with("transport.wire is \"xdp\": eth0 is in use"),
        "{second}"
    );
    drop(first);
    rooms
        .open(0, MTU)
        .expect("the kernel has taken everything away");
}

#[test]
fn wrong_addresses_and_large_packets_are_refused() {
    let Some(rooms) = Rooms::new() else { return };
    let said = |address: IpAddr, mtu| {
        let refused = rooms.open_on(0, address, mtu);
        refused.expect_err("it cannot work").to_string()
    };
    let loopback = said(Ipv4Addr::LOCALHOST.into(), MTU);
    assert!(
        loopback.contains("127.0.0.1 is no address of an Ethernet interface"),
        "{loopback}"
    );
    let ipv6 = said(Ipv6Addr::LOCALHOST.into(), MTU);
    assert!(
        ipv6.contains("IPv4 only, and this rank's address is ::1"),
        "{ipv6}"
    );
    let large = said(address(0), MTU + 1);
    assert!(
        large.contains("transport.mtu is 1501") && large.contains("at most 1500"),
        "{large}"
    );
}

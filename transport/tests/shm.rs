//! Packets through shared memory: rings that wrap, fill and empty; who shares what.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::{Checksum, Job};
use gradwire_protocol::machine::{Ecn, Payload, SegmentRun, Transmit};
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{
    Class, Dscp, Entropy, JobId, Layer, Magnitude, MessageId, MessageKey, PathNumber, Rank,
    Signature, Step,
};
use gradwire_protocol::wire::{EndedEarlier, Flags, Header, PacketKind};
use gradwire_transport::driver::{self, DrivePace, DriverSetup};
use gradwire_transport::seal::Seal;
use gradwire_transport::shm::{HostNeighbours, MemoryOffer, MemoryTerms, OwnInbox};
use gradwire_transport::wires::Wires;
use nix::unistd::ForkResult;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const A: Rank = Rank(3);
const B: Rank = Rank(5);

fn inbox() -> OwnInbox {
    OwnInbox::make().expect("Linux has /dev/shm")
}

fn offer() -> MemoryOffer {
    inbox().offer().clone()
}

fn path(offer: &MemoryOffer) -> PathBuf {
    Path::new("/dev/shm").join(&offer.name)
}

/// Two ranks that are attached to each other.
fn pair() -> (HostNeighbours, HostNeighbours) {
    let inboxes = [inbox(), inbox()];
    let [first, second] = inboxes.each_ref().map(|inbox| Some(inbox.offer().clone()));
    let offers = [(A, first), (Rank(4), None), (B, second)];
    let terms = [A, B].map(|me| MemoryTerms::of(&offers, me).expect("both are here"));
    let mut inboxes = inboxes.into_iter();
    let mut both = terms.each_ref().map(|terms| {
        let inbox = inboxes.next().expect("one for each");
        HostNeighbours::new(inbox, terms).expect("it can be mapped")
    });
    for (neighbours, terms) in both.iter_mut().zip(&terms) {
        neighbours
            .attach(terms)
            .expect("the other one has made its inbox");
    }
    both.into()
}

/// Sends one packet; returns whether there was room.
fn send(neighbours: &mut HostNeighbours, number: u32, payload: &[u8]) -> bool {
    send_as(neighbours, A, number, payload)
}

/// [`send`] with the name of any rank.
fn send_as(neighbours: &mut HostNeighbours, source: Rank, number: u32, payload: &[u8]) -> bool {
    let template = Header {
        kind: PacketKind::Ack,
        ended: EndedEarlier::NOT_SAID,
        parity: None,
        flags: Flags::NONE,
        class: Class(0),
        job: JobId(1),
        epoch: 0,
        source,
        step: Step(0),
        key: MessageKey(7),
        message: MessageId(number),
        signature: Signature::NONE,
        segment: 0,
        segments: 1,
        number: PathNumber(0),
        message_bytes: 0,
        length: payload.len() as u16,
        layer: Layer(0),
        magnitude: Magnitude(0),
        entropy: Entropy(0),
        contributors: 1,
        sent_at: 0,
        protected: 0,
        checksum: 0,
    };
    let transmit = Transmit {
        to: B,
        class: Class(0),
        dscp: Dscp(0),
        ecn: Ecn::Ect,
        entropy: Entropy(0),
        template,
        run: &SegmentRun::FIRST,
        segment_bytes: 1,
        tags: None,
        message: Payload::Bytes(payload),
    };
    neighbours.send(&transmit) == 1
}

fn content(number: u32, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u32 ^ number) as u8).collect()
}

/// Takes the next packet if there is one, and checks that it is the one with this number.
fn took(neighbours: &mut HostNeighbours, number: u32) -> bool {
    let Some(packet) = neighbours.peek(0) else {
        return false;
    };
    assert_eq!(packet.header.message, MessageId(number));
    assert_eq!(packet.payload, content(number, packet.payload.len()));
    neighbours.release(0);
    true
}

#[test]
fn packets_arrive_whole_and_in_order_however_the_ring_wraps() {
    let seed = 11;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut from, mut to) = pair();
    let (mut sent, mut read) = (0, 0);
    while read < 4_000 {
        let length = match rng.random_range(0..3) {
            0 => rng.random_range(0..65_472),
            1 => rng.random_range(0..200),
            _ => 16_384,
        };
        for _ in 0..rng.random_range(0..20) {
            if !send(&mut from, sent, &content(sent, length)) {
                break;
            }
            sent += 1;
        }
        for _ in 0..rng.random_range(0..20) {
            read += u32::from(took(&mut to, read));
        }
        assert!(read <= sent, "seed {seed}");
    }
}

#[test]
fn all_ranks_are_reached_only_if_each_shares_memory() {
    let (a, b) = pair();
    for neighbours in [&a, &b] {
        assert!(neighbours.reach_all(2), "of a job of two");
        assert!(!neighbours.reach_all(3), "the third shares no memory");
    }
}

#[test]
fn the_end_of_a_neighbour_is_seen_by_the_others() {
    let (mut ours, theirs) = pair();
    let lives = ours.take_lives();
    assert!(matches!(lives.as_slice(), [(B, life)] if !life.has_ended()));
    assert!(ours.take_lives().is_empty());
    drop(theirs);
    for _ in 0..2 {
        assert!(lives[0].1.has_ended());
    }
}

#[test]
#[expect(unsafe_code, reason = "a fork is a call of libc")]
fn forked_children_do_not_keep_a_rank_alive() {
    let (mut ours, theirs) = pair();
    let lives = ours.take_lives();
    // SAFETY: the child only waits for its end.
    let child = match unsafe { nix::unistd::fork() }.expect("the system has processes") {
        ForkResult::Child => loop {
            nix::unistd::pause();
        },
        ForkResult::Parent { child } => child,
    };
    assert!(!lives[0].1.has_ended());
    drop(theirs);
    let ended = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(10));
        lives[0].1.has_ended()
    });
    nix::sys::signal::kill(child, nix::sys::signal::SIGKILL).expect("it is our child");
    nix::sys::wait::waitpid(child, None).expect("it is our child");
    assert!(ended);
}

#[test]
fn a_full_ring_takes_no_more_until_it_is_read() {
    let (mut from, mut to) = pair();
    let packet = content(0, 16_384);
    let taken = (0..1_000)
        .take_while(|_| send(&mut from, 0, &packet))
        .count();
    assert!((15..1_000).contains(&taken), "{taken} packets");
    assert!(took(&mut to, 0));
    assert!(send(&mut from, 0, &packet));
    assert!(!send(&mut from, 0, &packet));
    let left = (0..).take_while(|_| took(&mut to, 0)).count();
    assert_eq!(left, taken);
}

#[test]
fn a_reader_on_another_thread_sees_every_packet() {
    let (mut from, mut to) = pair();
    let packets = 10_000;
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..packets {
                while !send(&mut from, number, &content(number, number as usize % 3_000)) {
                    thread::yield_now();
                }
            }
        });
        let mut read = 0;
        while read < packets {
            match took(&mut to, read) {
                true => read += 1,
                false => thread::yield_now(),
            }
        }
        assert!(to.peek(0).is_none());
    });
}

#[test]
fn names_go_with_their_rank_or_before() {
    let own = inbox();
    let path = path(own.offer());
    let offers = [(A, Some(own.offer().clone())), (B, Some(offer()))];
    let terms = MemoryTerms::of(&offers, A).expect("both are here");
    let mut neighbours = HostNeighbours::new(own, &terms).expect("it can be mapped");
    assert!(path.exists() && path.with_extension("bell").exists());
    let missing = neighbours
        .attach(&terms)
        .expect_err("the other one has made no inbox");
    assert!(
        missing.to_string().contains("transport.wire = \"udp\""),
        "{missing}"
    );
    drop(neighbours.take_names());
    assert!(!path.exists() && !path.with_extension("bell").exists());
}

#[test]
fn files_of_dead_ranks_are_removed() {
    let dead = MemoryOffer {
        name: format!("gradwire-{:016x}", rand::random::<u64>()),
        ..offer()
    };
    let dead = path(&dead);
    for left in [dead.clone(), dead.with_extension("bell")] {
        std::fs::write(left, "").expect("the folder is writable");
    }
    let alive = inbox();
    let _next = inbox();
    assert!(!dead.exists() && !dead.with_extension("bell").exists());
    assert!(path(alive.offer()).exists());
}

#[test]
fn ranks_that_join_at_once_keep_their_files() {
    let join = || {
        for _ in 0..200 {
            let own = inbox();
            let file = path(own.offer());
            assert!(file.exists() && file.with_extension("bell").exists());
        }
    };
    thread::scope(|ranks| {
        for _ in 0..8 {
            ranks.spawn(join);
        }
    });
}

#[test]
fn a_reader_that_lags_behind_gets_the_whole_ring() {
    const WINDOW: usize = 31;
    let packet = content(0, 16_384);
    // This many packets wait whenever one is read.
    for behind in [0, 1, 3] {
        let (mut from, mut to) = pair();
        (0..behind).for_each(|_| assert!(send(&mut from, 0, &packet)));
        for _ in 0..200 {
            send(&mut from, 0, &packet);
            assert!(took(&mut to, 0));
        }
        while took(&mut to, 0) {}
        let burst = |_| {
            let taken = (0..WINDOW).take_while(|_| send(&mut from, 0, &packet));
            let taken = taken.count();
            while took(&mut to, 0) {}
            taken
        };
        let bursts: Vec<usize> = (0..5).map(burst).collect();
        assert_eq!(bursts[4], WINDOW, "{bursts:?} packets, {behind} behind");
    }
}

#[test]
fn rings_take_memory_as_they_are_used() {
    let own = inbox();
    let file = path(own.offer());
    let others = (0..16).map(|rank| (Rank(rank), Some(offer())));
    let mut offers: Vec<_> = others.collect();
    offers[0].1 = Some(own.offer().clone());
    let terms = MemoryTerms::of(&offers, Rank(0)).expect("they are here");
    let _inbox = HostNeighbours::new(own, &terms).expect("it can be mapped");
    let file = std::fs::metadata(file).expect("it has not been removed");
    assert_eq!(file.len() >> 20, 15, "room for 15 rings of 1 MiB");
    assert!(file.blocks() * 512 < 2 << 20, "{} blocks", file.blocks());
}

#[test]
fn names_of_other_files_are_not_opened() {
    for name in [
        "../../etc/passwd",
        "/etc/passwd",
        "gradwire-",
        "gradwire-0000000000000000.x",
    ] {
        let other = MemoryOffer {
            name: name.to_owned(),
            ..offer()
        };
        let offers = [(A, Some(offer())), (B, Some(other))];
        assert_eq!(MemoryTerms::of(&offers, A), None, "{name}");
    }
}

#[test]
fn a_ring_carries_its_writers_packets_only() {
    let (mut from, to) = pair();
    let job = Job::default();
    let identity = Identity {
        rank: B,
        world_size: 6,
        job: JobId(1),
        epoch: 0,
    };
    let wires = Wires::open(&job.transport, IpAddr::V4(Ipv4Addr::LOCALHOST), B);
    let setup = DriverSetup {
        sockets: wires.expect("loopback has ports"),
        peers: vec![Vec::new(); 6],
        seal: Seal::none(identity, Checksum::On),
        faults: None,
        neighbours: Some(to),
        pace: DrivePace::without_callers(job.transport.idle),
    };
    let link = driver::spawn(Endpoint::new(identity, &job, 1), setup, |_| ());
    let link = link.expect("a thread");
    for source in [A, Rank(4)] {
        assert!(send_as(&mut from, source, 1, b""));
    }
    let counted = || {
        let counters = link.counters();
        (counters.received_packets, counters.unknown_senders)
    };
    let came = || counted().0 + counted().1 == 2;
    assert!((0..1_000).any(|_| {
        thread::sleep(Duration::from_millis(5));
        came()
    }));
    assert_eq!(counted(), (1, 1));
}

#[test]
fn ranks_of_other_places_share_nothing() {
    let elsewhere = MemoryOffer {
        place: "another kernel".to_owned(),
        ..offer()
    };
    let offers = [(A, Some(offer())), (B, Some(elsewhere)), (Rank(6), None)];
    assert_eq!(MemoryTerms::of(&offers, A), None);
    assert_eq!(MemoryTerms::of(&offers, Rank(6)), None);
}

#[test]
fn all_ranks_of_a_place_come_to_the_same_terms_and_small_places_to_none() {
    let with = |free| {
        let here = |rank| (Rank(rank), Some(MemoryOffer { free, ..offer() }));
        [0, 1, 2, 3].map(here)
    };
    let window = |free| {
        let offers = with(free);
        let near = |(me, _): &(Rank, Option<MemoryOffer>)| {
            Some(MemoryTerms::of(&offers, *me)?.near().window)
        };
        let all: Vec<_> = offers.iter().map(near).collect();
        assert!(all.iter().all(|window| *window == all[0]));
        all[0].map(|window| window.get())
    };
    assert_eq!(window(1 << 30), Some(512 << 10));
    assert_eq!(window(12 << 20), Some(256 << 10));
    assert_eq!(window(6 << 20), Some(128 << 10));
    assert_eq!(window(5 << 20), None);
}

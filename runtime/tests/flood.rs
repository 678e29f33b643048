//! All-reduces of two ranks while a process on the host floods their data ports: random bytes and
//! packets of another job from an address of its own and, where this process may open raw sockets,
//! recorded and damaged packets from the address of a rank. Sums stay exact, nothing hangs, every
//! kind is counted under its name.
//!
//! The test prints how fast the all-reduces were: without a flood, with one at another port (it
//! takes a core all the same), and with one at their ports. With `GRADWIRE_SLOW=1`, a release build
//! and `--nocapture` these are measurements; otherwise they are too few.

#[expect(dead_code, reason = "other facts need more of it")]
mod world;

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gradwire_protocol::job::{Job, WireChoice};
use gradwire_protocol::units::{Rank, Span};
use gradwire_protocol::wire::{HEADER_BYTES, LENGTH_AT, PacketKind, TAG_BYTES, VERSION};
use gradwire_runtime::{LocalRank, OpenRank, RankCounters, RankTask};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::UdpGsoSegment;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

const PATIENCE: Duration = Duration::from_secs(60);
/// Garbage a second that the attacker tries to send.
const RATE: u64 = 200_000;
/// Packets of a run, and the payload of each.
const RUN: u64 = 40;
const RUN_PAYLOAD: u16 = 1300;
/// Bytes that are not a packet of any version.
static GARBAGE: [u8; 1400] = [0xFF; 1400];
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

/// Where the flood goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
enum Aim {
    Nowhere,
    Elsewhere,
    Ranks,
    /// At the ranks, in runs that the kernel cuts into packets: hardly any work for the attacker.
    Runs,
    /// The test is over.
    End,
}

impl Aim {
    fn of(value: &AtomicU8) -> Self {
        let value = value.load(Ordering::SeqCst);
        let all = [
            Self::Nowhere,
            Self::Elsewhere,
            Self::Ranks,
            Self::Runs,
            Self::End,
        ];
        all[usize::from(value)]
    }
}

const PHASES: [Aim; 8] = {
    let turn = [Aim::Nowhere, Aim::Elsewhere, Aim::Ranks, Aim::Runs];
    [
        turn[0], turn[1], turn[2], turn[3], turn[0], turn[1], turn[2], turn[3],
    ]
};

#[expect(clippy::disallowed_methods, reason = "an attacker's socket")]
fn bound() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has ports")
}

/// Raw sockets: one that hears all UDP of this host, one that sends from any address.
#[expect(clippy::disallowed_methods, reason = "an attacker's sockets")]
fn raw() -> Option<(Socket, Socket)> {
    let open = |protocol| Socket::new(Domain::IPV4, Type::RAW, Some(protocol));
    match (open(Protocol::UDP), open(Protocol::from(255))) {
        (Ok(hears), Ok(sends)) => {
            hears.set_nonblocking(true).expect("sockets can");
            Some((hears, sends))
        }
        _ => {
            eprintln!("skipped: packets from a rank's address need a raw socket, so root");
            None
        }
    }
}

struct Attacker {
    targets: Vec<SocketAddrV4>,
    stranger: UdpSocket,
    /// Cuts what it sends into packets.
    sprayer: UdpSocket,
    deaf: SocketAddr,
    raw: Option<(Socket, Socket)>,
    /// A packet of one rank to another, with IP and UDP headers.
    recorded: Option<Vec<u8>>,
    noise: u64,
}

impl Attacker {
    fn new(targets: Vec<SocketAddrV4>, deaf: SocketAddr) -> Self {
        let sprayer = bound();
        let packet = HEADER_BYTES + usize::from(RUN_PAYLOAD) + TAG_BYTES;
        setsockopt(&sprayer, UdpGsoSegment, &(packet as i32)).expect("kernels of today cut");
        Self {
            targets,
            stranger: bound(),
            sprayer,
            deaf,
            raw: raw(),
            recorded: None,
            noise: 0x9E37_79B9_7F4A_7C15,
        }
    }

    fn run(&mut self, aim: &AtomicU8, sent: &AtomicU64) {
        let mut next = now();
        loop {
            match Aim::of(aim) {
                Aim::End => return,
                Aim::Nowhere => {}
                aim => {
                    self.listen();
                    match aim {
                        Aim::Runs => (0..RATE / 1000 / RUN).for_each(|_| self.send_run()),
                        _ => (0..RATE / 1000).for_each(|_| self.send(aim)),
                    }
                    sent.fetch_add(RATE / 1000, Ordering::Relaxed);
                }
            }
            next += Duration::from_millis(1);
            thread::sleep(next.saturating_duration_since(now()));
            next = next.max(now() - Duration::from_millis(20));
        }
    }

    fn random(&mut self) -> u64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        self.noise
    }

    /// Records a sealed packet that goes to one of the targets.
    fn listen(&mut self) {
        let Some((hears, _)) = &mut self.raw else {
            return;
        };
        let mut seen = vec![0; 65_536];
        for _ in 0..100 {
            let Ok(bytes) = hears.read(&mut seen) else {
                return;
            };
            let packet = IP_BYTES + UDP_BYTES;
            if bytes < packet + HEADER_BYTES + TAG_BYTES || seen[packet] != VERSION {
                continue;
            }
            let port = u16::from_be_bytes([seen[IP_BYTES + 2], seen[IP_BYTES + 3]]);
            let length = [seen[packet + LENGTH_AT], seen[packet + LENGTH_AT + 1]];
            let end = packet + HEADER_BYTES + usize::from(u16::from_le_bytes(length)) + TAG_BYTES;
            if end <= bytes && self.targets.iter().any(|target| target.port() == port) {
                self.recorded = Some(seen[..end].to_vec());
            }
        }
    }

    /// Packets of another job and packets of no kind, in turn.
    fn send_run(&mut self) {
        let random = self.random();
        let target = self.targets[random as usize % self.targets.len()];
        let packet = of_another_job(random, RUN_PAYLOAD);
        let other = &GARBAGE[..packet.len()];
        let run: Vec<u8> = (0..RUN / 2)
            .flat_map(|_| [&packet, other].concat())
            .collect();
        // A full buffer of the kernel accepts less than was sent.
        let _ = self.sprayer.send_to(&run, target);
    }

    fn send(&mut self, aim: Aim) {
        let random = self.random();
        let target = self.targets[random as usize % self.targets.len()];
        let (to, raw) = match aim {
            Aim::Ranks => (target.into(), self.raw.as_ref().zip(self.recorded.clone())),
            _ => (self.deaf, None),
        };
        let sent = match (random >> 32 & 3, raw) {
            (0, Some(((_, sends), recorded))) => replay(sends, recorded),
            (1, Some(((_, sends), mut recorded))) => {
                let tag = recorded.last_mut().expect("it has a tag");
                *tag ^= 1 << (random >> 40 & 7);
                replay(sends, recorded)
            }
            (0 | 2, _) => {
                let length = 1 + (random >> 44) as usize % GARBAGE.len();
                self.stranger.send_to(&GARBAGE[..length], to)
            }
            _ => {
                let packet = of_another_job(random, (random >> 48) as u16 % 1300);
                self.stranger.send_to(&packet, to)
            }
        };
        // A full buffer of the kernel accepts less than was sent.
        let _ = sent;
    }
}

fn of_another_job(random: u64, body: u16) -> Vec<u8> {
    let mut packet = vec![0xA5; HEADER_BYTES + usize::from(body) + TAG_BYTES];
    packet[..2].copy_from_slice(&[VERSION, PacketKind::Ack as u8]);
    packet[4..8].copy_from_slice(&(random as u32).to_le_bytes());
    packet[LENGTH_AT..LENGTH_AT + 2].copy_from_slice(&body.to_le_bytes());
    packet
}

/// Sends a packet with the addresses that it was recorded with.
fn replay(sends: &Socket, mut packet: Vec<u8>) -> std::io::Result<usize> {
    let udp = (packet.len() - IP_BYTES) as u16;
    packet[IP_BYTES + 4..IP_BYTES + 6].copy_from_slice(&udp.to_be_bytes());
    packet[IP_BYTES + 6..IP_BYTES + 8].fill(0);
    let total = packet.len() as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    let port = u16::from_be_bytes([packet[IP_BYTES + 2], packet[IP_BYTES + 3]]);
    let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    sends.send_to(&packet, &SockAddr::from(to))
}

#[expect(clippy::disallowed_methods, reason = "the test measures time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a slow test asks GRADWIRE_SLOW, see CONTRIBUTING.md"
)]
fn is_slow() -> bool {
    // Without optimisation the rest takes long, not the flood.
    !cfg!(debug_assertions) && std::env::var_os("GRADWIRE_SLOW").is_some()
}

fn open(rank: u16) -> OpenRank {
    let mut job = Job::default();
    job.transport.wire = WireChoice::Udp;
    world::open(rank, 2, &job)
}

fn all_reduce(rank: &LocalRank, sequence: u32, elements: usize) -> bool {
    let factor = f32::from(rank.rank().0 + 1);
    let pattern = || (0..elements).map(|at| (at % 251) as f32);
    let bytes = pattern().flat_map(|value| (factor * value).to_le_bytes());
    let operation = world::sum(2, sequence, bytes.collect());
    let timeout = Some(Span::from_millis(PATIENCE.as_millis() as u64));
    let ended = rank
        .run(RankTask { operation, timeout })
        .expect("nothing fails");
    let sums = ended.buffer.bytes().expect("it has bytes").chunks_exact(4);
    let sums = sums.map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")));
    sums.eq(pattern().map(|value| 3.0 * value))
}

/// All phases on one rank; rank 0 says which. Gives its median time of an all-reduce in each.
fn work(rank: &LocalRank, aim: &AtomicU8, rounds: u32) -> Vec<Duration> {
    let elements = if is_slow() { 2 << 20 } else { 64 << 10 };
    let mut sequence = 0;
    let mut medians = Vec::new();
    for phase in PHASES {
        if rank.rank() == Rank(0) {
            aim.store(phase as u8, Ordering::SeqCst);
        }
        let mut times: Vec<Duration> = (0..rounds)
            .map(|_| {
                sequence += 1;
                let start = now();
                assert!(
                    all_reduce(rank, sequence, elements),
                    "a sum is wrong in {phase:?}"
                );
                start.elapsed()
            })
            .collect();
        times.sort();
        medians.push(times[times.len() / 2]);
    }
    medians
}

/// Ends the attack when a rank is done, also by a panic.
struct Over<'a>(&'a AtomicU8);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(Aim::End as u8, Ordering::SeqCst);
    }
}

#[test]
fn sums_stay_exact_in_a_flood_of_garbage() {
    let rounds = if is_slow() { 60 } else { 8 };
    let ranks = [open(0), open(1)];
    let rendezvous = ranks[0].rendezvous().expect("rank 0 listens").to_string();
    let targets = ranks.iter().flat_map(|rank| rank.data_addresses());
    let targets = targets.map(|address| match address.socket() {
        Some(SocketAddr::V4(address)) => address,
        _ => unreachable!("UDP sockets bound to 127.0.0.1"),
    });
    let deaf = bound();
    let elsewhere = deaf.local_addr().expect("bound");
    let mut attacker = Attacker::new(targets.collect(), elsewhere);
    let (aim, sent) = (AtomicU8::new(Aim::Nowhere as u8), AtomicU64::new(0));
    let (spoofs, done) = (attacker.raw.is_some(), AtomicBool::new(false));
    let counted: Vec<RankCounters> = thread::scope(|scope| {
        scope.spawn(|| attacker.run(&aim, &sent));
        let working = ranks.map(|rank| {
            let (rendezvous, aim, sent, done) = (&rendezvous, &aim, &sent, &done);
            scope.spawn(move || {
                let _over = Over(aim);
                let rank = rank.join(rendezvous, PATIENCE).expect("equal jobs");
                let start = now();
                let medians = work(&rank, aim, rounds);
                let counters = rank.counters();
                if !done.swap(true, Ordering::SeqCst) {
                    let rate = sent.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
                    eprintln!("{PHASES:?}: {medians:?}; {rate:.0} garbage/s over all phases");
                    eprintln!("{counters:?}");
                }
                rank.close(PATIENCE);
                counters
            })
        });
        let counters = working.map(|rank| rank.join().expect("no panic"));
        counters.to_vec()
    });
    let sum = |of: fn(&RankCounters) -> u64| counted.iter().map(of).sum::<u64>();
    assert!(sum(|seen| seen.malformed_packets) > 0, "{counted:?}");
    assert!(sum(|seen| seen.foreign_packets) > 0, "{counted:?}");
    if spoofs {
        assert!(sum(|seen| seen.replayed_packets) > 0, "{counted:?}");
        assert!(sum(|seen| seen.forged_packets) > 0, "{counted:?}");
    }
    assert_eq!(sum(|seen| seen.old_epoch_packets), 0);
}

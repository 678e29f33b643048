//! An attacker sits on the path between two ranks, over real sockets. It sees every packet and
//! sends any bytes from the right addresses. Each attack is counted by its own counter, and both
//! ranks end with exactly the bytes that the other one sent.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::{IdleMode, Job, Mtu};
use gradwire_protocol::machine::{ArrivedRun, Machine, Payload, Transmit, UnsentRun};
use gradwire_protocol::message::{LengthRule, ReceiveRequest, SendRequest};
use gradwire_protocol::parity::ParityRule;
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{Instant, JobId, Layer, MessageKey, Rank, Share, Signature, Step};
use gradwire_protocol::wire::{CHECKSUM_AT, HEADER_BYTES, PacketKind};
use gradwire_transport::address::Address;
use gradwire_transport::control::PairSecrets;
use gradwire_transport::driver::{self, DrivePace, DriverCounters, DriverLink, DriverSetup};
use gradwire_transport::lanes::AegisLanes;
use gradwire_transport::seal::Seal;
use gradwire_transport::udp::Sockets;
use gradwire_transport::wires::Wires;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const WAIT: Duration = Duration::from_secs(20);
const ENTROPIES: u8 = 2;
const BYTES: u32 = 300_000;
const JOB: JobId = JobId(9);
const KEY: MessageKey = MessageKey::new(0, 1, 0);

/// An endpoint with tensors. Received bytes are added to zeros, so a byte added twice shows.
struct Carrier {
    endpoint: Endpoint,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

impl Machine for Carrier {
    fn handle_run(&mut self, now: Instant, run: &ArrivedRun<'_>) {
        let taken = self.endpoint.accept_run(now, run);
        if let Some(placement) = taken.placement {
            let parts = run.payloads.parts(taken.packets);
            let bytes = parts.flat_map(|part| part.bytes().expect("sockets carry bytes"));
            let place = &mut self.incoming[placement.offset as usize..];
            for (sum, byte) in place.iter_mut().zip(bytes) {
                *sum = sum.wrapping_add(*byte);
            }
        }
        if let Some(rest) = run.after(taken.packets) {
            self.handle_run(now, &rest);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        let mut transmit = self.endpoint.poll_transmit(now)?;
        if transmit.template.kind == PacketKind::Data {
            transmit.message = Payload::Bytes(&self.outgoing);
        }
        Some(transmit)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }

    fn handle_host_drops(&mut self, now: Instant) {
        self.endpoint.handle_host_drops(now);
    }

    fn handle_unsent(&mut self, now: Instant, unsent: &UnsentRun) {
        self.endpoint.handle_unsent(now, unsent);
    }

    fn tolerates_loss(&self) -> bool {
        self.endpoint.tolerates_loss()
    }
}

/// One of the two attacked ranks.
struct Victim {
    link: DriverLink<Carrier>,
    events: Receiver<EndpointEvent>,
}

fn tensor(rank: u16) -> Vec<u8> {
    let mut bytes = vec![0; BYTES as usize];
    ChaCha8Rng::seed_from_u64(rank.into()).fill_bytes(&mut bytes);
    bytes
}

impl Victim {
    fn new(rank: u16, sockets: Sockets, other: Vec<SocketAddr>) -> Self {
        let mut job = Job::default();
        job.transport.mtu = Mtu::Bytes(1500);
        job.transport.parity = ParityRule::None; // its endpoint computes none
        let identity = Identity {
            rank: Rank(rank),
            world_size: 2,
            job: JOB,
            epoch: 1,
        };
        let secrets = PairSecrets::try_from("5a".repeat(64)).expect("two secrets");
        let mut peers = vec![Vec::new(), Vec::new()];
        peers[usize::from(1 - rank)] = other.into_iter().map(Address::from).collect();
        let carrier = Carrier {
            endpoint: Endpoint::new(identity, &job, u64::from(rank)),
            outgoing: tensor(rank),
            incoming: vec![0; BYTES as usize],
        };
        let setup = DriverSetup {
            sockets: Wires::Sockets(sockets),
            peers,
            seal: Seal::of(&job, identity, &secrets, AegisLanes::of_this_host()),
            faults: None,
            neighbours: None,
            pace: DrivePace::without_callers(IdleMode::Adaptive),
        };
        let (tell, events) = channel();
        let progress = move |carrier: &mut Carrier| {
            while let Some(event) = carrier.endpoint.poll_event() {
                let _ = tell.send(event);
            }
        };
        let link = driver::spawn(carrier, setup, progress).expect("a thread");
        Self { link, events }
    }

    /// Sends this rank's tensor to the other rank, and expects the other's.
    fn exchange(&self, other: Rank) {
        let command = move |carrier: &mut Carrier, now| {
            let endpoint = &mut carrier.endpoint;
            let cut = Segmentation::new(BYTES, endpoint.segment_bytes());
            let shape = MessageShape {
                segments: cut.segments(),
                layer_count: 0,
            };
            let tags = endpoint.settings().policy.lossless(shape, &[(0, Layer(0))]);
            let (key, step, bytes, tolerance) = (KEY, Step(0), BYTES, Share::NONE);
            endpoint.expect(
                now,
                other,
                ReceiveRequest {
                    key,
                    signature: Signature::NONE,
                    step,
                    bytes,
                    length: LengthRule::Exact,
                    tolerance,
                    urgency: None,
                    patience_ends: None,
                },
            );
            endpoint.send(
                now,
                other,
                SendRequest {
                    key,
                    signature: Signature::NONE,
                    step,
                    bytes,
                    tolerance,
                    contributors: 1,
                    tags,
                },
            );
        };
        let submitted = self.link.submit(Box::new(command));
        submitted.expect("the driver runs");
    }

    /// Waits until both messages have ended; returns the received tensor.
    fn received(&self) -> Vec<u8> {
        let mut ended = 0;
        while ended < 2 {
            let event = self.events.recv_timeout(WAIT);
            let event = event.unwrap_or_else(|_| panic!("hangs: {:#?}", self.link.counters()));
            let has_ended = matches!(
                event,
                EndpointEvent::Received { .. } | EndpointEvent::Sent { .. }
            );
            ended += u8::from(has_ended);
        }
        let (tell, told) = channel();
        let submitted = self.link.submit(Box::new(move |carrier, _| {
            let _ = tell.send(carrier.incoming.clone());
        }));
        submitted.expect("the driver runs");
        told.recv_timeout(WAIT).expect("the driver answers")
    }
}

/// Runs for each packet that the attacker sees, besides passing it on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Attack {
    Replay,
    Reorder,
    Truncate,
    FlipBit,
    ForgeData,
    ForgeAck,
    OldEpoch,
    OtherJob,
    OtherAddress,
}

/// The attacker. Each rank believes that its sockets are the other rank's.
struct Mallory {
    attack: Attack,
    /// Sockets that face each rank, one per entropy.
    faces: [Vec<UdpSocket>; 2],
    victims: [Vec<SocketAddr>; 2],
    stranger: UdpSocket,
    rng: ChaCha8Rng,
    held: Vec<(usize, usize, Vec<u8>)>,
    sent: u64,
}

#[expect(clippy::disallowed_methods, reason = "an attacker's sockets")]
fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((LOOPBACK, 0)).expect("loopback has ports");
    socket.set_nonblocking(true).expect("sockets can");
    socket
}

fn addresses(sockets: &[UdpSocket]) -> Vec<SocketAddr> {
    let address = |socket: &UdpSocket| socket.local_addr().expect("bound");
    sockets.iter().map(address).collect()
}

impl Mallory {
    fn between(victims: [Vec<SocketAddr>; 2], attack: Attack) -> Self {
        let face = |_| (0..ENTROPIES).map(|_| socket()).collect();
        Self {
            attack,
            faces: [0, 1].map(face),
            victims,
            stranger: socket(),
            rng: ChaCha8Rng::seed_from_u64(7),
            held: Vec::new(),
            sent: 0,
        }
    }

    fn run(mut self, stop: &AtomicBool) -> u64 {
        let mut packet = vec![0; 65_536];
        while !stop.load(Ordering::SeqCst) {
            let mut idle = true;
            for (from, path) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                while let Ok((bytes, _)) = self.faces[from][path].recv_from(&mut packet) {
                    idle = false;
                    self.on_packet(1 - from, path, &packet[..bytes]);
                }
            }
            if idle {
                self.let_go();
                sleep(Duration::from_micros(50));
            }
        }
        self.sent
    }

    fn on_packet(&mut self, to: usize, path: usize, packet: &[u8]) {
        if self.attack == Attack::Reorder {
            self.held.push((to, path, packet.to_vec()));
            if self.held.len() == 32 {
                self.let_go();
            }
            return;
        }
        self.pass_on(to, path, packet);
        let mut evil = packet.to_vec();
        match self.attack {
            Attack::Replay | Attack::OtherAddress | Attack::Reorder => {}
            Attack::Truncate => evil.truncate(self.rng.random_range(1..packet.len())),
            Attack::FlipBit => {
                let bit = self.rng.random_range(0..packet.len() * 8);
                evil[bit / 8] ^= 1 << (bit % 8);
            }
            Attack::ForgeData => {
                self.rng.fill_bytes(&mut evil[HEADER_BYTES..]);
                evil[1] = PacketKind::Data as u8;
                self.next_number(&mut evil);
            }
            Attack::ForgeAck => {
                evil[1] = PacketKind::Ack as u8;
                evil[HEADER_BYTES..].fill(0xFF);
                self.next_number(&mut evil);
            }
            Attack::OldEpoch => evil[8] = 0,
            Attack::OtherJob => evil[4] ^= 1,
        }
        self.sent += 1;
        let victim = self.victims[to][path];
        let sent = match self.attack {
            Attack::OtherAddress => self.stranger.send_to(&evil, victim),
            _ => self.faces[to][path].send_to(&evil, victim),
        };
        sent.expect("loopback takes it");
    }

    /// A packet number that the true sender has not used yet.
    fn next_number(&mut self, packet: &mut [u8]) {
        let ahead = self.rng.random_range(1_000..100_000_u32);
        packet[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&ahead.to_le_bytes());
    }

    fn pass_on(&self, to: usize, path: usize, packet: &[u8]) {
        let sent = self.faces[to][path].send_to(packet, self.victims[to][path]);
        sent.expect("loopback takes it");
    }

    fn let_go(&mut self) {
        for (to, path, packet) in std::mem::take(&mut self.held).into_iter().rev() {
            self.pass_on(to, path, &packet);
        }
    }
}

/// A pair of ranks with an attacker between them.
struct Scene {
    victims: [Victim; 2],
    stop: Arc<AtomicBool>,
    mallory: JoinHandle<u64>,
}

impl Scene {
    fn of(attack: Attack) -> Self {
        let open = |_| Sockets::open(LOOPBACK, ENTROPIES).expect("loopback has ports");
        let sockets = [0, 1].map(open);
        let place = |rank: usize| {
            let addresses = sockets[rank].addresses().iter();
            addresses.filter_map(|address| address.socket()).collect()
        };
        let places = [0, 1].map(place);
        let mallory = Mallory::between(places, attack);
        let seen = [0, 1].map(|rank: usize| addresses(&mallory.faces[rank]));
        let [left, right] = sockets;
        let [by_left, by_right] = seen;
        let victims = [
            Victim::new(0, left, by_left),
            Victim::new(1, right, by_right),
        ];
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        Self {
            victims,
            stop,
            mallory: spawn(move || mallory.run(&stopped)),
        }
    }

    /// Lets the ranks exchange tensors; returns how many packets the attacker sent, and the
    /// counters of both ranks together.
    fn play(self) -> (u64, DriverCounters) {
        let [left, right] = &self.victims;
        left.exchange(Rank(1));
        right.exchange(Rank(0));
        assert!(left.received() == tensor(1), "rank 0 has what rank 1 sent");
        assert!(right.received() == tensor(0), "rank 1 has what rank 0 sent");
        self.stop.store(true, Ordering::SeqCst);
        let sent = self.mallory.join().expect("no panic");
        let mut seen = DriverCounters::default();
        for _ in 0..200 {
            seen = both(left.link.counters(), right.link.counters());
            if refused(&seen) >= sent {
                break;
            }
            sleep(Duration::from_millis(10));
        }
        (sent, seen)
    }
}

/// The rejected packets that both ranks counted.
fn both(left: DriverCounters, right: DriverCounters) -> DriverCounters {
    DriverCounters {
        malformed_packets: left.malformed_packets + right.malformed_packets,
        foreign_packets: left.foreign_packets + right.foreign_packets,
        old_epoch_packets: left.old_epoch_packets + right.old_epoch_packets,
        unknown_senders: left.unknown_senders + right.unknown_senders,
        forged_packets: left.forged_packets + right.forged_packets,
        replayed_packets: left.replayed_packets + right.replayed_packets,
        ..DriverCounters::default()
    }
}

fn refused(seen: &DriverCounters) -> u64 {
    seen.malformed_packets
        + seen.foreign_packets
        + seen.old_epoch_packets
        + seen.unknown_senders
        + seen.forged_packets
        + seen.replayed_packets
}

/// The attack leaves the tensors exact, and one counter counts all of it.
fn is_counted(attack: Attack, name: impl Fn(&mut DriverCounters) -> &mut u64) {
    let (sent, seen) = Scene::of(attack).play();
    assert!(
        sent > 2 * u64::from(BYTES / 1500),
        "{sent} packets were attacked"
    );
    let mut expected = DriverCounters::default();
    *name(&mut expected) = sent;
    assert_eq!(seen, expected);
}

#[test]
fn replayed_packets_are_taken_once() {
    is_counted(Attack::Replay, |seen| &mut seen.replayed_packets);
}

#[test]
fn truncated_packets_are_malformed() {
    is_counted(Attack::Truncate, |seen| &mut seen.malformed_packets);
}

#[test]
fn forged_data_packets_are_refused() {
    is_counted(Attack::ForgeData, |seen| &mut seen.forged_packets);
}

#[test]
fn forged_ack_packets_are_refused() {
    is_counted(Attack::ForgeAck, |seen| &mut seen.forged_packets);
}

#[test]
fn packets_of_an_old_epoch_have_a_counter() {
    is_counted(Attack::OldEpoch, |seen| &mut seen.old_epoch_packets);
}

#[test]
fn packets_of_another_job_have_a_counter() {
    is_counted(Attack::OtherJob, |seen| &mut seen.foreign_packets);
}

#[test]
fn sound_packets_from_an_unknown_address_are_refused() {
    is_counted(Attack::OtherAddress, |seen| &mut seen.unknown_senders);
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let (sent, seen) = Scene::of(Attack::FlipBit).play();
    assert_eq!(refused(&seen), sent, "{seen:?}");
    assert_eq!(seen.replayed_packets, 0, "{seen:?}");
    assert!(seen.forged_packets > sent / 2, "{seen:?}");
}

#[test]
fn reordered_packets_do_no_harm() {
    let (sent, seen) = Scene::of(Attack::Reorder).play();
    assert_eq!((sent, seen), (0, DriverCounters::default()));
}

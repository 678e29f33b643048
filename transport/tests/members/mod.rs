//! Two members of a job on loopback, over every kind of wire that this host allows.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use gradwire_protocol::budget::LossAccount;
use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::{Job, Mtu, TransportKeys, WireChoice};
use gradwire_protocol::message::{LengthRule, ReceiveRequest, SendRequest};
use gradwire_protocol::metrics::EndpointCounters;
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{
    Instant, JobId, Layer, Magnitude, MessageKey, Rank, Share, Signature, Step,
};
use gradwire_transport::address::Address;
use gradwire_transport::control::PairSecrets;
use gradwire_transport::driver::{self, DrivePace, DriverLink, DriverSetup};
use gradwire_transport::faults::FaultInjector;
use gradwire_transport::lanes::AegisLanes;
use gradwire_transport::rdma::rehearsal;
use gradwire_transport::seal::Seal;
use gradwire_transport::udp::Sockets;
use gradwire_transport::uring;
use gradwire_transport::wires::{Wires, WiresError};

pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub(crate) const WAIT: Duration = Duration::from_secs(20);

/// The kinds of wire on which every test runs.
pub(crate) fn wires() -> Vec<WireChoice> {
    match uring::probe() {
        Ok(_) => vec![WireChoice::Udp, WireChoice::Uring],
        Err(reason) => {
            eprintln!("skipped on io_uring: {reason}");
            vec![WireChoice::Udp]
        }
    }
}

/// Opens wires of that kind on `address`.
pub(crate) fn open(wire: WireChoice, address: IpAddr, entropies: u8) -> Result<Wires, WiresError> {
    let transport = TransportKeys {
        wire,
        entropies,
        ..TransportKeys::default()
    };
    match wire {
        WireChoice::Rdma => {
            let device = rehearsal::open(&transport, Rank(0))?;
            Ok(Wires::Rdma(Box::new(device)))
        }
        _ => Wires::open(&transport, address, Rank(0)),
    }
}

/// The addresses that are UDP sockets.
pub(crate) fn sockets_of(addresses: &[Address]) -> Vec<SocketAddr> {
    let addresses = addresses.iter();
    addresses.filter_map(|address| address.socket()).collect()
}

/// One end of a pair.
pub(crate) struct Member {
    pub(crate) link: DriverLink<Endpoint>,
    pub(crate) events: Receiver<EndpointEvent>,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// A message of the first member to the second.
#[derive(Clone, Copy)]
pub(crate) struct Message {
    pub(crate) key: MessageKey,
    pub(crate) bytes: u32,
    pub(crate) tolerance: Share,
}

pub(crate) fn job(mtu: u32) -> Job {
    let mut job = Job::default();
    job.transport.mtu = Mtu::Bytes(mtu);
    job
}

/// The secrets of two ranks, as if rank 0 had handed them out.
fn secrets() -> PairSecrets {
    PairSecrets::try_from("5a".repeat(64)).expect("two secrets of 32 bytes")
}

/// Two members on `address` whose sockets were prepared.
pub(crate) fn pair_on(address: IpAddr, job: &Job, prepare: fn(&mut Sockets)) -> [Member; 2] {
    let wires = [(); 2].map(|()| {
        let (wire, entropies) = (job.transport.wire, job.transport.entropies);
        let mut wires = open(wire, address, entropies).expect("loopback has ports");
        wires.sockets_mut().into_iter().for_each(prepare);
        wires
    });
    pair_over(wires, job)
}

/// Two members over these wires.
pub(crate) fn pair_over(wires: [Wires; 2], job: &Job) -> [Member; 2] {
    let addresses = wires.each_ref().map(|wires| wires.addresses().to_vec());
    let peers = [addresses.clone(), addresses].map(Vec::from);
    pair_between(wires, peers, job)
}

/// Two members over these wires, each with the addresses by which it knows all ranks.
pub(crate) fn pair_between(
    wires: [Wires; 2],
    peers: [Vec<Vec<Address>>; 2],
    job: &Job,
) -> [Member; 2] {
    let (mut rank, mut peers) = (0..2_u16, peers.into_iter());
    wires.map(|wires| {
        let rank = rank.next().expect("two members");
        let peers = peers.next().expect("two members");
        let addresses = sockets_of(wires.addresses());
        let identity = Identity {
            rank: Rank(rank),
            world_size: 2,
            job: JobId(9),
            epoch: 0,
        };
        let seal = Seal::of(job, identity, &secrets(), AegisLanes::of_this_host());
        let machine = Endpoint::new(identity, job, u64::from(rank));
        let (tell, events) = channel();
        let setup = DriverSetup {
            sockets: wires,
            peers,
            seal,
            faults: FaultInjector::new(&job.faults, Rank(rank)),
            neighbours: None,
            pace: DrivePace::without_callers(job.transport.idle),
        };
        let progress = move |endpoint: &mut Endpoint| {
            while let Some(event) = endpoint.poll_event() {
                if !matches!(event, EndpointEvent::Announced { .. }) {
                    let _ = tell.send(event);
                }
            }
        };
        let link = driver::spawn(machine, setup, progress).expect("a thread");
        Member {
            link,
            events,
            addresses,
        }
    })
}

/// A pair for each kind of wire, one after the other. The RDMA device is simulated in this
/// process and, as most devices do, takes no larger packets than 4 KiB.
pub(crate) fn pairs(job: &Job) -> impl Iterator<Item = [Member; 2]> {
    let fits = matches!(job.transport.mtu, Mtu::Bytes(..=4144));
    let rdma = fits.then_some(WireChoice::Rdma);
    pairs_by(job, wires().into_iter().chain(rdma))
}

/// A pair for each kind of UDP sockets, one after the other.
pub(crate) fn pairs_of_sockets(job: &Job) -> impl Iterator<Item = [Member; 2]> {
    pairs_by(job, wires().into_iter())
}

fn pairs_by(
    job: &Job,
    wires: impl Iterator<Item = WireChoice>,
) -> impl Iterator<Item = [Member; 2]> {
    wires.map(|wire| {
        let mut job = job.clone();
        job.transport.wire = wire;
        pair_on(LOOPBACK, &job, |_| ())
    })
}

impl Message {
    /// A message that must arrive whole.
    pub(crate) fn whole(sequence: u32, bytes: u32) -> Self {
        Self {
            key: MessageKey::new(0, sequence, 0),
            bytes,
            tolerance: Share::NONE,
        }
    }
}

impl Member {
    /// Runs a closure on the endpoint on the driver's thread.
    pub(crate) fn command(&self, command: impl FnOnce(&mut Endpoint, Instant) + Send + 'static) {
        let taken = self.link.submit(Box::new(command));
        taken.expect("the driver runs");
    }

    pub(crate) fn send(&self, to: Rank, message: Message) {
        self.command(move |endpoint, now| {
            let Message {
                key,
                bytes,
                tolerance,
            } = message;
            let cut = Segmentation::new(bytes, endpoint.segment_bytes());
            let shape = MessageShape {
                segments: cut.segments(),
                layer_count: 0,
            };
            let (policy, spans) = (&endpoint.settings().policy, [(0, Layer(0))]);
            let tags = if tolerance.is_none() {
                policy.lossless(shape, &spans)
            } else {
                let magnitudes = (0..cut.segments()).map(|n| Magnitude(n as u8));
                policy.lossy(shape, &spans, magnitudes.collect())
            };
            let (step, contributors) = (Step(0), 1);
            endpoint.send(
                now,
                to,
                SendRequest {
                    key,
                    signature: Signature::NONE,
                    step,
                    bytes,
                    tolerance,
                    contributors,
                    tags,
                },
            );
        });
    }

    pub(crate) fn expect(&self, from: Rank, message: Message) {
        let incoming = ReceiveRequest {
            key: message.key,
            signature: Signature::NONE,
            step: Step(0),
            bytes: message.bytes,
            length: LengthRule::Exact,
            tolerance: message.tolerance,
            urgency: None,
            patience_ends: None,
        };
        self.command(move |endpoint, now| endpoint.expect(now, from, incoming));
    }

    fn ask<T: Send + 'static>(&self, of: impl FnOnce(&Endpoint) -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        self.command(move |endpoint, _| {
            let _ = tell.send(of(endpoint));
        });
        told.recv_timeout(WAIT).expect("the driver answers")
    }

    pub(crate) fn counters(&self) -> EndpointCounters {
        self.ask(Endpoint::counters)
    }

    pub(crate) fn lost(&self) -> LossAccount {
        self.ask(|endpoint| endpoint.ledger().total())
    }
}

/// Waits until a message has arrived and its sender knows. It must be whole, although its tolerance
/// allows holes.
pub(crate) fn await_whole([left, right]: &[Member; 2], key: MessageKey) {
    let counters = || (left.link.counters(), right.link.counters());
    let received = right.events.recv_timeout(WAIT);
    let received = received.unwrap_or_else(|_| panic!("nothing arrived: {:#?}", counters()));
    let is_whole = matches!(
        received,
        EndpointEvent::Received { from: Rank(0), key: came, holes: None, .. } if came == key
    );
    assert!(is_whole, "{received:?}");
    let heard = || {
        let event = left.events.recv_timeout(WAIT);
        event.expect("the sender hears of it")
    };
    // The sender may have reported a standstill before.
    let sent = std::iter::repeat_with(heard)
        .find(|event| !matches!(event, EndpointEvent::StandsStill { .. }))
        .expect("it is asked until it does");
    let is_sent = matches!(
        sent,
        EndpointEvent::Sent { to: Rank(1), key: left, missing: None, .. } if left == key
    );
    assert!(is_sent, "{sent:?}");
}

/// Sends a message that must arrive whole, and waits until it has.
pub(crate) fn transfer(members: &[Member; 2], sequence: u32, bytes: u32) {
    let message = Message::whole(sequence, bytes);
    members[1].expect(Rank(0), message);
    members[0].send(Rank(1), message);
    await_whole(members, message.key);
}

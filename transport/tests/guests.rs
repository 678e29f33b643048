//! Drivers that know each other as guests only: messages pass while they do, and no longer.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::{Checksum, IdleMode, Job};
use gradwire_protocol::message::{LengthRule, ReceiveRequest, SendRequest};
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{JobId, MessageKey, Rank, Share, Signature, Step};
use gradwire_transport::address::Address;
use gradwire_transport::driver::{
    self, DrivePace, DriverGuest, DriverLink, DriverSetup, GuestName,
};
use gradwire_transport::seal::Seal;
use gradwire_transport::wires::Wires;

const WAIT: Duration = Duration::from_secs(20);
const OF_GUESTS: JobId = JobId(9);
const ROOM: u32 = 100;

/// A driver whose own job has no peers.
struct Host {
    link: DriverLink<Endpoint>,
    events: Receiver<EndpointEvent>,
    addresses: Vec<Address>,
}

fn identity(job: JobId, rank: u16, world_size: u16) -> Identity {
    Identity {
        rank: Rank(rank),
        world_size,
        job,
        epoch: 0,
    }
}

fn host(rank: u16) -> Host {
    let job = Job::default();
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let sockets = Wires::open(&job.transport, loopback, Rank(rank)).expect("loopback has ports");
    let addresses = sockets.addresses().to_vec();
    let setup = DriverSetup {
        sockets,
        peers: Vec::new(),
        seal: Seal::none(identity(JobId(0), 0, 1), Checksum::On),
        faults: None,
        neighbours: None,
        pace: DrivePace::without_callers(IdleMode::Block),
    };
    let machine = Endpoint::new(identity(OF_GUESTS, rank, 2), &job, u64::from(rank));
    let (tell, events) = channel();
    let progress = move |endpoint: &mut Endpoint| {
        while let Some(event) = endpoint.poll_event() {
            let _ = tell.send(event);
        }
    };
    let link = driver::spawn(machine, setup, progress).expect("a thread");
    Host {
        link,
        events,
        addresses,
    }
}

impl Host {
    fn take(&self, own: u16, other: &Self) {
        let name = GuestName {
            job: OF_GUESTS,
            rank: Rank(1 - own),
        };
        let guest = DriverGuest {
            addresses: other.addresses.clone(),
            seal: Seal::none(identity(OF_GUESTS, own, 2), Checksum::On),
        };
        self.link.take_guest(name, guest).expect("the driver runs");
    }

    fn send(&self, key: u64) {
        let command = move |endpoint: &mut Endpoint, now| {
            let shape = MessageShape {
                segments: 1,
                layer_count: 0,
            };
            let tags = endpoint.settings().policy.lossless(shape, &[]);
            let request = SendRequest {
                key: MessageKey(key),
                signature: Signature::NONE,
                step: Step(0),
                bytes: ROOM,
                tolerance: Share::NONE,
                contributors: 1,
                tags,
            };
            endpoint.send(now, Rank(1), request);
        };
        let taken = self.link.submit(Box::new(command));
        taken.expect("the driver runs");
    }

    fn expect(&self, key: u64) {
        let request = ReceiveRequest {
            key: MessageKey(key),
            signature: Signature::NONE,
            step: Step(0),
            bytes: ROOM,
            length: LengthRule::Exact,
            tolerance: Share::NONE,
            urgency: None,
            patience_ends: None,
        };
        let command = move |endpoint: &mut Endpoint, now| endpoint.expect(now, Rank(0), request);
        let taken = self.link.submit(Box::new(command));
        taken.expect("the driver runs");
    }
}

#[test]
fn guests_exchange_messages_until_they_are_forgotten() {
    let [left, right] = [0, 1].map(host);
    // Nothing reaches a driver that does not know its sender.
    left.take(0, &right);
    right.expect(1);
    left.send(1);
    while right.link.counters().foreign_packets == 0 {
        std::thread::yield_now();
    }
    assert!(right.events.try_recv().is_err());
    // Now it does, also by callers that drive single rounds.
    right.take(1, &left);
    let mut received = None;
    while received.is_none() {
        left.link.poll().expect("the driver runs");
        right.link.poll().expect("the driver runs");
        received = right.events.try_recv().ok();
    }
    let is_it = matches!(received, Some(EndpointEvent::Received { bytes: ROOM, .. }));
    assert!(is_it, "{received:?}");
    let sent = left.events.recv_timeout(WAIT).expect("it is told");
    assert!(matches!(sent, EndpointEvent::Sent { .. }), "{sent:?}");
    // And no more once it is forgotten.
    let name = GuestName {
        job: OF_GUESTS,
        rank: Rank(0),
    };
    right.link.forget_guest(name).expect("the driver runs");
    let (tell, told) = channel();
    let command = move |_: &mut Endpoint, _| tell.send(()).expect("the test waits");
    right
        .link
        .submit(Box::new(command))
        .expect("the driver runs");
    told.recv_timeout(WAIT).expect("orders run in turn");
    let before = right.link.counters().foreign_packets;
    right.expect(2);
    left.send(2);
    while right.link.counters().foreign_packets == before {
        std::thread::yield_now();
    }
    assert!(right.events.try_recv().is_err());
}

//! A host that stands still below its sockets as well as above them: packets that had reached it
//! are delivered only after its driver has continued.

#[expect(dead_code, reason = "other facts need more of it")]
mod members;

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use gradwire_protocol::job::{PacketSecurity, WireChoice};
use gradwire_protocol::units::{MessageKey, Rank, Share, Span};
use gradwire_protocol::wire::{Flags, Header, PacketKind};
use gradwire_transport::address::Address;

use members::{LOOPBACK, Message, WAIT, await_whole, job, open, pair_between, transfer};

/// How long the host stands still.
const STALL: Duration = Duration::from_millis(250);
/// How much later than its driver the queue below the sockets continues.
const LATER: Duration = Duration::from_millis(15);

/// Carries packets between two members. On command, it holds back the last packets of the next
/// message, passes the PROBE that follows them, and then stands still for [`STALL`].
struct Relay {
    ends: [UdpSocket; 2],
    to: [SocketAddr; 2],
    stall: Receiver<()>,
    stalled: Sender<()>,
}

impl Relay {
    fn run(self) {
        let mut packet = [0; 2048];
        loop {
            for end in [0, 1] {
                let Ok(bytes) = self.ends[end].recv(&mut packet) else {
                    continue;
                };
                if bytes == 0 {
                    return;
                }
                if end == 0 && self.stall.try_recv().is_ok() {
                    self.stand_still(packet[..bytes].to_vec());
                } else {
                    self.pass(end, &packet[..bytes]);
                }
            }
        }
    }

    /// Passes a packet that came to `end` on to the member of the other one.
    fn pass(&self, end: usize, packet: &[u8]) {
        let sent = self.ends[1 - end].send_to(packet, self.to[1 - end]);
        assert_eq!(sent.expect("loopback takes it"), packet.len());
    }

    fn stand_still(&self, first: Vec<u8>) {
        let (mut held, mut packet) = (vec![first], [0; 2048]);
        let probe = loop {
            let Ok(bytes) = self.ends[0].recv(&mut packet) else {
                continue;
            };
            let (header, _) = Header::decode(&packet[..bytes]).expect("a packet");
            if header.kind == PacketKind::Data {
                held.push(packet[..bytes].to_vec());
            } else if header.flags.has(Flags::ALL_SENT) {
                break packet[..bytes].to_vec();
            }
        };
        // Half of the packets were late on their path when the others and the PROBE arrived.
        let late = held.split_off(held.len() / 2);
        held.iter().for_each(|packet| self.pass(0, packet));
        self.pass(0, &probe);
        self.stalled.send(()).expect("the test waits for it");
        sleep(STALL + LATER);
        late.iter().for_each(|packet| self.pass(0, packet));
    }
}

/// The ends by which two members with these addresses reach each other.
fn relay(to: [SocketAddr; 2]) -> ([SocketAddr; 2], Sender<()>, Receiver<()>) {
    let ends = [(); 2].map(|()| {
        #[expect(clippy::disallowed_methods, reason = "the path between two members")]
        let end = UdpSocket::bind((LOOPBACK, 0)).expect("loopback has ports");
        let patience = end.set_read_timeout(Some(Duration::from_millis(1)));
        patience.map(|()| end).expect("sockets have timeouts")
    });
    let own = ends.each_ref().map(|end| end.local_addr().expect("bound"));
    let ((tell, stall), (stalled, told)) = (channel(), channel());
    let relay = Relay {
        ends,
        to,
        stall,
        stalled,
    };
    thread::spawn(move || relay.run());
    (own, tell, told)
}

#[test]
fn a_stalled_host_accepts_no_holes() {
    let mut job = job(1500);
    job.security = PacketSecurity::None;
    (job.transport.wire, job.transport.entropies) = (WireChoice::Udp, 1);
    job.transport.gap = Span::from_millis(100);
    let wires = [(); 2].map(|()| open(WireChoice::Udp, LOOPBACK, 1).expect("loopback has ports"));
    let addresses = wires.each_ref().map(|wires| wires.addresses()[0]);
    let sockets = addresses.map(|address| address.socket().expect("of sockets"));
    let (ends, stall, stalled) = relay(sockets);
    let through = ends.map(Address::Socket);
    let peers = [
        vec![vec![addresses[0]], vec![through[0]]],
        vec![vec![through[1]], vec![addresses[1]]],
    ];
    let members = pair_between(wires, peers, &job);
    transfer(&members, 1, 10_000);
    sleep(Duration::from_millis(50));
    let message = Message {
        key: MessageKey::new(0, 2, 0),
        bytes: 40_000,
        tolerance: Share::new(0.9).expect("a share"),
    };
    members[1].expect(Rank(0), message);
    stall.send(()).expect("the relay runs");
    members[0].send(Rank(1), message);
    stalled.recv_timeout(WAIT).expect("the message was probed");
    #[expect(clippy::disallowed_methods, reason = "the test measures time")]
    let now = Instant::now();
    members[1].command(move |_, _| sleep(STALL.saturating_sub(now.elapsed())));
    await_whole(&members, message.key);
    assert_eq!(members[1].lost().lost_segments, 0);
    for end in ends {
        #[expect(clippy::disallowed_methods, reason = "ends the relay")]
        let last = UdpSocket::bind((LOOPBACK, 0)).expect("loopback has ports");
        last.send_to(&[], end).expect("loopback takes it");
    }
}

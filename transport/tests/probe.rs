//! Probes over loopback: measurements of a path without faults, and a server's replies to
//! strangers.
#![expect(
    clippy::disallowed_methods,
    reason = "strangers need sockets of their own"
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gradwire_transport::probe::{PathReach, ProbeClient, ProbeConnectError, ProbeServer, SOCKETS};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// A server that answers until it is dropped.
struct Answering {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answering {
    fn start(address: IpAddr, report: &str) -> Self {
        let mut server =
            ProbeServer::bind(SocketAddr::new(address, 0)).expect("loopback has ports");
        server.publish(report);
        let address = server.addresses()[0];
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                server.answer_for(Duration::from_millis(20));
            }
        });
        Self {
            address,
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("taken here only").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the server ran");
    }
}

#[test]
fn a_path_without_faults_has_none() {
    for address in [V4, V6] {
        let server = Answering::start(address, "");
        let mut client = ProbeClient::connect(server.address, None).expect("it answers");
        assert_eq!(client.local(), address);
        let trips = client.round_trips(50).expect("it answers");
        assert!(trips.least <= trips.median);
        assert!(
            trips.clock_ahead_ns.abs() < 100_000_000,
            "one host has one clock"
        );
        let mtu = client.path_mtu(9_000);
        let whole = Some(PathReach {
            bytes: 9_000,
            told: None,
        });
        assert_eq!((mtu.there, mtu.back), (whole, whole));
        assert!(mtu.cut_arrives);
        for tag in client.tags(&[40 << 2, 0, 46 << 2 | 2, 18 << 2 | 3]) {
            assert_eq!((tag.there, tag.back), (Some(tag.sent), Some(tag.sent)));
        }
        assert_eq!(client.open_ports(), [true; SOCKETS]);
        let runs = client.runs(9_000);
        assert_eq!(runs.taken, (true, true));
        assert!(
            runs.glued_there.min(runs.glued_back) >= runs.packets,
            "{runs:?}"
        );
        let series = client.series(2_000).expect("it answers");
        assert_eq!(series.sent, 2_000);
        let lost = series.lost_there + series.lost_back;
        assert!(lost <= series.kernel_drops, "{series:?}");
        assert_eq!(series.overtaken_there + series.overtaken_back, 0);
    }
}

#[test]
fn a_report_of_any_length_is_read_in_pieces() {
    for length in [0, 1, 1_159, 1_160, 1_161, 20_000] {
        let text: String = ('a'..='z').cycle().take(length).collect();
        let server = Answering::start(V4, &text);
        let mut client = ProbeClient::connect(server.address, None).expect("it answers");
        assert_eq!(client.report(), (length > 0).then_some(text));
    }
}

#[test]
fn strangers_are_not_answered_and_nobody_gets_more_than_it_sent() {
    let server = Answering::start(V4, &"report ".repeat(1_000));
    let stranger = UdpSocket::bind((V4, 0)).expect("loopback has ports");
    let patience = Some(Duration::from_millis(100));
    stranger.set_read_timeout(patience).expect("a plain socket");
    let mut slot = [0; 65_536];
    let mut greeting = vec![0; 68];
    greeting[..6].copy_from_slice(b"GWDR\x01\x00");
    greeting[20..24].fill(0xff);
    let mut say = |bytes: &[u8]| {
        stranger
            .send_to(bytes, server.address)
            .expect("loopback takes it");
        stranger.recv_from(&mut slot).ok().map(|(bytes, _)| bytes)
    };
    assert_eq!(say(&greeting), Some(68), "a greeting is answered in kind");
    for kind in 1..=3 {
        let mut unknown = greeting.clone();
        unknown[5] = kind;
        assert_eq!(say(&unknown), None, "kind {kind} of no session");
    }
    assert_eq!(say(&greeting[..67]), None, "too short for its answer");
    assert_eq!(say(b"GET / HTTP/1.1\r\n\r\n"), None);
    assert_eq!(say(&[0xff; 1_400]), None);
}

#[test]
fn a_port_where_nobody_listens_is_refused_not_silent() {
    let taken = UdpSocket::bind((V4, 0)).expect("loopback has ports");
    let address = taken.local_addr().expect("it is bound");
    drop(taken);
    let refused = ProbeClient::connect(address, None).expect_err("nobody listens");
    assert!(
        matches!(refused, ProbeConnectError::Refused { code: 3, .. }),
        "{refused}"
    );
}

//! What a rank reports to those who watch it: the parts add up, and watching disturbs no rank.
#![expect(
    clippy::disallowed_methods,
    reason = "tests look for free ports and send garbage"
)]

mod exposition;
#[path = "../meeting/mod.rs"]
mod meeting;
#[path = "../world/mod.rs"]
mod world;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use exposition::{Samples, parse};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{Rank, Span, Step};
use gradwire_runtime::metrics::{self, prometheus};
use gradwire_runtime::{LocalRank, OpenRank, Opening, RankTask, Snapshot};
use gradwire_transport::http;
use meeting::Meeting;
use world::{PATIENCE, on_ranks, sum};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn job(text: &str) -> Job {
    let text = format!("name = \"watched\"\n{text}\n[transport]\nwire = \"udp\"\n");
    Job::from_toml(&text).expect("the job is right")
}

/// All-reduces ones, `rounds` times, and checks each sum unless some of it may be missing.
fn all_reduce(rank: &LocalRank, world_size: u16, rounds: u32, elements: usize) {
    let tolerance = rank.job().tolerance;
    for sequence in 1..=rounds {
        let ones = 1.0_f32.to_le_bytes().repeat(elements);
        let mut operation = sum(world_size, sequence, ones);
        operation.loss.tolerance = tolerance;
        operation.step = Step(sequence);
        let ended = rank.run(RankTask {
            operation,
            timeout: Some(Span::from_millis(30_000)),
        });
        let buffer = ended.expect("nothing fails").buffer;
        let exact = f32::from(world_size).to_le_bytes();
        let bytes = buffer.bytes().expect("it has bytes");
        assert!(!tolerance.is_none() || bytes.chunks_exact(4).all(|one| one == exact));
    }
}

/// A snapshot after the last acknowledgement was sent and counted.
fn settled(rank: &LocalRank) -> Snapshot {
    let take = || rank.metrics().expect("the rank is open");
    // A driver that has nothing to say sleeps again and again.
    let said = |snapshot: &Snapshot| {
        let mut counts = snapshot.driver.clone();
        counts.remove("sleeps");
        (snapshot.peers.clone(), counts)
    };
    let mut before = take();
    for _ in 0..200 {
        thread::sleep(Duration::from_millis(25));
        let now = take();
        if said(&now) == said(&before) {
            return now;
        }
        before = now;
    }
    panic!("the rank never stops talking: {before:?}");
}

/// Snapshots of all ranks when all are done, by rank.
fn snapshots(world_size: u16, job: &Job, body: impl Fn(&LocalRank) + Sync) -> Vec<Snapshot> {
    let taken = Mutex::new(Vec::new());
    let done = Meeting::of(world_size);
    on_ranks(world_size, job, |rank| {
        body(&rank);
        done.wait();
        let snapshot = settled(&rank);
        check_totals(&rank, &snapshot);
        taken.lock().expect("nobody panics with it").push(snapshot);
        done.wait();
        rank.close(PATIENCE);
        assert_eq!(rank.metrics(), None);
    });
    let mut taken = taken.into_inner().expect("nobody panics with it");
    taken.sort_by_key(|snapshot| snapshot.rank);
    taken
}

/// Sums over peers and classes equal the counts of the rank as a whole.
fn check_totals(rank: &LocalRank, snapshot: &Snapshot) {
    let total = rank.counters();
    let sum = |count: fn(&metrics::snapshot::PeerSnapshot) -> u64| -> u64 {
        snapshot.peers.iter().map(count).sum()
    };
    let traffic = snapshot.traffic();
    assert_eq!(sum(|peer| peer.sent_segments), total.sent_segments);
    assert_eq!(sum(|peer| peer.received_segments), total.received_segments);
    assert_eq!(sum(|peer| peer.lost_segments), total.lost_segments);
    assert_eq!(snapshot.loss.lost_segments, total.ledger_lost_segments);
    assert_eq!(traffic.repaired_segments, total.repaired_segments);
    assert_eq!(snapshot.driver["faults_dropped"], total.faults_dropped);
    assert_eq!(snapshot.driver["kernel_drops"], total.kernel_drops);
    let driver = &snapshot.driver;
    let kept = driver["abandoned_packets"] + driver["unsent_packets"];
    let given = traffic.sent_packets - kept;
    assert_eq!(given, driver["sent_packets"]);
    let taken = traffic.received_packets + snapshot.refused_packets["unexpected"];
    assert_eq!(taken, driver["received_packets"]);
    let classes = snapshot.peers.iter().flat_map(|peer| &peer.classes);
    let data: u64 = classes
        .filter(|class| class.class > 0)
        .map(|class| class.sent_packets)
        .sum();
    // PROBEs follow the data that they ask for, in its class.
    let segments = total.sent_segments + total.repaired_segments;
    assert!(data >= segments, "{data} packets of {segments} segments");
}

#[test]
fn parts_add_up_to_totals_and_peers() {
    let all = snapshots(3, &job(""), |rank| all_reduce(rank, 3, 5, 100_000));
    for snapshot in &all {
        assert_eq!((snapshot.job.as_str(), snapshot.world_size), ("watched", 3));
        assert_eq!(snapshot.operations.len(), 1);
        let operations = &snapshot.operations[0];
        assert_eq!(operations.collective, "all_reduce");
        assert_eq!((operations.times.count, operations.failed), (5, 0));
        assert_eq!(snapshot.operations_done(), 5);
        assert_eq!(snapshot.peers.len(), 2);
        for peer in &snapshot.peers {
            let back = &all[usize::from(peer.rank)].peers;
            let back = back.iter().find(|back| back.rank == snapshot.rank);
            let back = back.expect("it has heard of this rank");
            let (there, here) = (back.traffic(), peer.traffic());
            assert_eq!(here.sent_packets, there.received_packets);
            assert_eq!(here.sent_bytes, there.received_bytes);
            assert_eq!(
                peer.round_trips.count > 0,
                peer.sent_segments > 0,
                "{peer:?}"
            );
            assert_eq!(peer.standing, "well");
            assert!(peer.in_flight_bytes == 0 && peer.window_bytes > 0);
        }
        let ended: u64 = snapshot.messages.iter().map(|one| one.times.count).sum();
        assert!(
            ended >= 5 * 2 * 2,
            "two messages to each peer at least: {ended}"
        );
    }
}

#[test]
fn losses_and_repairs_are_counted_per_peer() {
    let lossy = "tolerance = \"10%\"\n[faults]\ndrop = \"1%\"\nseed = 7\n[loss]\nmin_message = 0\n\
                 [collectives]\nalgorithm = \"direct\"";
    let all = snapshots(3, &job(lossy), |rank| all_reduce(rank, 3, 20, 400_000));
    let (mut lost, mut repaired) = (0, 0);
    for snapshot in &all {
        assert!(snapshot.driver["faults_dropped"] > 0);
        assert!(snapshot.loss.lost_bytes <= snapshot.loss.allowed_bytes);
        for peer in &snapshot.peers {
            let back = &all[usize::from(peer.rank)].peers;
            let back = back.iter().find(|back| back.rank == snapshot.rank);
            let back = back.expect("it has heard of this rank");
            assert_eq!(peer.traffic().missed_segments, back.lost_segments);
            assert!(peer.traffic().repaired_segments >= back.late_segments);
            (lost, repaired) = (
                lost + back.lost_segments,
                repaired + peer.traffic().repaired_segments,
            );
        }
    }
    assert!(lost > 0 && repaired > 0, "{lost} lost, {repaired} repaired");
}

fn value(samples: &Samples, key: &str) -> f64 {
    let found = samples.get(key);
    *found.unwrap_or_else(|| panic!("{key} is missing"))
}

#[test]
fn the_prometheus_text_equals_the_snapshot() {
    let lossy = "tolerance = \"10%\"\n[faults]\ndrop = \"1%\"\n[loss]\nmin_message = 0";
    let all = snapshots(2, &job(lossy), |rank| all_reduce(rank, 2, 10, 400_000));
    for snapshot in &all {
        let samples = parse(&prometheus::text(snapshot)).expect("it is OpenMetrics");
        let own = format!("job=\"watched\",rank=\"{}\"", snapshot.rank);
        for peer in &snapshot.peers {
            let of_peer = format!("{own},peer=\"{}\"", peer.rank);
            for class in &peer.classes {
                let labels = format!("{of_peer},class=\"{}\"", class.class);
                let said = |name| value(&samples, &format!("gradwire_{name}_total{{{labels}}}"));
                assert_eq!(said("sent_packets"), class.sent_packets as f64);
                assert_eq!(said("sent_bytes"), class.sent_bytes as f64);
                assert_eq!(said("received_packets"), class.received_packets as f64);
                assert_eq!(said("received_bytes"), class.received_bytes as f64);
                assert_eq!(said("repaired_segments"), class.repaired_segments as f64);
                assert_eq!(said("missed_segments"), class.missed_segments as f64);
                assert_eq!(said("marks"), class.marks as f64);
            }
            let said = |name| value(&samples, &format!("gradwire_{name}{{{of_peer}}}"));
            assert_eq!(said("lost_segments_total"), peer.lost_segments as f64);
            assert_eq!(said("sent_segments_total"), peer.sent_segments as f64);
            assert_eq!(
                said("received_segments_total"),
                peer.received_segments as f64
            );
            assert_eq!(said("window_bytes"), peer.window_bytes as f64);
            let times = &peer.round_trips;
            assert_eq!(said("round_trip_seconds_count"), times.count as f64);
            assert!((said("round_trip_seconds_sum") - times.sum_us / 1e6).abs() < 1e-9);
        }
        let said =
            |name: &str, label: &str| value(&samples, &format!("gradwire_{name}{{{own}{label}}}"));
        assert_eq!(
            said("held_messages_total", ""),
            snapshot.held_messages as f64
        );
        assert_eq!(said("dropped_residual_elements_total", ""), 0.0);
        for (why, count) in &snapshot.refused_packets {
            let label = format!(",reason=\"{why}\"");
            assert_eq!(said("refused_packets_total", &label), *count as f64);
        }
        let done = said("operation_seconds_count", ",collective=\"all_reduce\"");
        assert_eq!(done, 10.0);
        assert_eq!(said("tolerance_ratio", ""), 0.1);
    }
}

#[test]
fn every_metric_of_the_dashboard_exists() {
    let text = include_str!("../../../deploy/grafana/dashboard.json");
    let plain = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let words = text.split(|char| !plain(char));
    let named: Vec<&str> = words.filter(|word| word.starts_with("gradwire_")).collect();
    assert!(named.len() > 10, "{named:?}");
    let watched = snapshots(2, &job(""), |rank| all_reduce(rank, 2, 1, 4));
    let samples = parse(&prometheus::text(&watched[0])).expect("it is OpenMetrics");
    let is_there = |name: &str| {
        samples
            .keys()
            .any(|key| key.split('{').next() == Some(name))
    };
    for name in named {
        assert!(is_there(name), "{name} is in no panel's source");
    }
}

#[test]
fn faulty_prometheus_texts_are_refused() {
    let good = "# HELP a_b c\n# TYPE a_b counter\na_b_total{x=\"1\"} 2\n# EOF\n";
    assert_eq!(parse(good).map(|samples| samples.len()), Ok(1));
    for (from, to) in [
        ("# EOF\n", ""),
        ("} 2", "} two"),
        ("counter", "meter"),
        ("_total", ""),
        ("x=\"1\"", "x=1"),
        ("# TYPE a_b", "# TYPE b_a"),
    ] {
        assert!(parse(&good.replace(from, to)).is_err(), "{from} as {to}");
    }
}

#[test]
#[should_panic(expected = "1 of 2 ranks did not come within 10ms")]
fn a_missed_meeting_fails_at_once() {
    let meeting = Meeting::of(2);
    thread::scope(|scope| {
        scope.spawn(|| meeting.wait());
        meeting.wait();
    });
    meeting.wait_at_most(Duration::from_millis(10));
}

/// A port of loopback that was free just now, with some room above it.
fn free_port() -> u16 {
    let listener = TcpListener::bind((LOOPBACK, 0)).expect("loopback has ports");
    let port = listener.local_addr().expect("it has an address").port();
    port.min(65_000)
}

fn watched_job() -> Job {
    let mut job = job("");
    job.metrics.port = free_port();
    job
}

fn ask(address: SocketAddr, path: &str) -> String {
    let page = http::get(address, path, PATIENCE).expect("the rank tells");
    String::from_utf8(page).expect("it is text")
}

#[test]
fn every_rank_has_a_metrics_port() {
    let done = Meeting::of(2);
    let ports = Mutex::new(Vec::new());
    on_ranks(2, &watched_job(), |rank| {
        all_reduce(&rank, 2, 3, 1_000);
        let address = rank.metrics_address().expect("the job asks for it");
        let snapshot = metrics::fetch(address, PATIENCE).expect("the rank tells");
        assert_eq!(snapshot.rank, rank.rank().0);
        assert_eq!(snapshot.operations_done(), 3);
        let samples = parse(&ask(address, "/metrics")).expect("it is OpenMetrics");
        let key = format!("rank=\"{}\",collective=\"all_reduce\"}}", rank.rank().0);
        let key = format!("gradwire_operation_seconds_count{{job=\"watched\",{key}");
        assert_eq!(value(&samples, &key), 3.0);
        ports
            .lock()
            .expect("nobody panics with it")
            .push(address.port());
        done.wait();
        rank.close(PATIENCE);
        assert!(
            metrics::fetch(address, PATIENCE).is_err(),
            "nobody listens any more"
        );
    });
    let mut ports = ports.into_inner().expect("nobody panics with it");
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 2);
}

#[test]
fn garbage_at_the_port_is_refused() {
    let done = Meeting::of(2);
    on_ranks(2, &watched_job(), |rank| {
        let address = rank.metrics_address().expect("the job asks for it");
        let silent = TcpStream::connect(address).expect("it listens");
        thread::scope(|scope| {
            let pest = scope.spawn(|| {
                for seed in 0..50_u8 {
                    let mut guest = TcpStream::connect(address).expect("it listens");
                    let garbage: Vec<u8> = (0..2_000).map(|n: u32| (n * 7) as u8 ^ seed).collect();
                    let _ = guest.write_all(&garbage);
                    let mut answer = Vec::new();
                    let _ = guest.read_to_end(&mut answer);
                    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"));
                }
            });
            all_reduce(&rank, 2, 50, 50_000);
            pest.join().expect("the rank listens on");
        });
        drop(silent);
        let snapshot = metrics::fetch(address, PATIENCE).expect("the rank still tells");
        assert_eq!(snapshot.operations_done(), 50);
        done.wait();
        rank.close(PATIENCE);
    });
}

#[test]
fn a_taken_port_costs_only_the_metrics() {
    let taken = TcpListener::bind((LOOPBACK, 0)).expect("loopback has ports");
    let mut job = job("");
    job.metrics.port = taken.local_addr().expect("it has an address").port();
    let open = |rank: u16, local_rank| {
        let opened = OpenRank::open(Opening {
            job: job.clone(),
            rank: Rank(rank),
            world_size: 2,
            bind: LOOPBACK,
            port: 0,
            token: "secret".to_owned(),
            certificates: None,
        });
        opened
            .expect("loopback has ports")
            .with_local_rank(local_rank)
    };
    // A rank with a number has one port only; without a number, it takes the next free one.
    let ranks = [open(0, Some(0)), open(1, None)];
    let rendezvous = ranks[0].rendezvous().expect("rank 0 listens").to_string();
    thread::scope(|scope| {
        for rank in ranks {
            let (rendezvous, taken) = (&rendezvous, job.metrics.port);
            scope.spawn(move || {
                let rank = rank.join(rendezvous, PATIENCE).expect("equal jobs");
                let port = rank.metrics_address().map(|address| address.port());
                match rank.rank() {
                    Rank(0) => assert_eq!(port, None),
                    _ => assert!(port > Some(taken)),
                }
                all_reduce(&rank, 2, 2, 1_000);
                assert_eq!(rank.metrics().expect("it is open").operations_done(), 2);
                rank.close(PATIENCE);
            });
        }
    });
}

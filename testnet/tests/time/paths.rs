//! Slow paths, reroutes, and outages.

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::{Job, SendWindow};
use gradwire_protocol::units::{ByteCount, Layer, Rank, Rate, Share, Span};
use gradwire_testnet::link::{Profile, Queue};

use crate::pair::{Pair, PairMessage, clean_time, seconds, wire};

/// A job whose window holds a slow path's packets.
fn job() -> Job {
    let mut job = Job::default();
    job.transport.window = SendWindow::Bytes(ByteCount::mib(8));
    job
}

#[test]
fn a_longer_path_is_believed_after_a_while() {
    let (message, before, after) = (PairMessage::lossless(8 << 20), wire(50), wire(15_050));
    let clean = clean_time(&job(), after, message);
    let mut pair = Pair::new(job(), before);
    for _ in 0..20 {
        pair.transfer(message);
    }
    pair.set_links(after);
    let rerouted = pair.network.now();
    let mut times = Vec::new();
    while pair.network.now() - rerouted < seconds(12) {
        times.push(pair.transfer(message));
    }
    let last = *times.last().expect("some messages");
    assert!(last <= clean, "{last}, on a fresh path {clean}: {times:?}");
}

#[test]
fn a_path_of_fifty_milliseconds_keeps_its_window() {
    // A message beyond the first window takes two round trips. A quarter of it lies in at most
    // three runs: marks on the paths of two of them precede the PROBE that asks.
    for (bytes, most, marks) in [(200 << 10, 51, 0), (450 << 10, 101, 2)] {
        let message = PairMessage::lossless(bytes);
        let mut pair = Pair::new(Job::default(), wire(25_000));
        let mut window = pair.network.hosts()[0].in_flight(Rank(1)).1;
        for number in 0..4 {
            let time = pair.transfer(message);
            assert!(time <= Span::from_millis(most), "message {number}: {time}");
            let grown = pair.network.hosts()[0].in_flight(Rank(1)).1;
            assert!(grown >= window, "message {number}: {window}, then {grown}");
            window = grown;
        }
        let probes = pair.network.hosts()[0].counters().sender.probes;
        assert!(probes <= 8 + 4 * marks, "{probes} probes");
    }
}

/// The window after 40 messages of 8 MiB over a path of 40 ms that loses this share, and the
/// median time of the last 20.
fn far(drop: f64) -> (ByteCount, Span) {
    let path = Profile {
        queue: Some(Queue {
            rate: Rate::from_gbps(10),
            threshold: ByteCount::mib(64),
            limit: ByteCount::mib(64),
        }),
        drop: Share::new(drop).expect("a share"),
        ..wire(20_000)
    };
    let mut pair = Pair::new(Job::default(), path);
    let message = PairMessage::lossless(8 << 20);
    let times = (0..40).map(|_| pair.transfer(message));
    let mut last: Vec<Span> = times.skip(20).collect();
    last.sort_unstable();
    (pair.network.hosts()[0].in_flight(Rank(1)).1, last[10])
}

#[test]
fn a_long_path_is_filled_though_links_lose_packets() {
    let (window, clean) = far(0.0);
    assert!(clean <= Span::from_millis(50), "{clean}");
    // Without parity, a repair and one that is lost again take a round trip each.
    for drop in [0.000_1, 0.001, 0.01, 0.03] {
        let (kept, time) = far(drop);
        assert!(
            kept >= ByteCount::new(window.get() / 4 * 3),
            "{kept} with {drop} lost, {window} without"
        );
        let most = clean + Span::from_millis(90);
        assert!(time <= most, "{time} with {drop} lost, {clean} without");
    }
}

#[test]
fn a_short_queue_of_a_long_path_is_not_kept_full() {
    let rate = Rate::from_gbps(1);
    for millis in [3, 5, 9, 20, 40] {
        let limit = ByteCount::new(millis * 125_000);
        let path = Profile {
            queue: Some(Queue {
                rate,
                threshold: limit,
                limit,
            }),
            ..wire(20_000)
        };
        let mut pair = Pair::new(Job::default(), path);
        let message = PairMessage::lossless(32 << 20);
        (0..30).for_each(|_| _ = pair.transfer(message));
        let counters = pair.network.hosts()[0].counters().sender;
        let lost = counters.found_lost as f64 / counters.sent_segments as f64;
        // The first window that doubles overruns it, and more than 4 % are lost while it is full.
        assert!(lost < 0.02, "{lost} lost by a queue of {millis} ms");
    }
}

#[test]
fn an_outage_of_three_seconds_ends_with_the_outage() {
    let path = wire(50);
    for tolerance in [0.0, 0.2] {
        for micros in [0, 60, 150, 300, 1_000] {
            let mut pair = Pair::new(Job::default(), path);
            for layer in 0..10 {
                let message = PairMessage {
                    layer: Layer(layer),
                    ..PairMessage::tolerant(1 << 20, tolerance)
                };
                pair.post(message);
                pair.send(message);
            }
            pair.pass(Span::from_micros(micros));
            pair.set_links(Profile {
                drop: Share::ALL,
                ..path
            });
            let before = pair.network.hosts()[0].counters().sender.probes;
            pair.pass(seconds(3));
            let probes = pair.network.hosts()[0].counters().sender.probes - before;
            assert!(probes < 300, "{probes} probes in the outage");
            pair.set_links(path);
            let time = pair.finish();
            assert!(
                time <= Span::from_millis(40),
                "cut after {micros} us: {time} after the outage"
            );
        }
    }
}

#[test]
fn a_lost_acknowledgement_is_no_loss_of_segments() {
    let queue = Queue {
        rate: Rate::from_gbps(10),
        threshold: ByteCount::mib(64),
        limit: ByteCount::mib(64),
    };
    let path = Profile {
        queue: Some(queue),
        drop: Share::new(0.002).expect("a share"),
        ..wire(50)
    };
    let mut pair = Pair::new(Job::default(), path);
    pair.network.record();
    for _ in 0..60 {
        pair.transfer(PairMessage::tolerant(8 << 20, 0.2));
    }
    let trace = pair.network.trace().lines();
    let lost_of = |kind: &str| {
        let of_kind = |line: &&str| line.contains(kind) && line.ends_with("Lost");
        trace.clone().filter(of_kind).count() as u64
    };
    let (data, acks) = (lost_of("Data 0->1"), lost_of("Ack 1->0"));
    let found = pair.network.hosts()[0].counters().sender.found_lost;
    assert!(acks >= 2 && data >= 50, "{acks} and {data} lost");
    assert!(
        found <= data,
        "{found} segments found lost, {data} were, and {acks} ACKs"
    );
}

/// A pair whose path loses most packets, once the sender has noticed.
fn pair_after_a_path_fault() -> Pair {
    let bad = Profile {
        drop: Share::new(0.7).expect("a share"),
        ..Profile::perfect(Span::from_micros(20))
    };
    let mut pair = Pair::new(Job::default(), bad);
    let is_fault = |event: &EndpointEvent| matches!(event, EndpointEvent::PathFault { .. });
    while !pair.events.iter().any(is_fault) {
        pair.transfer(PairMessage::lossless(20_000));
    }
    pair
}

#[test]
fn a_failed_path_is_asked_no_more_often_than_tried() {
    let mut pair = pair_after_a_path_fault();
    pair.set_links(wire(20));
    let probes = |pair: &Pair| pair.network.hosts()[0].counters().sender.probes;
    pair.post(PairMessage::lossless(20_000));
    pair.send(PairMessage::lossless(20_000));
    let before = probes(&pair);
    pair.pass(Span::from_millis(300));
    let asked = probes(&pair) - before;
    assert!(asked <= 20, "{asked} in 300 ms, of three packets");
    pair.finish();
}

#[test]
fn messages_go_on_after_a_path_has_failed() {
    let mut pair = pair_after_a_path_fault();
    for _ in 0..20 {
        pair.transfer(PairMessage::lossless(20_000));
        let is_busy = pair.network.hosts().iter().any(Endpoint::is_busy);
        assert!(!is_busy, "a message hangs");
    }
}

/// Reports are lost and no segment is. A segment that only a lost report named is not lost: its
/// message is asked about instead.
#[test]
fn lost_reports_prove_no_segment_lost() {
    let reports = Profile {
        drop: Share::new(0.25).expect("a share"),
        ..wire(50)
    };
    let mut pair = Pair::new(job(), wire(50));
    pair.network.set_link(Rank(1), Rank(0), reports);
    for _ in 0..200 {
        let message = PairMessage::lossless(256 << 10);
        pair.post(message);
        pair.send(message);
    }
    pair.finish();
    let sender = pair.network.hosts()[0].counters().sender;
    let (sent, again) = (sender.sent_segments, sender.repaired_segments);
    assert!(
        again * 500 < sent,
        "{again} of {sent} segments are sent again"
    );
}

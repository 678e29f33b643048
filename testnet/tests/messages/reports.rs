//! Reports that are lost or overtake each other make no segment lost.

use gradwire_protocol::job::{GrantWindow, PacketOrder};
use gradwire_protocol::units::{ByteCount, Rate, Span};
use gradwire_testnet::link::{Profile, Queue};

use crate::pair::{LEFT, Pair, RIGHT, TestMessage, endpoint, job, share};

const BYTES: u32 = 256 << 10;

/// A path of 10 Gb/s that keeps order and loses this share.
fn path(drop: f64) -> Profile {
    Profile {
        queue: Some(Queue {
            rate: Rate::from_gbps(10),
            threshold: ByteCount::mib(64),
            limit: ByteCount::mib(64),
        }),
        drop: share(drop),
        ..Profile::perfect(Span::from_micros(20))
    }
}

/// Sends messages that miss up to a tenth, eight at a time; gives how many segments were found lost
/// and how many were lost.
fn found_and_lost(back: Profile, tolerance: f64, seed: u64) -> (u64, u64) {
    let mut job = job();
    job.transport.order = PacketOrder::Kept;
    if seed.is_multiple_of(2) {
        job.transport.grant_window = Some(GrantWindow::Bytes(ByteCount::kib(512)));
    }
    let ends = [LEFT, RIGHT].map(|rank| endpoint(rank, &job));
    let mut pair = Pair::new(ends, path(0.01), seed);
    pair.network.set_link(RIGHT, LEFT, back);
    pair.network.record();
    for round in 0..20 {
        for sequence in round * 8..round * 8 + 8 {
            let message = TestMessage::lossless(sequence, BYTES).tolerating(share(tolerance));
            pair.expect(RIGHT, message);
            pair.send(LEFT, message);
        }
        assert!(pair.settles_within(Span::from_millis(1_000)), "hangs");
    }
    let is_lost = |line: &&str| line.contains(" Data 0->1 ") && line.ends_with(" Lost");
    let lost = pair.network.trace().lines().filter(is_lost).count();
    (pair.end(LEFT).counters().sender.found_lost, lost as u64)
}

#[test]
fn lost_and_overtaken_reports_make_no_loss() {
    let late = |micros| Profile {
        jitter: Span::from_micros(micros),
        ..path(0.0)
    };
    let mut most = 0.0_f64;
    for tolerance in [0.0, 0.1] {
        for (name, back) in [
            ("clean", path(0.0)),
            ("loses 1 %", path(0.01)),
            ("reorders", late(60)),
            ("reorders more", late(200)),
        ] {
            let counts = (0..6).map(|seed| found_and_lost(back, tolerance, seed));
            let sum = |sum: (u64, u64), of: (u64, u64)| (sum.0 + of.0, sum.1 + of.1);
            let (found, lost) = counts.fold((0, 0), sum);
            let ratio = found as f64 / lost as f64;
            println!("{name}, tolerance {tolerance}: {found} found, {lost} lost: {ratio:.3}");
            most = most.max(ratio);
        }
    }
    assert!(most <= 1.02, "{most:.3} found for each that is lost");
}

//! Paths that keep order show a loss at once, and paths that do not make no segment a hole.

use gradwire_protocol::job::{Job, PacketOrder};
use gradwire_protocol::units::Span;
use gradwire_testnet::link::Profile;

use crate::pair::{LEFT, Pair, RIGHT, TestMessage, endpoint, job, share};

const BYTES: u32 = 1 << 20;
/// Much longer than a message takes.
const GAP: Span = Span::from_millis(100);

fn job_with(order: PacketOrder) -> Job {
    let mut job = job();
    job.transport.order = order;
    job.transport.gap = GAP;
    job
}

fn pair(order: PacketOrder, profile: Profile, seed: u64) -> Pair {
    let ends = [LEFT, RIGHT].map(|rank| endpoint(rank, &job_with(order)));
    Pair::new(ends, profile, seed)
}

/// Sends a message that may miss a tenth; returns the segments that it misses, and the time until
/// both ends are done.
fn carry(pair: &mut Pair, sequence: u32) -> (u64, Span) {
    let message = TestMessage::lossless(sequence, BYTES).tolerating(share(0.1));
    let (begun, before) = (pair.network.now(), lost(pair));
    pair.expect(RIGHT, message);
    pair.send(LEFT, message);
    assert!(pair.settles_within(GAP * 100), "message {sequence} hangs");
    (lost(pair) - before, pair.network.now() - begun)
}

fn lost(pair: &Pair) -> u64 {
    pair.end(RIGHT).ledger().total().lost_segments
}

fn lossy() -> Profile {
    Profile {
        drop: share(0.03),
        ..Profile::perfect(Span::from_micros(50))
    }
}

#[test]
fn holes_on_paths_in_order_wait_for_no_gap() {
    for seed in 0..20 {
        let mut pair = pair(PacketOrder::Kept, lossy(), seed);
        for sequence in 1..20 {
            let (missing, took) = carry(&mut pair, sequence);
            assert!(missing > 0, "seed {seed}, message {sequence}");
            assert!(took < GAP, "seed {seed}, message {sequence}: {took}");
        }
    }
}

#[test]
fn order_is_trusted_once_thousands_of_packets_show_it() {
    let mut pair = pair(PacketOrder::Auto, lossy(), 1);
    let (_, took) = carry(&mut pair, 1);
    assert!(took >= GAP, "the first message waits: {took}");
    for sequence in 2..8 {
        carry(&mut pair, sequence);
    }
    let (missing, took) = carry(&mut pair, 8);
    assert!(missing > 0 && took < GAP, "{missing} {took}");
}

#[test]
fn packets_that_overtake_each_other_become_no_holes() {
    let sprayed = Profile {
        jitter: Span::from_micros(500),
        ..Profile::perfect(Span::from_micros(50))
    };
    for seed in 0..20 {
        let mut pair = pair(PacketOrder::Auto, sprayed, seed);
        for sequence in 1..10 {
            let (missing, _) = carry(&mut pair, sequence);
            assert_eq!(missing, 0, "seed {seed}, message {sequence}");
        }
        let counters = pair.end(RIGHT).counters().receiver;
        assert!(counters.overtaken > 0, "seed {seed}");
    }
}

#[test]
fn a_job_that_is_wrong_about_order_loses_in_one_message() {
    for seed in 0..20 {
        let mut pair = pair(
            PacketOrder::Kept,
            Profile::perfect(Span::from_micros(50)),
            seed,
        );
        assert_eq!(carry(&mut pair, 1).0, 0, "seed {seed}");
        let late = Profile {
            jitter: Span::from_micros(500),
            ..Profile::perfect(Span::from_micros(50))
        };
        pair.network.set_link(LEFT, RIGHT, late);
        carry(&mut pair, 2);
        for sequence in 3..10 {
            let (missing, _) = carry(&mut pair, sequence);
            assert_eq!(missing, 0, "seed {seed}, message {sequence}");
        }
    }
}

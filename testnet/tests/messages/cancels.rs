//! A message that either end gives up is forgotten at both.

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::units::{Rank, Span};
use proptest::prelude::*;

use crate::pair::{LEFT, Pair, RIGHT, TestMessage, cut, key, rough, share};

fn cancel(pair: &mut Pair, sequence: u32) {
    let cancel = |endpoint: &mut Endpoint, _| endpoint.cancel(RIGHT, key(sequence));
    pair.network.command(LEFT, cancel);
}

fn refuse(pair: &mut Pair, sequence: u32) {
    let refuse = |endpoint: &mut Endpoint, _| endpoint.refuse(LEFT, key(sequence));
    pair.network.command(RIGHT, refuse);
}

/// Asserts that an end keeps no message, and that no packet is sent any more.
fn assert_forgotten(pair: &mut Pair, what: &str) {
    // A path that loses two fifths can lose STOP or CLOSE twenty times: for ten seconds.
    pair.run_for(Span::from_millis(60_000));
    let before = pair.network.delivered();
    pair.run_for(Span::from_millis(10_000));
    assert_eq!(pair.network.delivered(), before, "{what}: still talking");
    for rank in [LEFT, RIGHT] {
        let kept = pair.end(rank).footprint();
        let messages = [kept.outgoing, kept.cancelled, kept.incoming, kept.posted];
        assert_eq!(messages, [0; 4], "{what}: rank {rank}");
        let is_little = kept.closed_ranges <= 1 && kept.timers <= 8;
        assert!(is_little, "{what}: rank {rank}, {kept:?}");
        let reserved = pair.end(rank).ledger().total().reserved_bytes;
        assert_eq!(reserved, 0, "{what}: rank {rank}");
    }
}

#[test]
fn a_cancelled_message_is_forgotten_at_both_ends() {
    let waits = [0, 5, 30, 100, 400, 1_000, 3_000, 100_000];
    for (seed, micros) in waits.into_iter().enumerate() {
        for posted in [true, false] {
            let mut pair = Pair::rough(0.2, seed as u64);
            let message = TestMessage::lossless(1, 100_000).tolerating(share(0.1));
            if posted {
                pair.expect(RIGHT, message);
            }
            pair.send(LEFT, message);
            pair.run_for(Span::from_micros(micros));
            cancel(&mut pair, 1);
            let what = format!("after {micros} us, posted: {posted}");
            assert_forgotten(&mut pair, &what);
            let (from, key) = (LEFT, key(1));
            let told = pair.events(RIGHT);
            let is_end = |event: &&EndpointEvent| !matches!(event, EndpointEvent::Announced { .. });
            let ends: Vec<&EndpointEvent> = told.iter().filter(is_end).collect();
            let reset = EndpointEvent::Reset { from, key };
            match ends[..] {
                [EndpointEvent::Received { .. }] => assert!(posted, "{what}"),
                [event] => assert_eq!(*event, reset, "{what}"),
                [] => assert!(!posted, "{what}: the right end waits for it"),
                _ => panic!("{what}: {ends:?}"),
            }
        }
    }
}

#[test]
fn a_refused_message_is_forgotten_at_both_ends() {
    for posted in [true, false] {
        for seed in 0..20 {
            let mut pair = Pair::rough(0.3, seed);
            let message = TestMessage::lossless(1, 2_000_000).tolerating(share(0.1));
            if posted {
                pair.expect(RIGHT, message);
            }
            pair.send(LEFT, message);
            pair.run_for(Span::from_micros(2_000));
            refuse(&mut pair, 1);
            let what = format!("seed {seed}, posted: {posted}");
            assert_forgotten(&mut pair, &what);
            let (to, key) = (RIGHT, key(1));
            let told = pair.events(LEFT);
            let refused = EndpointEvent::Refused { to, key };
            assert_eq!(told.last(), Some(&refused), "{what}: {told:?}");
        }
    }
}

#[test]
fn resets_on_a_cut_path_cost_few_packets() {
    let mut pair = Pair::rough(0.0, 1);
    for sequence in 0..200 {
        pair.send(LEFT, TestMessage::lossless(sequence, 2_000));
    }
    pair.run_for(Span::from_millis(20));
    pair.network.set_link(RIGHT, LEFT, cut());
    for sequence in 0..200 {
        cancel(&mut pair, sequence);
    }
    pair.run_for(Span::from_millis(20_000));
    let before = pair.network.delivered();
    pair.run_for(Span::from_millis(10_000));
    let resets = pair.network.delivered() - before;
    assert!(resets <= 100, "{resets} packets in 10 s");
    pair.network.set_link(RIGHT, LEFT, rough(0.0));
    assert_forgotten(&mut pair, "after the cut");
}

/// A step of a random program.
#[derive(Clone, Copy, Debug)]
enum Act {
    Send(u32),
    Expect(u32),
    Cancel(u32),
    Refuse(u32),
    Wait(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let sequence = 0..6_u32;
    prop_oneof![
        sequence.clone().prop_map(Act::Send),
        sequence.clone().prop_map(Act::Expect),
        sequence.clone().prop_map(Act::Cancel),
        sequence.prop_map(Act::Refuse),
        (0..2_000_u64).prop_map(Act::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_is_sent_or_given_up_leaves_no_memory(
        acts in prop::collection::vec(act(), 1..40),
        drop in prop::sample::select(vec![0.0, 0.1, 0.4]),
        seed in any::<u64>(),
    ) {
        let mut pair = Pair::rough(drop, seed);
        let (mut sent, mut posted) = ([false; 6], [false; 6]);
        let message = |sequence: u32| {
            let message = TestMessage::lossless(sequence, 300 * 4_u32.pow(sequence));
            message.tolerating(share(0.1))
        };
        for act in acts {
            match act {
                // A key names one message.
                Act::Send(n) if !std::mem::replace(&mut sent[n as usize], true) => {
                    pair.send(LEFT, message(n));
                }
                Act::Expect(n) if !std::mem::replace(&mut posted[n as usize], true) => {
                    pair.expect(RIGHT, message(n));
                }
                Act::Cancel(n) => cancel(&mut pair, n),
                Act::Refuse(n) => refuse(&mut pair, n),
                Act::Wait(micros) => pair.run_for(Span::from_micros(micros)),
                Act::Send(_) | Act::Expect(_) => {}
            }
        }
        // Messages that were neither received nor given up are given up now, at the end that has
        // them.
        pair.run_for(Span::from_millis(2_000));
        for n in 0..6 {
            cancel(&mut pair, n);
            refuse(&mut pair, n);
        }
        assert_forgotten(&mut pair, "in the end");
        let told = pair.events(LEFT);
        let ends = |event: &&EndpointEvent| !matches!(event, EndpointEvent::StandsStill { .. });
        prop_assert!(told.iter().filter(ends).count() <= sent.iter().filter(|sent| **sent).count());
    }
}

#[test]
fn a_lost_peer_releases_the_holes_that_it_reserved() {
    let mut reserved = 0;
    for seed in 0..40 {
        let mut pair = Pair::rough(0.4, seed);
        let message = TestMessage::lossless(1, 400_000).tolerating(share(0.1));
        pair.expect(RIGHT, message);
        pair.send(LEFT, message);
        let until = pair.network.now() + Span::from_millis(1_000);
        let has_some = |ends: &[Endpoint]| ends[1].ledger().total().reserved_bytes > 0;
        pair.network.run(until, has_some);
        reserved += pair.end(RIGHT).ledger().total().reserved_bytes;
        let fail = |endpoint: &mut Endpoint, _| endpoint.fail_peer(Rank(0));
        pair.network.command(RIGHT, fail);
        assert_eq!(
            pair.end(RIGHT).ledger().total().reserved_bytes,
            0,
            "seed {seed}"
        );
    }
    assert!(reserved > 0, "some were reserved");
}

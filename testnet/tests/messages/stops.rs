//! The end of a message: STOP until the receiver learns that its sender has heard it.

use gradwire_protocol::bitmap::Bitmap;
use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::units::{MessageId, Rank, Span};
use gradwire_testnet::link::Profile;
use gradwire_testnet::network::Ended;

use crate::pair::{LEFT, Pair, RIGHT, TestMessage, cut, endpoint, job, rough, share};

/// The holes of each message that the right end reports as complete.
fn received(pair: &mut Pair) -> Vec<Option<Bitmap>> {
    let events = pair.events(RIGHT).into_iter();
    let holes = events.filter_map(|event| match event {
        EndpointEvent::Received { holes, .. } => Some(holes),
        _ => None,
    });
    holes.collect()
}

fn sent(pair: &mut Pair) -> Vec<Option<Bitmap>> {
    let events = pair.events(LEFT).into_iter();
    let missing = events.filter_map(|event| match event {
        EndpointEvent::Sent { missing, .. } => Some(missing),
        _ => None,
    });
    missing.collect()
}

fn set_links(pair: &mut Pair, both: [(Rank, Rank); 2], profile: Profile) {
    for (from, to) in both {
        pair.network.set_link(from, to, profile);
    }
}

#[test]
fn both_ends_name_the_same_holes_after_an_outage() {
    let mut with_holes = 0;
    for seed in 0..20 {
        let mut pair = Pair::rough(0.1, seed);
        let message = TestMessage::lossless(1, 200_000).tolerating(share(0.2));
        pair.expect(RIGHT, message);
        pair.send(LEFT, message);
        let until = pair.network.now() + Span::from_millis(5_000);
        let is_complete = |ends: &[Endpoint]| ends[1].counters().receiver.lost_segments > 0;
        if pair.network.run(until, is_complete) != Ended::Reached {
            continue;
        }
        let both = [(LEFT, RIGHT), (RIGHT, LEFT)];
        set_links(&mut pair, both, cut());
        pair.run_for(Span::from_millis(3_000));
        set_links(&mut pair, both, rough(0.1));
        assert!(pair.settles_within(Span::from_millis(5_000)));
        let received = received(&mut pair);
        with_holes += u32::from(received[0].is_some());
        assert_eq!(sent(&mut pair), received, "seed {seed}");
    }
    assert!(with_holes > 10, "{with_holes} messages had holes");
}

#[test]
fn stop_is_repeated_seldom_until_close_comes() {
    const MESSAGES: u32 = 100;
    let mut pair = Pair::rough(0.0, 1);
    for sequence in 0..MESSAGES {
        let message = TestMessage::lossless(sequence, 3_000);
        pair.expect(RIGHT, message);
        pair.send(LEFT, message);
    }
    // The right end hears no CLOSE.
    let until = pair.network.now() + Span::from_millis(5_000);
    let begun = |ends: &[Endpoint]| ends[1].counters().receiver.received_segments > 250;
    assert_eq!(pair.network.run(until, begun), Ended::Reached);
    pair.settles_within(Span::from_millis(1));
    pair.network.set_link(LEFT, RIGHT, cut());
    pair.run_for(Span::from_millis(20_000));
    let before = pair.network.delivered();
    pair.run_for(Span::from_millis(10_000));
    let stops = pair.network.delivered() - before;
    assert!(stops <= 100, "{stops} packets in 10 s");
    let kept = pair.end(RIGHT).footprint();
    pair.network.set_link(LEFT, RIGHT, rough(0.0));
    pair.run_for(Span::from_millis(3_000));
    assert_eq!(pair.end(RIGHT).footprint().incoming, 0, "of {kept:?}");
    assert_eq!(received(&mut pair).len(), MESSAGES as usize);
    assert_eq!(sent(&mut pair).len(), MESSAGES as usize);
}

/// Two endpoints on a path without losses, the first message of each with this id.
fn clean(first: u32) -> Pair {
    let ends = [LEFT, RIGHT].map(|rank| {
        let first = MessageId(first);
        endpoint(rank, &job()).with_first_message(first)
    });
    Pair::new(ends, Profile::perfect(Span::from_micros(5)), 1)
}

#[test]
fn a_small_message_is_two_packets_where_others_follow() {
    for first in [1, u32::MAX - 50] {
        two_packets_each(clean(first));
    }
}

fn two_packets_each(mut pair: Pair) {
    const MESSAGES: u32 = 100;
    for sequence in 0..MESSAGES {
        let message = TestMessage::lossless(sequence, 500);
        pair.expect(RIGHT, message);
        pair.send(LEFT, message);
        assert!(pair.settles_within(Span::from_millis(1)));
        assert!(pair.end(RIGHT).footprint().incoming <= 1);
    }
    let packets = pair.network.delivered();
    assert_eq!(packets, 2 * u64::from(MESSAGES), "DATA and STOP");
    pair.run_for(Span::from_millis(1));
    assert_eq!(
        pair.network.delivered(),
        packets + 1,
        "the last one's CLOSE"
    );
    assert_eq!(pair.end(RIGHT).footprint().incoming, 0);
}

#[test]
fn complete_messages_do_not_pile_up_behind_one_that_stays_open() {
    const MESSAGES: u32 = 400;
    let mut pair = clean(1);
    // Nobody posts it, so its end stays away.
    pair.send(LEFT, TestMessage::lossless(MESSAGES, 500_000));
    let mut most = 0;
    for sequence in 0..MESSAGES {
        let message = TestMessage::lossless(sequence, 500);
        pair.expect(RIGHT, message);
        pair.send(LEFT, message);
        pair.run_for(Span::from_micros(20));
        most = most.max(pair.end(RIGHT).footprint().incoming);
    }
    assert_eq!(received(&mut pair).len(), MESSAGES as usize);
    // Eight that are not named, some in flight, and the open one.
    assert!(most <= 16, "{most} messages kept");
    pair.run_for(Span::from_millis(1));
    assert_eq!(pair.end(RIGHT).footprint().incoming, 1, "the open one");
}

#[test]
fn a_message_whose_end_was_told_in_vain_is_closed_later() {
    for seed in 0..20 {
        let mut pair = Pair::rough(0.2, seed);
        for sequence in 0..100 {
            let message = TestMessage::lossless(sequence, 500);
            pair.expect(RIGHT, message);
            pair.send(LEFT, message);
            assert!(pair.settles_within(Span::from_millis(500)), "seed {seed}");
        }
        pair.run_for(Span::from_millis(5_000));
        let kept = pair.end(RIGHT).footprint().incoming;
        assert_eq!(kept, 0, "seed {seed}");
        assert_eq!(received(&mut pair), sent(&mut pair), "seed {seed}");
    }
}

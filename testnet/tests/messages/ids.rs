//! Ids of messages wrap after 2^32 of them.

use gradwire_protocol::endpoint::EndpointEvent;
use gradwire_protocol::units::{MessageId, Span};

use crate::pair::{LEFT, Pair, RIGHT, TestMessage, endpoint, job, rough};

/// Messages before and after the wrap.
const MESSAGES: u32 = 40;

fn near_the_wrap(first: u32, drop: f64) -> Pair {
    let left = endpoint(LEFT, &job()).with_first_message(MessageId(first));
    Pair::new([left, endpoint(RIGHT, &job())], rough(drop), 9)
}

/// Messages that the left end knows to be complete.
fn sent(pair: &mut Pair) -> u32 {
    let events = pair.events(LEFT).into_iter();
    let is_sent = |event: &EndpointEvent| matches!(event, EndpointEvent::Sent { .. });
    events.filter(is_sent).count() as u32
}

#[test]
fn messages_arrive_although_their_ids_wrap() {
    for (first, drop) in [(u32::MAX - 20, 0.0), (u32::MAX - 3, 0.2), (1 << 31, 0.2)] {
        let mut pair = near_the_wrap(first, drop);
        for sequence in 0..MESSAGES {
            let message = TestMessage::lossless(sequence, 5_000);
            pair.expect(RIGHT, message);
            pair.send(LEFT, message);
            if sequence % 4 == 3 {
                assert!(pair.settles_within(Span::from_millis(5_000)), "{first:#x}");
            }
        }
        let received = pair.events(RIGHT);
        let is_end = |event: &&EndpointEvent| matches!(event, EndpointEvent::Received { .. });
        assert_eq!(received.iter().filter(is_end).count(), MESSAGES as usize);
        assert_eq!(sent(&mut pair), MESSAGES, "each was sent once");
    }
}

#[test]
fn a_message_that_outlives_others_keeps_its_id() {
    let mut pair = near_the_wrap(u32::MAX - 2, 0.1);
    let late = TestMessage::lossless(1_000, 400_000);
    pair.send(LEFT, late);
    for sequence in 0..MESSAGES {
        let message = TestMessage::lossless(sequence, 5_000);
        pair.expect(RIGHT, message);
        pair.send(LEFT, message);
    }
    pair.run_for(Span::from_millis(1_000));
    pair.expect(RIGHT, late);
    assert!(pair.settles_within(Span::from_millis(5_000)));
    assert_eq!(sent(&mut pair), 1 + MESSAGES);
}

//! A receive whose length is an upper bound takes any message that is no longer, and tells its
//! length.

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::{Job, Mtu, PacketSecurity};
use gradwire_protocol::message::LengthRule;
use gradwire_protocol::units::{Share, Span};
use proptest::prelude::*;

use crate::pair::{LEFT, Pair, RIGHT, TestMessage, endpoint, job, rough, share};

/// Whether the receive is posted before its message comes, or after.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PostOrder {
    First,
    Late,
}

fn post_at_most(pair: &mut Pair, message: TestMessage) {
    pair.network.command(RIGHT, |endpoint, now| {
        let request = message.incoming();
        let length = LengthRule::AtMost;
        let request = gradwire_protocol::message::ReceiveRequest { length, ..request };
        endpoint.expect(now, LEFT, request);
    });
}

/// Carries a message to a receive with `room` bytes over a path that loses `loss`.
fn carry(message: TestMessage, room: u32, order: PostOrder, loss: f64, seed: u64) -> Pair {
    let mut pair = Pair::rough(loss, seed);
    let posted = TestMessage {
        bytes: room,
        ..message
    };
    if order == PostOrder::First {
        post_at_most(&mut pair, posted);
    }
    pair.send(LEFT, message);
    pair.run_for(Span::from_millis(3));
    if order == PostOrder::Late {
        post_at_most(&mut pair, posted);
    }
    pair.run_for(Span::from_millis(5_000));
    pair
}

/// The same with 5 % lost; returns the events at the receiver.
fn carried(message: TestMessage, room: u32, order: PostOrder, seed: u64) -> Vec<EndpointEvent> {
    let mut pair = carry(message, room, order, 0.05, seed);
    let events = pair.events(RIGHT).into_iter();
    let is_news = |event: &EndpointEvent| !matches!(event, EndpointEvent::Announced { .. });
    events.filter(is_news).collect()
}

fn order() -> impl Strategy<Value = PostOrder> {
    prop_oneof![Just(PostOrder::First), Just(PostOrder::Late)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn shorter_messages_are_taken_and_their_length_told(
        bytes in prop_oneof![Just(0_u32), 1..3_000_u32, 0..150_000_u32],
        spare in prop_oneof![Just(0_u32), 1..3_000_u32, Just(1 << 30)],
        order in order(),
        seed in any::<u64>(),
    ) {
        let events = carried(TestMessage::lossless(1, bytes), bytes + spare, order, seed);
        let is_it = matches!(
            events[..],
            [EndpointEvent::Received { bytes: came, holes: None, .. }] if came == bytes
        );
        prop_assert!(is_it, "{events:?}");
    }

    #[test]
    fn longer_messages_are_refused_with_both_lengths(
        bytes in 1..150_000_u32,
        less in 1..3_000_u32,
        order in order(),
        seed in any::<u64>(),
    ) {
        let room = bytes.saturating_sub(less);
        let events = carried(TestMessage::lossless(1, bytes), room, order, seed);
        let is_it = matches!(
            events[..],
            [EndpointEvent::Mismatch { ours, theirs, .. }]
                if (ours.bytes, theirs.bytes) == (room, bytes)
        );
        prop_assert!(is_it, "{events:?}");
    }

    #[test]
    fn tolerated_loss_counts_bytes_that_came(
        bytes in 20_000..150_000_u32,
        order in order(),
        seed in any::<u64>(),
    ) {
        let message = TestMessage::lossless(1, bytes).tolerating(share(0.1));
        let pair = carry(message, 1 << 30, order, 0.2, seed);
        let lost = pair.end(RIGHT).ledger().total().lost_bytes;
        let most = Share::of(share(0.1), u64::from(bytes));
        prop_assert!(lost <= most, "{lost} bytes of {bytes} lost, {most} tolerated");
    }
}

#[test]
fn the_shortest_packets_carry_a_message_to_its_end() {
    for (mtu, security) in [(240, PacketSecurity::None), (576, PacketSecurity::Aead)] {
        for (bytes, tolerance) in [(1_000, 0.0), (100_000, 0.0), (100_000, 0.1)] {
            let mut job = Job { security, ..job() };
            job.transport.mtu = Mtu::Bytes(mtu);
            let ends = [LEFT, RIGHT].map(|rank| endpoint(rank, &job));
            let mut pair = Pair::new(ends, rough(0.05), 1);
            let message = TestMessage::lossless(0, bytes).tolerating(share(tolerance));
            pair.expect(RIGHT, message);
            pair.send(LEFT, message);
            pair.run_for(Span::from_millis(5_000));
            let busy = pair.network.hosts().iter().any(Endpoint::is_busy);
            let delivered = pair.network.delivered();
            assert!(
                !busy,
                "MTU {mtu}: {bytes} bytes in {delivered} packets, and no end"
            );
        }
    }
}

#[test]
#[should_panic(expected = "carries segments of 64 bytes, at least 128 are needed")]
fn an_mtu_too_short_for_reports_is_refused() {
    let mut job = job();
    job.transport.mtu = Mtu::Bytes(176);
    let _ = endpoint(LEFT, &job);
}

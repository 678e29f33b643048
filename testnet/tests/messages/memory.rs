//! Memory is bounded by the messages that are open.

use gradwire_protocol::footprint::EndpointFootprint;
use gradwire_protocol::units::Span;

use crate::pair::{LEFT, Pair, RIGHT, TestMessage, share};

/// Messages in flight at once.
const AT_ONCE: u32 = 8;

/// Sends `messages` messages each way, and returns the most that an endpoint kept between them.
fn most_kept(messages: u32, drop: f64) -> EndpointFootprint {
    let mut pair = Pair::rough(drop, 3);
    let mut most = EndpointFootprint::default();
    for sequence in 0..messages {
        let tolerance = share([0.0, 0.1][sequence as usize % 2]);
        let message = TestMessage::lossless(sequence, 3_000).tolerating(tolerance);
        for (from, to) in [(LEFT, RIGHT), (RIGHT, LEFT)] {
            pair.expect(to, message);
            pair.send(from, message);
        }
        if sequence % AT_ONCE == AT_ONCE - 1 {
            assert!(pair.settles_within(Span::from_millis(60_000)), "{sequence}");
            for rank in [LEFT, RIGHT] {
                pair.events(rank);
                let kept = pair.end(rank).footprint();
                most = EndpointFootprint {
                    outgoing: most.outgoing.max(kept.outgoing),
                    cancelled: most.cancelled.max(kept.cancelled),
                    flights: most.flights.max(kept.flights),
                    incoming: most.incoming.max(kept.incoming),
                    posted: most.posted.max(kept.posted),
                    closed_ranges: most.closed_ranges.max(kept.closed_ranges),
                    timers: most.timers.max(kept.timers),
                    events: most.events.max(kept.events),
                };
            }
        }
    }
    most
}

#[test]
fn memory_does_not_grow_with_the_messages_that_ended() {
    // A million in total where long tests are enabled.
    let messages = if is_slow() { 250_000 } else { 10_000 };
    for drop in [0.0, 0.1] {
        let most = most_kept(messages, drop);
        let open = AT_ONCE as usize;
        assert_eq!((most.outgoing, most.posted, most.events), (0, 0, 0));
        assert!(most.incoming <= 4 * open, "{most:?}");
        assert!(most.closed_ranges <= 4 * open, "{most:?}");
        assert!(most.flights <= 100 * open, "{most:?}");
        assert!(most.timers <= 100 * open, "{most:?}");
    }
}

/// Whether long tests are wanted.
#[expect(
    clippy::disallowed_methods,
    reason = "tests are asked for by the environment"
)]
fn is_slow() -> bool {
    std::env::var_os("GRADWIRE_SLOW").is_some()
}

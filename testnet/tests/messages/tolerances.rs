//! The two ends of a message may tolerate different losses: it ends all the same, and the receiver
//! decides.

use gradwire_protocol::bitmap::Bitmap;
use gradwire_protocol::endpoint::EndpointEvent;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::units::{Share, Span};
use proptest::prelude::*;

use crate::pair::{LEFT, Pair, RIGHT, TestMessage, endpoint, job, rough, share};

/// The holes of a message that its ends report, if both do.
fn holes_told(pair: &mut Pair) -> Option<[Option<Bitmap>; 2]> {
    let sent = (pair.events(LEFT).into_iter()).find_map(|event| match event {
        EndpointEvent::Sent { missing, .. } => Some(missing),
        _ => None,
    });
    let received = (pair.events(RIGHT).into_iter()).find_map(|event| match event {
        EndpointEvent::Received { holes, .. } => Some(holes),
        _ => None,
    });
    Some([sent?, received?])
}

/// Carries a message of `bytes` whose ends tolerate these shares; returns the bytes that are
/// missing.
fn missing_bytes(bytes: u32, [ours, theirs]: [Share; 2], drop: f64, seed: u64) -> Option<u64> {
    let ends = [LEFT, RIGHT].map(|rank| endpoint(rank, &job()));
    let cut = Segmentation::new(bytes, ends[0].segment_bytes());
    let mut pair = Pair::new(ends, rough(drop), seed);
    let message = TestMessage::lossless(1, bytes);
    pair.expect(RIGHT, message.tolerating(theirs));
    pair.send(LEFT, message.tolerating(ours));
    pair.settles_within(Span::from_millis(5_000));
    let [sent, received] = holes_told(&mut pair)?;
    assert_eq!(
        sent, received,
        "seed {seed}: both ends tell of the same holes"
    );
    let length = |segment| u64::from(cut.length(segment));
    Some(received.map_or(0, |holes| holes.iter_ones().map(length).sum()))
}

#[test]
fn a_strict_receiver_gets_what_tolerant_senders_leave() {
    for seed in 0..20 {
        let missing = missing_bytes(200_000, [share(0.1), Share::NONE], 0.05, seed);
        assert_eq!(missing, Some(0), "seed {seed}");
    }
}

#[test]
fn a_tolerance_below_one_segment_is_strict() {
    for seed in 0..20 {
        let missing = missing_bytes(200_000, [share(0.1), share(0.001)], 0.05, seed);
        assert_eq!(missing, Some(0), "seed {seed}");
    }
}

fn tolerance() -> impl Strategy<Value = Share> {
    prop::sample::select(vec![0.0, 0.0, 0.000_1, 0.004, 0.02, 0.1, 0.5, 1.0]).prop_map(share)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn unequal_tolerances_end_within_the_receivers(
        bytes in prop::sample::select(vec![0, 1, 1_376, 1_377, 20_000, 120_000]),
        ours in tolerance(),
        theirs in tolerance(),
        drop in prop::sample::select(vec![0.0, 0.01, 0.1, 0.4]),
        seed in any::<u64>(),
    ) {
        let missing = missing_bytes(bytes, [ours, theirs], drop, seed);
        let missing = missing.expect("it ends");
        prop_assert!(missing <= theirs.of(u64::from(bytes)), "{missing} bytes are missing");
        prop_assert!(drop > 0.0 || missing == 0);
    }
}

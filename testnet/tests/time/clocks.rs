//! Packets carry 32 bits of a clock of microseconds, which wrap every 72 minutes.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use gradwire_protocol::job::Job;
use gradwire_protocol::units::{Layer, Span};

use crate::is_slow;
use crate::pair::{LAYERS, Pair, PairMessage, clean_time, port, seconds, wire};

/// The time after which stamps wrap.
const WRAP: Span = Span::from_micros(1 << 32);

fn urgent(bytes: u32) -> PairMessage {
    PairMessage {
        layer: Layer(0),
        ..PairMessage::lossless(bytes)
    }
}

#[test]
fn a_class_used_once_an_hour_ago_loses_nothing() {
    for minutes in [37, 50, 70, 109, 1_000] {
        let mut pair = Pair::new(Job::default(), port(20));
        pair.transfer(PairMessage::lossless(100_000));
        pair.pass(seconds(60 * minutes));
        let time = pair.transfer(urgent(8 << 20));
        assert_eq!(pair.repairs(), 0, "after {minutes} minutes, in {time}");
    }
}

#[test]
fn tolerated_segments_arrive_after_forty_idle_minutes() {
    let tolerant = |layer| PairMessage {
        layer: Layer(layer),
        ..PairMessage::tolerant(8 << 20, 0.2)
    };
    for minutes in [37, 50, 70] {
        let mut pair = Pair::new(Job::default(), port(20));
        pair.transfer(tolerant(LAYERS / 2));
        pair.pass(seconds(60 * minutes));
        for layer in [0, LAYERS / 2] {
            pair.transfer(tolerant(layer));
            assert_eq!((pair.holes(), pair.repairs()), (0, 0), "{minutes} minutes");
        }
    }
}

#[test]
fn a_clock_may_wrap_while_packets_fly() {
    let message = PairMessage::lossless(2 << 20);
    let clean = clean_time(&Job::default(), port(20), message);
    for before in [0, 1, 2, 19, 20, 40, 41, 100, 700, 1_500] {
        for reading in [WRAP.beyond(Span::from_micros(before)), WRAP.divided(2)] {
            let mut pair = Pair::with_clocks(Job::default(), port(20), [reading, reading]);
            let time = pair.transfer(message);
            assert_eq!(time, clean, "{before} us before the wrap");
            assert_eq!(pair.repairs(), 0, "{before} us before the wrap");
        }
    }
}

/// From nothing to three days, most of them short.
fn random_pause(rng: &mut impl Rng) -> Span {
    let longest = [1, 60, 3_600, 86_400, 3 * 86_400][rng.random_range(0..5)];
    Span::from_micros(rng.random_range(0..=longest * 1_000_000))
}

fn random_message(rng: &mut impl Rng) -> PairMessage {
    let bytes = [0, 1_000, 60_000, 1 << 20][rng.random_range(0..4)];
    PairMessage {
        layer: [Layer::UNTAGGED, Layer(rng.random_range(0..LAYERS))][rng.random_range(0..2)],
        ..PairMessage::tolerant(bytes, [0.0, 0.1, 0.3][rng.random_range(0..3)])
    }
}

#[test]
fn random_clocks_and_pauses_cost_no_repair_and_no_time() {
    for seed in 0..if is_slow() { 2_000 } else { 100 } {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let readings = [(); 2].map(|()| Span::from_micros(rng.random_range(0..1 << 32)));
        let profile = [wire(20), port(20)][rng.random_range(0..2)];
        let job = Job::default();
        let mut pair = Pair::with_clocks(job.clone(), profile, readings);
        for message in 0..6 {
            let shape = random_message(&mut rng);
            // A window that has grown must not slow a message down.
            let most = clean_time(&job, profile, shape) + Span::from_micros(10);
            let time = pair.transfer(shape);
            let told = format!("seed {seed}, message {message}, {shape:?}: {time} of {most}");
            assert!(time <= most, "{told}");
            assert_eq!((pair.repairs(), pair.holes()), (0, 0), "{told}");
            pair.pass(random_pause(&mut rng));
        }
    }
}

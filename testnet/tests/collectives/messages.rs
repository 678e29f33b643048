//! The losses of messages from rank to rank, and the reports about them.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::DType;
use gradwire_collectives::holes::Hole;
use gradwire_collectives::operation::{Collective, Operation, OperationOutcome};
use gradwire_protocol::job::HoleFilling;
use gradwire_protocol::units::{Rank, Span};
use gradwire_testnet::link::Profile;

use crate::world::{SEGMENT, World, all_reduce, floats, rough, small_job, tensor, tolerating};

const ELEMENTS: usize = 6000;

fn constant(dtype: DType, value: f64) -> Vec<u8> {
    tensor(dtype, std::iter::repeat_n(value, ELEMENTS))
}

/// The result of a receiver.
struct Received {
    values: Vec<f32>,
    holes: Vec<Hole>,
    outcome: OperationOutcome,
    /// Of the sender.
    missed: u64,
}

/// Rank 0 sends fives to rank 1, whose buffer has ones.
fn message(world: &mut World, dtype: DType, tolerance: f64, rule: HoleFilling) -> Received {
    world.submit_all(|rank| {
        let (collective, value) = match rank {
            0 => (
                Collective::Send {
                    to: Rank(1),
                    tag: 3,
                },
                5.0,
            ),
            _ => (
                Collective::Receive {
                    from: Rank(0),
                    tag: 3,
                },
                1.0,
            ),
        };
        Operation {
            collective,
            dtype,
            loss: tolerating(tolerance, rule),
            ..all_reduce(2, 0, constant(dtype, value))
        }
    });
    world.run();
    let missed = world.result(0).1.missed_segments;
    let completion = world.completion(1).expect("the message has arrived");
    let Buffer::Owned(bytes) = completion.buffer else {
        panic!("tests own their buffers")
    };
    Received {
        values: floats(&bytes),
        holes: completion.holes,
        outcome: completion.result.expect("the message has arrived well"),
        missed,
    }
}

#[test]
fn what_is_lost_stays_as_the_receiver_had_it_and_is_named() {
    let mut lost = 0;
    for seed in 0..20 {
        let mut world = World::new(2, &small_job(), rough(0.1), seed);
        let received = message(&mut world, DType::F32, 0.3, HoleFilling::Zero);
        let mut expected = vec![5.0; ELEMENTS];
        for hole in &received.holes {
            assert!(hole.offset.is_multiple_of(SEGMENT) && hole.bytes <= SEGMENT);
            expected[hole.offset / 4..][..hole.bytes / 4].fill(1.0);
        }
        assert!(received.values == expected, "seed {seed}");
        let bytes: usize = received.holes.iter().map(|hole| hole.bytes).sum();
        assert!(bytes <= ELEMENTS * 4 * 3 / 10, "seed {seed}: {bytes} bytes");
        assert_eq!(received.outcome.lost_segments, received.holes.len() as u64);
        assert_eq!(received.missed, received.outcome.lost_segments);
        lost += received.holes.len();
    }
    assert!(lost > 0);
}

#[test]
fn on_a_path_that_loses_nothing_no_message_has_holes_whatever_it_tolerates() {
    let profile = Profile {
        jitter: Span::from_micros(100),
        ..rough(0.0)
    };
    for seed in 0..20 {
        let mut world = World::new(2, &small_job(), profile, seed);
        let received = message(&mut world, DType::F32, 1.0, HoleFilling::Zero);
        assert!(received.holes.is_empty() && received.values == [5.0; ELEMENTS]);
    }
}

#[test]
fn error_feedback_sends_what_was_lost_with_the_next_message_of_the_tensor() {
    let mut lost = 0;
    for seed in 0..10 {
        let mut world = World::new(2, &small_job(), rough(0.1), seed);
        let first = message(&mut world, DType::F32, 0.3, HoleFilling::ErrorFeedback);
        lost += first.holes.len();
        let perfect = Profile::perfect(Span::from_micros(10));
        for (from, to) in [(0, 1), (1, 0)] {
            world.network.set_link(Rank(from), Rank(to), perfect);
        }
        let second = message(&mut world, DType::F32, 0.3, HoleFilling::ErrorFeedback);
        for (first, second) in first.values.iter().zip(second.values) {
            let sum = if *first == 1.0 {
                second
            } else {
                first + second
            };
            assert!(sum.to_bits() == 10.0_f32.to_bits(), "seed {seed}: {sum}");
        }
    }
    assert!(lost > 0);
}

#[test]
fn parameters_whose_former_values_stand_in_are_never_added_to_the_next() {
    let mut world = World::new(2, &small_job(), rough(0.1), 5);
    let received = message(&mut world, DType::F32, 0.3, HoleFilling::Previous);
    assert!(!received.holes.is_empty());
    let kept = |communicator: &mut gradwire_collectives::communicator::Communicator, _| {
        communicator.residuals().bytes()
    };
    assert_eq!(world.network.command(Rank(0), kept), 0);
}

#[test]
fn messages_of_integers_and_lossless_ones_have_no_holes() {
    for (dtype, tolerance) in [(DType::I32, 0.3), (DType::F32, 0.0)] {
        let mut world = World::new(2, &small_job(), rough(0.1), 3);
        let received = message(&mut world, dtype, tolerance, HoleFilling::Zero);
        assert!(received.holes.is_empty());
        assert_eq!(received.outcome.lost_segments, 0);
    }
}

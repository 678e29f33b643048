//! The results of operations that tolerate loss; nothing is lost without need.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, Layers, Operation};
use gradwire_protocol::job::{HoleFilling, Job, ReduceAlgorithm};
use gradwire_protocol::units::{Layer, Rank, Share, Span};
use gradwire_testnet::link::Profile;

use crate::world::{
    SEGMENT, World, all_reduce, floats, rough, share, small_job, tensor, tolerating,
};

const ELEMENTS: usize = 6000;

fn constant(value: f64) -> Vec<u8> {
    tensor(DType::F32, std::iter::repeat_n(value, ELEMENTS))
}

/// The contribution of rank r: sums of different subsets of four ranks differ.
fn weight(rank: u16) -> f64 {
    f64::from(1_u32 << rank)
}

fn lossy(ranks: u16, sequence: u32, value: f64, holes: HoleFilling) -> Operation {
    Operation {
        loss: tolerating(0.3, holes),
        ..all_reduce(ranks, sequence, constant(value))
    }
}

fn large_chunks() -> Job {
    let mut job = small_job();
    job.collectives.chunk = gradwire_protocol::units::ByteCount::kib(16);
    job
}

#[test]
fn on_a_path_that_loses_nothing_nothing_is_lost_whatever_the_tolerance() {
    let profile = Profile {
        jitter: Span::from_micros(100),
        ..rough(0.0)
    };
    for seed in 0..20 {
        let mut world = World::new(4, &large_chunks(), profile, seed);
        let results = world.perform(|rank| Operation {
            loss: tolerating(1.0, HoleFilling::Zero),
            ..all_reduce(4, 0, constant(weight(rank)))
        });
        for (bytes, outcome) in results {
            assert_eq!(outcome.lost_segments + outcome.missed_segments, 0);
            assert_eq!(bytes, constant(15.0));
        }
    }
}

/// Whether a sum can come from the contributions of some ranks, `owner` among them, rescaled.
fn is_rescaled(sum: f32, owner: u16) -> bool {
    (1..16_u32)
        .filter(|subset| subset & (1 << owner) != 0)
        .any(|subset| {
            let arrived: f64 = f64::from(subset);
            let rescaled = arrived * 4.0 / f64::from(subset.count_ones());
            (f64::from(sum) - rescaled).abs() < 1e-5
        })
}

#[test]
fn what_arrived_is_rescaled_segment_by_segment_and_all_ranks_get_the_same_bits() {
    let (mut lost, mut incomplete) = (0, 0);
    for seed in 0..20 {
        let mut job = large_chunks();
        job.collectives.chunk = gradwire_protocol::units::ByteCount::mib(1);
        let mut world = World::new(4, &job, rough(0.1), seed);
        let results = world.perform(|rank| lossy(4, 0, weight(rank), HoleFilling::Rescale));
        let sums = floats(&results[0].0);
        for (bytes, outcome) in &results {
            assert!(*bytes == results[0].0, "seed {seed}: replicas differ");
            assert!(outcome.lost_segments * 10 <= outcome.expected_segments * 3);
            lost += outcome.lost_segments;
        }
        for (owner, shard) in (0_u16..).zip(sums.chunks(ELEMENTS / 4)) {
            for segment in shard.chunks(SEGMENT / 4) {
                assert!(
                    is_rescaled(segment[0], owner),
                    "{} at rank {owner}",
                    segment[0]
                );
                assert!(
                    segment.iter().all(|sum| *sum == segment[0]),
                    "one hole, one segment"
                );
                incomplete += usize::from(segment[0] != 15.0);
            }
        }
        let booked = world
            .network
            .hosts()
            .iter()
            .map(|rank| rank.endpoint().ledger().total().lost_segments);
        let counted = results.iter().map(|(_, outcome)| outcome.lost_segments);
        assert_eq!(booked.sum::<u64>(), counted.sum::<u64>());
    }
    assert!(
        lost > 100 && incomplete > 100,
        "{lost} lost, {incomplete} segments incomplete"
    );
}

#[test]
fn equal_contributions_survive_loss_exactly_when_rescaled_or_averaged() {
    for (op, expected) in [(ReduceOp::Sum, 8.0), (ReduceOp::Avg, 2.0)] {
        let mut world = World::new(4, &large_chunks(), rough(0.1), 21);
        let results = world.perform(|_| Operation {
            op,
            ..lossy(4, 0, 2.0, HoleFilling::Rescale)
        });
        assert!(results.iter().any(|(_, outcome)| outcome.lost_segments > 0));
        for (bytes, _) in results {
            assert!(
                floats(&bytes)
                    .iter()
                    .all(|sum| (sum - expected).abs() < 1e-5)
            );
        }
    }
}

#[test]
fn with_error_feedback_the_next_step_brings_what_was_lost() {
    for seed in 0..10 {
        let mut world = World::new(3, &large_chunks(), rough(0.1), seed);
        let lossy = |rank, sequence| lossy(3, sequence, weight(rank), HoleFilling::ErrorFeedback);
        let first = world.perform(|rank| lossy(rank, 0));
        let lost: u64 = first.iter().map(|(_, outcome)| outcome.lost_segments).sum();
        let missed: u64 = first
            .iter()
            .map(|(_, outcome)| outcome.missed_segments)
            .sum();
        assert_eq!(lost, missed, "senders learn what receivers did without");
        let kept = |world: &World| -> usize {
            world
                .network
                .hosts()
                .iter()
                .map(|rank| rank.residuals().bytes())
                .sum()
        };
        assert!(lost > 0 && kept(&world) > 0, "seed {seed}");
        for pair in 0..9 {
            let perfect = Profile::perfect(Span::from_micros(10));
            world
                .network
                .set_link(Rank(pair / 3), Rank(pair % 3), perfect);
        }
        let second = world.perform(|rank| lossy(rank, 1));
        let sums = floats(&first[0].0).into_iter().zip(floats(&second[0].0));
        assert!(
            sums.map(|(first, second)| first + second)
                .all(|sum| sum == 14.0)
        );
        assert_eq!(kept(&world), 0);
    }
}

#[test]
fn the_previous_result_stands_in_for_what_is_missing() {
    let mut world = World::new(
        3,
        &large_chunks(),
        Profile::perfect(Span::from_micros(10)),
        31,
    );
    world.perform(|_| lossy(3, 0, 2.0, HoleFilling::Previous));
    for pair in 0..9 {
        world
            .network
            .set_link(Rank(pair / 3), Rank(pair % 3), rough(0.1));
    }
    let results = world.perform(|_| lossy(3, 1, 3.0, HoleFilling::Previous));
    let sums = floats(&results[0].0);
    let holes = sums.iter().filter(|sum| **sum != 9.0).count();
    assert!(holes > 0, "something was lost");
    let possible = [9.0, 8.0, 7.0];
    let near = |sum: &f32| possible.iter().any(|value| (sum - value).abs() < 1e-5);
    assert!(
        sums.iter().all(near),
        "each missing 3 is replaced by a previous 2"
    );
}

#[test]
fn integers_products_and_sums_of_many_lose_nothing_under_any_tolerance() {
    let by = |algorithm| {
        let mut job = large_chunks();
        job.collectives.algorithm = algorithm;
        job
    };
    let cases = [
        (large_chunks(), DType::I32, ReduceOp::Sum),
        (large_chunks(), DType::F32, ReduceOp::Product),
        (by(ReduceAlgorithm::Ring), DType::F32, ReduceOp::Sum),
        (
            by(ReduceAlgorithm::HalvingDoubling),
            DType::F32,
            ReduceOp::Sum,
        ),
    ];
    for (job, dtype, op) in cases {
        let mut world = World::new(3, &job, rough(0.1), 41);
        let results = world.perform(|rank| {
            let values = std::iter::repeat_n(weight(rank), ELEMENTS);
            Operation {
                dtype,
                op,
                ..lossy(3, 0, 0.0, HoleFilling::Rescale)
            }
            .with(tensor(dtype, values))
        });
        let expected = if op == ReduceOp::Sum { 7.0 } else { 8.0 };
        for (bytes, outcome) in results {
            assert_eq!(outcome.lost_segments, 0);
            assert_eq!(
                bytes,
                tensor(dtype, std::iter::repeat_n(expected, ELEMENTS))
            );
        }
    }
}

#[test]
fn a_message_shorter_than_the_jobs_minimum_is_lossless() {
    let mut job = large_chunks();
    job.loss.min_message = Some(gradwire_protocol::units::ByteCount::kib(64));
    let mut world = World::new(3, &job, rough(0.1), 51);
    for (bytes, outcome) in world.perform(|rank| lossy(3, 0, weight(rank), HoleFilling::Rescale)) {
        assert_eq!((outcome.lost_segments, bytes), (0, constant(7.0)));
    }
}

#[test]
fn a_tolerance_rests_on_quiet_paths_until_they_lose_packets() {
    const LONG: usize = 1 << 16;
    // Of so many segments each; paths are quiet after 2^16.
    const OPERATIONS: u32 = 40;
    let mut job = small_job();
    job.collectives.chunk = gradwire_protocol::units::ByteCount::mib(1);
    let drops = |drop| Profile {
        jitter: Span::default(),
        duplicate: Share::NONE,
        ..rough(drop)
    };
    let mut world = World::new(2, &job, drops(0.0), 61);
    let mut lost = Vec::new();
    for sequence in 0..OPERATIONS + 2 {
        if sequence == OPERATIONS {
            for (from, to) in [(0, 1), (1, 0)] {
                world.network.set_link(Rank(from), Rank(to), drops(0.02));
            }
        }
        let ones = || tensor(DType::F32, std::iter::repeat_n(1.0, LONG));
        let results = world.perform(|_| Operation {
            loss: tolerating(0.3, HoleFilling::Rescale),
            ..all_reduce(2, sequence, ones())
        });
        let of = results.iter().map(|(_, outcome)| outcome.lost_segments);
        lost.push(of.sum::<u64>());
    }
    let (quiet, first) = (&lost[..OPERATIONS as usize], lost[OPERATIONS as usize]);
    assert!(quiet.iter().all(|&lost| lost == 0), "{quiet:?}");
    assert_eq!(first, 0, "sent as messages that must arrive");
    assert!(lost[OPERATIONS as usize + 1] > 10, "{lost:?}");
}

#[test]
fn protected_layers_and_large_segments_always_arrive() {
    let mut job = small_job();
    job.collectives.chunk = gradwire_protocol::units::ByteCount::mib(1);
    job.loss.protected_share = share(0.2);
    job.loss.protected_back_layers = share(0.5);
    let half = ELEMENTS * 2;
    let layers = Layers {
        count: 2,
        spans: vec![(0, Layer(1)), (half, Layer(0))],
    };
    let mut lost = 0;
    for seed in 0..10 {
        let mut world = World::new(2, &job, rough(0.15), seed);
        let results = world.perform(|rank| {
            let mut values = vec![weight(rank); ELEMENTS];
            values[ELEMENTS - 100..].fill(1000.0 * weight(rank));
            let operation = lossy(2, 0, 0.0, HoleFilling::Zero).with(tensor(DType::F32, values));
            Operation {
                layers: layers.clone(),
                ..operation
            }
        });
        let sums = floats(&results[0].0);
        assert!(
            sums[..ELEMENTS / 2].iter().all(|sum| *sum == 3.0),
            "the back layer is there"
        );
        assert!(
            sums[ELEMENTS - 100..].iter().all(|sum| *sum == 3000.0),
            "large ones are there"
        );
        lost += results
            .iter()
            .map(|(_, outcome)| outcome.lost_segments)
            .sum::<u64>();
    }
    assert!(lost > 0);
    assert_ne!(job.loss.protected_share, Share::NONE);
}

#[test]
fn each_message_loses_what_the_strictest_of_its_layers_bears() {
    let mut job = small_job();
    job.collectives.chunk = gradwire_protocol::units::ByteCount::mib(1);
    job.loss.protected_back_layers = Share::NONE;
    job.loss.layer_tolerances = [0.3, 0.1, 0.0].map(share).to_vec();
    // Rank r sums shard r: of layers 0 and 1, of layer 0 alone, and of layer 2.
    let (third, sixth) = (ELEMENTS * 4 / 3, ELEMENTS * 4 / 6);
    let spans = [(0, 0), (sixth, 1), (third, 0), (2 * third, 2)];
    let layers = Layers {
        count: 3,
        spans: spans.map(|(at, layer)| (at, Layer(layer))).to_vec(),
    };
    let mut greatest = [Share::NONE; 3];
    for seed in 0..10 {
        for scattered in [Kind::AllReduce, Kind::ReduceScatter] {
            let mut world = World::new(3, &job, rough(0.2), seed);
            let results = world.perform(|rank| {
                let operation = lossy(3, 0, weight(rank), HoleFilling::Zero);
                let layers = layers.clone();
                scattered.of(Operation {
                    layers,
                    ..operation
                })
            });
            for (greatest, (_, outcome)) in greatest.iter_mut().zip(&results) {
                *greatest = outcome.max_lost_share.max(*greatest);
            }
        }
    }
    let [mixed, front, back] = greatest;
    assert!(share(0.02) < mixed && mixed <= share(0.1), "{mixed}");
    assert!(share(0.15) < front && front <= share(0.3), "{front}");
    assert_eq!(back, Share::NONE);
}

#[test]
fn the_first_step_and_steps_after_a_norm_that_moved_by_half_lose_nothing() {
    let mut job = large_chunks();
    job.loss.tight_tolerance = Some(Share::NONE);
    let values = [8.0, 8.0, 4.0, 4.0, 4.0, 9.0, 9.0, 9.0];
    for kind in [Kind::AllReduce, Kind::ReduceScatter] {
        let mut world = World::new(3, &job, rough(0.1), 71);
        let mut strict = Vec::new();
        for (step, value) in (1..).zip(values) {
            let results = world.perform(|_| {
                let layers = Layers {
                    count: 2,
                    spans: vec![(0, Layer(0))],
                };
                kind.of(Operation {
                    layers,
                    ..lossy(3, step, value, HoleFilling::Rescale)
                })
            });
            let lost = results.iter().map(|(_, outcome)| outcome.lost_segments);
            strict.extend((lost.sum::<u64>() == 0).then_some(step));
        }
        assert_eq!(strict, [1, 4, 7]);
    }
}

#[derive(Clone, Copy)]
enum Kind {
    AllReduce,
    ReduceScatter,
}

impl Kind {
    /// An all-reduce, or the reduce-scatter that it begins with.
    fn of(self, operation: Operation) -> Operation {
        let (Self::ReduceScatter, Buffer::Owned(input)) = (self, &operation.buffer) else {
            return operation;
        };
        Operation {
            collective: Collective::ReduceScatter,
            input: Some(Buffer::Owned(input.clone())),
            buffer: Buffer::Owned(vec![0; input.len() / operation.group.ranks.len()]),
            ..operation
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_and_the_same_bytes() {
    let run = |seed| {
        let mut world = World::new(4, &large_chunks(), rough(0.1), seed);
        world.network.record();
        let results = world.perform(|rank| lossy(4, 0, weight(rank), HoleFilling::Rescale));
        (world.network.trace().to_owned(), results)
    };
    assert!(run(61) == run(61));
    assert!(run(61).0 != run(62).0);
}

trait With {
    /// The same operation on another tensor.
    fn with(self, buffer: Vec<u8>) -> Self;
}

impl With for Operation {
    fn with(mut self, buffer: Vec<u8>) -> Self {
        self.buffer = Buffer::Owned(buffer);
        self
    }
}

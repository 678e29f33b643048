//! Contributions through a Hadamard transform: their sums and errors.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, LossTerms, Operation, OperationError};
use gradwire_protocol::job::{GradientTransform, HoleFilling, Job};
use gradwire_protocol::units::{ByteCount, Rank, Span};
use gradwire_testnet::link::Profile;

use crate::world::{
    World, all_reduce, floats, reduced, reduction, rough, small_job, tensor, tolerating, values,
};

const RULES: [HoleFilling; 4] = [
    HoleFilling::Rescale,
    HoleFilling::Zero,
    HoleFilling::Previous,
    HoleFilling::ErrorFeedback,
];

fn job(transform: GradientTransform) -> Job {
    let mut job = small_job();
    job.collectives.chunk = ByteCount::kib(64);
    job.loss.transform = transform;
    job
}

fn calm() -> Profile {
    Profile {
        jitter: Span::from_micros(60),
        ..Profile::perfect(Span::from_micros(10))
    }
}

/// The operation as another one that sums the same: of a reduce-scatter, each rank gets a block.
fn summed_by(collective: Collective, operation: Operation) -> Operation {
    let ranks = operation.group.ranks.len();
    match (collective, &operation.buffer) {
        (Collective::ReduceScatter, Buffer::Owned(input)) => Operation {
            collective,
            input: Some(Buffer::Owned(input.clone())),
            buffer: Buffer::Owned(vec![0; input.len() / ranks]),
            ..operation
        },
        _ => Operation {
            collective,
            ..operation
        },
    }
}

/// How far two tensors of f32 are apart, at most and in the mean of squares.
fn apart(a: &[f32], b: &[f32]) -> (f64, f64) {
    let pairs = a.iter().zip(b);
    let apart = pairs.map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs());
    let squares: f64 = apart.clone().map(|apart| apart * apart).sum();
    (apart.fold(0.0, f64::max), squares / a.len() as f64)
}

#[test]
fn without_loss_every_sum_is_the_plain_one_within_rounding() {
    let root = Rank(1);
    let collectives = [
        Collective::AllReduce,
        Collective::ReduceScatter,
        Collective::Reduce { root },
    ];
    // Values up to 4 of 4 ranks: up to 16. A half of f16 has 11 bits, one of bf16 8.
    let types = [
        (DType::F32, 1e-5),
        (DType::F64, 1e-12),
        (DType::F16, 0.1),
        (DType::BF16, 0.8),
    ];
    for (seed, collective) in collectives.into_iter().enumerate() {
        for (elements, (dtype, rounding)) in [1204, 8000, 20_004, 3996].into_iter().zip(types) {
            let mut world = World::new(4, &job(GradientTransform::Hadamard), calm(), seed as u64);
            let results = world.perform(|rank| {
                let buffer = tensor(dtype, values(rank, elements));
                let operation = Operation {
                    dtype,
                    op: ReduceOp::Avg,
                    loss: tolerating(0.3, HoleFilling::Rescale),
                    ..all_reduce(4, 0, buffer)
                };
                summed_by(collective, operation)
            });
            let whole = match collective {
                Collective::AllReduce => results[0].0.clone(),
                Collective::Reduce { root } => results[usize::from(root.0)].0.clone(),
                _ => results
                    .iter()
                    .flat_map(|(shard, _)| shard.clone())
                    .collect(),
            };
            for (index, element) in whole.chunks(dtype.bytes()).enumerate() {
                let (sum, exact) = (number(dtype, element), reduced(ReduceOp::Avg, 4, index));
                let near = (sum - exact).abs() <= rounding;
                assert!(
                    near,
                    "{collective} of {dtype}: {sum} at {index}, not {exact}"
                );
            }
            let replicas = results
                .iter()
                .filter(|_| collective == Collective::AllReduce);
            assert!(
                replicas.clone().all(|(bytes, _)| *bytes == whole),
                "replicas differ"
            );
        }
    }
}

fn number(dtype: DType, element: &[u8]) -> f64 {
    match (dtype, element) {
        (DType::F64, _) => f64::from_le_bytes(element.try_into().expect("8 bytes")),
        (DType::F32, _) => f32::from_le_bytes(element.try_into().expect("4 bytes")).into(),
        (DType::F16, &[a, b]) => half::f16::from_le_bytes([a, b]).into(),
        (_, &[a, b]) => half::bf16::from_le_bytes([a, b]).into(),
        _ => unreachable!("only floats"),
    }
}

#[test]
fn what_may_not_lose_keeps_the_exact_bits_of_no_transform() {
    let cases = [
        (LossTerms::NONE, DType::F32, ReduceOp::Sum),
        (
            tolerating(0.3, HoleFilling::Rescale),
            DType::I32,
            ReduceOp::Sum,
        ),
        (
            tolerating(0.3, HoleFilling::Rescale),
            DType::F32,
            ReduceOp::Max,
        ),
    ];
    for (loss, dtype, op) in cases {
        let mut world = World::new(3, &job(GradientTransform::Hadamard), rough(0.05), 3);
        let results = world.perform(|rank| Operation {
            dtype,
            op,
            loss,
            ..all_reduce(3, 0, tensor(dtype, values(rank, 6000)))
        });
        for (bytes, outcome) in results {
            assert!(bytes == reduction(dtype, op, 3, 6000), "{op} of {dtype}");
            assert_eq!(outcome.lost_segments, 0);
        }
    }
}

/// The contribution of rank r: small values that differ by rank and place, and a few large ones.
fn spiky(rank: u16, elements: usize) -> impl Iterator<Item = f64> {
    (0..elements).map(move |index| {
        let bits = (index as u64 * 4 + u64::from(rank)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let unit = (bits >> 11) as f64 / (1_u64 << 53) as f64 - 0.5;
        unit * if index % 600 == 77 { 200.0 } else { 1.0 }
    })
}

fn spiky_sum(ranks: u16, elements: usize) -> Vec<f32> {
    let all: Vec<Vec<f64>> = (0..ranks)
        .map(|rank| spiky(rank, elements).collect())
        .collect();
    let sum = |at: usize| all.iter().map(|values| values[at]).sum::<f64>() as f32;
    (0..elements).map(sum).collect()
}

/// Steps of one tensor by four ranks: all ranks' results of each.
fn steps(
    job: &Job,
    holes: HoleFilling,
    (profile, seed): (Profile, u64),
    count: u32,
) -> Vec<Vec<f32>> {
    let mut world = World::new(4, job, profile, seed);
    (0..count)
        .map(|step| {
            let results = world.perform(|rank| Operation {
                loss: tolerating(0.3, holes),
                ..all_reduce(4, step, tensor(DType::F32, spiky(rank, ELEMENTS)))
            });
            let first = &results[0].0;
            let same = results.iter().all(|(bytes, _)| bytes == first);
            assert!(same, "seed {seed}, {holes:?}: replicas differ");
            floats(first)
        })
        .collect()
}

const ELEMENTS: usize = 12_001;
const SEEDS: u64 = 8;

#[test]
fn under_every_rule_the_largest_error_halves_and_replicas_stay_equal() {
    let sum = spiky_sum(4, ELEMENTS);
    let bursts = Profile {
        burst: 6.0,
        ..rough(0.08)
    };
    for profile in [rough(0.08), bursts] {
        for holes in RULES {
            let errors = [GradientTransform::None, GradientTransform::Hadamard].map(|transform| {
                let largest = (0..SEEDS).map(|seed| {
                    let results = steps(&job(transform), holes, (profile, seed), 2);
                    apart(&results[1], &sum).0
                });
                largest.sum::<f64>() / SEEDS as f64
            });
            // Previous results equal the present ones here, so a hole costs little.
            let least = if holes == HoleFilling::Previous {
                1.0
            } else {
                2.0
            };
            assert!(errors[0] > errors[1] * least, "{holes:?}: {errors:?}");
        }
    }
}

#[test]
fn with_error_feedback_later_steps_bring_what_was_lost_as_values() {
    let sum = spiky_sum(4, ELEMENTS);
    for seed in 0..4 {
        let mut world = World::new(4, &job(GradientTransform::Hadamard), rough(0.1), seed);
        let mut total = vec![0.0; ELEMENTS];
        for step in 0..3 {
            if step == 2 {
                for pair in 0..16 {
                    world
                        .network
                        .set_link(Rank(pair / 4), Rank(pair % 4), calm());
                }
            }
            let results = world.perform(|rank| Operation {
                loss: tolerating(0.3, HoleFilling::ErrorFeedback),
                ..all_reduce(4, step, tensor(DType::F32, spiky(rank, ELEMENTS)))
            });
            let kept = |rank: usize| world.network.hosts()[rank].residuals().bytes();
            assert_eq!((0..4).any(|rank| kept(rank) > 0), step < 2, "seed {seed}");
            for (total, value) in total.iter_mut().zip(floats(&results[0].0)) {
                *total += value / 3.0;
            }
        }
        let (most, _) = apart(&total, &sum);
        assert!(most < 2e-4, "seed {seed}: {most} apart");
    }
}

#[test]
fn equal_contributions_survive_loss_when_rescaled_whatever_is_lost() {
    for op in [ReduceOp::Sum, ReduceOp::Avg] {
        for (hosts, seed) in [(vec![0, 1, 2, 3], 5), (vec![0, 0, 1, 1], 6)] {
            let mut world =
                World::on_hosts(&hosts, &job(GradientTransform::Hadamard), rough(0.1), seed);
            let results = world.perform(|_| Operation {
                op,
                loss: tolerating(0.3, HoleFilling::Rescale),
                ..all_reduce(4, 0, tensor(DType::F32, values(0, 100_000)))
            });
            assert!(results.iter().any(|(_, outcome)| outcome.lost_segments > 0));
            let scale = if op == ReduceOp::Sum { 4.0 } else { 1.0 };
            let exact: Vec<f32> = values(0, 100_000)
                .map(|value| (value * scale) as f32)
                .collect();
            for (bytes, _) in results {
                assert!(apart(&floats(&bytes), &exact).0 < 1e-4, "{hosts:?}");
            }
        }
    }
}

#[test]
fn ranks_that_disagree_about_the_transform_learn_why() {
    let mut world = World::new(2, &job(GradientTransform::Hadamard), calm(), 1);
    world.submit_all(|rank| Operation {
        loss: tolerating(if rank == 0 { 0.3 } else { 0.0 }, HoleFilling::Rescale),
        ..all_reduce(2, 0, tensor(DType::F32, values(rank, 6000)))
    });
    world.run();
    let told = (0..2).filter_map(|rank| {
        let result = world.completion(rank).expect("it has ended").result;
        match result.expect_err("it failed") {
            OperationError::Mismatch(mismatch) => Some(mismatch.to_string()),
            _ => None,
        }
    });
    let told: Vec<String> = told.collect();
    let expected = "rank 0 called all_reduce(sum, hadamard) of ";
    assert!(told.iter().any(|text| text.contains(expected)), "{told:?}");
    assert!(
        told.iter()
            .all(|text| text.contains("its tolerance and layers")),
        "{told:?}"
    );
}

//! Hierarchical all-reduces: ranks that share hosts, with equal or different numbers on each.

use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::Operation;
use gradwire_protocol::job::{HoleFilling, Job, Mtu, ReduceAlgorithm};
use gradwire_protocol::units::{ByteCount, Rank, Span};
use gradwire_testnet::link::Profile;

use crate::world::{
    World, all_reduce, floats, reduction, rough, small_job, tensor, tolerating, values,
};

fn job() -> Job {
    let mut job = small_job();
    job.collectives.algorithm = ReduceAlgorithm::Hierarchical;
    job
}

/// The host of every rank: 2x2, 2x4, 3x2, 3 + 1, 2 + 1 + 3 in no order.
fn layouts() -> [Vec<u16>; 5] {
    [
        vec![0, 0, 1, 1],
        vec![0, 0, 0, 0, 1, 1, 1, 1],
        vec![0, 1, 2, 0, 1, 2],
        vec![0, 0, 0, 1],
        vec![3, 1, 2, 2, 3, 2],
    ]
}

#[test]
fn every_layout_of_hosts_gives_the_exact_sum_over_a_rough_network() {
    let types = [DType::F32, DType::I64, DType::BF16, DType::U8];
    for (seed, layout) in layouts().into_iter().enumerate() {
        let ranks = layout.len() as u16;
        for (dtype, elements) in types.into_iter().zip([1501, 700, 2100, 1]) {
            let mut world = World::on_hosts(&layout, &job(), rough(0.05), seed as u64);
            let results = world.perform(|rank| Operation {
                dtype,
                ..all_reduce(ranks, 0, tensor(dtype, values(rank, elements)))
            });
            let sum = reduction(dtype, ReduceOp::Sum, ranks, elements);
            for (bytes, outcome) in results {
                assert!(bytes == sum, "seed {seed}: {layout:?}, {dtype}");
                assert_eq!(outcome.lost_segments + outcome.missed_segments, 0);
            }
        }
    }
}

#[test]
fn what_auto_takes_between_many_hosts_gives_the_exact_average() {
    // Between three hosts: halving-doubling for short chunks, a ring for long ones.
    let (layout, elements) = ([0, 0, 1, 1, 2, 2], 250_001);
    for chunk in [ByteCount::kib(64), ByteCount::kib(250)] {
        let mut job = small_job();
        job.transport.mtu = Mtu::Bytes(9000);
        job.collectives.chunk = chunk;
        let mut world = World::on_hosts(&layout, &job, rough(0.03), 9);
        let results = world.perform(|rank| Operation {
            op: ReduceOp::Avg,
            ..all_reduce(6, 0, tensor(DType::F32, values(rank, elements)))
        });
        let average = reduction(DType::F32, ReduceOp::Avg, 6, elements);
        for (bytes, _) in results {
            assert!(bytes == average, "chunks of {chunk}");
        }
    }
}

const ELEMENTS: usize = 6000;

/// An all-reduce to which rank r contributes 2^r everywhere.
fn lossy(ranks: u16, sequence: u32, rank: u16, holes: HoleFilling) -> Operation {
    let values = std::iter::repeat_n(f64::from(1_u32 << rank), ELEMENTS);
    Operation {
        loss: tolerating(0.3, holes),
        ..all_reduce(ranks, sequence, tensor(DType::F32, values))
    }
}

fn large_chunks() -> Job {
    let mut job = job();
    job.collectives.chunk = ByteCount::kib(64);
    job
}

#[test]
fn a_lost_partial_sum_of_a_host_counts_as_all_its_ranks_when_rescaled() {
    // The rest when one host's sum is missing, scaled by all ranks over those in it.
    let cases = [
        (vec![0, 0, 1, 1], vec![15.0, 3.0 * 2.0, 12.0 * 2.0]),
        (vec![0, 0, 0, 1], vec![15.0, 7.0 * 4.0 / 3.0, 8.0 * 4.0]),
        (vec![1, 0, 1, 1, 1], vec![31.0, 29.0 * 5.0 / 4.0, 2.0 * 5.0]),
    ];
    for (layout, possible) in cases {
        let (ranks, mut lost, mut rescaled) = (layout.len() as u16, 0, 0);
        for seed in 0..10 {
            let mut world = World::on_hosts(&layout, &large_chunks(), rough(0.1), seed);
            let results = world.perform(|rank| lossy(ranks, 0, rank, HoleFilling::Rescale));
            for (bytes, outcome) in &results {
                assert!(*bytes == results[0].0, "seed {seed}: replicas differ");
                lost += outcome.lost_segments;
            }
            for sum in floats(&results[0].0) {
                let near = |value: &f32| (sum - value).abs() < 1e-4;
                assert!(possible.iter().any(near), "seed {seed}: {sum}, {layout:?}");
                rescaled += usize::from(!near(&possible[0]));
            }
        }
        assert!(
            lost > 20 && rescaled > 500,
            "{lost}, {rescaled}: {layout:?}"
        );
    }
}

#[test]
fn within_a_host_nothing_is_lost_whatever_the_tolerance() {
    let layout = [0, 0, 0, 1, 1, 1];
    for seed in 0..10 {
        let perfect = Profile::perfect(Span::from_micros(10));
        let mut world = World::on_hosts(&layout, &large_chunks(), rough(0.1), seed);
        let apart = |a: u16, b: u16| layout[usize::from(a)] != layout[usize::from(b)];
        let pairs = (0..36).map(|pair| (pair / 6, pair % 6));
        for (a, b) in pairs.filter(|&(a, b)| apart(a, b)) {
            world.network.set_link(Rank(a), Rank(b), perfect);
        }
        let results = world.perform(|rank| lossy(6, 0, rank, HoleFilling::Zero));
        for (bytes, outcome) in results {
            assert_eq!(outcome.lost_segments, 0, "seed {seed}");
            assert!(floats(&bytes).iter().all(|sum| *sum == 63.0), "seed {seed}");
        }
    }
}

#[test]
fn error_feedback_brings_a_hosts_lost_sum_in_the_next_step() {
    let layout = [0, 1, 0, 1];
    for seed in 0..10 {
        let mut world = World::on_hosts(&layout, &large_chunks(), rough(0.1), seed);
        let first = world.perform(|rank| lossy(4, 0, rank, HoleFilling::ErrorFeedback));
        let lost: u64 = first.iter().map(|(_, outcome)| outcome.lost_segments).sum();
        assert!(lost > 0, "seed {seed}");
        let perfect = Profile::perfect(Span::from_micros(10));
        for pair in 0..16 {
            world
                .network
                .set_link(Rank(pair / 4), Rank(pair % 4), perfect);
        }
        let second = world.perform(|rank| lossy(4, 1, rank, HoleFilling::ErrorFeedback));
        let sums = floats(&first[0].0).into_iter().zip(floats(&second[0].0));
        for (first, second) in sums {
            assert_eq!(first + second, 30.0, "seed {seed}");
        }
    }
}

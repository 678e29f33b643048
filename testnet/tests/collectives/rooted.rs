//! The results of operations to and from a root, and of all-to-all; with and without loss.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, Operation};
use gradwire_protocol::job::{HoleFilling, Job, Mtu};
use gradwire_protocol::units::{ByteCount, Rank};

use crate::world::{
    World, all_reduce, floats, reduction, rough, small_job, tensor, tolerating, value, values,
};

/// Elements of a tensor of f32 whose reduce goes by shards.
const LARGE: usize = 70_001;

fn large_job() -> Job {
    let mut job = small_job();
    job.transport.mtu = Mtu::Bytes(1500);
    job.collectives.chunk = ByteCount::kib(64);
    job
}

#[test]
fn a_reduce_gives_the_root_the_exact_reduction() {
    let types = [
        (DType::F32, ReduceOp::Avg, 1501),
        (DType::I16, ReduceOp::Min, 700),
        (DType::BF16, ReduceOp::Sum, 33),
        (DType::U64, ReduceOp::BitXor, 1),
    ];
    let small = types.map(|case| (small_job(), case));
    let large = [(DType::F32, ReduceOp::Sum, LARGE)].map(|case| (large_job(), case));
    for (job, (dtype, op, elements)) in small.into_iter().chain(large) {
        for ranks in 2..=7 {
            let root = ranks - 1;
            let mut world = World::new(ranks, &job, rough(0.05), u64::from(ranks));
            let results = world.perform(|rank| Operation {
                collective: Collective::Reduce { root: Rank(root) },
                dtype,
                op,
                ..all_reduce(ranks, 0, tensor(dtype, values(rank, elements)))
            });
            let expected = reduction(dtype, op, ranks, elements);
            let case = format!("{op} of {elements} {dtype}, {ranks} ranks");
            assert!(results[usize::from(root)].0 == expected, "{case}");
            let lost = results.iter().map(|(_, outcome)| outcome.lost_segments);
            assert_eq!(lost.sum::<u64>(), 0, "{case}");
        }
    }
}

/// The contribution of rank r: sums of different subsets of ranks differ.
fn weight(rank: u16) -> f64 {
    f64::from(1_u32 << rank)
}

/// A reduce of a constant tensor to rank 1, of which 30 % may be missing.
fn lossy_reduce(sequence: u32, elements: usize, value: f64, holes: HoleFilling) -> Operation {
    let buffer = tensor(DType::F32, std::iter::repeat_n(value, elements));
    Operation {
        collective: Collective::Reduce { root: Rank(1) },
        loss: tolerating(0.3, holes),
        ..all_reduce(4, sequence, buffer)
    }
}

/// Small and large tensors: both algorithms of a reduce.
fn both_ways() -> [(Job, usize); 2] {
    let mut job = small_job();
    job.collectives.chunk = ByteCount::mib(1);
    [(job, 6000), (large_job(), LARGE)]
}

#[test]
fn a_lossy_reduce_misses_single_contributions_within_the_tolerance() {
    for (job, elements) in both_ways() {
        let mut lost = 0;
        for seed in 0..10 {
            let mut world = World::new(4, &job, rough(0.1), seed);
            let results =
                world.perform(|rank| lossy_reduce(0, elements, weight(rank), HoleFilling::Zero));
            for (_, outcome) in &results {
                assert!(outcome.max_lost_share.get() <= 0.3, "seed {seed}");
                assert!(outcome.lost_segments * 10 <= outcome.expected_segments * 3);
                lost += outcome.lost_segments;
            }
            let mut incomplete = 0;
            for sum in floats(&results[1].0) {
                assert!((1.0..=15.0).contains(&sum) && sum.fract() == 0.0, "{sum}");
                incomplete += usize::from(sum != 15.0);
            }
            assert!(
                incomplete * 10 <= elements * 9,
                "three of four may miss 30 %"
            );
        }
        assert!(lost > 100, "{lost} segments of {elements} elements");
    }
}

#[test]
fn equal_contributions_survive_a_lossy_reduce_when_rescaled_or_averaged() {
    for (job, elements) in both_ways() {
        for (op, expected) in [(ReduceOp::Sum, 8.0), (ReduceOp::Avg, 2.0)] {
            let mut world = World::new(4, &job, rough(0.1), 21);
            let results = world.perform(|_| Operation {
                op,
                ..lossy_reduce(0, elements, 2.0, HoleFilling::Rescale)
            });
            assert!(results.iter().any(|(_, outcome)| outcome.lost_segments > 0));
            let sums = floats(&results[1].0);
            assert!(sums.iter().all(|sum| (sum - expected).abs() < 1e-5));
        }
    }
}

#[test]
fn what_a_lossy_reduce_lost_comes_with_the_next_under_error_feedback() {
    for (job, elements) in both_ways() {
        for seed in 0..5 {
            let mut world = World::new(4, &job, rough(0.1), seed);
            let reduce = |rank, sequence| {
                lossy_reduce(sequence, elements, weight(rank), HoleFilling::ErrorFeedback)
            };
            let first = world.perform(|rank| reduce(rank, 0));
            assert!(first.iter().any(|(_, outcome)| outcome.lost_segments > 0));
            for pair in 0..16 {
                let (from, to) = (Rank(pair / 4), Rank(pair % 4));
                world.network.set_link(from, to, rough(0.0));
            }
            let second = world.perform(|rank| reduce(rank, 1));
            let sums = floats(&first[1].0).into_iter().zip(floats(&second[1].0));
            for (first, second) in sums {
                assert_eq!(first + second, 30.0, "seed {seed}");
            }
        }
    }
}

#[test]
fn a_gather_lines_up_the_blocks_at_the_root_in_place_or_not() {
    for (ranks, in_place) in (2..=7).flat_map(|ranks| [(ranks, true), (ranks, false)]) {
        let (root, block) = (ranks / 2, 333);
        let own = |rank| tensor(DType::I32, values(rank, block));
        let mut world = World::new(ranks, &small_job(), rough(0.05), 5);
        let results = world.perform(|rank| {
            let mut buffer = own(rank);
            if rank == root {
                buffer = vec![0; usize::from(ranks) * block * 4];
                let at = usize::from(rank) * block * 4;
                if in_place {
                    buffer[at..at + block * 4].copy_from_slice(&own(rank));
                }
            }
            let has_input = rank == root && !in_place;
            Operation {
                collective: Collective::Gather { root: Rank(root) },
                dtype: DType::I32,
                input: has_input.then(|| Buffer::Owned(own(rank))),
                ..all_reduce(ranks, 0, buffer)
            }
        });
        for (rank, (bytes, _)) in (0..).zip(results) {
            let all: Vec<u8> = (0..ranks).flat_map(own).collect();
            let expected = if rank == root { all } else { own(rank) };
            assert!(bytes == expected, "rank {rank} of {ranks}, root {root}");
        }
    }
}

#[test]
fn a_scatter_gives_each_rank_its_block_of_the_roots_input() {
    for ranks in 2..=7 {
        let (root, block) = (ranks - 1, 333);
        let whole = tensor(DType::F64, values(root, block * usize::from(ranks)));
        let mut world = World::new(ranks, &small_job(), rough(0.05), 5);
        let results = world.perform(|rank| Operation {
            collective: Collective::Scatter { root: Rank(root) },
            dtype: DType::F64,
            input: (rank == root).then(|| Buffer::Owned(whole.clone())),
            ..all_reduce(ranks, 0, vec![0; block * 8])
        });
        let blocks: Vec<u8> = results.into_iter().flat_map(|(bytes, _)| bytes).collect();
        assert!(blocks == whole, "{ranks} ranks");
    }
}

#[test]
fn an_all_to_all_gives_block_i_of_rank_j_to_rank_i_as_block_j() {
    for (ranks, block) in (2..=7).flat_map(|ranks| [(ranks, 1), (ranks, 333)]) {
        let elements = block * usize::from(ranks);
        let mut world = World::new(ranks, &small_job(), rough(0.05), 5);
        let results = world.perform(|rank| Operation {
            collective: Collective::AllToAll,
            dtype: DType::F16,
            input: Some(Buffer::Owned(tensor(DType::F16, values(rank, elements)))),
            ..all_reduce(ranks, 0, vec![0; elements * 2])
        });
        for (rank, (bytes, _)) in results.into_iter().enumerate() {
            let row = |from| (0..block).map(move |at| value(from, rank * block + at));
            let expected = tensor(DType::F16, (0..ranks).flat_map(row));
            assert!(bytes == expected, "rank {rank} of {ranks}");
        }
    }
}

#[test]
fn a_group_of_one_has_its_result_at_once() {
    let own = || tensor(DType::F32, values(0, 5));
    let root = Rank(0);
    let with_input = [
        Collective::Gather { root },
        Collective::Scatter { root },
        Collective::AllToAll,
    ];
    let mut world = World::new(2, &small_job(), rough(0.0), 10);
    for (collective, sequence) in with_input.into_iter().zip(0..) {
        let operation = Operation {
            collective,
            input: Some(Buffer::Owned(own())),
            ..all_reduce(1, sequence, vec![0; 20])
        };
        world.submit(0, operation).expect("a valid operation");
        assert_eq!(world.result(0).0, own());
    }
    let reduce = Operation {
        collective: Collective::Reduce { root },
        op: ReduceOp::Avg,
        ..all_reduce(1, 9, own())
    };
    world.submit(0, reduce).expect("a valid operation");
    assert_eq!(world.result(0).0, own());
}

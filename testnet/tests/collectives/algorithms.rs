//! The results of each algorithm when a job names it; it needs no bytes to run.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, Operation};
use gradwire_protocol::job::{Job, Mtu, ReduceAlgorithm};
use gradwire_protocol::units::{ByteCount, Rank};

use crate::world::{World, all_reduce, reduced, reduction, rough, small_job, tensor, values};

/// Elements of a tensor of f32 that auto considers large, not a multiple of any size.
const LARGE: usize = 70_001;

fn job_of(algorithm: ReduceAlgorithm) -> Job {
    let mut job = small_job();
    job.collectives.algorithm = algorithm;
    job
}

/// A job for large tensors: full packets, several chunks.
fn large_job(algorithm: ReduceAlgorithm) -> Job {
    let mut job = job_of(algorithm);
    job.transport.mtu = Mtu::Bytes(1500);
    job.collectives.chunk = ByteCount::kib(64);
    job
}

#[test]
fn halving_doubling_gives_the_exact_sum_in_worlds_of_any_size() {
    let types = [DType::F32, DType::I64, DType::BF16, DType::U8];
    for (seed, ranks) in (2..=9).chain([16]).enumerate() {
        for (dtype, elements) in types.into_iter().zip([1501, 700, 2100, 1]) {
            let job = job_of(ReduceAlgorithm::HalvingDoubling);
            let mut world = World::new(ranks, &job, rough(0.05), seed as u64);
            let results = world.perform(|rank| Operation {
                dtype,
                ..all_reduce(ranks, 0, tensor(dtype, values(rank, elements)))
            });
            let sum = reduction(dtype, ReduceOp::Sum, ranks, elements);
            for (bytes, outcome) in results {
                assert!(bytes == sum, "seed {seed}: {ranks} ranks, {dtype}");
                assert_eq!(outcome.lost_segments + outcome.missed_segments, 0);
            }
        }
    }
}

#[test]
fn whatever_auto_chooses_for_a_large_tensor_gives_the_exact_average() {
    // Only long messages, and so long chunks, use a ring; others use halving-doubling.
    let chunks = [ByteCount::kib(64), ByteCount::kib(240)];
    for (ranks, chunk) in (2..=7).flat_map(|ranks| chunks.map(|chunk| (ranks, chunk))) {
        let mut job = large_job(ReduceAlgorithm::Auto);
        job.collectives.chunk = chunk;
        let mut world = World::new(ranks, &job, rough(0.03), u64::from(ranks));
        let results = world.perform(|rank| Operation {
            op: ReduceOp::Avg,
            ..all_reduce(ranks, 0, tensor(DType::F32, values(rank, LARGE)))
        });
        let average = reduction(DType::F32, ReduceOp::Avg, ranks, LARGE);
        for (bytes, _) in results {
            assert!(bytes == average, "{ranks} ranks, chunks of {chunk}");
        }
    }
}

#[test]
fn a_reduce_scatter_gives_each_rank_its_block_and_leaves_the_input_alone() {
    let types = [
        (DType::F64, ReduceOp::Avg),
        (DType::I32, ReduceOp::Max),
        (DType::F16, ReduceOp::Sum),
    ];
    let algorithms = [ReduceAlgorithm::Direct, ReduceAlgorithm::Ring];
    for (ranks, algorithm) in (2..=7).flat_map(|ranks| algorithms.map(|way| (ranks, way))) {
        for ((dtype, op), block) in types.into_iter().zip([777, 1, 1300]) {
            let case = format!("{op} of {block} {dtype}, {ranks} ranks, {algorithm:?}");
            let whole = block * usize::from(ranks);
            let mut world = World::new(ranks, &job_of(algorithm), rough(0.05), 6);
            let input = |rank| tensor(dtype, values(rank, whole));
            world.submit_all(|rank| Operation {
                collective: Collective::ReduceScatter,
                dtype,
                op,
                input: Some(Buffer::Owned(input(rank))),
                ..all_reduce(ranks, 0, vec![0; block * dtype.bytes()])
            });
            world.run();
            for rank in 0..ranks {
                let completion = world.completion(rank).expect("the operation has ended");
                assert!(completion.result.is_ok());
                let first = usize::from(rank) * block;
                let results = (first..first + block).map(|index| reduced(op, ranks, index));
                let results = tensor(dtype, results);
                assert!(completion.buffer.bytes() == Some(&results), "{case}");
                let untouched = completion.input.expect("it had an input");
                assert!(untouched.bytes() == Some(&input(rank)), "{case}");
            }
        }
    }
}

#[test]
fn a_broadcast_gives_everybody_the_roots_tensor() {
    let cases = [
        (small_job(), 999),
        (large_job(ReduceAlgorithm::Auto), LARGE),
    ];
    for (job, elements) in cases {
        for ranks in 2..=7 {
            let mut world = World::new(ranks, &job, rough(0.05), 4);
            let root = ranks / 2;
            let results = world.perform(|rank| Operation {
                collective: Collective::Broadcast { root: Rank(root) },
                ..all_reduce(ranks, 0, tensor(DType::F32, values(rank, elements)))
            });
            for (bytes, _) in results {
                let roots = tensor(DType::F32, values(root, elements));
                assert!(bytes == roots, "{elements} elements, {ranks} ranks");
            }
        }
    }
}

#[test]
fn a_large_broadcast_costs_no_rank_more_than_the_tensor() {
    let (ranks, job) = (5, large_job(ReduceAlgorithm::Auto));
    let mut world = World::new(ranks, &job, rough(0.0), 13);
    let results = world.perform(|rank| Operation {
        collective: Collective::Broadcast { root: Rank(3) },
        ..all_reduce(ranks, 0, tensor(DType::F32, values(rank, LARGE)))
    });
    let segment = world.network.hosts()[0].endpoint().segment_bytes() as usize;
    let exact = (LARGE * 4).div_ceil(segment) as u64;
    let short = 4 * (LARGE * 4).div_ceil(64 << 10) as u64; // last segments of shards
    for (_, outcome) in results {
        let most = outcome.sent_segments.max(outcome.expected_segments);
        assert!(most <= exact + short, "{most} segments for {exact}");
    }
}

/// An operation of each kind for one of five ranks, over 3,000 elements.
fn every_kind(rank: u16) -> Vec<Operation> {
    let (ranks, elements) = (5, 3000);
    let own = |elements| tensor(DType::F32, values(rank, elements));
    let root = Rank(2);
    let is_root = Rank(rank) == root;
    let plain = [
        Collective::AllReduce,
        Collective::Broadcast { root },
        Collective::Reduce { root },
    ];
    let plain = plain.map(|collective| (collective, elements, None));
    let gathered = if is_root { 5 * elements } else { elements };
    let rest = [
        (Collective::AllGather, 5 * elements, Some(elements)),
        (Collective::ReduceScatter, elements, Some(5 * elements)),
        (Collective::Gather { root }, gathered, None),
        (
            Collective::Scatter { root },
            elements,
            is_root.then_some(5 * elements),
        ),
        (Collective::AllToAll, 5 * elements, Some(5 * elements)),
    ];
    let kinds = plain.into_iter().chain(rest).zip(0..);
    kinds
        .map(|((collective, buffer, input), sequence)| Operation {
            collective,
            input: input.map(|input| Buffer::Owned(own(input))),
            ..all_reduce(ranks, sequence, own(buffer))
        })
        .collect()
}

#[test]
fn buffers_without_bytes_take_the_same_packets() {
    for algorithm in [
        ReduceAlgorithm::Direct,
        ReduceAlgorithm::Ring,
        ReduceAlgorithm::HalvingDoubling,
    ] {
        let sent = [false, true].map(|is_virtual| {
            let mut world = World::new(5, &job_of(algorithm), rough(0.02), 12);
            world.network.record();
            for rank in 0..5 {
                for mut operation in every_kind(rank) {
                    if is_virtual {
                        operation.buffer = Buffer::Virtual(operation.buffer.len());
                        let input = operation.input.as_ref().map(Buffer::len);
                        operation.input = input.map(Buffer::Virtual);
                    }
                    world.submit(rank, operation).expect("a valid operation");
                }
            }
            world.run();
            for _ in 0..8 {
                for rank in 0..5 {
                    let completion = world.completion(rank).expect("the operation has ended");
                    assert!(completion.result.is_ok());
                }
            }
            world.network.trace().to_owned()
        });
        assert!(!sent[0].is_empty() && sent[0] == sent[1], "{algorithm:?}");
    }
}

//! The order in which the contributions of ranks are summed: equal inputs give equal bits.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::kernels::accumulate;
use gradwire_collectives::operation::{Collective, Operation};
use gradwire_protocol::job::{Job, Mtu, ReduceAlgorithm, SumOrder};
use gradwire_protocol::units::{ByteCount, Rank};

use crate::is_slow;
use crate::world::{World, all_reduce, rough, share, small_job, tensor};

const FLOATS: [DType; 4] = [DType::F32, DType::BF16, DType::F64, DType::F16];
const CALLS: u32 = 20;
/// Elements of a tensor that is sent in several chunks.
const LARGE: usize = 16_500;

fn job_of(algorithm: ReduceAlgorithm) -> Job {
    let mut job = small_job();
    job.collectives.algorithm = algorithm;
    job.transport.mtu = Mtu::Bytes(400);
    job.collectives.chunk = ByteCount::kib(24);
    job
}

/// A number whose sums depend on the order of adding: its size varies by a factor of 4,096.
fn uneven(rank: u16, index: usize) -> f64 {
    let mixed = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = mixed ^ (u64::from(rank) + 1).wrapping_mul(0x94d0_49bb_1331_11eb);
    let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let fraction = (mixed >> 11) as f64 / (1_u64 << 53) as f64 - 0.5;
    fraction * f64::from(1_u32 << (mixed % 13))
}

fn contribution(dtype: DType, rank: u16, elements: usize) -> Vec<u8> {
    tensor(dtype, (0..elements).map(|index| uneven(rank, index)))
}

/// The contributions of ranks, added one after the other.
fn folded(dtype: DType, ranks: impl IntoIterator<Item = u16>, elements: usize) -> Vec<u8> {
    let mut all = ranks.into_iter();
    let first = all.next().expect("a rank");
    all.fold(contribution(dtype, first, elements), |mut sum, rank| {
        let next = contribution(dtype, rank, elements);
        accumulate(dtype, ReduceOp::Sum, &mut sum, &next);
        sum
    })
}

/// How many different results equal calls have, on a network that reorders at random.
fn distinct_results(world: &mut World, job: &Job, dtype: DType, elements: usize) -> usize {
    let tolerance = job.tolerance;
    let all = (0..world.ranks).map(|rank| contribution(dtype, rank, elements));
    let all: Vec<Vec<u8>> = all.collect();
    let mut distinct: Vec<Vec<u8>> = Vec::new();
    for call in 0..CALLS {
        let ranks = world.ranks;
        let results = world.perform(|rank| {
            let mut operation = all_reduce(ranks, call, all[usize::from(rank)].clone());
            operation.loss.tolerance = tolerance;
            Operation { dtype, ..operation }
        });
        for (bytes, _) in &results {
            assert!(*bytes == results[0].0, "replicas differ");
        }
        let (bytes, _) = results.into_iter().next().expect("a rank");
        if !distinct.contains(&bytes) {
            distinct.push(bytes);
        }
    }
    distinct.len()
}

/// Elements of a tensor that is a little too long to be sent whole in one step.
fn two_steps(ranks: u16, dtype: DType) -> usize {
    66_000 / usize::from(ranks - 1) / dtype.bytes()
}

#[test]
fn equal_inputs_give_equal_bits_in_every_algorithm() {
    let algorithms = [
        ReduceAlgorithm::Direct,
        ReduceAlgorithm::Ring,
        ReduceAlgorithm::HalvingDoubling,
    ];
    for ranks in 2..=9 {
        for (at, algorithm) in algorithms.into_iter().enumerate() {
            let types = FLOATS.into_iter().cycle().skip(usize::from(ranks) + at);
            for dtype in types.take(if is_slow() { 4 } else { 1 }) {
                let job = job_of(algorithm);
                let mut world = World::new(ranks, &job, rough(0.02), u64::from(ranks));
                let elements = two_steps(ranks, dtype);
                let distinct = distinct_results(&mut world, &job, dtype, elements);
                let case = format!("{ranks} ranks, {dtype}, {algorithm:?}");
                assert_eq!(distinct, 1, "{case}: results of {CALLS} equal calls");
            }
        }
    }
}

#[test]
fn equal_inputs_give_equal_bits_over_hosts() {
    // Between hosts: direct for short tensors, and for long ones halving or a ring by the chunk.
    let (short, long) = (LARGE, 160_000);
    let cases: [(&[u16], usize, u64, f64); 5] = [
        (&[0, 0, 1, 1], short, 24, 0.0),
        (&[3, 1, 2, 2, 3, 2, 1], short, 24, 0.0),
        (&[0, 1, 0, 1, 0, 1], short, 64, 0.1),
        (&[0, 1, 2, 0, 1, 2], long, 24, 0.0),
        (&[0, 1, 2, 0, 1, 2], long, 256, 0.0),
    ];
    for (layout, elements, chunk, tolerance) in cases {
        let mut job = job_of(ReduceAlgorithm::Hierarchical);
        job.transport.mtu = Mtu::Bytes(if elements == long { 9000 } else { 400 });
        job.collectives.chunk = ByteCount::kib(chunk);
        job.tolerance = share(tolerance);
        let mut world = World::on_hosts(layout, &job, rough(0.0), 5);
        let distinct = distinct_results(&mut world, &job, DType::F32, elements);
        let case = format!("{layout:?}, {elements} elements, chunks of {chunk} KiB");
        assert_eq!(distinct, 1, "{case}: results of {CALLS} equal calls");
    }
}

#[test]
fn sums_in_order_of_arrival_differ_from_call_to_call() {
    let mut job = job_of(ReduceAlgorithm::Direct);
    job.collectives.sums = SumOrder::Arrival;
    let mut world = World::new(4, &job, rough(0.02), 4);
    let elements = two_steps(4, DType::F32);
    let distinct = distinct_results(&mut world, &job, DType::F32, elements);
    assert!(distinct > 10, "{distinct} results of {CALLS} equal calls");
}

#[test]
fn direct_sums_are_folded_in_rank_order() {
    for (seed, ranks) in (3..=6).enumerate() {
        for (chunk, elements) in [(24, LARGE), (64, LARGE), (64, 500)] {
            let mut job = job_of(ReduceAlgorithm::Direct);
            job.collectives.chunk = ByteCount::kib(chunk);
            let mut world = World::new(ranks, &job, rough(0.02), seed as u64);
            let own = |rank| contribution(DType::F32, rank, elements);
            let sum = folded(DType::F32, 0..ranks, elements);
            let backwards: Vec<Rank> = (0..ranks).rev().map(Rank).collect();
            for (bytes, _) in world.perform(|rank| {
                let mut operation = all_reduce(ranks, 0, own(rank));
                operation.group.ranks = backwards.as_slice().into();
                operation
            }) {
                assert!(bytes == sum, "{ranks} ranks, {elements} elements");
            }
        }
    }
}

#[test]
fn rooted_and_scattered_sums_are_folded_in_rank_order() {
    // A large reduce goes by shards, a small one straight to the root.
    for elements in [70_000, 9_000] {
        for ranks in 3..=5 {
            let mut world = World::new(ranks, &job_of(ReduceAlgorithm::Direct), rough(0.02), 8);
            let own = |rank| contribution(DType::F32, rank, elements);
            let root = ranks / 2;
            let results = world.perform(|rank| Operation {
                collective: Collective::Reduce { root: Rank(root) },
                ..all_reduce(ranks, 0, own(rank))
            });
            let sum = folded(DType::F32, 0..ranks, elements);
            assert!(results[usize::from(root)].0 == sum, "{ranks}, {elements}");
            let block = elements / usize::from(ranks);
            let whole = block * usize::from(ranks);
            let results = world.perform(|rank| Operation {
                collective: Collective::ReduceScatter,
                input: Some(Buffer::Owned(contribution(DType::F32, rank, whole))),
                ..all_reduce(ranks, 1, vec![0; block * 4])
            });
            let sum = folded(DType::F32, 0..ranks, whole);
            for ((bytes, _), block) in results.iter().zip(sum.chunks(block * 4)) {
                assert!(bytes == block, "{ranks} ranks, {elements} elements");
            }
        }
    }
}

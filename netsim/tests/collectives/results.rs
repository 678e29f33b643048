//! What lossless operations compute.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, Operation};
use gradwire_netsim::link::Profile;
use gradwire_protocol::job::Algorithm;
use gradwire_protocol::units::{ByteCount, Rank, Span};

use crate::world::{World, all_reduce, rough, small_job, tensor};

/// Small whole numbers that differ by rank and place.
fn value(rank: u16, index: usize) -> f64 {
    ((index * 5 + usize::from(rank) * 3) % 4 + 1) as f64
}

fn values(rank: u16, elements: usize) -> impl Iterator<Item = f64> {
    (0..elements).map(move |index| value(rank, index))
}

fn reduced(op: ReduceOp, ranks: u16, index: usize) -> f64 {
    let all = (0..ranks).map(|rank| value(rank, index));
    let bits = |combine: fn(i64, i64) -> i64| {
        let bits = (0..ranks).map(|rank| value(rank, index) as i64);
        bits.reduce(combine).expect("a rank") as f64
    };
    match op {
        ReduceOp::Sum => all.sum(),
        ReduceOp::Avg => all.sum::<f64>() / f64::from(ranks),
        ReduceOp::Product => all.product(),
        ReduceOp::Min => all.fold(f64::INFINITY, f64::min),
        ReduceOp::Max => all.fold(0.0, f64::max),
        ReduceOp::BitAnd => bits(|a, b| a & b),
        ReduceOp::BitOr => bits(|a, b| a | b),
        ReduceOp::BitXor => bits(|a, b| a ^ b),
    }
}

#[test]
fn every_all_reduce_equals_the_naive_one_whatever_the_network_does() {
    let sizes = [1, 2, 33, 700, 1501];
    let mut seed = 0;
    for dtype in DType::ALL {
        for op in ReduceOp::ALL
            .into_iter()
            .filter(|op| op.is_defined_for(dtype))
        {
            for ranks in 1..=5 {
                seed += 1;
                let elements = sizes[seed as usize % sizes.len()];
                let mut job = small_job();
                let algorithms = [Algorithm::Direct, Algorithm::Ring];
                job.collectives.algorithm = algorithms[seed as usize / 7 % 2];
                let algorithm = job.collectives.algorithm;
                let mut world = World::new(ranks, &job, rough(0.03), seed);
                let results = world.perform(|rank| {
                    let buffer = tensor(dtype, values(rank, elements));
                    Operation {
                        dtype,
                        op,
                        ..all_reduce(ranks, 0, buffer)
                    }
                });
                let naive = (0..elements).map(|index| reduced(op, ranks, index));
                let naive = tensor(dtype, naive);
                for (bytes, outcome) in results {
                    let case = format!("{op} of {elements} {dtype}, {ranks} ranks, {algorithm:?}");
                    assert!(bytes == naive, "seed {seed}: {case}");
                    assert_eq!(outcome.lost_segments + outcome.missed_segments, 0, "{case}");
                }
            }
        }
    }
}

#[test]
fn a_group_need_not_have_all_ranks_nor_have_them_in_order() {
    let mut world = World::new(4, &small_job(), rough(0.05), 3);
    for rank in [3, 0, 2] {
        let mut operation = all_reduce(4, 0, tensor(DType::F32, values(rank, 500)));
        operation.group.ranks = [Rank(3), Rank(0), Rank(2)].into();
        world.submit(rank, operation).expect("a valid operation");
    }
    world.run();
    let sums = (0..500).map(|index| [3, 0, 2].map(|rank| value(rank, index)).iter().sum());
    let sums = tensor(DType::F32, sums);
    for rank in [3, 0, 2] {
        assert_eq!(world.result(rank).0, sums);
    }
}

#[test]
fn a_broadcast_gives_everybody_the_roots_tensor() {
    let mut world = World::new(4, &small_job(), rough(0.05), 4);
    let results = world.perform(|rank| Operation {
        collective: Collective::Broadcast { root: Rank(2) },
        ..all_reduce(4, 0, tensor(DType::F32, values(rank, 999)))
    });
    for (bytes, _) in results {
        assert_eq!(bytes, tensor(DType::F32, values(2, 999)));
    }
}

#[test]
fn an_all_gather_lines_up_the_inputs_in_place_or_not() {
    let gathered: Vec<u8> = (0..3)
        .flat_map(|rank| tensor(DType::I16, values(rank, 77)))
        .collect();
    for in_place in [true, false] {
        let mut world = World::new(3, &small_job(), rough(0.05), 5);
        let results = world.perform(|rank| {
            let own = tensor(DType::I16, values(rank, 77));
            let mut buffer = vec![0; 3 * own.len()];
            if in_place {
                buffer[usize::from(rank) * own.len()..][..own.len()].copy_from_slice(&own);
            }
            Operation {
                collective: Collective::AllGather,
                dtype: DType::I16,
                input: (!in_place).then_some(Buffer::Owned(own)),
                ..all_reduce(3, 0, buffer)
            }
        });
        for (bytes, _) in results {
            assert_eq!(bytes, gathered);
        }
    }
}

#[test]
fn a_reduce_scatter_gives_each_rank_its_block_and_leaves_the_input_alone() {
    let (ranks, block) = (3, 777);
    let mut world = World::new(ranks, &small_job(), rough(0.05), 6);
    let input = |rank| tensor(DType::F64, values(rank, block * 3));
    world.submit_all(|rank| Operation {
        collective: Collective::ReduceScatter,
        dtype: DType::F64,
        op: ReduceOp::Avg,
        input: Some(Buffer::Owned(input(rank))),
        ..all_reduce(ranks, 0, vec![0; block * 8])
    });
    world.run();
    for rank in 0..ranks {
        let completion = world.completion(rank).expect("the operation has ended");
        assert!(completion.result.is_ok());
        let first = usize::from(rank) * block;
        let means = (first..first + block).map(|index| reduced(ReduceOp::Avg, ranks, index));
        assert_eq!(
            completion.buffer.bytes(),
            Some(&tensor(DType::F64, means)[..])
        );
        let untouched = completion.input.expect("it had an input");
        assert_eq!(untouched.bytes(), Some(&input(rank)[..]));
    }
}

#[test]
fn sends_in_both_directions_and_a_collective_may_have_the_same_number() {
    let mut world = World::new(2, &small_job(), rough(0.05), 7);
    let peer = |rank| Rank(1 - rank);
    let own = |rank| tensor(DType::F32, values(rank, 400));
    world.submit_all(|rank| Operation {
        collective: Collective::Receive { from: peer(rank) },
        ..all_reduce(2, 9, vec![0; 1600])
    });
    world.submit_all(|rank| all_reduce(2, 9, own(rank)));
    world.submit_all(|rank| Operation {
        collective: Collective::Send { to: peer(rank) },
        ..all_reduce(2, 9, own(rank))
    });
    world.run();
    let sums = tensor(
        DType::F32,
        (0..400).map(|index| value(0, index) + value(1, index)),
    );
    for rank in 0..2 {
        let mut results: Vec<_> = (0..3).map(|_| world.result(rank).0).collect();
        let mut expected = vec![own(0), own(1), sums.clone()];
        results.sort();
        expected.sort();
        assert!(results == expected, "rank {rank}");
    }
}

#[test]
fn nobody_passes_a_barrier_before_everybody_has_come() {
    for ranks in 2..=5 {
        let mut world = World::new(ranks, &small_job(), rough(0.1), 8);
        let barrier = || Operation {
            collective: Collective::Barrier,
            ..all_reduce(ranks, 0, Vec::new())
        };
        for rank in 0..ranks - 1 {
            world.submit(rank, barrier()).expect("a valid operation");
        }
        world.network.run_until(world.at(Span::from_millis(50)));
        assert!((0..ranks).all(|rank| world.completion(rank).is_none()));
        world
            .submit(ranks - 1, barrier())
            .expect("a valid operation");
        world.run();
        assert!((0..ranks).all(|rank| world.completion(rank).is_some()));
    }
}

#[test]
fn what_comes_before_an_operation_is_submitted_is_kept() {
    let mut world = World::new(3, &small_job(), rough(0.05), 9);
    for rank in 0..3 {
        for sequence in 0..3 {
            let buffer = tensor(DType::F32, values(rank, 600));
            world
                .submit(rank, all_reduce(3, sequence, buffer))
                .expect("a valid operation");
        }
        world.network.run_until(world.at(Span::from_millis(5)));
    }
    world.run();
    let sums = (0..600).map(|index| reduced(ReduceOp::Sum, 3, index));
    let sums = tensor(DType::F32, sums);
    for rank in 0..3 {
        for _ in 0..3 {
            assert_eq!(world.result(rank).0, sums);
        }
    }
}

#[test]
fn empty_tensors_and_groups_of_one_complete_at_once() {
    let mut world = World::new(2, &small_job(), rough(0.0), 10);
    world
        .submit(0, all_reduce(2, 0, Vec::new()))
        .expect("a valid operation");
    let mut alone = all_reduce(1, 1, tensor(DType::F32, values(0, 5)));
    alone.op = ReduceOp::Avg;
    world.submit(0, alone).expect("a valid operation");
    let scatter = Operation {
        collective: Collective::ReduceScatter,
        input: Some(Buffer::Owned(tensor(DType::F32, values(0, 5)))),
        ..all_reduce(1, 2, vec![0; 20])
    };
    world.submit(0, scatter).expect("a valid operation");
    assert_eq!(world.result(0).0, []);
    assert_eq!(world.result(0).0, tensor(DType::F32, values(0, 5)));
    assert_eq!(world.result(0).0, tensor(DType::F32, values(0, 5)));
}

#[test]
fn an_all_reduce_sends_its_bytes_twice_but_for_the_own_shard() {
    let (ranks, bytes) = (4_u16, 64_000_usize);
    for algorithm in [Algorithm::Direct, Algorithm::Ring] {
        let mut job = small_job();
        job.collectives.chunk = ByteCount::new(16_384);
        job.collectives.algorithm = algorithm;
        let mut world = World::new(ranks, &job, Profile::perfect(Span::from_micros(5)), 11);
        let results =
            world.perform(|rank| all_reduce(ranks, 0, tensor(DType::F32, values(rank, bytes / 4))));
        let messages = 2 * 3 * 4;
        let exact = (2 * bytes * 3 / 4).div_ceil(crate::world::SEGMENT) as u64;
        for (rank, (_, outcome)) in results.into_iter().enumerate() {
            let sent = world.network.hosts()[rank].counters().sender;
            assert_eq!(sent.sent_segments, outcome.sent_segments, "{algorithm:?}");
            assert_eq!(sent.repaired_segments, 0, "{algorithm:?}");
            let beyond = outcome.sent_segments - exact;
            assert!(
                beyond <= messages,
                "only a message's last segment may be short: {beyond}"
            );
        }
    }
}

#[test]
fn buffers_without_bytes_take_the_same_packets() {
    let sent = [false, true].map(|is_virtual| {
        let mut world = World::new(3, &small_job(), rough(0.02), 12);
        world.network.record();
        world.submit_all(|rank| {
            let mut operation = all_reduce(3, 0, tensor(DType::F32, values(rank, 3000)));
            if is_virtual {
                operation.buffer = Buffer::Virtual(12_000);
            }
            operation
        });
        world.run();
        world.network.trace().to_owned()
    });
    assert!(!sent[0].is_empty() && sent[0] == sent[1]);
}

/// Operation `sequence` of a mix, for one rank, and what it must give there.
fn mixed(seed: u64, ranks: u16, sequence: u32, rank: u16) -> (Operation, Vec<u8>) {
    let draw = (seed * 31 + u64::from(sequence) * 17) as usize;
    let elements = [1, 40, 301, 900][draw % 4];
    let own = |rank| tensor(DType::F32, values(rank, elements));
    let root = draw as u16 % ranks;
    let operation = all_reduce(ranks, sequence, own(rank));
    match draw % 5 {
        0 => {
            let collective = Collective::Broadcast { root: Rank(root) };
            (
                Operation {
                    collective,
                    ..operation
                },
                own(root),
            )
        }
        1 => {
            let gathered = (0..ranks).flat_map(own).collect();
            let buffer = Buffer::Owned(vec![0; elements * 4 * usize::from(ranks)]);
            let (collective, input) = (Collective::AllGather, Some(operation.buffer));
            (
                Operation {
                    collective,
                    buffer,
                    input,
                    ..operation
                },
                gathered,
            )
        }
        _ => {
            let sums = (0..elements).map(|index| reduced(ReduceOp::Sum, ranks, index));
            (operation, tensor(DType::F32, sums))
        }
    }
}

#[test]
fn operations_that_overlap_each_get_their_own_result() {
    for seed in 0..150 {
        let ranks = (seed % 4 + 2) as u16;
        let mut job = small_job();
        job.collectives.algorithm = [Algorithm::Direct, Algorithm::Ring][seed as usize / 4 % 2];
        let mut world = World::new(ranks, &job, rough(0.1), seed);
        for sequence in 0..6 {
            for rank in 0..ranks {
                let rank = (rank + sequence as u16) % ranks;
                let (operation, _) = mixed(seed, ranks, sequence, rank);
                world.submit(rank, operation).expect("a valid operation");
                let wait = Span::from_micros(seed * 7 % 40 * u64::from(rank));
                world.network.run_until(world.at(wait));
            }
        }
        world.run();
        for rank in 0..ranks {
            let mut expected: Vec<_> = (0..6).map(|at| mixed(seed, ranks, at, rank).1).collect();
            let mut results: Vec<_> = (0..6).map(|_| world.result(rank).0).collect();
            expected.sort();
            results.sort();
            assert!(results == expected, "seed {seed}, rank {rank}");
        }
    }
}

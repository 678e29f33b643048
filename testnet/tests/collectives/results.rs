//! The results of lossless operations.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, Completion, Layers, Operation};
use gradwire_protocol::job::ReduceAlgorithm;
use gradwire_protocol::units::{ByteCount, Layer, Rank, Span};
use gradwire_testnet::link::Profile;

use crate::world::{World, all_reduce, reduction, rough, small_job, tensor, value, values};

const REDUCTIONS: [ReduceAlgorithm; 3] = [
    ReduceAlgorithm::Direct,
    ReduceAlgorithm::Ring,
    ReduceAlgorithm::HalvingDoubling,
];

#[test]
fn every_all_reduce_equals_the_naive_one_whatever_the_network_does() {
    let sizes = [1, 2, 33, 700, 1501];
    let mut seed = 0;
    for dtype in DType::ALL {
        for op in ReduceOp::ALL
            .into_iter()
            .filter(|op| op.is_defined_for(dtype))
        {
            for ranks in 1..=7 {
                seed += 1;
                let elements = sizes[seed as usize % sizes.len()];
                let mut job = small_job();
                job.collectives.algorithm = REDUCTIONS[seed as usize / 7 % 3];
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
                let naive = reduction(dtype, op, ranks, elements);
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
fn a_chunk_that_changes_between_two_operations_changes_messages_and_no_result() {
    // Longer than a tensor that is sent whole in one step.
    const LONG: usize = 12_001;
    let chunks = [8000, 1600, 32_000, 8000, 800_000, 2400];
    for algorithm in REDUCTIONS {
        let mut job = small_job();
        job.collectives.algorithm = algorithm;
        let mut world = World::new(3, &job, rough(0.03), 11);
        // Every rank has submitted all its operations before the first one ends anywhere.
        for rank in 0..3 {
            for (sequence, chunk) in (0..).zip(chunks) {
                world.network.command(Rank(rank), |communicator, now| {
                    communicator.set_chunk(ByteCount::new(chunk));
                    communicator.set_credit(now, ByteCount::new(chunk / 2));
                });
                let buffer = tensor(DType::F32, values(rank, LONG));
                let mut operation = all_reduce(3, sequence, buffer);
                operation.layers = Layers {
                    count: 9,
                    spans: vec![(0, Layer(sequence as u16))],
                };
                world.submit(rank, operation).expect("a valid operation");
            }
        }
        world.run();
        let naive = reduction(DType::F32, ReduceOp::Sum, 3, LONG);
        for rank in 0..3 {
            let ends = std::iter::from_fn(|| world.completion(rank));
            let mut ends: Vec<Completion> = ends.collect();
            ends.sort_by_key(|end| end.id);
            let segments = ends.iter().map(|end| {
                assert!(end.buffer.bytes() == Some(&naive[..]), "{algorithm:?}");
                end.result.as_ref().expect("it succeeded").expected_segments
            });
            let segments: Vec<u64> = segments.collect();
            assert_eq!(segments[0], segments[3], "{algorithm:?}: {segments:?}");
            assert!(
                segments[1] > segments[0] && segments[0] > segments[4],
                "{algorithm:?}: {segments:?}"
            );
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
fn sends_in_both_directions_and_a_collective_may_have_the_same_number() {
    let mut world = World::new(2, &small_job(), rough(0.05), 7);
    let peer = |rank| Rank(1 - rank);
    let own = |rank| tensor(DType::F32, values(rank, 400));
    world.submit_all(|rank| Operation {
        collective: Collective::Receive {
            from: peer(rank),
            tag: 0,
        },
        ..all_reduce(2, 9, vec![0; 1600])
    });
    world.submit_all(|rank| all_reduce(2, 9, own(rank)));
    world.submit_all(|rank| Operation {
        collective: Collective::Send {
            to: peer(rank),
            tag: 0,
        },
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
    for (ranks, late) in (2..=9).flat_map(|ranks| (0..ranks).map(move |late| (ranks, late))) {
        let mut world = World::new(ranks, &small_job(), rough(0.1), 8);
        let barrier = || Operation {
            collective: Collective::Barrier,
            ..all_reduce(ranks, 0, Vec::new())
        };
        for rank in (0..ranks).filter(|&rank| rank != late) {
            world.submit(rank, barrier()).expect("a valid operation");
        }
        world.network.run_until(world.at(Span::from_millis(50)));
        for rank in 0..ranks {
            let passed = world.completion(rank).is_some();
            assert!(!passed, "rank {rank} of {ranks} without rank {late}");
        }
        world.submit(late, barrier()).expect("a valid operation");
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
    let sums = reduction(DType::F32, ReduceOp::Sum, 3, 600);
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
    assert!(world.result(0).0.is_empty());
    assert_eq!(world.result(0).0, tensor(DType::F32, values(0, 5)));
    assert_eq!(world.result(0).0, tensor(DType::F32, values(0, 5)));
}

#[test]
fn an_all_reduce_sends_its_bytes_twice_but_for_the_own_shard() {
    let (ranks, bytes) = (4_u16, 64_000_usize);
    for algorithm in REDUCTIONS {
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

/// Returns operation `sequence` of a mix for one rank, and its expected result there.
fn mixed(seed: u64, ranks: u16, sequence: u32, rank: u16) -> (Operation, Vec<u8>) {
    let draw = (seed * 31 + u64::from(sequence) * 17) as usize;
    let elements = [1, 40, 301, 900][draw % 4];
    let own = |rank| tensor(DType::F32, values(rank, elements));
    let root = draw as u16 % ranks;
    let operation = all_reduce(ranks, sequence, own(rank));
    match draw % 7 {
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
        2 => {
            let whole = |rank| tensor(DType::F32, values(rank, elements * usize::from(ranks)));
            let at = usize::from(rank) * elements * 4;
            let input = (rank == root).then(|| Buffer::Owned(whole(rank)));
            let collective = Collective::Scatter { root: Rank(root) };
            (
                Operation {
                    collective,
                    input,
                    ..operation
                },
                whole(root)[at..at + elements * 4].to_vec(),
            )
        }
        _ => {
            let sums = reduction(DType::F32, ReduceOp::Sum, ranks, elements);
            (operation, sums)
        }
    }
}

#[test]
fn operations_that_overlap_each_get_their_own_result() {
    for seed in 0..150 {
        let ranks = (seed % 4 + 2) as u16;
        let mut job = small_job();
        job.collectives.algorithm = REDUCTIONS[seed as usize / 4 % 3];
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

//! All-to-all with splits, and operations on empty tensors.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::DType;
use gradwire_collectives::operation::{Collective, Operation, Splits};
use gradwire_protocol::units::{Rank, Span};

use crate::world::{World, all_reduce, rough, small_job};

/// Bytes from each rank (row) to each (column).
type Matrix = Vec<Vec<usize>>;

/// Returns the bytes that a rank sends to another.
fn block(from: u16, to: u16, bytes: usize) -> Vec<u8> {
    let first = usize::from(from) * 17 + usize::from(to) * 5;
    (first..first + bytes).map(|value| value as u8).collect()
}

fn exchange(matrix: &Matrix, rank: u16) -> Operation {
    let ranks = matrix.len() as u16;
    let input: Arc<[usize]> = matrix[usize::from(rank)].as_slice().into();
    let output: Arc<[usize]> = matrix.iter().map(|row| row[usize::from(rank)]).collect();
    let blocks = (0..).zip(input.iter());
    let blocks = blocks.flat_map(|(to, &bytes)| block(rank, to, bytes));
    Operation {
        collective: Collective::AllToAll,
        dtype: DType::U8,
        input: Some(Buffer::Owned(blocks.collect())),
        splits: Some(Splits {
            input: Arc::clone(&input),
            output: Arc::clone(&output),
        }),
        ..all_reduce(ranks, 0, vec![0; output.iter().sum()])
    }
}

fn expected(matrix: &Matrix, rank: u16) -> Vec<u8> {
    let rows = (0..).zip(matrix);
    rows.flat_map(|(from, row)| block(from, rank, row[usize::from(rank)]))
        .collect()
}

#[test]
fn every_rank_gets_what_the_others_split_off_for_it() {
    for seed in 0..if crate::is_slow() { 600 } else { 60 } {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let ranks = rng.random_range(1..=6);
        let silent = rng.random_range(0..2 * ranks);
        let matrix: Matrix = (0..ranks)
            .map(|from| {
                let mut split = |to| match rng.random_range(0..4) {
                    _ if from == silent || to == silent => 0,
                    0 => 0,
                    1 => rng.random_range(1..10),
                    _ => rng.random_range(1..3000),
                };
                (0..ranks).map(&mut split).collect()
            })
            .collect();
        let mut world = World::new(ranks, &small_job(), rough(0.05), seed);
        let results = world.perform(|rank| exchange(&matrix, rank));
        for (rank, (bytes, _)) in (0..).zip(results) {
            assert!(bytes == expected(&matrix, rank), "seed {seed}, rank {rank}");
        }
    }
}

#[test]
fn equal_splits_go_together_with_none() {
    for bytes in [0, 333] {
        equal_splits_and_none(&vec![vec![bytes; 4]; 4]);
    }
}

fn equal_splits_and_none(matrix: &Matrix) {
    let mut world = World::new(4, &small_job(), rough(0.05), 1);
    let results = world.perform(|rank| {
        let mut operation = exchange(matrix, rank);
        operation.splits = operation.splits.filter(|_| rank % 2 == 0);
        operation
    });
    for (rank, (bytes, _)) in (0..).zip(results) {
        assert!(bytes == expected(matrix, rank), "rank {rank}");
    }
}

#[test]
fn ranks_that_disagree_about_a_split_are_named_with_both_lengths() {
    for (sent, wanted) in [(0, 64), (64, 0), (64, 128), (200, 64)] {
        let (mut there, mut here) = (vec![vec![32; 3]; 3], vec![vec![32; 3]; 3]);
        (there[2][1], here[2][1]) = (sent, wanted);
        let mut world = World::new(3, &small_job(), rough(0.0), 2);
        world.submit_all(|rank| exchange(if rank == 2 { &there } else { &here }, rank));
        let until = world.at(Span::from_millis(500));
        world.network.run_until(until);
        let error = world.completion(1).expect("it has failed").result;
        let error = error.expect_err("they disagree").to_string();
        let told = format!(
            "(rank 2 sent {sent} bytes to rank 1, which expects {wanted}): what is split off for a \
             rank must be as long as what that rank expects"
        );
        assert!(error.ends_with(&told), "{error}");
    }
}

#[test]
fn splits_that_contradict_themselves_are_refused() {
    let cut = |input: &[usize], output: &[usize]| Operation {
        collective: Collective::AllToAll,
        input: Some(Buffer::Owned(vec![0; 24])),
        splits: Some(Splits {
            input: input.into(),
            output: output.into(),
        }),
        ..all_reduce(3, 0, vec![0; 24])
    };
    let even = &[8, 8, 8];
    let cases = [
        (cut(&[12, 12], even), "2 input splits and 3 output splits"),
        (
            cut(even, &[8, 8, 12]),
            "output splits of 28 bytes for 24 bytes",
        ),
        (
            cut(&[usize::MAX, 8, 8], even),
            "input splits of 18446744073709551615 bytes",
        ),
        (
            cut(&[12, 4, 8], even),
            "rank 0 splits off 12 bytes for itself and expects 8",
        ),
        (
            cut(&[8, 6, 10], even),
            "6 bytes are not a multiple of the 4 bytes of a f32",
        ),
        (
            Operation {
                collective: Collective::AllReduce,
                input: None,
                ..cut(even, even)
            },
            "only all_to_all has splits",
        ),
    ];
    for (operation, reason) in cases {
        let mut world = World::new(3, &small_job(), rough(0.0), 3);
        let refused = world
            .submit(0, operation)
            .expect_err("it contradicts itself");
        assert!(refused.to_string().contains(reason), "{refused}");
    }
}

/// Every collective of no bytes, and whether this rank has an input.
fn collectives(rank: u16) -> [(Collective, bool); 8] {
    let root = Rank(0);
    [
        (Collective::AllReduce, false),
        (Collective::Broadcast { root }, false),
        (Collective::AllGather, true),
        (Collective::AllGather, false),
        (Collective::ReduceScatter, true),
        (Collective::Reduce { root }, false),
        (Collective::Gather { root }, rank == 0),
        (Collective::Scatter { root }, rank == 0),
    ]
}

#[test]
fn a_collective_of_nothing_is_complete_at_once_on_every_rank() {
    for ranks in 1..=4 {
        let mut world = World::new(ranks, &small_job(), rough(0.0), 4);
        for rank in 0..ranks {
            for ((collective, has_input), sequence) in collectives(rank).into_iter().zip(0..) {
                let operation = Operation {
                    collective,
                    input: has_input.then(|| Buffer::Owned(Vec::new())),
                    ..all_reduce(ranks, sequence, Vec::new())
                };
                world.submit(rank, operation).expect("a valid operation");
                assert!(world.result(rank).0.is_empty(), "{collective}");
            }
        }
    }
}

#[test]
fn every_operation_of_a_group_of_one_is_complete_at_once() {
    let mut world = World::new(1, &small_job(), rough(0.0), 5);
    let own: Vec<u8> = (0..40).collect();
    let others = [(Collective::Barrier, false), (Collective::AllToAll, true)];
    for (collective, has_input) in collectives(0).into_iter().chain(others) {
        let splits = has_input && collective == Collective::AllToAll;
        for splits in [None, splits.then_some([40])] {
            let operation = Operation {
                collective,
                input: has_input.then(|| Buffer::Owned(own.clone())),
                splits: splits.map(|own| Splits {
                    input: own.into(),
                    output: own.into(),
                }),
                ..all_reduce(1, 0, if has_input { vec![0; 40] } else { own.clone() })
            };
            world.submit(0, operation).expect("a valid operation");
            assert_eq!(world.result(0).0, own, "{collective}");
        }
    }
}

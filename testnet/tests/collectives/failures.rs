//! Operations that are refused or fail.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, Operation, OperationError};
use gradwire_protocol::units::{ByteCount, Layer, Rank, Span};
use gradwire_testnet::link::Profile;

use crate::world::{World, all_reduce, rough, small_job};

/// The error of a rank's next completion, as it is printed.
fn error(world: &mut World, rank: u16) -> String {
    let completion = world.completion(rank).expect("the operation has ended");
    completion
        .result
        .expect_err("the operation failed")
        .to_string()
}

/// Every operation is refused on rank 0 with an error that contains its message.
fn assert_refused(refusals: impl IntoIterator<Item = (Operation, &'static str)>) {
    let mut world = World::new(2, &small_job(), rough(0.0), 1);
    for (operation, message) in refusals {
        let refusal = world.submit(0, operation).expect_err("a contradiction");
        let refusal = refusal.to_string();
        assert!(
            refusal.contains(message),
            "{refusal:?} does not say {message:?}"
        );
    }
}

fn doing(collective: Collective) -> Operation {
    Operation {
        collective,
        ..all_reduce(2, 4, vec![0; 8])
    }
}

#[test]
fn a_group_that_does_not_fit_the_operation_is_refused() {
    let with_ranks = |ranks: &[u16]| {
        let mut operation = doing(Collective::AllReduce);
        operation.group.ranks = ranks.iter().copied().map(Rank).collect();
        operation
    };
    let root = Collective::Broadcast { root: Rank(5) };
    assert_refused([
        (
            with_ranks(&[1]),
            "rank 0 is not in group 0, whose ranks are [1]",
        ),
        (
            with_ranks(&[0, 1, 1]),
            "rank 1 is in group 0 more than once",
        ),
        (doing(root), "rank 5 is not in group 0"),
        (
            doing(Collective::Send {
                to: Rank(0),
                tag: 0,
            }),
            "need another rank",
        ),
    ]);
}

#[test]
fn buffers_that_do_not_fit_the_operation_are_refused() {
    let input = || Some(Buffer::Owned(vec![0; 8]));
    let layered = |spans: &[usize]| {
        let mut operation = doing(Collective::AllReduce);
        operation.layers.spans = spans.iter().map(|&start| (start, Layer(0))).collect();
        operation
    };
    assert_refused([
        (
            all_reduce(2, 4, vec![0; 7]),
            "7 bytes are not a multiple of the 4 bytes of a f32",
        ),
        (
            doing(Collective::ReduceScatter),
            "an input of 0 bytes and a buffer of 8 bytes; the input is as long as the buffers",
        ),
        (
            Operation {
                input: input(),
                ..doing(Collective::AllGather)
            },
            "the buffer is as long as the inputs of all ranks",
        ),
        (
            Operation {
                input: input(),
                ..doing(Collective::AllReduce)
            },
            "only all_gather, reduce_scatter, all_to_all, gather and scatter have an input",
        ),
        (
            layered(&[4, 0]),
            "start at bytes 4 and then 0; they must ascend",
        ),
    ]);
}

#[test]
fn inputs_that_do_not_fit_a_rank_of_a_gather_or_scatter_are_refused() {
    let with_input = |collective, bytes| Operation {
        input: Some(Buffer::Owned(vec![0; bytes])),
        ..doing(collective)
    };
    let (ours, theirs) = (Rank(0), Rank(1));
    let gather = "the root's buffer is as long as one block per rank, its input, if any, as one";
    let scatter = "the root's input is as long as the buffers of all ranks";
    let others = "of the ranks of a gather or scatter, only the root has an input";
    let exchange = "input and buffer are equally long, one block per rank";
    assert_refused([
        (with_input(Collective::Gather { root: ours }, 8), gather),
        (with_input(Collective::Gather { root: theirs }, 8), others),
        (with_input(Collective::Scatter { root: ours }, 8), scatter),
        (doing(Collective::Scatter { root: ours }), scatter),
        (with_input(Collective::Scatter { root: theirs }, 16), others),
        (with_input(Collective::AllToAll, 16), exchange),
        (doing(Collective::AllToAll), exchange),
        (
            Operation {
                dtype: DType::F64,
                ..doing(Collective::Gather { root: ours })
            },
            "gather of 1 f64 to rank 0, group 0, sequence 4: 4 bytes are not a multiple of the 8",
        ),
        (
            doing(Collective::Reduce { root: Rank(3) }),
            "rank 3 is not in group 0",
        ),
    ]);
}

#[test]
fn reductions_that_a_type_does_not_have_are_refused() {
    let reduced = |op, dtype| Operation {
        op,
        dtype,
        ..doing(Collective::AllReduce)
    };
    assert_refused([
        (
            reduced(ReduceOp::BitOr, DType::F32),
            "bor is not defined for f32",
        ),
        (
            reduced(ReduceOp::Avg, DType::I32),
            "for integers take sum, and divide the result by the number of ranks",
        ),
        (
            Operation {
                collective: Collective::Reduce { root: Rank(1) },
                ..reduced(ReduceOp::BitXor, DType::F16)
            },
            "bxor is not defined for f16",
        ),
    ]);
}

#[test]
fn a_number_that_is_on_its_way_is_refused() {
    let mut world = World::new(2, &small_job(), rough(0.0), 2);
    world
        .submit(0, all_reduce(2, 4, vec![0; 8]))
        .expect("a valid operation");
    let refusal = world
        .submit(0, all_reduce(2, 4, vec![0; 8]))
        .expect_err("in use");
    assert!(
        refusal
            .to_string()
            .starts_with("all_reduce(sum) of 2 f32, group 0, sequence 4 is in progress")
    );
}

#[test]
fn a_lost_rank_fails_what_needs_it_and_nothing_else() {
    let mut world = World::new(3, &small_job(), rough(0.0), 3);
    for rank in [0, 2] {
        world
            .submit(rank, all_reduce(3, 0, vec![0; 4000]))
            .expect("a valid operation");
        let mut pair = all_reduce(3, 0, vec![0; 4000]);
        pair.group.id = 1;
        pair.group.ranks = [Rank(0), Rank(2)].into();
        world.submit(rank, pair).expect("a valid operation");
    }
    for rank in [0, 2] {
        world.network.command(Rank(rank), |communicator, _| {
            communicator.fail_peer(Rank(1), "its control connection closed");
        });
    }
    world.run();
    for rank in [0, 2] {
        let failure = "rank 1 was lost (its control connection closed) during \
                       all_reduce(sum) of 1000 f32, group 0, sequence 0";
        assert_eq!(error(&mut world, rank), failure);
        assert_eq!(world.result(rank).0.len(), 4000);
        let refusal = world
            .submit(rank, all_reduce(3, 1, vec![0; 8]))
            .expect_err("rank 1 is gone");
        assert!(refusal.to_string().contains("rank 1 was lost"));
    }
}

#[test]
fn a_rank_that_answers_nothing_is_lost() {
    let mut job = small_job();
    job.transport.peer_timeout = Span::from_millis(8_000);
    let mut world = World::new(2, &job, Profile::perfect(Span::from_micros(10)), 4);
    world.network.set_link(Rank(1), Rank(0), rough(1.0));
    world.submit_all(|_| all_reduce(2, 0, vec![0; 4000]));
    let until = world.at(Span::from_millis(10_000));
    world.network.run_until(until);
    let failure = error(&mut world, 0);
    assert!(
        failure.starts_with("rank 1 was lost (it did not answer for 8"),
        "{failure}"
    );
}

#[test]
fn a_rank_that_fails_an_operation_keeps_its_word_to_the_others() {
    let mut job = small_job();
    job.transport.initial_window = ByteCount::kib(64);
    let mut world = World::new(3, &job, Profile::perfect(Span::from_micros(500)), 5);
    let broadcast = || Operation {
        collective: Collective::Broadcast { root: Rank(0) },
        ..all_reduce(3, 0, vec![7; 200_000])
    };
    for rank in [0, 2] {
        world.submit(rank, broadcast()).expect("a valid operation");
    }
    world.network.command(Rank(0), |communicator, _| {
        communicator.fail_peer(Rank(1), "gone");
    });
    assert!(error(&mut world, 0).contains("rank 1 was lost"));
    world.run();
    assert_eq!(world.result(2).0, vec![7; 200_000]);
}

#[test]
fn a_missed_deadline_names_who_is_waited_for_and_aborts_everything() {
    let mut world = World::new(3, &small_job(), rough(0.0), 6);
    for rank in [0, 1] {
        let deadline = Some(world.at(Span::from_millis(100)));
        let operation = Operation {
            deadline,
            ..all_reduce(3, 0, vec![0; 1200])
        };
        world.submit(rank, operation).expect("a valid operation");
        world
            .submit(rank, all_reduce(3, 1, vec![0; 1200]))
            .expect("a valid operation");
    }
    world.run();
    let late = "all_reduce(sum) of 300 f32, group 0, sequence 0: Timed out after 100ms of 100ms \
                waiting for ranks [2], 1200 of 2400 bytes were received";
    assert_eq!(error(&mut world, 0), late);
    let next = "sequence 1 was aborted: all_reduce(sum) of 300 f32, group 0, sequence 0: Timed out";
    assert!(error(&mut world, 0).contains(next));
    let refusal = world
        .submit(0, all_reduce(3, 2, vec![0; 8]))
        .expect_err("aborted");
    assert!(
        refusal
            .to_string()
            .starts_with("the communicator was aborted (all_reduce")
    );
}

#[test]
fn tensors_of_different_lengths_are_named_with_both() {
    let mut job = small_job();
    job.collectives.chunk = ByteCount::kib(64);
    let mut world = World::new(2, &job, rough(0.0), 7);
    for rank in 0..2 {
        let deadline = Some(world.at(Span::from_millis(1000)));
        let bytes = 800 + 80 * usize::from(rank);
        let operation = Operation {
            deadline,
            ..all_reduce(2, 0, vec![0; bytes])
        };
        world.submit(rank, operation).expect("a valid operation");
    }
    world.run();
    let failures = [0, 1].map(|rank| error(&mut world, rank));
    let mismatch = |failure: &String| failure.contains("with the same shape and type");
    assert!(failures.iter().any(mismatch), "{failures:?}");
    assert!(
        failures[0].contains("880") && failures[0].contains("800"),
        "{failures:?}"
    );
}

#[test]
fn an_abort_fails_everything_and_gives_the_buffers_back() {
    let mut world = World::new(2, &small_job(), rough(0.0), 8);
    world
        .submit(0, all_reduce(2, 0, vec![3; 8]))
        .expect("a valid operation");
    world.network.command(Rank(0), |communicator, _| {
        communicator.abort("the user gave up");
    });
    let completion = world.completion(0).expect("the operation has ended");
    assert_eq!(completion.buffer.len(), 8);
    assert!(matches!(
        completion.result,
        Err(OperationError::Aborted { .. })
    ));
}
